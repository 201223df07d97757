"""A worker of a group: fetches, hands messages out, settles them, keeps its claim on them alive.

Owns the order of these and what happens when something fails. Connections are the client's: a
request that finds none waits, and what was in hand is settled when it is back.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import TYPE_CHECKING, Self

from mq9.client.fetching import Deliver
from mq9.client.handlers import call, threads_for
from mq9.client.in_flight import InFlight
from mq9.client.message import Message
from mq9.client.spans import Span
from mq9.client.tasks import end_tasks
from mq9.errors import (
    BrokerUnavailable,
    ClientClosed,
    DiskFull,
    InvalidField,
    MailboxNotFound,
    Mq9Error,
    NoResponders,
    NotGiven,
    RequestTimeout,
    StorageError,
    WritesStopped,
)

if TYPE_CHECKING:
    from mq9.client.client import Client

Handler = Callable[[Message], object]
"""An `async def`, or a plain function, which runs in a thread."""

_log = logging.getLogger("mq9.client")

_PASSING = (BrokerUnavailable, RequestTimeout, DiskFull, StorageError, WritesStopped)
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 5.0
_MAILBOX_PAUSE_S = 1.0
_LONGEST_RENEWAL_S = 5.0
"""A renewed lease is as long as the mailbox's `ack_wait`, whatever was asked for."""
_PARTING_S = 30.0
_LAST_WORDS_S = 2.0
_MOST_IDS = 10_000


class Consumer:
    """Iterate over it with `async for` inside `async with`, or `run` it with a handler."""

    def __init__(
        self,
        client: "Client",
        address: str,
        *,
        group: str,
        member: str,
        named: bool,
        deliver: Deliver | None,
        concurrency: int,
        prefetch: int,
        auto_ack: bool,
        ack_wait: float,
        retry_delays: Sequence[float],
        min_priority: str | int | None,
        max_wait: float,
        create: bool,
    ) -> None:
        if concurrency < 1 or prefetch < 0 or ack_wait <= 0 or not retry_delays:
            raise InvalidField(
                "concurrency must be at least 1, prefetch not negative, ack_wait positive, and "
                "retry_delays must not be empty"
            )
        self.address = address
        self.group = group
        self.member = member
        self._client = client
        self._named = named
        self._deliver = deliver
        self._concurrency = concurrency
        self._prefetch = prefetch
        self._auto_ack = auto_ack
        self._ack_wait = ack_wait
        self._retry_delays = tuple(retry_delays)
        self._min_priority = min_priority
        self._max_wait = max_wait
        self._create = create
        self._in_flight = InFlight(member, concurrency, prefetch)
        self._done: list[int] = []
        self._confirming: set[int] = set()
        self._changed = asyncio.Event()
        self._arrived = asyncio.Event()
        self._settled = asyncio.Event()
        self._stopping = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._workers: list[asyncio.Task[None]] = []
        self._current: Message | None = None
        self._failure: Exception | None = None

    async def run(self, handler: Handler) -> None:
        """Call `handler` for every message until `stop` is called.

        A handler that is no `async def` runs in a thread, so it may block. A message is
        acknowledged when its handler returns. If the handler raises, the message is delivered
        again after the next of `retry_delays`. Errors that do not pass, such as `AccessDenied`,
        are raised.
        """
        threads = threads_for(handler, self._concurrency)
        try:
            async with self:
                self._workers = [
                    asyncio.create_task(self._work(handler, threads))
                    for _ in range(self._concurrency)
                ]
                try:
                    await asyncio.wait(self._workers)
                finally:
                    for worker in self._workers:
                        worker.cancel()
                    await asyncio.gather(*self._workers, return_exceptions=True)
        finally:
            if threads is not None:
                threads.shutdown(wait=False, cancel_futures=True)
        if self._failure is not None:
            raise self._failure

    async def stop(self, *, timeout: float | None = None) -> None:
        """Fetch no more, let handlers finish, and give back messages that have no handler yet.

        After `timeout` seconds, running handlers are cancelled and their messages given back too.
        """
        self._end()
        others = [task for task in self._workers if task is not asyncio.current_task()]
        if others:
            _, running = await asyncio.wait(others, timeout=timeout)
            for task in running:
                _log.warning("%s: a handler did not finish in %s s", self.address, timeout)
                task.cancel()

    async def __aenter__(self) -> Self:
        if self._tasks or self._stopping.is_set():
            raise InvalidField("a consumer is used once: call consume() again")
        for part in (self._fetch, self._acknowledge, self._renew):
            self._tasks.append(asyncio.create_task(part()))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self._finish_current()
        self._end()
        try:
            await self._tasks[0]
            await self._give_back(_PARTING_S if kind is None else _LAST_WORDS_S)
        finally:
            await end_tasks(*self._tasks)

    def __aiter__(self) -> Self:
        if not self._tasks:
            raise InvalidField(
                "open the consumer first: async with client.consume(...) as consumer"
            )
        return self

    async def __anext__(self) -> Message:
        """The next message; the one before it is acknowledged."""
        self._finish_current()
        message = await self._next()
        if message is None:
            if self._failure is not None:
                raise self._failure
            raise StopAsyncIteration
        self._current = message
        return message

    async def ack(self, message: Message) -> None:
        """Confirm a message; for consumers without `auto_ack`."""
        if message in self._in_flight:
            self._confirm(message.msg_id)

    async def nak(self, message: Message, *, delay: Span = 0) -> None:
        """Give a message back: the next free worker gets it, after `delay`."""
        await self._settle(message, lambda: self._client.nak(message, delay=delay))

    async def term(self, message: Message) -> None:
        """Give a message up: the group never gets it again."""
        await self._settle(message, lambda: self._client.term(message))

    async def _work(self, handler: Handler, threads: ThreadPoolExecutor | None) -> None:
        while (message := await self._next()) is not None:
            try:
                await call(handler, message, threads)
            except Exception:
                which = min(max(message.deliveries, 1), len(self._retry_delays)) - 1
                delay = self._retry_delays[which]
                follows = f"the next delivery is in {delay:g} s"
                if message.last_delivery:
                    follows = "this was its last delivery: it becomes a dead letter"
                _log.exception(
                    "%s: the handler failed on message %d (delivery %d); %s",
                    *(self.address, message.msg_id, message.deliveries, follows),
                )
                await self.nak(message, delay=delay)
            else:
                if self._auto_ack:
                    await self.ack(message)

    async def _next(self) -> Message | None:
        while not self._stopping.is_set():
            if (message := self._in_flight.next()) is not None:
                self._changed.set()
                return message
            self._arrived.clear()
            await self._arrived.wait()
        return None

    def _finish_current(self) -> None:
        message, self._current = self._current, None
        if message is not None and self._auto_ack and message in self._in_flight:
            self._confirm(message.msg_id)

    def _confirm(self, msg_id: int) -> None:
        if msg_id not in self._confirming:
            self._confirming.add(msg_id)
            self._done.append(msg_id)
            self._in_flight.finish(msg_id)
            self._settled.set()
            self._changed.set()

    def _end(self) -> None:
        self._stopping.set()
        self._changed.set()
        self._arrived.set()

    async def _fetch(self) -> None:
        """Keeps the hand full until the end."""
        try:
            if self._create:
                await self._insist(self._create_mailbox)
            if self._named:
                await self._resume()
            while not self._stopping.is_set():
                if self._in_flight.room == 0 or self._in_flight.queued > self._prefetch // 2:
                    self._changed.clear()
                    await self._changed.wait()
                    continue
                await self._take(
                    self._in_flight.free_member(), self._in_flight.room, self._max_wait
                )
                self._arrived.set()
        except Exception as error:
            # Told by whoever waits for messages.
            self._failure = error
            self._end()

    async def _create_mailbox(self) -> None:
        await self._client.create_mailbox(self.address, exist_ok=True)

    async def _resume(self) -> None:
        """Fetches what these names held when the worker of this name ended last."""
        for member in self._in_flight.members:
            if not self._stopping.is_set():
                await self._take(member, max(1, self._in_flight.room), 0)
        self._arrived.set()

    async def _take(self, member: str, max_msgs: int, max_wait: float) -> None:
        pause_s = _FIRST_PAUSE_S
        missing = False
        while not self._stopping.is_set():
            poll = asyncio.create_task(
                self._client.fetch(
                    self.address,
                    group=self.group,
                    # Also after a failure: if the broker did deliver, this name is given it again.
                    member=member,
                    deliver=self._deliver,
                    max_msgs=max_msgs,
                    max_wait=max_wait,
                    ack_wait=self._ack_wait,
                    min_priority=self._min_priority,
                )
            )
            stopping = asyncio.create_task(self._stopping.wait())
            try:
                await asyncio.wait({poll, stopping}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                stopping.cancel()
                if not poll.done():
                    # What it is still given is for others.
                    self._client._keep(asyncio.create_task(self._client._return_late(poll)))
            if not poll.done():
                return
            try:
                for message in poll.result():
                    self._in_flight.take(message, member)
                return
            except (NoResponders, ClientClosed):
                raise
            except MailboxNotFound as error:
                # Whoever sends to it may be the one who makes it.
                if not missing:
                    _log.warning("%s: waiting for the mailbox: %s", self.address, error)
                missing = True
                pause_s = min(pause_s, _MAILBOX_PAUSE_S)
            except _PASSING as error:
                _log.warning("%s: cannot fetch, trying again: %s", self.address, error)
            await self._pause(pause_s)
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            pass

    async def _acknowledge(self) -> None:
        """Acknowledges what is done, as many at a time as have come together."""
        while True:
            await self._settled.wait()
            self._settled.clear()
            while self._done:
                batch, self._done = self._done[:_MOST_IDS], self._done[_MOST_IDS:]
                await self._acknowledge_batch(batch)

    async def _acknowledge_batch(self, batch: list[int]) -> None:
        try:
            await self._insist(
                lambda: self._client.ack(
                    address=self.address, group=self.group, msg_ids=batch, only=True
                )
            )
        except NotGiven as error:
            if len(batch) > 1:
                for msg_id in batch:
                    await self._acknowledge_batch([msg_id])
                return
            _log.warning("%s: %s; it was done all the same", self.address, error)
        except Mq9Error as error:
            _log.warning("%s: cannot acknowledge %s: %s", self.address, batch, error)
        for msg_id in batch:
            self._in_flight.settle(msg_id)
        self._confirming.difference_update(batch)
        self._changed.set()

    async def _settle(self, message: Message, request: Callable[[], Awaitable[None]]) -> None:
        if message not in self._in_flight or message.msg_id in self._confirming:
            return
        if self._current is message:
            self._current = None
        try:
            await self._insist(request)
        except Mq9Error as error:
            _log.warning("%s: message %d: %s", self.address, message.msg_id, error)
        self._in_flight.settle(message.msg_id)
        self._changed.set()

    async def _insist(self, request: Callable[[], Awaitable[None]]) -> None:
        """Settling twice does no harm, so it is tried until the broker has answered."""
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                return await request()
            except NoResponders:
                raise
            except _PASSING as error:
                _log.info("%s: trying again: %s", self.address, error)
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)

    async def _renew(self) -> None:
        """Tells the broker that the messages in hand are still being worked on."""
        clock = asyncio.get_running_loop().time
        while True:
            slept_at = clock()
            await asyncio.sleep(min(self._ack_wait / 3, _LONGEST_RENEWAL_S))
            if msg_ids := self._in_flight.msg_ids:
                if (away_s := clock() - slept_at) >= self._ack_wait:
                    _log.warning(
                        "%s: the event loop stood still for %.1f s, longer than ack_wait (%g s): "
                        "others may have been given what this worker is working on. Make the "
                        "handler a plain function, which runs in a thread, or raise ack_wait",
                        *(self.address, away_s, self._ack_wait),
                    )
                try:
                    await self._client.progress(
                        address=self.address, group=self.group, msg_ids=msg_ids
                    )
                except Mq9Error as error:
                    _log.info("%s: cannot renew leases: %s", self.address, error)

    async def _give_back(self, longest_s: float) -> None:
        """Waits for acknowledgements under way, and returns the rest of the hand for others."""
        self._in_flight.drop_queued()
        try:
            async with asyncio.timeout(longest_s):
                while self._confirming:
                    self._changed.clear()
                    await self._changed.wait()
                if rest := self._in_flight.msg_ids:
                    await self._client.nak(address=self.address, group=self.group, msg_ids=rest)
        except (Mq9Error, TimeoutError) as error:
            _log.warning("%s: what was in hand comes again later: %s", self.address, error)
        for msg_id in self._in_flight.msg_ids:
            self._in_flight.settle(msg_id)
