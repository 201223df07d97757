"""A connection that one subscription is pushed to.

Owns all that nats-py does not offer: messages are taken the moment they arrive, so that none is
lost with the connection; reading can be held back; pings can be answered later. Knows nothing of
mailboxes.
"""

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Protocol

import nats.errors
from nats.aio.client import Client as Nats
from nats.aio.msg import Msg

from mq9.client.connecting import PING_INTERVAL_S, Access, open_first
from mq9.errors import ConnectionLost

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


class Receiver(Protocol):
    """What is told of arrivals."""

    def on_message(self, msg: Msg) -> None:
        """A message has arrived."""

    def on_ping(self, link: "Link") -> None:
        """The broker asks whether all before it has arrived; `Link.pong` says so."""


class RefusedError(Exception):
    """The broker does not let the client subscribe, or no longer; the argument is its text."""


class Link:
    """One connection, one subject. It ends once, and `ended` is set then."""

    def __init__(self, receiver: Receiver, room: asyncio.Event) -> None:
        """While `room` is not set nothing more is read."""
        self._receiver = receiver
        self._room = room
        self._nats: Nats | None = None
        self._answer_ping: Callable[[], Awaitable[None]] | None = None
        self._sids: list[int] = []
        self._refusal: str | None = None
        self.ended = asyncio.Event()

    @property
    def refusal(self) -> str | None:
        """Why the broker ended the subscription."""
        return self._refusal

    async def open(self, urls: tuple[str, ...], access: Access, *, holds_pings: bool) -> None:
        """Connects; with `holds_pings` each ping of the broker waits for `pong`."""
        self._nats = await open_first(urls, access, self._on_error, lambda _: self.ended.set())
        self._nats._transport = _Gated(self._nats, self._room)  # type: ignore[assignment]
        if holds_pings:
            self._answer_ping = self._nats._process_ping
            self._nats._process_ping = self._on_ping  # type: ignore[method-assign]

    async def subscribe(self, subject: str, queue: str, most: int = 0) -> None:
        """Subscribes, to at most so many messages; behind the end of the one before it."""
        try:
            subscription = await self._connection.subscribe(
                subject, queue=queue, pending_msgs_limit=0, pending_bytes_limit=0
            )
            if most:
                # Without nats-py's own count: what comes before the broker has read this counts.
                await self._connection._send_unsubscribe(subscription._id, most)
        except (nats.errors.Error, OSError) as error:
            raise ConnectionLost(f"the connection broke: {error}") from error
        early, subscription._pending_queue = subscription._pending_queue, _Inflow(self._receiver)  # type: ignore[assignment]
        while not early.empty():
            self._receiver.on_message(early.get_nowait())
        # What is under way to the last one arrives before the first message of this one.
        self._sids.append(subscription._id)
        for sid in self._sids[:-2]:
            self._connection._remove_sub(sid)
        del self._sids[:-2]

    async def confirm(self, timeout: float) -> None:
        """Returns when the broker has carried out what it was told; raises if it refused."""
        try:
            # The first ping of nats-py overtakes what it has not written yet, the second does not.
            for _ in range(2):
                await self._connection.flush(timeout)  # type: ignore[arg-type]
        except (nats.errors.Error, OSError, TimeoutError) as error:
            raise ConnectionLost(f"the connection broke: {error}") from error
        if self._refusal is not None:
            raise RefusedError(self._refusal)

    async def pong(self) -> None:
        """Answers a ping; on a connection that has ended it is nothing to answer any more."""
        if self._answer_ping is not None and not self.ended.is_set():
            try:
                await self._answer_ping()
            except (nats.errors.Error, OSError):
                self.ended.set()

    async def close(self) -> None:
        """Writes what is to be written and closes."""
        self._room = asyncio.Event()
        self._room.set()
        self.ended.set()
        if self._nats is not None:
            await self._nats.close()

    @property
    def _connection(self) -> Nats:
        assert self._nats is not None
        return self._nats

    async def _on_ping(self) -> None:
        self._receiver.on_ping(self)

    def _on_error(self, error: Exception) -> None:
        text = str(error)
        # Nothing else is subscribed to here.
        if "permissions violation for subscription" in text:
            self._refusal = text.removeprefix("nats: ")
            self.ended.set()


class _Gated:
    """A transport of nats-py that reads only while there is room."""

    def __init__(self, nats: Nats, room: asyncio.Event) -> None:
        self._nats = nats
        self._transport: Any = nats._transport
        self._room = room

    async def read(self, size: int) -> bytes:
        while not self._room.is_set():
            # The answers to nats-py's pings wait unread: they are not missing.
            self._nats._pings_outstanding = 0
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._room.wait(), PING_INTERVAL_S / 2)
        self._nats._pings_outstanding = 0
        found: bytes = await self._transport.read(size)
        return found

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._transport, name)


class _Inflow:
    """Stands in for the queue of a subscription of nats-py."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver

    def put_nowait(self, msg: Msg | None) -> None:
        if msg is not None:
            self._receiver.on_message(msg)

    def qsize(self) -> int:
        return 0

    def empty(self) -> bool:
        return True
