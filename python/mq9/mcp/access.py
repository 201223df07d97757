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
from dataclasses import dataclass, field

from mq9.agent_tools import ToolFailure
from mq9.client import Client
from mq9.local_requests import is_local

_MOST_CONNECTIONS = 256
MOST_OPENING = 8
"""How many connections are opened at once for the callers of one address."""
MOST_WAITING = 256
"""How many more callers of one address wait for theirs."""


@dataclass(frozen=True)
class Credentials:
    """What a caller shows to the broker; nothing at all is a caller without a name."""

    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)

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
    """A request that is carried out: headers, sender's address, what is to be done at its end."""

    headers: Mapping[str, str]
    address: str
    at_end: list[Callable[[], None]]


caller: ContextVar[Request | None] = ContextVar("mq9_mcp_caller", default=None)
"""The request that is carried out."""


@dataclass(eq=False)
class _Connection:
    client: Client
    is_open_to_all: bool
    """Whether the broker gives it to everybody, whatever name they have."""
    requests: int = 0
    """How many use it now."""
    kept: bool = True


@dataclass(eq=False)
class _Opening:
    """The connections that are opened for callers of one address."""

    turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MOST_OPENING))
    callers: int = 0


class Callers:
    """One connection for each caller, kept for the next request; idle ones make room."""

    def __init__(
        self,
        connect: Callable[[Credentials], Client],
        *,
        on_loopback: bool,
        most: int = _MOST_CONNECTIONS,
    ) -> None:
        """Only a server that listens `on_loopback` serves callers who prove no name."""
        self._connect = connect
        self._on_loopback = on_loopback
        self._most = most
        self._connections: OrderedDict[Credentials, _Connection] = OrderedDict()
        self._opening: dict[str, _Opening] = {}
        self._closing: set[asyncio.Task[None]] = set()

    async def client(self) -> Client:
        """The connection of the request that is carried out, which nobody closes before its end."""
        request = caller.get()
        credentials = Credentials.of(request.headers if request else {})
        # To the broker every caller is on this machine, and so perhaps an operator: whoever may be
        # elsewhere has to prove a name.
        local = bool(request and self._on_loopback and is_local(request.headers, request.address))
        if credentials == Credentials() and not local:
            raise ToolFailure("the request has no header Authorization: it must say who you are")
        known = self._known(credentials)
        if known is None:
            known = await self._in_turn(credentials, request.address if request else "")
        if known.is_open_to_all and not local:
            raise ToolFailure(
                "the broker asks nobody who they are, so only callers of the same machine are "
                "served, and not through a proxy: give the broker users"
            )
        self._connections.move_to_end(credentials)
        self._use(known, request)
        return known.client

    async def close(self) -> None:
        """Close all connections."""
        while self._connections:
            _, connection = self._connections.popitem()
            await connection.client.close()
        await asyncio.gather(*self._closing)

    def _known(self, credentials: Credentials) -> _Connection | None:
        known = self._connections.get(credentials)
        if known is not None and not known.client.connected:
            # It may be that this user is no longer let in: a new connection finds out at once.
            self._drop(credentials)
            known = None
        return known

    async def _in_turn(self, credentials: Credentials, address: str) -> _Connection:
        """A crowd of wrong passwords must not be in the way of callers of other addresses."""
        opening = self._opening.setdefault(address, _Opening())
        if opening.callers >= MOST_OPENING + MOST_WAITING:
            raise ToolFailure("too many callers of your address want to come in: try again later")
        opening.callers += 1
        try:
            async with opening.turns:
                # Another request of this caller may have been quicker, here and below.
                return self._known(credentials) or await self._open(credentials)
        finally:
            opening.callers -= 1
            if not opening.callers:
                del self._opening[address]

    async def _open(self, credentials: Credentials) -> _Connection:
        client = await self._connect(credentials).connect()
        known = self._known(credentials)
        if known is not None:
            await client.close()
            return known
        self._make_room(client)
        # Where this is not said, the client shows no credentials either.
        asked = client.nats._server_info.get("auth_required", False)
        opened = self._connections[credentials] = _Connection(client, not asked)
        return opened

    def _use(self, connection: _Connection, request: Request | None) -> None:
        if request is None:
            return
        connection.requests += 1

        def ended() -> None:
            connection.requests -= 1
            if not connection.kept and not connection.requests:
                self._close(connection.client)

        request.at_end.append(ended)

    def _make_room(self, client: Client) -> None:
        if len(self._connections) < self._most:
            return None
        for credentials, connection in self._connections.items():
            if not connection.requests:
                return self._drop(credentials)
        self._close(client)
        raise ToolFailure(f"{self._most} callers are served at this moment: try again later")

    def _drop(self, credentials: Credentials) -> None:
        connection = self._connections.pop(credentials)
        connection.kept = False
        if not connection.requests:
            self._close(connection.client)

    def _close(self, client: Client) -> None:
        task = asyncio.create_task(client.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
