"""`mq9 serve` as a process: how it starts, what it does on signals, and how it ends."""

import http.client
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

DEADLINE_S = 30
CONNECT = b'CONNECT {"verbose":false,"protocol":1}\r\n'


class Client:
    """A socket that speaks the protocol by hand."""

    def __init__(self, port: int, connect: bytes = b"") -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S)
        self.read = b""
        self.info: dict[str, Any] = json.loads(self.until(b"\r\n")[5:])
        if connect:
            self.send(connect + b"PING\r\n")
            self.until(b"PONG\r\n")

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def until(self, end: bytes) -> bytes:
        """All up to and with `end`; fails if the server closes before."""
        while end not in self.read:
            chunk = self.socket.recv(65536)
            assert chunk, f"closed after {self.read[-200:]!r}"
            self.read += chunk
        found, _, self.read = self.read.partition(end)
        return found + end

    def rest(self) -> bytes:
        """All until the server closes."""
        chunks = [self.read]
        while chunk := self.socket.recv(65536):
            chunks.append(chunk)
        return b"".join(chunks)

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_exc: object) -> None:
        self.socket.close()


class Serving:
    """A running server and its log."""

    def __init__(self, folder: Path, config: str, *flags: str) -> None:
        self.folder = folder
        self.config = folder / "nats.conf"
        self.config.write_text(config)
        self.log = folder / "log"
        ports = ("--ports_file_dir", folder, "-p", "-1", "-m", "-1", "-a", "127.0.0.1")
        store = ("--data", folder / "data", "--sync", "none")
        files = ("-c", self.config, "-l", self.log)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "mq9", "serve", *files, *ports, *store, *flags], cwd=folder
        )
        self.wait_for("Server is ready")
        self.ports_file = folder / f"mq9_{self.process.pid}.ports"
        urls = json.loads(self.ports_file.read_text())
        self.port = int(urls["nats"][0].rpartition(":")[2])
        self.http_port = int(urls["monitoring"][0].rpartition(":")[2])

    def wait_for(self, text: str) -> None:
        """Wait until the log has the text."""
        deadline = time.monotonic() + DEADLINE_S
        while text not in self.logged():
            assert time.monotonic() < deadline, f"{text!r} not in:\n{self.logged()}"
            assert self.process.poll() is None, self.logged()
            time.sleep(0.01)

    def logged(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def ended(self) -> int:
        """The exit status, once there is one."""
        return self.process.wait(DEADLINE_S)

    def get(self, path: str) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.http_port, timeout=DEADLINE_S)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(DEADLINE_S)


Serve = Callable[..., Serving]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    started: list[Serving] = []

    def start(config: str = "debug: false\n", *flags: str) -> Serving:
        folder = tmp_path / str(len(started))
        folder.mkdir()
        started.append(Serving(folder, config, *flags))
        return started[-1]

    yield start
    for server in started:
        server.kill()


def fails(*flags: str | Path) -> str:
    """What a server that cannot start says."""
    done = subprocess.run(
        [sys.executable, "-m", "mq9", "serve", *flags],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    assert "Traceback" not in done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("mq9 serve: ")
    return last


def test_stops_on_sigterm_and_takes_its_files_along(serve: Serve) -> None:
    server = serve("pid_file: pid\n")
    assert (server.folder / "pid").read_text() == str(server.process.pid)
    with Client(server.port, CONNECT) as client:
        server.signal(signal.SIGTERM)
        assert client.rest() == b""
    assert server.ended() == 0
    assert not server.ports_file.exists()
    assert not (server.folder / "pid").exists()
    assert server.logged().endswith("Server Exiting..\n")


def test_a_stop_writes_what_clients_have_yet_to_read(serve: Serve) -> None:
    server = serve()
    messages, payload = 64, b"x" * 100_000
    with Client(server.port, CONNECT) as reader, Client(server.port, CONNECT) as writer:
        reader.send(b"SUB big 1\r\nPING\r\n")
        reader.until(b"PONG\r\n")
        for _ in range(messages):
            writer.send(b"PUB big %d\r\n%b\r\n" % (len(payload), payload))
        writer.send(b"PING\r\n")
        writer.until(b"PONG\r\n")
        server.signal(signal.SIGTERM)
        server.wait_for("Initiating Shutdown")
        assert reader.rest().count(payload) == messages
    assert server.ended() == 0


def test_a_client_that_does_not_read_does_not_hold_up_a_stop(serve: Serve) -> None:
    server = serve('mq9 { drain_time: "1s" }\n')
    with Client(server.port, CONNECT) as stuck, Client(server.port, CONNECT) as writer:
        stuck.send(b"SUB big 1\r\nPING\r\n")
        stuck.until(b"PONG\r\n")
        for _ in range(20):
            writer.send(b"PUB big 1000000\r\n%b\r\n" % (b"x" * 1_000_000))
        writer.send(b"PING\r\n")
        writer.until(b"PONG\r\n")
        start = time.monotonic()
        server.signal(signal.SIGTERM)
        assert server.ended() == 0
        assert time.monotonic() - start < 10


def test_a_second_signal_does_not_wait_for_clients(serve: Serve) -> None:
    server = serve('mq9 { drain_time: "600s" }\n')
    with Client(server.port, CONNECT) as stuck, Client(server.port, CONNECT) as writer:
        stuck.send(b"SUB big 1\r\nPING\r\n")
        stuck.until(b"PONG\r\n")
        for _ in range(20):
            writer.send(b"PUB big 1000000\r\n%b\r\n" % (b"x" * 1_000_000))
        writer.send(b"PING\r\n")
        writer.until(b"PONG\r\n")
        server.signal(signal.SIGTERM)
        server.wait_for("Initiating Shutdown")
        server.signal(signal.SIGTERM)
        assert server.ended() == 0


def test_lame_duck_asks_clients_to_leave_and_ends(serve: Serve) -> None:
    server = serve("lame_duck_grace_period: 200ms\nlame_duck_duration: 30s\n")
    with Client(server.port, CONNECT) as new, Client(server.port, b"CONNECT {}\r\n") as old:
        server.signal(signal.SIGUSR2)
        assert json.loads(new.until(b"\r\n")[5:])["ldm"] is True
        with pytest.raises(ConnectionRefusedError):
            Client(server.port)
        assert server.get("/healthz")[0] == 500
        assert new.rest() == b""
        assert old.rest() == b""
    assert server.ended() == 0


def test_a_lame_duck_without_clients_ends_at_once(serve: Serve) -> None:
    server = serve("lame_duck_grace_period: 300s\nlame_duck_duration: 600s\n")
    server.signal(signal.SIGUSR2)
    assert server.ended() == 0


USERS = "authorization {{ users: [{}] }}\n"


def test_a_reload_changes_who_may_do_what(serve: Serve) -> None:
    server = serve(
        USERS.format("{user: a, password: x}, {user: b, password: x}, {user: c, password: x}")
    )

    def enter(user: str, password: str = "x") -> Client:
        said = {"verbose": False, "user": user, "pass": password}
        return Client(server.port, b"CONNECT %b\r\n" % json.dumps(said).encode())

    with enter("a") as a, enter("b") as b, enter("c") as c:
        b.send(b"SUB secret 1\r\nPING\r\n")
        b.until(b"PONG\r\n")
        limited = '{user: b, password: x, permissions: {subscribe: "open.>"}}'
        server.config.write_text(
            USERS.format(f"{{user: a, password: new}}, {limited}") + "max_payload: 100\n"
        )
        server.signal(signal.SIGHUP)
        assert a.rest() == b"-ERR 'Authorization Violation'\r\n"
        assert c.rest() == b"-ERR 'Authorization Violation'\r\n"
        assert b.until(b"\r\n").startswith(b"-ERR 'Permissions Violation for Subscription")
        server.wait_for("Reloaded server configuration")
        b.send(b"PUB open.x 101\r\n%b\r\n" % (b"x" * 101))
        assert b.until(b"\r\n") == b"-ERR 'Maximum Payload Violation'\r\n"
        with enter("a", "new") as again:
            assert again.info["max_payload"] == 100


def test_a_reload_leaves_those_alone_who_are_about_to_come_in(serve: Serve) -> None:
    server = serve(USERS.format("{user: a, password: x}"))
    with Client(server.port) as client:
        server.config.write_text(USERS.format("{user: a, password: new}"))
        server.signal(signal.SIGHUP)
        server.wait_for("Reloaded server configuration")
        client.send(b'CONNECT {"verbose":false,"user":"a","pass":"new"}\r\nPING\r\n')
        assert client.until(b"\r\n") == b"PONG\r\n"


def test_a_reload_that_asks_for_users_sends_others_away(serve: Serve) -> None:
    server = serve()
    with Client(server.port, CONNECT) as known, Client(server.port) as silent:
        server.config.write_text(USERS.format("{user: a, password: x}"))
        server.signal(signal.SIGHUP)
        for client in (known, silent):
            assert client.rest() == b"-ERR 'Authorization Violation'\r\n"


def test_a_reload_that_cannot_be_used_changes_nothing(serve: Serve) -> None:
    server = serve(USERS.format("{user: a, password: x}"))
    with Client(server.port, b'CONNECT {"verbose":false,"user":"a","pass":"x"}\r\n') as client:
        server.config.write_text("authorization {")
        server.signal(signal.SIGHUP)
        server.wait_for("Failed to reload server configuration")
        client.send(b"PING\r\n")
        assert client.until(b"\r\n") == b"PONG\r\n"
        assert server.get("/varz")[1]["auth_required"] is True


def test_the_log_can_be_rotated(serve: Serve) -> None:
    server = serve()
    server.log.rename(server.folder / "old")
    server.signal(signal.SIGUSR1)
    server.wait_for("File log re-opened")
    assert "Server is ready" in (server.folder / "old").read_text()


def test_one_client_too_many_is_told_so(serve: Serve) -> None:
    server = serve("max_connections: 2\n")
    with Client(server.port, CONNECT), Client(server.port, CONNECT) as second:
        with Client(server.port) as third:
            assert third.rest() == b"-ERR 'maximum connections exceeded'\r\n"
        second.socket.close()
        while server.get("/varz")[1]["connections"] == 2:
            pass
        Client(server.port, CONNECT).socket.close()


def test_a_client_that_never_says_who_it_is_is_sent_away(serve: Serve) -> None:
    server = serve("authorization { token: secret, timeout: 0.2 }\n")
    with Client(server.port) as client:
        assert client.info["auth_required"] is True
        client.send(b"CONN")
        assert client.rest() == b"-ERR 'Authentication Timeout'\r\n"
    closed: list[dict[str, Any]] = []
    # Monitoring hears of it a moment after the client.
    while not closed:
        closed = server.get("/connz?state=closed")[1]["connections"]
    assert [client["reason"] for client in closed] == ["Authentication Timeout"]


def test_a_data_directory_is_for_one_server(serve: Serve) -> None:
    server = serve()
    said = fails("-a", "127.0.0.1", "-p", "-1", "--data", server.folder / "data")
    assert "is in use by another process" in said


def test_a_port_in_use_is_said(serve: Serve, tmp_path: Path) -> None:
    server = serve()
    port = str(server.port)
    said = fails("-a", "127.0.0.1", "-p", port, "--data", tmp_path / "other")
    assert f"127.0.0.1:{port}: Address already in use" in said


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ("tls { cert_file: missing.pem, key_file: missing.pem }", "missing.pem"),
        ("authorization { users: [{nkey: UABC}] }", "nkey"),
        ("ports_file_dir: missing", "missing"),
        ("pid_file: missing/pid", "missing/pid"),
        ("log_file: missing/log", "missing/log"),
        ("no_such_thing {", "nats.conf:1"),
    ],
)
def test_what_is_wrong_with_a_configuration_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: str, expected: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("nats.conf").write_text(config)
    assert expected in fails("-c", "nats.conf", "-a", "127.0.0.1", "-p", "-1")


def test_all_files_that_the_system_allows_may_be_open(serve: Serve) -> None:
    server = serve()
    limits = Path(f"/proc/{server.process.pid}/limits").read_text()
    soft, hard = next(line for line in limits.splitlines() if "open files" in line).split()[3:5]
    assert soft == hard


def test_the_log_shows_the_protocol_without_payloads_while_that_is_wanted(serve: Serve) -> None:
    server = serve("trace: true\n")
    with Client(server.port, CONNECT) as client:
        # A name that would begin another line, or move a cursor.
        client.send(b"SUB a.\x1b[2J 1\r\nSUB b 2\r\nPUB b 6\r\nsecret\r\nPING\r\n")
        client.until(b"PONG\r\n")
        server.wait_for("->> [MSG b 2 6] client=127.0.0.1:")
        logged = server.logged()
        for line in ("<<- [SUB a.\\x1b[2J 1] ", "<<- [PUB b 6] ", "<<- [PING] ", "->> [PONG] "):
            assert f"[TRC] {line}client=127.0.0.1:" in logged
        assert "secret" not in logged
        assert "\x1b" not in logged
        server.config.write_text("trace: false\n")
        server.signal(signal.SIGHUP)
        server.wait_for("Reloaded server configuration")
        client.send(b"SUB quiet 3\r\nPING\r\n")
        client.until(b"PONG\r\n")
    server.signal(signal.SIGTERM)
    assert server.ended() == 0
    assert "quiet" not in server.logged()
