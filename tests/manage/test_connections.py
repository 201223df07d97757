"""Clients that do not get on: they keep nobody out, and their connections are closed."""

import asyncio
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import httpx
import psutil
import pytest
from fastapi import FastAPI
from starlette.responses import Response
from tests.manage.conftest import Manage
from tests.manage.test_process import process_of
from tests.peers import until

from mq9.manage.connections import MOST, Server

ELSEWHERE = "127.0.0.2"
LARGE = 32 << 20


def connect(stack: ExitStack, port: int, source: str = "127.0.0.1") -> socket.socket:
    found = socket.create_connection(("127.0.0.1", port), timeout=20, source_address=(source, 0))
    return stack.enter_context(found)


def is_closed(connection: socket.socket) -> bool:
    """Whether the other side has closed it; what came before that is read."""
    connection.setblocking(False)
    try:
        while connection.recv(1 << 20):
            pass
    except BlockingIOError:
        return False
    except ConnectionError:
        return True
    return True


def test_idle_clients_keep_nobody_out(manage: Manage) -> None:
    found = manage()
    port = int(found.url.rpartition(":")[2])
    with ExitStack() as stack:
        other = connect(stack, port, ELSEWHERE)
        idle = [connect(stack, port) for _ in range(300)]
        with found.client() as client:
            for path in ("/healthz", "/metrics", "/"):
                assert client.get(path).status_code == 200
        until(lambda: sum(map(is_closed, idle)) >= 300 - MOST, "some of them are closed", 20)
        closed = [is_closed(each) for each in idle]
        assert all(closed[:40]), "the oldest go first"
        assert not any(closed[-100:]), "and no more of them than have to"
        assert not is_closed(other), "one of another address stays"
        other.setblocking(True)
        other.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert other.recv(100).startswith(b"HTTP/1.1 200")


@pytest.fixture(scope="module")
def impatient() -> Iterator[int]:
    """The port of a server that waits for a second, in place of twenty."""
    app = FastAPI()

    @app.get("/large")
    async def large() -> Response:
        return Response(b"x" * LARGE)

    @app.get("/slow")
    async def slow() -> Response:
        await asyncio.sleep(2.5)
        return Response(b"at last")

    @app.post("/taken")
    async def taken(given: dict[str, str]) -> dict[str, str]:
        return given

    server = Server(app, silent_s=1.0)
    listening = socket.create_server(("127.0.0.1", 0))
    listening.setblocking(False)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([listening])))
    thread.start()
    yield int(listening.getsockname()[1])
    server.should_exit = True
    thread.join(20)


HEAD = b" HTTP/1.1\r\nHost: localhost\r\n"


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"GET /lar",
        b"GET /large" + HEAD,
        b"POST /taken" + HEAD + b"Content-Type: application/json\r\nContent-Length: 90\r\n\r\n{",
        b"GET /large" + HEAD + b"\r\n",
        b"GET /none" + HEAD + b"\r\n",
    ],
    ids=["nothing", "half a line", "half a head", "half a body", "reads nothing", "then nothing"],
)
def test_a_silent_client_is_closed(impatient: int, said: bytes) -> None:
    with ExitStack() as stack:
        client = connect(stack, impatient)
        client.sendall(said)
        ends = ("127.0.0.1", impatient), client.getsockname()

        def is_open() -> bool:
            """Seen from the server's side: nothing is read here, so it has to close by itself."""
            found = psutil.Process().net_connections("tcp")
            return any(
                (each.laddr, each.raddr) == ends and each.status == psutil.CONN_ESTABLISHED
                for each in found
            )

        until(is_open, "it is accepted", 20)
        until(lambda: not is_open(), "it is closed", 20)


def test_one_that_drips_is_closed_too(impatient: int) -> None:
    with ExitStack() as stack:
        client = connect(stack, impatient)

        def drip() -> bool:
            try:
                client.sendall(b"x")
            except ConnectionError:
                return True
            return False

        until(drip, "it is closed", 20)


def test_one_that_waits_for_a_slow_reply_is_not(impatient: int) -> None:
    assert httpx.get(f"http://127.0.0.1:{impatient}/slow", timeout=20).text == "at last"


def test_one_that_reads_slowly_gets_all(impatient: int) -> None:
    with ExitStack() as stack:
        client = connect(stack, impatient)
        client.sendall(b"GET /large" + HEAD + b"Connection: close\r\n\r\n")
        read = 0
        pause = threading.Event()
        while data := client.recv(1 << 20):
            read += len(data)
            pause.wait(0.03)
        assert read > LARGE


def test_messages_go_first(manage: Manage) -> None:
    """The page gives way to the broker on a busy machine."""
    own = os.getpriority(os.PRIO_PROCESS, 0)
    assert process_of(manage()).nice() == min(own + 5, 19)
