"""Connections of callers over HTTP: who waits keeps his, who may not come in is told."""

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.peers import Serve

import mq9
from mq9.agent_tools import ToolFailure
from mq9.errors import AccessDenied
from mq9.mcp.access import Callers, Credentials, Request, caller

USERS = "authorization {{ users = [ {} ] }}\n"


def users(*names: str) -> str:
    return USERS.format(", ".join(f"{{ user: {name}, password: p }}" for name in names))


@asynccontextmanager
async def request(user: str) -> AsyncIterator[None]:
    known = base64.b64encode(f"{user}:p".encode()).decode()
    this = Request({"authorization": f"Basic {known}"}, [])
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

    return Callers(connect, nameless=False, most=most)


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
