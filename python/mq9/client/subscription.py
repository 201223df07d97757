"""Pushed messages for a program: an iterator, or a handler that is called.

Owns what has arrived and was not handed out yet, when a message counts as done, and the way back
after the connection broke. What a duplicate is, and what the broker gives again, is the source's.
"""

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Generic, Self, TypeVar

from nats.aio.msg import Msg

from mq9.client.handlers import call, threads_for
from mq9.client.link import Link, RefusedError
from mq9.client.sources import EndedError, Source
from mq9.client.tasks import end_tasks
from mq9.client.wire import Wire
from mq9.errors import AccessDenied, BrokerUnavailable, InvalidField, Mq9Error

Item = TypeVar("Item")

_log = logging.getLogger("mq9.client")

_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 2.0
_BUFFER_BYTES = 32 << 20


class Subscription(Generic[Item]):
    """Iterate over it with `async for` inside `async with`, or `run` it with a handler.

    It has a connection of its own, so a slow program delays nothing else. A broken connection is
    opened again, and goes on where it was.
    """

    def __init__(
        self, wire: Wire, source: Source[Item], *, limit: int | None, timeout: float
    ) -> None:
        if limit is not None and limit < 1:
            raise InvalidField(f"limit is {limit}: it must be at least 1")
        self._wire = wire
        self._source = source
        self._left = limit
        self._timeout = timeout
        self._link: Link | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._buffer: deque[tuple[Item, int] | Link] = deque()
        """Messages, each with its size, and pings that came behind them."""
        self._bytes = 0
        self._messages = 0
        self._granted = 0
        """How many more messages the broker may push, where it is told."""
        self._room = asyncio.Event()
        self._room.set()
        self._arrived = asyncio.Event()
        self._current: Item | None = None
        self._dropped = 0
        self._over = False
        self._failure: Exception | None = None

    async def run(self, handler: Callable[[Item], object]) -> None:
        """Call `handler` for every message, one at a time, until `stop` is called.

        A handler that is no `async def` runs in a thread, so it may block. If it raises, that is
        logged and the next message follows. Raises what ends the subscription, such as
        `MailboxNotFound` when the mailbox is removed.
        """
        threads = threads_for(handler, 1)
        try:
            async with self:
                async for item in self:
                    try:
                        await call(handler, item, threads)
                    except Exception:
                        _log.exception("%s: the handler failed on %r", self._source.subject, item)
                        self._current = None
        finally:
            if threads is not None:
                threads.shutdown(wait=False, cancel_futures=True)

    def stop(self) -> None:
        """Hand out no more messages; the one being handled is finished first."""
        self._over = True
        self._arrived.set()

    async def __aenter__(self) -> Self:
        if self._keeper is not None or self._over:
            raise InvalidField("a subscription is used once: subscribe again")
        try:
            self._link = await self._open()
        except RefusedError as refused:
            raise await self._source.why(str(refused)) from None
        self._keeper = asyncio.create_task(self._keep(self._link))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self._over = True
        if self._keeper is not None:
            await end_tasks(self._keeper)
        try:
            if kind is None:
                await self._finish_current()
        finally:
            self._source.closed()
            if self._link is not None:
                await self._link.close()

    def __aiter__(self) -> Self:
        if self._keeper is None:
            raise InvalidField(
                "open the subscription first: async with client.subscribe(...) as messages"
            )
        return self

    async def __anext__(self) -> Item:
        """The next message; the one before it is done."""
        await self._finish_current()
        while not self._over and self._left != 0:
            if self._buffer:
                entry = self._buffer.popleft()
                if isinstance(entry, Link):
                    await self._confirm(entry)
                    continue
                self._current = self._release(entry)
                if self._left is not None:
                    self._left -= 1
                return self._current
            if self._failure is not None:
                raise self._failure
            await self._grant()
            self._arrived.clear()
            if not self._buffer and self._failure is None:
                await self._arrived.wait()
        raise StopAsyncIteration

    def on_message(self, msg: Msg) -> None:
        """A message has arrived. Called by the link."""
        self._granted -= 1
        self._arrived.set()
        try:
            item = self._source.take(msg)
        except EndedError as ended:
            self._end(ended.error)
            return
        if item is None:
            return
        if self._is_full and self._source.drops(item):
            self._dropped += 1
            if self._dropped.bit_count() == 1:
                _log.warning("%s: too slow, %d dropped", self._source.subject, self._dropped)
            return
        size = len(msg.data) + len(msg.subject) + 256
        self._buffer.append((item, size))
        self._messages += 1
        self._bytes += size
        if self._is_full and not self._source.drops(item):
            self._room.clear()

    def on_ping(self, link: Link) -> None:
        """The broker asks whether all before this is done. Called by the link."""
        self._buffer.append(link)
        self._arrived.set()

    @property
    def _is_full(self) -> bool:
        return self._messages >= self._source.buffered or self._bytes >= _BUFFER_BYTES

    def _release(self, entry: "tuple[Item, int]") -> Item:
        item, size = entry
        self._messages -= 1
        self._bytes -= size
        if self._messages <= self._source.buffered // 2 and self._bytes <= _BUFFER_BYTES // 2:
            self._room.set()
        self._source.handed(item)
        return item

    async def _finish_current(self) -> None:
        item, self._current = self._current, None
        if item is not None:
            await self._source.done(item)
        # Pings that stand behind what is done now.
        while self._buffer and isinstance(self._buffer[0], Link):
            await self._confirm(self._buffer.popleft())  # type: ignore[arg-type]

    async def _confirm(self, link: Link) -> None:
        """Tells the broker that all before its ping is done."""
        await link.pong()
        if not link.ended.is_set():
            self._source.confirmed()

    async def _grant(self) -> None:
        """Lets the broker push more, once all that it was let has come and is done."""
        link = self._link
        if self._granted > 0 or not self._source.is_windowed or link is None or link.ended.is_set():
            return
        await self._subscribe(link)

    async def _subscribe(self, link: Link) -> None:
        window = self._source.next_window()
        if self._left is not None and window:
            window = min(window, self._left)
        self._granted = window
        try:
            await link.subscribe(self._source.subject, self._source.queue, window)
        except BrokerUnavailable:
            link.ended.set()

    async def _open(self) -> Link:
        link = Link(self, self._room)
        try:
            windowed = self._source.is_windowed
            await link.open(self._wire.urls, self._wire.access, holds_pings=windowed)
            await self._subscribe(link)
            await link.confirm(self._timeout)
        except BaseException:
            await link.close()
            raise
        return link

    async def _keep(self, link: Link) -> None:
        """Opens another link whenever one has broken, until the broker refuses."""
        while self._failure is None:
            await link.ended.wait()
            await link.close()
            if link.refusal is not None:
                self._end(await self._source.why(link.refusal))
            if self._failure is not None:
                return
            _log.warning("%s: the connection is lost", self._source.subject)
            if not self._source.keeps_buffer:
                self._clear()
            self._source.lost()
            # Whoever is behind has enough to do.
            await self._room.wait()
            try:
                link = self._link = await self._reopen()
            except RefusedError as refused:
                self._end(await self._source.why(str(refused)))
                return
            self._arrived.set()
            _log.warning("%s: connected again", self._source.subject)

    async def _reopen(self) -> Link:
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                return await self._open()
            except (AccessDenied, BrokerUnavailable) as error:
                _log.info("%s", error)
            # Not all clients of a broker that comes back are to knock at the same moment.
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)

    def _clear(self) -> None:
        self._buffer.clear()
        self._messages = self._bytes = 0
        self._room.set()

    def _end(self, failure: Mq9Error) -> None:
        self._failure = failure
        self._arrived.set()
