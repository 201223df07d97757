"""Messages pass while the broker's interpreter sleeps: only CONNECT and control commands wait."""

import json
import socket
import ssl
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests import peers
from tests.integration.conftest import Certificates
from tests.peers import Server, until
from tests.requester import Requester
from tests.wire import Wire, messages

SLEEP_S = 5.0
SLEEPER = Path(__file__).with_name("sleeper.py")


@pytest.fixture
def server(tmp_path: Path, certificates: Certificates) -> Iterator[Server]:
    config = "allow_non_tls: true\nping_interval: 1\nping_max: 20\n" + certificates.config()
    around = [sys.executable, str(SLEEPER), str(tmp_path)]
    server = peers.start(tmp_path, config, peer=peers.MQ9, around=around)
    yield server
    server.stop()


class Asleep:
    """The time in which the broker's interpreter sleeps."""

    def __init__(self, folder: Path) -> None:
        (folder / "sleep").write_text(str(SLEEP_S))
        asleep = folder / "asleep"
        self.began_s = float(until(lambda: asleep.exists() and asleep.read_text(), "it sleeps"))
        self._awake = folder / "awake"

    def check(self) -> None:
        """What was seen up to now was seen while it slept."""
        assert not self._awake.exists()
        assert time.monotonic() < self.began_s + SLEEP_S

    def wait(self) -> float:
        """When it woke up."""
        return float(until(lambda: self._awake.exists() and self._awake.read_text(), "it wakes"))


def secured(server: Server, certificates: Certificates) -> Requester:
    """A client that speaks TLS."""

    class Secured(Requester):
        def connect(self, **options: object) -> Requester:
            context = certificates.trusting()
            self.socket = context.wrap_socket(self.socket, server_hostname="localhost")
            super().connect(**options)
            return self

    return Secured(server.port)


def fetch(client: Requester, address: str, **fields: Any) -> list[dict[str, Any]]:  # noqa: ANN401
    answer = client.ask_json(f"MSG.FETCH.{address}", **fields)
    assert answer["error"] == ""
    found: list[dict[str, Any]] = answer["messages"]
    return found


@pytest.mark.parametrize("secure", [False, True])
def test_messages_pass_while_python_sleeps(
    server: Server, certificates: Certificates, tmp_path: Path, secure: bool
) -> None:
    def enter() -> Requester:
        return secured(server, certificates) if secure else Requester(server.port)

    client, worker, listener, quiet = enter(), enter(), enter(), enter()
    pushed_to = enter()
    # It was accepted and greeted, and has not said who it is.
    early = Wire(server.port)
    if secure:
        early.socket = certificates.trusting().wrap_socket(
            early.socket, server_hostname="localhost"
        )
    assert isinstance(client.socket, ssl.SSLSocket) == secure
    for address in ("a", "polled", "pushed", "short", "late"):
        client.create(address)
    client.post("pushed", b"stored")
    pushed_to.send(b"SUB $mq9.AI.MAILBOX.MSG.pushed 8\r\n")
    [stored] = messages(pushed_to.message_frame())
    assert stored.payload == b"stored"
    assert listener.ask(b"SUB news.* 7\r\n") == b""
    # A poll that began before, and a message that is due while it sleeps.
    client.post("late", b"due", b"mq9-delay-ms: 1500\r\n")
    client.post("short", b"brief", b"mq9-ttl-ms: 1500\r\n")
    assert len(fetch(client, "short", deliver="earliest")) == 1
    poll = {"group_name": "g", "config": {"max_wait_ms": 60_000}}
    worker.publish("MSG.FETCH.polled", json.dumps(poll).encode(), reply="_INBOX.requester.poll")
    worker.ask(b"")

    asleep = Asleep(tmp_path)
    # A new client is heard when it is over, and so is a control command.
    newcomer = socket.create_connection(("127.0.0.1", server.port))
    early.send(b'CONNECT {"verbose":false}\r\nPING\r\n')
    quiet.publish("PUBLIC.LIST", reply="_INBOX.requester.list")

    client.post("polled", b"job")
    [given] = messages(worker.message_frame())
    assert b'"payload":"job"' in given.payload
    done = worker.ask_json("MSG.ACK.polled", group_name="g", msg_id=0)
    assert done == {"error": ""}
    for number in range(200):
        assert client.post("a", b"x") == number
    client.send(b"PUB news.today 2\r\nhi\r\n")
    [news] = messages(listener.message_frame())
    assert (news.subject, news.payload) == ("news.today", b"hi")
    for number in range(20):
        client.post("pushed", b"%d" % number)
        [pushed] = messages(pushed_to.message_frame())
        assert pushed.payload == b"%d" % number
    wait = {"deliver": "earliest", "config": {"max_wait_ms": 10_000}}
    assert [message["payload"] for message in fetch(worker, "late", **wait)] == ["due"]
    until(lambda: not fetch(client, "short", deliver="earliest"), "the message expired")
    assert len(fetch(client, "a", deliver="earliest", config={"num_msgs": 1000})) == 200
    # Pings go out, and who answers them stays.
    listener.socket.settimeout(SLEEP_S)
    assert listener.frame() == b"PING\r\n"
    listener.send(b"PONG\r\n")
    early.socket.setblocking(False)
    with suppress(BlockingIOError, ssl.SSLWantReadError):
        early.received += early.socket.recv(1 << 12)
    early.socket.settimeout(20)
    assert b"PONG" not in early.received
    asleep.check()

    # What waits for Python was not answered meanwhile, and is now.
    awake_s = asleep.wait()
    early.until(b"PONG\r\n")
    [listed] = messages(quiet.message_frame())
    assert b'"mailboxes":' in listed.payload
    with newcomer:
        newcomer.settimeout(20)
        assert newcomer.recv(5) == b"INFO "
    assert awake_s >= asleep.began_s + SLEEP_S * 0.99
    for each in (client, worker, listener, quiet, pushed_to, early):
        each.close()
