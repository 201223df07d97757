"""Connections of callers over HTTP: who waits keeps his, who may not come in is told."""

import asyncio
import base64
import contextlib
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

pytest.importorskip("mcp", reason="needs the extra mcp")

from tests.mcp.test_mcp import ask, calling, over_http
from tests.peers import Serve, Server

import mq9
from mq9.agent_tools import ToolFailure
from mq9.errors import AccessDenied
from mq9.mcp.access import MOST_OPENING, MOST_WAITING, Callers, Credentials, Request, caller

USERS = "authorization {{ users = [ {} ] }}\n"


def users(*names: str) -> str:
    return USERS.format(", ".join(f"{{ user: {name}, password: p }}" for name in names))


@asynccontextmanager
async def request(user: str, address: str = "127.0.0.1") -> AsyncIterator[None]:
    known = base64.b64encode(f"{user}:p".encode()).decode()
    this = Request({"authorization": f"Basic {known}"}, address, [])
    before = caller.set(this)
    try:
        yield
    finally:
        for end in this.at_end:
            end()
        caller.reset(before)


def callers(url: str, most: int) -> Callers:
    def connect(who: Credentials) -> mq9.Client:
        return mq9.Client(url, user=who.user, password=who.password, timeout=2)

    return Callers(connect, on_loopback=False, most=most)


async def test_idle_connections_make_room_and_busy_ones_stay(serve: Serve) -> None:
    served = callers(serve(users("a", "b", "c")).url, most=2)
    async with request("a"):
        waiting = await served.client()
        async with request("b"):
            idle = await served.client()
        async with request("c"):
            third = await served.client()
            assert waiting.connected
            with pytest.raises(ToolFailure, match="2 callers are served"):
                async with request("b"):
                    await served.client()
        async with request("c"):
            assert await served.client() is third
        async with asyncio.timeout(30):
            while idle.connected:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert await waiting.list_public_mailboxes() == []
    await served.close()
    assert not waiting.connected
    assert not third.connected


async def test_a_user_who_was_removed_is_told_so_at_once(serve: Serve) -> None:
    server = serve(users("a", "b"))
    served = callers(server.url, most=5)
    async with request("a"):
        first = await served.client()
    server.reconfigure(users("b"))
    async with asyncio.timeout(30):
        while first.connected:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    async with request("a"):
        with pytest.raises(AccessDenied):
            await served.client()
    await served.close()


def fetches(server: Server) -> int:
    """How many requests callers have made."""
    connections = server.monitor("/connz")["connections"]
    return sum(one["in_msgs"] for one in connections if one.get("name") == "mq9-cli")


async def test_mail_for_a_caller_who_hung_up_is_given_to_the_next(serve: Serve) -> None:
    server = serve()
    async with mq9.Client(server.url) as sender:
        await sender.create_mailbox("in")
        with over_http(server.url) as url:
            async with calling(url) as gone:
                wait = {"address": "in", "seconds": 60}
                call = asyncio.create_task(gone.call_tool("wait_for_mail", wait))
                # The first FETCH does not wait, the second does.
                async with asyncio.timeout(30):
                    while fetches(server) < 2:  # noqa: ASYNC110
                        await asyncio.sleep(0.01)
                call.cancel()
            await sender.send("in", "for whoever is there")
            async with calling(url) as here:
                taken = await ask(here, "wait_for_mail", address="in", seconds=10)
        assert [message["body"] for message in taken["messages"]] == ["for whoever is there"]


async def test_a_fetch_that_was_given_up_keeps_nothing_from_its_group(serve: Serve) -> None:
    async with mq9.Client(serve().url) as client:
        await client.create_mailbox("in")
        for text in ("one", "two", "three"):
            fetch = asyncio.create_task(client.fetch("in", group="g", max_wait=60, held=False))
            await client.query("in")
            fetch.cancel()
            with pytest.raises(asyncio.CancelledError):
                await fetch
            await client.send("in", text)
            [given] = await client.fetch("in", group="g", max_wait=10, held=False)
            assert given.text == text
            await client.ack(given)


async def test_a_crowd_of_one_address_is_bounded_and_keeps_nobody_else_out(serve: Serve) -> None:
    broker, silent = serve(users("honest")).url, socket.create_server(("127.0.0.1", 0), backlog=999)
    silent.setblocking(False)
    never = f"nats://127.0.0.1:{silent.getsockname()[1]}"

    def connect(who: Credentials) -> mq9.Client:
        url = broker if who.user == "honest" else never
        return mq9.Client(url, user=who.user, password=who.password, connect_timeout=600)

    async def attempt(number: int) -> None:
        async with request(f"made-up-{number}", "203.0.113.9"):
            await served.client()

    served = Callers(connect, on_loopback=False)
    crowd = [asyncio.create_task(attempt(number)) for number in range(300)]
    async with asyncio.timeout(60):
        # Those who may wait for their turn are counted, too.
        done, _ = await asyncio.wait(crowd, return_when=asyncio.FIRST_COMPLETED)
        assert "too many" in str(done.pop().exception())
        async with request("honest", "203.0.113.10"):
            assert (await served.client()).connected
        while sum(one.done() for one in crowd) < 300 - MOST_OPENING - MOST_WAITING:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    connected = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            silent.accept()[0].close()
            connected += 1
    assert connected <= MOST_OPENING
    for one in crowd:
        one.cancel()
    await asyncio.gather(*crowd, return_exceptions=True)
    silent.close()
    await served.close()


async def test_requests_of_one_caller_open_one_connection(serve: Serve) -> None:
    url = serve(users("a")).url
    opened: list[mq9.Client] = []

    def connect(who: Credentials) -> mq9.Client:
        opened.append(mq9.Client(url, user=who.user, password=who.password))
        return opened[-1]

    async def attempt() -> mq9.Client:
        async with request("a"):
            return await served.client()

    served = Callers(connect, on_loopback=False)
    given = await asyncio.gather(*(attempt() for _ in range(100)))
    assert set(given) <= set(opened)
    assert len(set(given)) == 1
    assert len(opened) <= MOST_OPENING
    await served.close()


def test_what_a_caller_shows_is_not_shown_in_turn() -> None:
    known = base64.b64encode(b"ann:secret").decode()
    for given in (f"Basic {known}", "Bearer secret"):
        shown = Credentials.of({"authorization": given})
        assert "secret" in (shown.password or "", shown.token or "")
        assert "secret" not in repr(shown)
