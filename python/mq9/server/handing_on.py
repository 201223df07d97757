"""Clients of a node that follows: their connections are handed on to the leader, byte for byte.

Knows sockets, not what is said on them. So TLS, users, long polls, pushes and disconnects are the
leader's.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from mq9.server.listener import Listener

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence

    from mq9.server.logs import Log

# A client that waits longer for a leader than this looks for another node.
_PATIENCE_S = 5.0
_AGAIN_S = 0.1
_HELD_BYTES = 256 * 1024
# Whoever takes nothing of what waits for it in this time is let go, as the leader would.
_STUCK_S = 10.0


class HandingOn:
    """Accepts clients, and joins each with a connection to the leader."""

    def __init__(self, sockets: Sequence[socket.socket], log: Log) -> None:
        self._log = log
        self._leader: tuple[str, int] | None = None
        self._known = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._sides: set[_Side] = set()
        self._listener = Listener(sockets, self._enter, log)

    def to(self, leader: tuple[str, int] | None) -> None:
        """This is the leader now; connections to another one end, and clients connect again."""
        if leader == self._leader:
            return
        self._leader = leader
        self._end_all()
        if leader is None:
            self._known.clear()
        else:
            self._log.info(f"Clients are handed on to {leader[0]}:{leader[1]}")
            self._known.set()

    def close(self) -> None:
        """Accept nobody, and end all connections."""
        self._listener.close()
        for task in tuple(self._tasks):
            task.cancel()
        self._end_all()

    def _end_all(self) -> None:
        for side in tuple(self._sides):
            side.end()

    def _enter(self, accepted: socket.socket, _address: tuple[str, int]) -> None:
        task = asyncio.get_running_loop().create_task(self._join(accepted))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _join(self, accepted: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            inner = await self._connect()
        except (TimeoutError, asyncio.CancelledError):
            accepted.close()
            return
        try:
            await loop.connect_accepted_socket(lambda: _Side(self._sides, inner), accepted)
        except OSError:
            accepted.close()
            inner.end()

    async def _connect(self) -> _Side:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(_PATIENCE_S):
            while True:
                await self._known.wait()
                if self._leader is not None:
                    host, port = self._leader
                    try:
                        _, side = await loop.create_connection(
                            lambda: _Side(self._sides), host, port
                        )
                    except OSError:
                        # It may be about to be known that another leads.
                        await asyncio.sleep(_AGAIN_S)
                    else:
                        return side


class _Side(asyncio.Protocol):
    """One of two joined connections: what comes in here goes out there."""

    def __init__(self, sides: set[_Side], other: _Side | None = None) -> None:
        self._sides = sides
        self._other = other
        self._transport: asyncio.Transport | None = None
        self._early = bytearray()
        self._waiting_bytes = 0
        self._look_again: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin; the second of two tells the first."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=_HELD_BYTES)
        self._sides.add(self)
        if self._other is not None:
            self._other.meet(self)

    def meet(self, other: _Side) -> None:
        """From now on what was said goes there."""
        self._other = other
        other.write(bytes(self._early))
        self._early.clear()
        if self._transport is None or self._transport.is_closing():
            other.end()

    def data_received(self, data: bytes) -> None:
        """Hand it on."""
        if self._other is None:
            self._early += data
        else:
            self._other.write(data)

    def write(self, data: bytes) -> None:
        """Say it to this side."""
        if self._transport is not None and data:
            self._transport.write(data)

    def pause_writing(self) -> None:
        """This side does not take what it is told: the other is not listened to."""
        if self._other is not None:
            self._other.listen(False)
        # The other is not even heard to be gone until this side takes something.
        self._expect_progress()

    def resume_writing(self) -> None:
        """It does again."""
        if self._transport is not None and not self._transport.is_closing():
            self._expect_nothing()
        if self._other is not None:
            self._other.listen(True)

    def listen(self, wanted: bool) -> None:
        """Read from this side, or do not."""
        transport = self._transport
        if transport is not None and not transport.is_closing():
            if wanted:
                transport.resume_reading()
            else:
                transport.pause_reading()

    def connection_lost(self, _exc: Exception | None) -> None:
        """This side is gone: what was said before still reaches the other."""
        self._sides.discard(self)
        self._expect_nothing()
        if self._other is not None:
            self._other.end()

    def end(self) -> None:
        """Close this side once it has taken everything, or takes nothing."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.close()
            self._expect_progress()

    def _expect_progress(self) -> None:
        if self._transport is not None:
            self._expect_nothing()
            self._waiting_bytes = self._transport.get_write_buffer_size()
            loop = asyncio.get_running_loop()
            self._look_again = loop.call_later(_STUCK_S, self._look)

    def _expect_nothing(self) -> None:
        if self._look_again is not None:
            self._look_again.cancel()
            self._look_again = None

    def _look(self) -> None:
        assert self._transport is not None
        if self._transport.get_write_buffer_size() < self._waiting_bytes:
            self._expect_progress()
        else:
            self._transport.abort()
