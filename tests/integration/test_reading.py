"""Many sockets at once: who leaves, who floods, and whom the broker does not read by itself."""

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator

import pytest
from tests.integration.conftest import Certificates
from tests.peers import Serve, Server, until
from tests.wire import Wire, messages

# More than the system names at one look.
CLIENTS = 600


@pytest.fixture(scope="module")
def server(serve_for_session: Serve) -> Server:
    return serve_for_session()


@contextlib.contextmanager
def meanwhile(work: Callable[[], None]) -> Iterator[None]:
    """Does `work` again and again until the block ends."""
    over = threading.Event()
    failures: list[BaseException] = []

    def run() -> None:
        try:
            while not over.is_set():
                work()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(10)
    assert not failures
    assert not thread.is_alive()


def connected(server: Server) -> int:
    """How many clients the server has."""
    return int(server.monitor("/varz")["connections"])


def test_who_says_no_more_gets_all_answers_first(server: Server) -> None:
    with Wire(server.port) as wire:
        wire.connect()
        wire.send(b"SUB last 1\r\n" + b"PING\r\n" * 1000 + b"PUB last 2\r\nok\r\n")
        rest = wire.finish()
    assert rest.count(b"PONG\r\n") == 1000
    assert [message.payload for message in messages(rest)] == [b"ok"]
    until(lambda: connected(server) == 0, "it is forgotten")


def test_who_comes_to_the_place_of_another_is_not_taken_for_it(server: Server) -> None:
    abort = struct.pack("ii", 1, 0)
    with Wire(server.port) as witness:
        witness.connect().ask(b"SUB seen 1\r\n")
        for number in range(200):
            with Wire(server.port) as wire:
                own = b"own %d" % number
                wire.send(b'CONNECT {"verbose":false}\r\nSUB own 1\r\n')
                wire.send(b"PUB seen %d\r\n%s\r\n" % (len(own), own))
                # Of three, one leaves in order, and of those who break off one takes its answer.
                if number % 3:
                    assert wire.ask(b"PUB own 1\r\nx\r\n") == b"MSG own 1 1\r\nx\r\n"
                if number % 3 != 1:
                    # A reset may overtake what was said before it.
                    wire.wait_read()
                    wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, abort)
        until(lambda: connected(server) == 1, "all others are forgotten")
        got = [message.payload for message in messages(witness.ask(b""))]
    assert sorted(got) == sorted(b"own %d" % number for number in range(200))


def test_a_flood_leaves_turns_to_every_other_client(server: Server) -> None:
    chunk = b"PUB flood 1000\r\n%s\r\n" % (b"x" * 1000) * 1000
    with contextlib.ExitStack() as stack:
        wires = [stack.enter_context(Wire(server.port)) for _ in range(CLIENTS)]
        flooding = stack.enter_context(Wire(server.port)).connect()
        stack.enter_context(meanwhile(lambda: flooding.send(chunk)))
        for number in range(5):
            for wire in wires:
                wire.send(b"SUB each.%d 1\r\nPUB each.%d 0\r\n\r\nPING\r\n" % (number, number))
            for wire in wires:
                wire.until(b"PONG\r\n")


def test_who_is_closed_for_an_error_takes_nobody_along(server: Server) -> None:
    with contextlib.ExitStack() as stack:
        wires = [stack.enter_context(Wire(server.port)).connect() for _ in range(100)]
        for number, wire in enumerate(wires):
            wire.send(b"NONSENSE\r\n" if number % 2 else b"PING\r\n")
        for number, wire in enumerate(wires):
            if number % 2:
                assert wire.until_closed() == b"-ERR 'Unknown Protocol Operation'\r\n"
            else:
                assert wire.line() == b"PONG\r\n"
                assert wire.ask(b"") == b""


def test_a_client_that_always_answers_at_once_leaves_turns_to_others(
    serve: Serve, certificates: Certificates
) -> None:
    server = serve(certificates.config() + "allow_non_tls: true\n")
    with Wire(server.port) as busy:
        busy.connect()
        with meanwhile(lambda: None if busy.ask(b"") == b"" else busy.close()):
            with socket.create_connection(("127.0.0.1", server.port), timeout=10) as plain:
                assert plain.recv(1 << 16).startswith(b"INFO ")
                context = certificates.trusting()
                with context.wrap_socket(plain, server_hostname="localhost") as secure:
                    secure.sendall(b'CONNECT {"verbose":false}\r\n')
                    for _ in range(100):
                        secure.sendall(b"PING\r\n")
                        assert secure.recv(100) == b"PONG\r\n"
            for _ in range(20):
                assert connected(server) >= 1
