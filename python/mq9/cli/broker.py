"""Commands that talk to a broker: the options all of them have, and how their failures end.

Knows which exception is which exit code. What is asked is the command's.
"""

import argparse
import asyncio
import logging
import os
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mq9.cli.exits import REFUSED, TIMEOUT, UNREACHABLE, USAGE, Failure

if TYPE_CHECKING:
    from mq9.client import Client
    from mq9.client.connecting import Options

DEFAULT_URL = "nats://127.0.0.1:4222"

Action = Callable[["Client", argparse.Namespace], Awaitable[int]]

# Name, placeholder, help; where an option has a short form or more to it, below.
_OPTIONS: tuple[tuple[tuple[str, ...], dict[str, Any]], ...] = (
    (
        ("-s", "--server"),
        {
            "metavar": "URL",
            "help": f"where it is (default: $MQ9_URL, or {DEFAULT_URL}); several with commas",
        },
    ),
    (("--user",), {"metavar": "NAME", "help": "user (default: $MQ9_USER)"}),
    (("--password",), {"metavar": "TEXT", "help": "password (default: $MQ9_PASSWORD)"}),
    (("--token",), {"metavar": "TEXT", "help": "token of a user (default: $MQ9_TOKEN)"}),
    (
        ("--nkey",),
        {"metavar": "FILE", "help": "file with the seed of an nkey (default: $MQ9_NKEY)"},
    ),
    (
        ("--tls-ca",),
        {
            "metavar": "FILE",
            "help": "authorities to trust besides the system's, with tls:// URLs",
        },
    ),
    (("--tls-cert",), {"metavar": "FILE", "help": "certificate to show to the broker"}),
    (("--tls-key",), {"metavar": "FILE", "help": "private key of that certificate"}),
    (
        ("--inbox-prefix",),
        {
            "metavar": "SUBJECT",
            "help": "where replies come in, for users who may not subscribe to _INBOX.>",
        },
    ),
    (
        ("--timeout",),
        {"metavar": "SECONDS", "help": "how long to wait for the broker (default: 5)"},
    ),
)
_DEFAULTS: dict[str, Any] = {
    **dict.fromkeys(("server", "user", "password", "token", "nkey")),
    **dict.fromkeys(("tls_ca", "tls_cert", "tls_key")),
    "inbox_prefix": "_INBOX",
    "timeout": 5.0,
    "json": False,
}

_WHERE = "Where the broker is and who you are (-s, --user, ...) can stand before or behind the \
command: `mq9 --help`."


def add_options(root: argparse.ArgumentParser) -> None:
    """The options of every command that talks to a broker, where their help is shown."""
    group = root.add_argument_group("broker, before or behind the command")
    for names, settings in _OPTIONS:
        group.add_argument(*names, **_typed(names, settings), default=argparse.SUPPRESS)
    group.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print JSON")


def add_command(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]",
    path: str,
    run_it: "Action | Callable[[argparse.Namespace], int]",
    *,
    help: str,  # noqa: A002
    example: str,
    aliases: tuple[str, ...] = (),
    connects: bool = True,
) -> argparse.ArgumentParser:
    """A command that talks to a broker; `connects` is False where it calls `run` itself."""
    parser = _add(commands, path, help, f"{examples(example)}\n\n{_WHERE}", aliases)
    for names, settings in _OPTIONS:
        hidden = _typed(names, settings) | {"help": argparse.SUPPRESS}
        parser.add_argument(*names, **hidden, default=argparse.SUPPRESS)
    chosen = (lambda given: run(run_it, given)) if connects else run_it  # type: ignore[arg-type]
    parser.set_defaults(run=chosen)
    return parser


def add_local_command(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]",
    path: str,
    run_it: Callable[[argparse.Namespace], int],
    *,
    help: str,  # noqa: A002
    example: str,
) -> argparse.ArgumentParser:
    """A command that needs no broker."""
    parser = _add(commands, path, help, examples(example))
    parser.set_defaults(run=run_it)
    return parser


def _add(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]",
    path: str,
    help: str,  # noqa: A002
    epilog: str,
    aliases: tuple[str, ...] = (),
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        path.split()[-1],
        aliases=list(aliases),
        help=help,
        description=f"{help[0].upper()}{help[1:]}.",
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print JSON")
    parser.set_defaults(path=path, parser=parser)
    return parser


def add_family(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]",
    name: str,
    *,
    help: str,  # noqa: A002
    example: str,
) -> "argparse._SubParsersAction[argparse.ArgumentParser]":
    """A word that other commands stand behind."""
    family = commands.add_parser(
        name,
        help=help,
        description=f"{help[0].upper()}{help[1:]}.",
        epilog=f"{examples(example)}\n\n`mq9 {name} COMMAND --help` has the options of each.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    family.set_defaults(parser=family)
    return family.add_subparsers(dest="kind", metavar="command", required=True)


def examples(lines: str) -> str:
    """What stands under the options of a command."""
    return "example:\n" + "\n".join(f"  {line}" for line in lines.splitlines())


def with_defaults(given: argparse.Namespace) -> argparse.Namespace:
    """The arguments with what was not said."""
    return argparse.Namespace(**(_DEFAULTS | vars(given)))


def _typed(names: tuple[str, ...], settings: dict[str, Any]) -> dict[str, Any]:
    return settings | ({"type": seconds} if names == ("--timeout",) else {})


def client_options(arguments: argparse.Namespace) -> "Options":
    """Who the command is to the broker, and how it gets there."""
    return {
        "user": _setting(arguments.user, "MQ9_USER"),
        "password": _setting(arguments.password, "MQ9_PASSWORD"),
        "token": _setting(arguments.token, "MQ9_TOKEN"),
        "nkey_seed": _setting(arguments.nkey, "MQ9_NKEY"),
        "tls": _tls(arguments),
        "name": "mq9-cli",
        "inbox_prefix": arguments.inbox_prefix,
        "timeout": arguments.timeout,
        "connect_timeout": arguments.timeout,
    }


def run(action: Action, arguments: argparse.Namespace) -> int:
    """Connects, acts, and turns what went wrong into words and an exit code."""
    from mq9 import errors
    from mq9.client import Client

    # What the client would log is said once, as the command's own failure.
    logging.getLogger("mq9.client").addHandler(logging.NullHandler())
    # It warns of a way to end TLS that nats-py has and nobody can do anything about.
    logging.getLogger("asyncio").setLevel(logging.ERROR)

    async def act() -> int:
        async with Client(arguments.server, **client_options(arguments)) as client:
            return await action(client, arguments)

    try:
        return asyncio.run(act())
    except errors.NoResponders as error:
        raise Failure(f"{error}", UNREACHABLE) from error
    except errors.BrokerUnavailable as error:
        raise Failure(f"{error}\n{_why_unreachable(arguments, error)}", UNREACHABLE) from error
    except errors.RequestTimeout as error:
        raise Failure(
            f"{error}; it may have been carried out. --timeout waits longer.", TIMEOUT
        ) from error
    except errors.AccessDenied as error:
        denied = str(error).startswith(("this user", "permission denied"))
        hint = (
            "Ask the operator for the permission."
            if denied
            else "--user and --password, --token or --nkey say who you are."
        )
        raise Failure(f"{error}\n{hint}", REFUSED if denied else UNREACHABLE) from error
    except errors.InvalidField as error:
        raise Failure(str(error), USAGE) from error
    except errors.Mq9Error as error:
        raise Failure(_with_hint(error)) from error


def seconds(written: str) -> float:
    """A positive number of seconds."""
    try:
        number = float(written)
    except ValueError:
        number = 0
    if not 0 < number < 1e9:
        raise argparse.ArgumentTypeError(f"expected a number of seconds, found {written!r}")
    return number


def span(written: str) -> float:
    """A number of seconds, of which 0 means something too."""
    return 0.0 if written == "0" else seconds(written)


def _why_unreachable(arguments: argparse.Namespace, error: BaseException | None) -> str:
    """What to look at when there is no connection."""
    secured = _tls(arguments) is not None
    while error is not None and not secured:
        secured = isinstance(error, ssl.SSLError)
        error = error.__cause__
    if secured:
        return (
            "With TLS, --tls-ca names who signed the certificate of the broker. If it asks for "
            "yours, --tls-cert and --tls-key show it."
        )
    return (
        "Is the broker running there? `mq9 serve` starts one; --server or MQ9_URL says where it is."
    )


def _with_hint(error: Exception) -> str:
    from mq9 import errors

    hints: dict[type[Exception], str] = {
        errors.MailboxNotFound: "`mq9 mailbox create` makes one.",
        errors.MailboxExists: "Choose another name, or leave it out for one that nobody has.",
        errors.NotGiven: "Only what the group was given with `mq9 fetch --group` can be "
        "acknowledged.",
    }
    hint = hints.get(type(error))
    return f"{error}\n{hint}" if hint else str(error)


def _setting(given: str | None, variable: str) -> str | None:
    return given or os.environ.get(variable) or None


def _tls(arguments: argparse.Namespace) -> ssl.SSLContext | None:
    given = arguments.tls_ca or arguments.tls_cert or arguments.tls_key
    if not given and "tls://" not in (_setting(arguments.server, "MQ9_URL") or ""):
        return None
    context = ssl.create_default_context()
    try:
        if arguments.tls_ca:
            context.load_verify_locations(Path(arguments.tls_ca))
        if arguments.tls_cert:
            context.load_cert_chain(arguments.tls_cert, arguments.tls_key)
    except (OSError, ssl.SSLError) as error:
        raise Failure(f"cannot use the certificates: {error}", USAGE) from error
    return context
