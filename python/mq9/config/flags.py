"""nats-server's flags, and mq9's own: what they are called and how they override a file.

Go reads `-port 1`, `--port 1` and `--port=1` alike, so every flag has both spellings; the help
shows one.
"""

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from mq9 import __version__
from mq9.config.errors import ConfigError, quoted
from mq9.config.options import Authorization, Options, Tls

_Group = argparse._ArgumentGroup | argparse.ArgumentParser

_TRUE = {"1", "t", "true"}
_FALSE = {"0", "f", "false"}
_PATHS = ("log_file", "pid_file", "ports_file_dir", "data_dir")
_TLS_FILES = ("cert_file", "key_file", "ca_file")
_PREFIX = "flag_"
"""Of the names in a namespace, so that a command may have arguments of its own."""

_IGNORED: dict[str, tuple[str, ...]] = {
    "monitoring is plain HTTP: use -m": ("-ms", "--https_port"),
    "mq9 writes its log to the standard error output or to --log": (
        *("-s", "--syslog=", "-r", "--remote_syslog"),
        *("--log_size_limit", "--max_traced_msg_len"),
    ),
    "an mq9 server stands alone": (
        *("--routes", "--cluster", "--cluster_name", "--no_advertise="),
        *("--cluster_advertise", "--connect_retries", "--cluster_listen"),
    ),
    "mq9 has no profiling port": ("--profile",),
}
"""Flags of nats-server that do not apply, under the reason; `=` marks those without a value."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Give a command the flags of the server; `from_namespace` reads what was parsed."""
    parser.allow_abbrev = False
    parser.formatter_class = _Help
    parser.usage = "%(prog)s [-c FILE] [flags]"
    parser.epilog = "example:\n  mq9 serve -p 4222 -sd /var/lib/mq9\n"
    server = parser.add_argument_group("server")
    _text(
        server, "host", "HOST", "address to listen on (default: 0.0.0.0)", "-a", "--addr", "--net"
    )
    _port(server, "port", "port for clients, -1 for any free one (default: 4222)", "-p", "--port")
    _port(server, "http_port", "port for monitoring, -1 for any free one", "-m", "--http_port")
    _text(server, "config", "FILE", "configuration file, in NATS's syntax", "-c", "--config")
    _switch(server, "test_only", "test the configuration file and exit", "-t")
    _add(
        server,
        ("-v", "--version"),
        action="version",
        version=f"mq9: v{__version__}",
        help="print the version and exit",
    )
    _text(
        server,
        "server_name",
        "NAME",
        "name of the server (default: made up at start)",
        *("-n", "--name", "--server_name"),
    )
    _text(server, "client_advertise", "HOST:PORT", "address to tell clients", "--client_advertise")
    _text(server, "pid_file", "FILE", "file to write the process id to", "-P", "--pid")
    _text(
        server,
        "ports_file_dir",
        "DIR",
        "folder for a file that names the ports in use",
        "--ports_file_dir",
    )

    store = parser.add_argument_group("store")
    _text(
        store,
        "data_dir",
        "DIR",
        "folder for mailboxes and streams (default: ./mq9-data)",
        *("--data", "-sd", "--store_dir"),
    )
    _switch(store, "jetstream", "serve clients of NATS JetStream", "-js", "--jetstream")
    _add(
        store,
        ("--sync",),
        dest=_PREFIX + "sync",
        choices=("always", "interval", "none"),
        help="when a message counts as stored: after it is on the disk (always, the default), "
        "within an interval of that, or once the system has it (none)",
    )

    log = parser.add_argument_group("log")
    _text(log, "log_file", "FILE", "write the log to a file", "-l", "--log")
    _switch(log, "logtime", "write the time with every entry (default: true)", "-T", "--logtime")
    _switch(log, "logtime_utc", "write the time in UTC", "--logtime_utc")
    _switch(log, "debug", "log what helps to find errors", "-D", "--debug")
    _switch(log, "trace", "log the protocol of every client", "-V", "--trace", "-VV")
    _switch(log, "debug_and_trace", "both of them", "-DV", "-DVV")

    access = parser.add_argument_group("who may connect")
    _text(access, "user", "USER", "user that clients must give", "--user")
    _text(access, "password", "PASSWORD", "password that clients must give", "--pass")
    _text(access, "token", "TOKEN", "token that clients must give", "--auth")

    tls = parser.add_argument_group("TLS")
    _switch(tls, "tls", "use TLS, with --tlscert and --tlskey", "--tls")
    _text(tls, "cert_file", "FILE", "certificate of the server", "--tlscert")
    _text(tls, "key_file", "FILE", "private key of the certificate", "--tlskey")
    _switch(tls, "verify", "use TLS; clients must show a certificate", "--tlsverify")
    _text(tls, "ca_file", "FILE", "authorities for the certificates of clients", "--tlscacert")

    _add_not_supported(parser)


def from_arguments(argv: Sequence[str], environment: Mapping[str, str] | None = None) -> Options:
    """Options from flags, over those of the file that `-c` names, over the defaults."""
    # With its own formatter from the beginning: the default one looks for a terminal.
    parser = _Parser(prog="mq9 serve", formatter_class=_Help)
    add_flags(parser)
    return from_namespace(parser.parse_args(argv), environment)


def from_namespace(
    namespace: argparse.Namespace, environment: Mapping[str, str] | None = None
) -> Options:
    """Options from what a parser with the flags of `add_flags` has parsed."""
    flags = {
        name.removeprefix(_PREFIX): value
        for name, value in sorted(vars(namespace).items())
        if name.startswith(_PREFIX) and value is not None
    }
    return from_flags(flags, os.environ if environment is None else environment)


def from_flags(flags: Mapping[str, str | int | bool], environment: Mapping[str, str]) -> Options:
    """Options from flags by name; `reload` comes here with those of the start."""
    # As in a file, port 0 stands for the default.
    given = {k: v for k, v in flags.items() if v != 0 or k not in {"port", "http_port"}}
    config = given.pop("config", None)
    if given.get("test_only") and config is None:
        raise ConfigError("-t tests a configuration file: name one with -c")
    base = Options() if config is None else _loaded(Path(str(config)), environment)
    ignored = [name for name in given if name.startswith("ignored ")]
    warnings = [str(given.pop(name)) for name in ignored]
    if given.pop("debug_and_trace", False):
        given["debug"] = given["trace"] = True
    changed = replace(
        base,
        authorization=_authorization(given, base.authorization),
        tls=_tls(given, base.tls),
        flags=tuple(sorted(flags.items())),
        warnings=(*base.warnings, *warnings),
    )
    _check(given)
    options = replace(changed, **_with_paths(given, _PATHS))
    hosts = {options.host, options.http_host or options.host}
    if options.http_port == options.port > 0 and (len(hosts) == 1 or hosts & {"0.0.0.0", "::"}):
        raise ConfigError(f"port {options.port} cannot be for clients and for monitoring")
    return options


def _loaded(file: Path, environment: Mapping[str, str]) -> Options:
    # Imported here, as below: a server that is started with little starts with little.
    from mq9.config.file import load

    return load(file, environment)


def _with_paths(given: Mapping[str, object], names: Sequence[str]) -> dict[str, Any]:
    return {k: Path(str(v)) if k in names else v for k, v in given.items()}


def _check(given: Mapping[str, str | int | bool]) -> None:
    for name in ("host", "server_name", *_PATHS):
        if given.get(name) == "":
            raise ConfigError(f"the flag for {name} needs a value that is not empty")
    if " " in str(given.get("server_name", "")):
        raise ConfigError("--server_name: the name of a server cannot hold spaces")
    if "client_advertise" in given:
        from mq9.config.file import check_advertise

        if wrong := check_advertise(str(given["client_advertise"])):
            raise ConfigError(f"--client_advertise: {wrong}")


def _authorization(given: dict[str, str | int | bool], base: Authorization) -> Authorization:
    user, password = given.pop("user", None), given.pop("password", None)
    token = given.pop("token", None)
    if user is None and password is None and token is None:
        return base
    if "" in (user, password, token):
        raise ConfigError("--user, --pass and --auth must not be empty: everybody could connect")
    if base.users:
        raise ConfigError(
            "--user, --pass and --auth contradict the list of users of the configuration file: "
            "add the user there"
        )
    if token is not None:
        if user is not None or password is not None:
            raise ConfigError("--auth contradicts --user and --pass: give one of the two")
        return replace(base, token=str(token), user=None, password=None)
    user, password = user or base.user, password or base.password
    if user is None or password is None:
        missing = "--user" if user is None else "--pass"
        raise ConfigError(f"{missing} is missing: --user and --pass go together")
    return replace(base, user=str(user), password=str(password), token=None)


def _tls(given: dict[str, str | int | bool], base: Tls | None) -> Tls | None:
    wanted = given.pop("tls", False)
    changes: dict[str, object] = {
        name: given.pop(name) for name in (*_TLS_FILES, "verify") if name in given
    }
    if not changes and not wanted:
        return base
    fields: dict[str, object] = {**(vars(base) if base else {}), **changes}
    for name, flag in (("cert_file", "--tlscert"), ("key_file", "--tlskey")):
        if not fields.get(name):
            raise ConfigError(f"{flag} is missing: TLS needs a certificate and its key")
    tls = Tls(**_with_paths(fields, [name for name in _TLS_FILES if fields.get(name)]))
    from mq9.config.tls import check_files

    check_files(tls)
    return tls


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message} (see {self.prog} --help)")


def _add(group: _Group, names: Sequence[str], **options: object) -> None:
    group.add_argument(*names, **options)  # type: ignore[arg-type]
    other = [f"-{name}" if not name.startswith("--") else name[1:] for name in names]
    group.add_argument(*other, **{**options, "help": argparse.SUPPRESS})  # type: ignore[arg-type]


def _text(group: _Group, option: str, metavar: str, text: str, *names: str) -> None:
    _add(group, names, dest=_PREFIX + option, metavar=metavar, help=text)


def _port(group: _Group, option: str, text: str, *names: str) -> None:
    _add(group, names, dest=_PREFIX + option, metavar="PORT", type=_port_number, help=text)


def _switch(group: _Group, option: str, text: str, *names: str) -> None:
    _add(group, names, dest=_PREFIX + option, action=_Switch, help=text)


def _port_number(written: str) -> int:
    try:
        number = int(written)
    except ValueError:
        number = -2
    if not -1 <= number <= 65_535:
        raise argparse.ArgumentTypeError(
            f"expected a port from 1 to 65535 (-1: any free one), found {quoted(written)}"
        )
    return number


class _Help(argparse.HelpFormatter):
    """Names a value once, behind all spellings of its flag."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=34, width=100)

    def _fill_text(self, text: str, width: int, indent: str) -> str:  # noqa: ARG002
        return "".join(f"{indent}{line}" for line in text.splitlines(keepends=True))

    def _format_action_invocation(self, action: argparse.Action) -> str:
        names = ", ".join(action.option_strings)
        if isinstance(action, _Switch) or action.nargs == 0:
            return names
        return f"{names} {action.metavar or '|'.join(action.choices or ())}"


class _Switch(argparse.Action):
    """`-D`, or as Go has it `-D=false`; never takes the next argument."""

    def __init__(self, **options: object) -> None:
        super().__init__(nargs="?", **options)  # type: ignore[arg-type]

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        written = "true" if values is None else str(values).lower()
        if written not in _TRUE | _FALSE:
            parser.error(f"{option_string}={values}: expected true or false")
        setattr(namespace, self.dest, written in _TRUE)


class _NotSupported(argparse.Action):
    """A flag of nats-server that does not apply: a warning says why."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        _values: object,
        option_string: str | None = None,
    ) -> None:
        if self.const is None:
            parser.error(
                f"{option_string} is not supported: send the signal with kill "
                "(HUP: reload, TERM: stop, USR2: lame duck)"
            )
        flag = f"{_PREFIX}ignored {option_string}"
        setattr(namespace, flag, f"{option_string} is ignored: {self.const}")


def _add_not_supported(parser: argparse.ArgumentParser) -> None:
    for why, names in _IGNORED.items():
        for name in names:
            # No value after a switch; `-s` is one too.
            switch = name.endswith("=") or name == "-s"
            _add(
                parser,
                (name.rstrip("="),),
                dest="not_supported",
                action=_NotSupported,
                nargs=0 if switch else None,
                const=why,
                default=argparse.SUPPRESS,
                help=argparse.SUPPRESS,
            )
    _add(
        parser,
        ("-sl", "--signal"),
        dest="not_supported",
        action=_NotSupported,
        default=argparse.SUPPRESS,
        help=argparse.SUPPRESS,
    )
