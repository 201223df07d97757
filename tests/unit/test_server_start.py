"""A start: what is imported before the port listens, and that early clients are served."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

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
) -> Iterator[tuple[int, Path]]:
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
        yield port, log
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
    with starting(tmp_path, "-c", str(file), "-m", "-1") as (_, log):
        written = wait_for(log, READY)
    before = imported_before(written, LISTENS)
    assert "mq9.server.listener" in before
    assert {module: found for module in LATER if (found := of(module, before))} == {}
    assert "mq9.commands" in imported_before(written, READY)


def test_without_a_file_what_reads_one_is_not_imported(tmp_path: Path) -> None:
    with starting(tmp_path) as (_, log):
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
    with starting(tmp_path) as (port, _), contextlib.ExitStack() as stack:
        clients = []
        for number in range(5):
            client = stack.enter_context(first_to_come(port))
            clients.append(stack.enter_context(client.makefile("rb")))
            client.sendall(b'CONNECT {"verbose":false}\r\n' + request % number)
        for number, lines in enumerate(clients):
            assert lines.readline().startswith(b"INFO ")
            said = next(line for line in lines if line.startswith((b"{", b"-ERR")))
            assert json.loads(said) == {"error": "", "mail_address": f"box{number}"}


def test_clients_are_greeted_while_the_event_loop_is_imported(tmp_path: Path) -> None:
    slow = tmp_path / "slow"
    slow.mkdir()
    (slow / "uvloop.py").write_text(SLOW_LOOP)
    with (
        starting(tmp_path, env={"PYTHONPATH": str(slow)}) as (port, log),
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
    assert "wall" in measured.stdout
    assert "processor" in measured.stdout
