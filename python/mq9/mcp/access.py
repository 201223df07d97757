"""Identity of callers: each acts at the broker with credentials of its own.

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


@dataclass(frozen=True)
class Request:
    """A request that is carried out: its headers, and what is to be done when it has ended."""

    headers: Mapping[str, str]
    at_end: list[Callable[[], None]]


caller: ContextVar[Request | None] = ContextVar("mq9_mcp_caller", default=None)
"""The request that is carried out."""


@dataclass(eq=False)
class _Connection:
    client: Client
    requests: int = 0
    """How many use it now."""
    kept: bool = True


class Callers:
    """One connection for each caller, kept for the next request; idle ones make room."""

    def __init__(
        self,
        connect: Callable[[Credentials], Client],
        *,
        nameless: bool,
        most: int = _MOST_CONNECTIONS,
    ) -> None:
        """`nameless` says whether a request without credentials is carried out."""
        self._connect = connect
        self._nameless = nameless
        self._most = most
        self._connections: OrderedDict[Credentials, _Connection] = OrderedDict()
        self._closing: set[asyncio.Task[None]] = set()

    async def client(self) -> Client:
        """The connection of the request that is carried out, which nobody closes before its end."""
        request = caller.get()
        credentials = Credentials.of(request.headers if request else {})
        if credentials == Credentials() and not self._nameless:
            raise ToolFailure("the request has no header Authorization: it must say who you are")
        known = self._connections.get(credentials)
        if known is not None and not known.client.connected:
            # It may be that this user is no longer let in: a new connection finds out at once.
            self._drop(credentials)
            known = None
        if known is None:
            client = await self._connect(credentials).connect()
            known = self._connections.get(credentials)
            if known is not None:
                # Another request of this caller was quicker.
                await client.close()
            else:
                self._make_room(client)
                known = self._connections[credentials] = _Connection(client)
        self._connections.move_to_end(credentials)
        self._use(known, request)
        return known.client

    async def close(self) -> None:
        """Close all connections."""
        while self._connections:
            _, connection = self._connections.popitem()
            await connection.client.close()
        await asyncio.gather(*self._closing)

    def _use(self, connection: _Connection, request: Request | None) -> None:
        if request is None:
            return
        connection.requests += 1

        def ended() -> None:
            connection.requests -= 1
            if not connection.kept and not connection.requests:
                self._close(connection)

        request.at_end.append(ended)

    def _make_room(self, client: Client) -> None:
        if len(self._connections) < self._most:
            return None
        for credentials, connection in self._connections.items():
            if not connection.requests:
                return self._drop(credentials)
        self._close(_Connection(client))
        raise ToolFailure(f"{self._most} callers are served at this moment: try again later")

    def _drop(self, credentials: Credentials) -> None:
        connection = self._connections.pop(credentials)
        connection.kept = False
        if not connection.requests:
            self._close(connection)

    def _close(self, connection: _Connection) -> None:
        task = asyncio.create_task(connection.client.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
