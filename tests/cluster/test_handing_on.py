"""Clients of a follower cost it nothing once the leader has let go of them."""

import asyncio
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import uvloop

from mq9.server.handing_on import HandingOn
from mq9.server.listener import listen
from mq9.server.logs import Log

_MANY_BYTES = 64 << 20


def descriptors() -> int:
    """How many this process has open."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


async def until(what: Callable[[], bool]) -> None:
    """Wait until something is so."""
    for _ in range(600):
        if what():
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"{descriptors()} descriptors are open")


async def _serve_and_let_go() -> None:
    """A leader tells a client much more than it reads, and gives it up as nats-server would."""

    let_go = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.readexactly(5) == b"hello"
        writer.write(bytes(_MANY_BYTES))
        await let_go.wait()
        writer.transport.abort()

    leader = await asyncio.start_server(serve, "127.0.0.1", 0)
    address = leader.sockets[0].getsockname()
    sockets = listen("127.0.0.1", 0)
    handing_on = HandingOn(sockets, Log())
    handing_on.to(address)
    await asyncio.sleep(0)
    before = descriptors()
    clients = []
    try:
        for _ in range(3):
            client = socket.create_connection(sockets[0].getsockname())
            client.sendall(b"hello")
            clients.append(client)
        # Both ends of two connections each.
        await until(lambda: descriptors() >= before + 4 * len(clients))
        let_go.set()
        await until(lambda: descriptors() <= before + len(clients))
    finally:
        for client in clients:
            client.close()
        handing_on.close()
        leader.close()
        await leader.wait_closed()


def test_a_client_that_never_reads_is_let_go_once_the_leader_did() -> None:
    assert sys.platform == "linux"
    uvloop.run(_serve_and_let_go())
