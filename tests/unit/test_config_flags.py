"""Flags: their spellings, and that they override the file."""

import argparse
from pathlib import Path

import pytest
import trustme
from tests.options import changed as options_changed

from mq9 import __version__
from mq9.cli.serve import serve
from mq9.config import ConfigError, add_flags, from_arguments, from_namespace


def changed(*argv: str) -> dict[str, object]:
    options = from_arguments(argv, {})
    return options_changed(options, without={"flags", "warnings", "config_file"})


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    file = tmp_path / "server.conf"
    file.write_text(
        "port: 1111\nhttp: '127.0.0.1:2222'\nserver_name: $NAME\nlogtime: false\n"
        "mq9 { data: from-file, sync: interval }"
    )
    return file


@pytest.mark.parametrize(
    ("argv", "options"),
    [
        ("", {}),
        *((f"{flag} ::1", {"host": "::1"}) for flag in ("-a", "--addr", "--net", "-addr", "--a")),
        *((f"{flag} -1", {"port": -1}) for flag in ("-p", "--port", "-port")),
        ("-p=7", {"port": 7}),
        ("--port=7", {"port": 7}),
        ("-p 0 -m 0", {}),
        ("-m -1", {"http_port": -1}),
        ("--http_port 8222", {"http_port": 8222}),
        *((f"{flag} x", {"server_name": "x"}) for flag in ("-n", "--name", "-server_name")),
        ("--client_advertise a:5", {"client_advertise": "a:5"}),
        ("-P f", {"pid_file": Path("f")}),
        ("--pid f", {"pid_file": Path("f")}),
        ("--ports_file_dir d", {"ports_file_dir": Path("d")}),
        ("-l f", {"log_file": Path("f")}),
        ("-log f", {"log_file": Path("f")}),
        ("-D", {"debug": True}),
        ("-V", {"trace": True}),
        *((flag, {"debug": True, "trace": True}) for flag in ("-DV", "-DVV", "-D -V", "--DV")),
        ("-D=false", {}),
        ("-T=false", {"logtime": False}),
        ("--logtime=0", {"logtime": False}),
        ("--logtime_utc", {"logtime_utc": True}),
        ("-user a -pass b", {"authorization": {"user": "a", "password": "b"}}),
        ("--auth t", {"authorization": {"token": "t"}}),
        ("--data d --sync none", {"data_dir": Path("d"), "sync": "none"}),
    ],
)
def test_flag_sets(argv: str, options: dict[str, object]) -> None:
    assert changed(*argv.split()) == options


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ("-p x", "expected a port from 1 to 65535 (-1: any free one), found 'x'"),
        ("-p 65536", "found '65536'"),
        ("-p", "expected one argument"),
        ("--prot 1", "unrecognized arguments: --prot 1"),
        ("stray", "unrecognized arguments: stray"),
        ("-D stray", "expected true or false"),
        ("--sync sometimes", "invalid choice: 'sometimes'"),
        ("-sl stop", "-sl is not supported: send the signal with kill"),
        ("--signal=reload", "send the signal with kill"),
        ("-t", "name one with -c"),
        ("-c gone.conf", "cannot read gone.conf: No such file"),
        ("--user a", "--pass is missing"),
        ("--pass a", "--user is missing"),
        ("--auth=", "must not be empty"),
        ("--auth a --user b --pass c", "--auth contradicts --user and --pass"),
        ("--data=", "needs a value that is not empty"),
        ("--client_advertise a:b", "expected host or host:port"),
        ("--tls", "--tlscert is missing"),
        ("--tlsverify", "--tlscert is missing"),
        ("--tlscert a", "--tlskey is missing"),
        ("--tls --tlscert gone.pem --tlskey gone.pem", "cannot read gone.pem"),
        ("-p 5 -m 5", "port 5 cannot be for clients and for monitoring"),
        ("-m 4222", "port 4222 cannot be for clients and for monitoring"),
    ],
)
def test_flag_is_refused(argv: str, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        from_arguments(argv.split(), {})
    assert message in str(raised.value)


def test_name_with_a_space_is_refused() -> None:
    with pytest.raises(ConfigError, match="cannot hold spaces"):
        from_arguments(["-n", "a b"], {})


def test_flags_override_the_file_over_the_defaults(conf: Path) -> None:
    flags = ["-c", str(conf), "-p", "-1", "--data", "from-flag", "-T", "-m", "3333"]
    options = from_arguments(flags, {"NAME": "n"})
    assert (options.port, options.data_dir, options.logtime) == (-1, Path("from-flag"), True)
    assert (options.http_host, options.http_port) == ("127.0.0.1", 3333)
    assert (options.server_name, options.sync) == ("n", "interval")
    assert (options.host, options.config_file) == ("0.0.0.0", conf)


def test_clients_and_monitoring_may_share_a_port_of_different_addresses(tmp_path: Path) -> None:
    file = tmp_path / "a.conf"
    file.write_text("listen: '127.0.0.1:5'\nhttp: '127.0.0.2:5'")
    assert from_arguments(["-c", str(file)], {}).http_host == "127.0.0.2"


def test_test_of_a_configuration(conf: Path) -> None:
    assert from_arguments(["-t", "-c", str(conf)], {"NAME": "n"}).test_only


def test_the_test_of_a_configuration_names_what_will_not_be_served(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.conf"
    file.write_text("port: 4222\nwebsocket { port: 8080, no_tls: true }\n")
    assert serve(["-t", "-c", str(file)]) == 0
    printed = capsys.readouterr()
    assert f"warning: {file}:2:1: 'websocket' is ignored" in printed.err
    assert printed.out == (
        f"mq9 serve: configuration file {file} is valid; not all of it applies, see the warnings\n"
    )
    file.write_text("port: 4222\n")
    assert serve(["-t", "-c", str(file)]) == 0
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == (f"mq9 serve: configuration file {file} is valid\n", "")


@pytest.mark.parametrize("flag", ["-v", "--version", "-version", "--v"])
def test_the_version(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        serve([flag])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"mq9: v{__version__}\n"


def test_the_process_environment_is_the_default(
    conf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NAME", "from-environment")
    assert from_arguments(["-c", str(conf)]).server_name == "from-environment"


@pytest.mark.parametrize(
    ("authorization", "flags", "user", "token"),
    [
        ("token: t", "--user a --pass b", "a", None),
        ("user: u, password: p", "--auth t", None, "t"),
        ("user: u, password: p", "--pass q", "u", None),
        ("user: u, password: p", "--user v", "v", None),
    ],
)
def test_credentials_override_those_of_the_file(
    tmp_path: Path, authorization: str, flags: str, user: str | None, token: str | None
) -> None:
    file = tmp_path / "a.conf"
    file.write_text(f"authorization {{ {authorization}, timeout: 7 }}")
    found = from_arguments(["-c", str(file), *flags.split()], {}).authorization
    assert (found.user, found.token, found.timeout_ms) == (user, token, 7000)
    assert (found.password is None) == (user is None)


def test_credentials_contradict_the_users_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "a.conf"
    file.write_text("authorization { users: [{user: a, password: b}] }")
    with pytest.raises(ConfigError, match="contradict the list of users"):
        from_arguments(["-c", str(file), "--user", "c", "--pass", "d"], {})


def test_flags_that_do_not_apply_are_named_in_a_warning() -> None:
    argv = ["--routes=a", "-ms", "8443", "--no_advertise", "-p", "5"]
    options = from_arguments(argv, {})
    assert options.port == 5
    named = sorted(warning.split(" is ignored: ")[0] for warning in options.warnings)
    assert named == ["--no_advertise", "--routes", "-ms"]


def test_jetstream_and_its_folder() -> None:
    options = from_arguments(["-js", "-sd", "/x"], {})
    assert (options.jetstream, options.data_dir, options.warnings) == (True, Path("/x"), ())
    options = from_arguments(["--jetstream", "--store_dir", "/y"], {})
    assert (options.jetstream, options.data_dir) == (True, Path("/y"))
    assert not from_arguments([], {}).jetstream


def test_tls_flags(tmp_path: Path) -> None:
    authority = trustme.CA()
    server = authority.issue_cert("localhost")
    cert, key, ca = (str(tmp_path / name) for name in ("cert.pem", "key.pem", "ca.pem"))
    server.cert_chain_pems[0].write_to_path(cert)
    server.private_key_pem.write_to_path(key)
    authority.cert_pem.write_to_path(ca)

    plain = from_arguments(["--tls", "--tlscert", cert, "--tlskey", key], {}).tls
    assert plain
    assert (str(plain.cert_file), str(plain.key_file), plain.verify) == (cert, key, False)

    file = tmp_path / "a.conf"
    file.write_text(f"tls {{ cert_file: {cert}, key_file: {key}, timeout: 9 }}")
    merged = from_arguments(["-c", str(file), "-tlsverify", "-tlscacert", ca], {}).tls
    assert merged
    assert (str(merged.ca_file), merged.verify, merged.timeout_ms) == (ca, True, 9000)


def test_flags_are_mounted_on_a_command() -> None:
    parser = argparse.ArgumentParser(prog="mq9")
    commands = parser.add_subparsers(dest="command")
    add_flags(commands.add_parser("serve"))
    options = from_namespace(parser.parse_args(["serve", "-DV", "-p", "-1"]), {})
    assert (options.debug, options.trace, options.port) == (True, True, -1)


def test_help_names_every_flag_once(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        from_arguments(["--help"], {})
    text = capsys.readouterr().out
    for line in (
        "  -a, --addr, --net HOST ",
        "  -p, --port PORT ",
        "  -T, --logtime  ",
        "  --sync always|interval|none ",
        "  --tlsverify  ",
    ):
        assert text.count(line) == 1
    assert "-addr" not in text.replace("--addr", "")
    assert "--routes" not in text
