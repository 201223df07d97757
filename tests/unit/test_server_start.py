"""A start: what is imported before the port listens, and that early clients are served."""

import contextlib
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import trustme

DEADLINE_S = 60
LISTENS, READY = "Listening for client connections", "Server is ready"

# What greets a client needs none of these; each of them takes some milliseconds or more.
LATER = (
    *("pydantic", "pydantic_core", "h11", "nacl", "bcrypt", "numpy", "tantivy", "nats", "pyarrow"),
    *("onnxruntime", "email", "http", "difflib", "shutil", "random", "secrets", "statistics"),
    *("importlib.metadata", "mq9.commands", "mq9.registry", "mq9.client", "mq9.server.monitor"),
    # Of the event loop, which takes longer than all the rest.
    *("asyncio", "uvloop", "ssl", "logging", "concurrent", "subprocess", "mq9.server.server"),
)

# In the place of the real one: whoever imports it waits for a file.
SLOW_LOOP = """
import sys, time
from pathlib import Path

here = Path(__file__).parent
while not (here / "go on").exists():
    time.sleep(0.01)
sys.path.remove(str(here))
del sys.modules["uvloop"]
import uvloop
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextlib.contextmanager
def starting(
    folder: Path, *flags: str, env: Mapping[str, str] | None = None
) -> Iterator[tuple[int, Path, subprocess.Popen[bytes]]]:
    """A server that has just been started, with its port and where it tells what it imports."""
    port, log = free_port(), folder / "log"
    data = ("--data", str(folder / "data"), "-a", "127.0.0.1", "-p", str(port))
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-X", "importtime", "-m", "mq9", "serve", *data, *flags],
            stderr=out,
            env={**os.environ, **(env or {})},
        )
    try:
        yield port, log, process
    finally:
        process.terminate()
        process.wait(DEADLINE_S)


def wait_for(log: Path, text: str) -> str:
    deadline = time.monotonic() + DEADLINE_S
    while text not in (written := log.read_text()):
        assert time.monotonic() < deadline, written[-2000:]
        time.sleep(0.01)
    return written


def imported_before(written: str, event: str) -> set[str]:
    before = written[: written.index(event)].splitlines()
    return {line.rpartition("|")[2].strip() for line in before if line.startswith("import time:")}


def of(module: str, imported: set[str]) -> set[str]:
    return {name for name in imported if name == module or name.startswith(f"{module}.")}


@pytest.mark.parametrize("users", [False, True], ids=["open", "users"])
def test_what_a_greeting_does_not_need_is_imported_after_the_port_listens(
    tmp_path: Path, users: bool
) -> None:
    file = tmp_path / "server.conf"
    block = "authorization { users: [ { user: a, password: b, permissions: { publish: a } } ] }"
    file.write_text(f'server_name: "x"\n{block if users else ""}')
    with starting(tmp_path, "-c", str(file), "-m", "-1") as (_, log, _):
        written = wait_for(log, READY)
    before = imported_before(written, LISTENS)
    assert "mq9.server.listener" in before
    assert {module: found for module in LATER if (found := of(module, before))} == {}
    assert "mq9.commands" in imported_before(written, READY)


def test_without_a_file_what_reads_one_is_not_imported(tmp_path: Path) -> None:
    with starting(tmp_path) as (_, log, _):
        written = wait_for(log, READY)
    before = imported_before(written, LISTENS)
    assert of("mq9.config", before) == {
        *("mq9.config", "mq9.config.errors", "mq9.config.flags"),
        *("mq9.config.options", "mq9.config.reloading"),
    }
    # Nobody has asked for monitoring.
    assert not of("h11", imported_before(written, READY))


def first_to_come(port: int) -> socket.socket:
    """A client that connects as soon as the port is open."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S)
        except ConnectionRefusedError:
            assert time.monotonic() < deadline
            time.sleep(0.001)


def test_clients_that_come_before_the_commands_are_there_are_answered(tmp_path: Path) -> None:
    request = b'SUB reply 1\r\nPUB $mq9.AI.MAILBOX.CREATE reply 15\r\n{"name":"box%d"}\r\n'
    with starting(tmp_path) as (port, _, _), contextlib.ExitStack() as stack:
        clients = []
        for number in range(5):
            client = stack.enter_context(first_to_come(port))
            clients.append(stack.enter_context(client.makefile("rb")))
            client.sendall(b'CONNECT {"verbose":false}\r\n' + request % number)
        for number, lines in enumerate(clients):
            assert lines.readline().startswith(b"INFO ")
            said = next(line for line in lines if line.startswith((b"{", b"-ERR")))
            assert json.loads(said) == {"error": "", "mail_address": f"box{number}"}


@pytest.fixture
def slow(tmp_path: Path) -> Path:
    """A folder whose event loop is imported when the file "go on" is there."""
    folder = tmp_path / "slow"
    folder.mkdir()
    (folder / "uvloop.py").write_text(SLOW_LOOP)
    return folder


def test_clients_are_greeted_while_the_event_loop_is_imported(tmp_path: Path, slow: Path) -> None:
    with (
        starting(tmp_path, env={"PYTHONPATH": str(slow)}) as (port, log, _),
        contextlib.ExitStack() as stack,
    ):
        clients = []
        for _ in range(3):
            client = stack.enter_context(first_to_come(port))
            client.sendall(b'CONNECT {"verbose":false}\r\nPING\r\n')
            lines = stack.enter_context(client.makefile("rb"))
            assert lines.readline().startswith(b"INFO ")
            clients.append(lines)
        # One that does not stay.
        first_to_come(port).close()
        assert READY not in log.read_text()
        (slow / "go on").touch()
        for lines in clients:
            assert lines.readline() == b"PONG\r\n"
        wait_for(log, READY)


TIMEOUT_S = 0.3
USER = f"authorization {{ users: [ {{ user: a, password: b }} ], timeout: {TIMEOUT_S} }}"
CONNECT = b'CONNECT {"verbose":false,"user":"a","pass":"b"}\r\nPING\r\n'


def test_a_start_that_takes_long_makes_no_client_late_to_say_who_it_is(
    tmp_path: Path, slow: Path
) -> None:
    file = tmp_path / "server.conf"
    file.write_text(USER)
    with starting(tmp_path, "-c", str(file), env={"PYTHONPATH": str(slow)}) as (port, log, _):
        with first_to_come(port) as client, client.makefile("rb") as lines:
            client.sendall(CONNECT)
            assert lines.readline().startswith(b"INFO ")
            # What must not happen has had the time to.
            time.sleep(TIMEOUT_S * 3)
            (slow / "go on").touch()
            assert lines.readline() == b"PONG\r\n"
        # Whoever says nothing is still sent away.
        wait_for(log, READY)
        with first_to_come(port) as client, client.makefile("rb") as lines:
            assert lines.readline().startswith(b"INFO ")
            assert lines.readline() == b"-ERR 'Authentication Timeout'\r\n"


@pytest.mark.parametrize("first", ["false", "true", '"100ms"'])
def test_a_start_that_takes_long_makes_no_handshake_late(
    tmp_path: Path, slow: Path, first: str
) -> None:
    authority = trustme.CA()
    own = authority.issue_cert("127.0.0.1")
    own.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "own.pem"))
    files = f'cert_file: "{tmp_path}/own.pem", key_file: "{tmp_path}/own.pem"'
    file = tmp_path / "server.conf"
    file.write_text(f"tls {{ {files}, timeout: {TIMEOUT_S}, handshake_first: {first} }}\n{USER}")
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    with starting(tmp_path, "-c", str(file), env={"PYTHONPATH": str(slow)}) as (port, _, _):
        client = first_to_come(port)
        if first == "false":
            assert b"tls_required" in client.recv(4096)
        threading.Timer(TIMEOUT_S * 3, (slow / "go on").touch).start()
        with trusting.wrap_socket(client, server_hostname="127.0.0.1") as secure:
            secure.sendall(CONNECT)
            with secure.makefile("rb") as lines:
                if first != "false":
                    assert lines.readline().startswith(b"INFO ")
                assert lines.readline() == b"PONG\r\n"


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2])
def test_a_signal_that_comes_during_the_start_is_met_after_it(
    tmp_path: Path, slow: Path, number: signal.Signals
) -> None:
    with starting(tmp_path, env={"PYTHONPATH": str(slow)}) as (port, log, process):
        first_to_come(port).close()
        process.send_signal(number)
        (slow / "go on").touch()
        if number == signal.SIGUSR2:
            assert process.wait(DEADLINE_S) == 0, log.read_text()[-2000:]
            assert "Entering lame duck mode" in log.read_text()
        else:
            wait_for(log, {signal.SIGHUP: "eload", signal.SIGUSR1: "File log"}[number])
            wait_for(log, READY)


def test_ctrl_c_during_the_start_ends_it_without_a_traceback(tmp_path: Path, slow: Path) -> None:
    with starting(tmp_path, env={"PYTHONPATH": str(slow)}) as (port, log, process):
        first_to_come(port).close()
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE_S) == -signal.SIGINT
        assert "Traceback" not in log.read_text()


def test_a_start_that_fails_late_ends_with_its_reason(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "token.secret").write_bytes(b"short")
    arguments = ("--data", str(data), "-a", "127.0.0.1", "-p", "-1")
    ended = subprocess.run(
        [sys.executable, "-m", "mq9", "serve", *arguments],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1].startswith("mq9 serve: cannot use the tokens' secret in ")


def test_a_start_can_be_measured() -> None:
    bench = Path(__file__).parents[2] / "benches" / "start.py"
    command = f"{sys.executable} -m mq9 serve"
    measured = subprocess.run(
        [sys.executable, str(bench), "--rounds", "1", command],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert measured.returncode == 0, measured.stderr
    assert command in measured.stdout
    figures = r" +wall median (\d+), least \d+ ms; processor median \d+, least \d+ ms"
    greeted = re.search(f"greeted{figures}", measured.stdout)
    answered = re.search(f"answered{figures}", measured.stdout)
    assert greeted, measured.stdout
    assert answered, measured.stdout
    assert int(greeted[1]) <= int(answered[1])
