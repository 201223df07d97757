"""Who is calling: every caller acts at the broker with credentials of its own.

Over standard input there is one caller. Over HTTP the header `Authorization` of each request says
who it is, and the broker decides what that user may do. The server has no rights to lend.
"""

import asyncio
import base64
import binascii
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass

from mq9.agent_tools import ToolFailure
from mq9.client import Client

_MOST_CONNECTIONS = 256


@dataclass(frozen=True)
class Credentials:
    """What a caller shows to the broker; nothing at all is a caller without a name."""

    user: str | None = None
    password: str | None = None
    token: str | None = None

    @classmethod
    def of(cls, headers: Mapping[str, str]) -> "Credentials":
        """From a request: `Basic` is user and password, `Bearer` a token."""
        scheme, _, given = headers.get("authorization", "").strip().partition(" ")
        if not scheme:
            return cls()
        if scheme.lower() == "bearer" and given.strip():
            return cls(token=given.strip())
        if scheme.lower() == "basic":
            try:
                user, colon, password = (
                    base64.b64decode(given, validate=True).decode().partition(":")
                )
            except (binascii.Error, UnicodeDecodeError):
                colon = ""
            if colon:
                return cls(user=user, password=password)
        raise ToolFailure("the header Authorization is neither Basic nor Bearer")


caller: ContextVar[Mapping[str, str] | None] = ContextVar("mq9_mcp_caller", default=None)
"""The headers of the request that is carried out."""


class Callers:
    """One connection for each caller, kept for the next request; the oldest make room."""

    def __init__(self, connect: Callable[[Credentials], Client], *, nameless: bool) -> None:
        """`nameless` says whether a request without credentials is carried out."""
        self._connect = connect
        self._nameless = nameless
        self._clients: OrderedDict[Credentials, Client] = OrderedDict()
        self._lock = asyncio.Lock()

    async def client(self) -> Client:
        """The connection of the request that is carried out."""
        credentials = Credentials.of(caller.get() or {})
        if credentials == Credentials() and not self._nameless:
            raise ToolFailure("the request has no header Authorization: it must say who you are")
        async with self._lock:
            if (known := self._clients.get(credentials)) is not None:
                self._clients.move_to_end(credentials)
                return known
        client = await self._connect(credentials).connect()
        async with self._lock:
            # Somebody may have been quicker.
            if (known := self._clients.get(credentials)) is not None:
                await client.close()
                return known
            self._clients[credentials] = client
            if len(self._clients) > _MOST_CONNECTIONS:
                _, oldest = self._clients.popitem(last=False)
                await oldest.close()
        return client

    async def close(self) -> None:
        """Close all connections."""
        while self._clients:
            _, client = self._clients.popitem()
            await client.close()
