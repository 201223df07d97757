"""Connecting: several attempts at once, and attempts that come to nothing."""

import asyncio
import contextlib

import pytest
from tests.peers import Serve, Server

import mq9
from mq9 import errors


async def nobody_is_connected(server: Server) -> None:
    async with asyncio.timeout(10):
        while server.monitor("/connz")["connections"]:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


class Delays:
    """Between clients and a broker: of the connections after the first, one is let in late."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._connections = 0
        self._open: list[asyncio.StreamWriter] = []
        self._passing: set[asyncio.Task[None]] = set()
        self.late: set[int] = set()

    async def __aenter__(self) -> "Delays":
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.url = f"nats://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.cut()
        await asyncio.gather(*self._passing)

    def cut(self) -> None:
        for writer in self._open:
            writer.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        if self._connections in self.late:
            await asyncio.sleep(0.5)
        to_reader, to_writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._open += [writer, to_writer]
        for one, other in ((reader, to_writer), (to_reader, writer)):
            task = asyncio.create_task(self._pass(one, other))
            self._passing.add(task)
            task.add_done_callback(self._passing.discard)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
        writer.close()


async def test_connecting_twice_at_once_is_connecting_once(server: Server) -> None:
    async with Delays(server.port) as between:
        between.late = {1}
        client = mq9.Client(between.url, timeout=2)
        await asyncio.gather(client.connect(), client.connect())
        try:
            address = await client.create_mailbox()
            assert await client.query(address) == []
        finally:
            await client.close()


async def test_connect_while_the_client_connects_again_itself(serve: Serve) -> None:
    server = serve()
    async with Delays(server.port) as between, mq9.Client(between.url, timeout=2) as client:
        await client.create_mailbox("a")
        between.late = {2}
        between.cut()
        while client.connected:  # noqa: ASYNC110
            await asyncio.sleep(0)
        # The client's own attempt is under way, and slower than this one.
        await asyncio.sleep(0.1)
        await client.connect()
        await asyncio.sleep(0.8)
        assert await client.query("a") == []
        assert len(server.monitor("/connz")["connections"]) == 1


async def test_a_client_closed_while_it_connects_has_no_connection(serve: Serve) -> None:
    server = serve()
    async with Delays(server.port) as between:
        between.late = {1}
        client = mq9.Client(between.url)
        connecting = asyncio.create_task(client.connect())
        await asyncio.sleep(0.1)
        await client.close()
        with pytest.raises(errors.ClientClosed):
            await connecting
        await nobody_is_connected(server)


async def test_a_connection_that_hears_no_replies_is_not_left_open(serve: Serve) -> None:
    server = serve()
    client = mq9.Client(server.url, inbox_prefix="no place")
    with pytest.raises(errors.BrokerUnavailable, match="subject"):
        await client.connect()
    await nobody_is_connected(server)
