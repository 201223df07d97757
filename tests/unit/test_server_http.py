"""The HTTP of the monitoring port is bounded: methods, sizes, connections, time."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from mq9.server import http_server
from mq9.server.http_server import HttpServer, Request, Response
from mq9.server.listener import listen
from mq9.server.query import QueryError, boolean, integer

DEADLINE_S = 20


async def hello(request: Request) -> Response:
    return Response(f"hello {request.target}".encode(), headers=(("X-Test", "1"),))


@contextlib.asynccontextmanager
async def serving() -> AsyncIterator[int]:
    server, sockets = HttpServer(hello), listen("127.0.0.1", -1)
    port: int = sockets[0].getsockname()[1]
    await server.start(sockets)
    try:
        async with asyncio.timeout(DEADLINE_S):
            yield port
    finally:
        await server.close()


async def ask(port: int, *sent: bytes) -> bytes:
    """All that the server says until it closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    with contextlib.suppress(ConnectionError):
        for part in sent:
            writer.write(part)
            await writer.drain()
    said = b""
    with contextlib.suppress(ConnectionError):
        while chunk := await reader.read(65536):
            said += chunk
    writer.close()
    return said


GET = b"GET /a HTTP/1.1\r\nHost: x\r\n"
CLOSE = b"Connection: close\r\n\r\n"


def test_requests_follow_each_other_on_a_connection() -> None:
    async def check() -> None:
        async with serving() as port:
            said = await ask(port, GET + b"\r\n", b"GET /b HTTP/1.1\r\nHost: x\r\n", CLOSE)
            assert said.count(b"HTTP/1.1 200 ") == 2
            assert b"hello /a" in said
            assert said.endswith(b"hello /b")
            assert b"X-Test: 1\r\n" in said

    asyncio.run(check())


def test_head_has_no_body() -> None:
    async def check() -> None:
        async with serving() as port:
            said = await ask(port, b"HEAD /a HTTP/1.1\r\nHost: x\r\n", CLOSE)
            assert b"Content-Length: 8\r\n" in said
            assert said.endswith(b"\r\n\r\n")

    asyncio.run(check())


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi", 405),
        (b"DELETE /a HTTP/1.1\r\nHost: x\r\n" + CLOSE, 405),
        (b"rubbish\r\n\r\n", 400),
        (b"GET /a HTTP/1.1\r\n\r\n", 400),
        (GET + b"X: " + b"y" * 40_000, 431),
        (b"GET /" + b"y" * 40_000, 431),
        (b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 99999\r\n\r\n" + b"y" * 40_000, 413),
    ],
)
def test_what_is_not_wanted_is_refused(sent: bytes, status: int) -> None:
    async def check() -> None:
        async with serving() as port:
            assert (await ask(port, sent)).startswith(b"HTTP/1.1 %d " % status)

    asyncio.run(check())


def test_a_slow_request_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "_REQUEST_TIMEOUT_S", 0.05)

    async def check() -> None:
        async with serving() as port:
            assert await ask(port, GET) == b""

    asyncio.run(check())


def test_connections_are_bounded_and_whoever_comes_finds_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_server, "_CONNECTIONS", 2)

    async def check() -> None:
        async with serving() as port:
            held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
            for reader, writer in held:
                writer.write(GET + b"\r\n")
                assert await reader.readline() == b"HTTP/1.1 200 \r\n"
            assert b"hello /a" in await ask(port, GET, CLOSE)
            # The one that was of use least recently made room.
            (idle, idle_writer), (reader, writer) = held
            assert (await idle.read()).endswith(b"hello /a")
            writer.write(GET + CLOSE)
            assert (await reader.read()).count(b"hello /a") == 2
            idle_writer.close()
            writer.close()

    asyncio.run(check())


def test_slow_connections_do_not_shut_out_others() -> None:
    async def check() -> None:
        async with serving() as port:
            slow = [await asyncio.open_connection("127.0.0.1", port) for _ in range(200)]
            for _, writer in slow:
                writer.write(GET)
            for _ in range(10):
                assert b"hello /a" in await ask(port, GET, CLOSE)
            for _, writer in slow:
                writer.close()

    asyncio.run(check())


def test_an_address_with_many_connections_makes_room_for_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_server, "_CONNECTIONS", 8)

    async def check() -> None:
        async with serving() as port:
            other = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.2", 0))
            many = [await asyncio.open_connection("127.0.0.1", port) for _ in range(50)]
            for _, writer in many:
                writer.write(GET)
            assert b"hello /a" in await ask(port, GET, CLOSE)
            reader, writer = other
            writer.write(GET + CLOSE)
            assert b"hello /a" in await reader.read()
            writer.close()
            for _, writer in many:
                writer.close()

    asyncio.run(check())


def test_the_addresses_of_a_network_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has an IPv6 network has as many addresses as they like."""
    monkeypatch.setattr(http_server, "_CONNECTIONS", 8)
    ip = http_server._ip
    networks = {"127.0.0.": "2001:db8::{}", "127.0.1.": "2001:db8:0:1::{}"}

    def as_ipv6(writer: asyncio.StreamWriter, which: str) -> str:
        start, last = ip(writer, which)[:8], ip(writer, which)[8:]
        return networks[start].format(last)

    monkeypatch.setattr(http_server, "_ip", as_ipv6)

    async def check() -> None:
        async with serving() as port:
            other = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.1.1", 0))
            many = [
                await asyncio.open_connection("127.0.0.1", port, local_addr=(f"127.0.0.{n}", 0))
                for n in range(2, 40)
            ]
            assert b"hello /a" in await ask(port, GET, CLOSE)
            reader, writer = other
            writer.write(GET + CLOSE)
            assert b"hello /a" in await reader.read()
            for _, writer in (other, *many):
                writer.close()

    asyncio.run(check())


def test_parameters_are_read_as_go_reads_them() -> None:
    assert [boolean({"a": text}, "a") for text in ("1", "true", "T", "0", "False", "")] == [
        *(True, True, True),
        *(False, False, False),
    ]
    assert not boolean({}, "a")
    assert [integer({"a": text}, "a") for text in ("7", "-7", "")] == [7, -7, 0]
    with pytest.raises(QueryError, match="'subs'"):
        boolean({"subs": "yes"}, "subs")
    for text in ("x", "1.5", "9" * 5000):
        with pytest.raises(QueryError, match="'limit'"):
            integer({"limit": text}, "limit")
