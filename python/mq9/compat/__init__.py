"""`Mq9Client`: the methods of the client of RobustMQ's mq9, whose Python package has the same name.

Programs written for it run after one changed import. Owns names, defaults and types of that
client; everything else is `mq9.Client`. docs/migrate-robustmq.md lists what differs.
"""

import asyncio
import contextlib
import enum
import inspect
import logging
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, Unpack

from mq9.client import Client
from mq9.client import Message as Given
from mq9.client.connecting import Options
from mq9.client.fetching import Deliver
from mq9.client.tasks import end_tasks
from mq9.errors import (
    BrokerUnavailable,
    ClientClosed,
    Mq9Error,
    NoResponders,
    RequestTimeout,
)

__all__ = ["Consumer", "Message", "Mq9Client", "Mq9Error", "Priority"]

_RETRY_S = 1.0
_LEASE_S = 30.0
_RENEWAL_S = 5.0
_DELAYED = -1
_URGENT_LEVEL = 3

_PASSING = (BrokerUnavailable, RequestTimeout)
_FINAL = (ClientClosed, NoResponders)

_logger = logging.getLogger("mq9.client")


class Priority(enum.StrEnum):
    """The levels that the original has."""

    NORMAL = "normal"
    URGENT = "urgent"
    CRITICAL = "critical"

    @classmethod
    def of(cls, level: int) -> "Priority":
        """The name of a level from 1 to 10, or of the next level above it that has a name."""
        if level == 1:
            return cls.CRITICAL
        return cls.URGENT if level <= _URGENT_LEVEL else cls.NORMAL


@dataclass
class Message:
    """A message as the original gives it."""

    msg_id: int
    payload: bytes
    priority: Priority
    create_time: int


Handler = Callable[[Message], Awaitable[None]]
ErrorHandler = Callable[[Message, Exception], Awaitable[None] | None]


class Consumer:
    """A handle to messages that are handled in the background."""

    def __init__(self) -> None:
        self.processed_count = 0
        """How many messages were handled without an exception."""
        self._task: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        """Whether messages are still handled."""
        return self._task is not None and not self._task.done()

    def start(self, work: Awaitable[None]) -> None:
        """Handle messages from now on; called by `Mq9Client.consume`."""

        async def run() -> None:
            try:
                await work
            except Exception:
                # Nobody waits for this task who could be told.
                _logger.exception("the consumer has ended")

        self._task = asyncio.create_task(run())

    async def stop(self) -> None:
        """Stop; the message being handled is delivered again later."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])


class Mq9Client:
    """The original's methods on a connection of `mq9.Client`; further options are those of it."""

    def __init__(
        self,
        server: str,
        *,
        request_timeout: float = 5.0,
        reconnect_attempts: int = 5,  # noqa: ARG002
        reconnect_delay: float = 2.0,  # noqa: ARG002
        **options: Unpack[Options],
    ) -> None:
        """`reconnect_attempts` and `reconnect_delay` are ignored: it always connects again."""
        options.setdefault("timeout", request_timeout)
        self._client = Client(server, **options)

    @property
    def client(self) -> Client:
        """The client underneath, for everything that the original does not have."""
        return self._client

    async def connect(self) -> None:
        """Connect."""
        await self._client.connect()

    async def close(self) -> None:
        """Close the connection."""
        await self._client.close()

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def mailbox_create(self, *, name: str | None = None, ttl: int = 0) -> str:
        """Create a mailbox and return its address."""
        return await self._client.create_mailbox(name, ttl=ttl)

    async def send(
        self,
        mail_address: str,
        payload: bytes | str | dict[str, Any],
        *,
        priority: Priority = Priority.NORMAL,
        key: str | None = None,
        delay: int | None = None,
        ttl: int | None = None,
        tags: Sequence[str] | None = None,
    ) -> int:
        """Send a message and return its id, -1 for one that is delayed."""
        content = {"payload": payload} if isinstance(payload, bytes | str) else {"json": payload}
        msg_id = await self._client.send(
            mail_address,
            **content,
            priority=priority.value,
            key=key,
            delay=delay or 0,
            ttl=ttl or 0,
            tags=tags or (),
        )
        return _DELAYED if msg_id is None else msg_id

    async def fetch(
        self,
        mail_address: str,
        *,
        group_name: str | None = None,
        deliver: Deliver = "latest",
        from_time: int | None = None,
        from_id: int | None = None,
        force_deliver: bool = False,
        num_msgs: int = 100,
        max_wait_ms: int = 500,
    ) -> list[Message]:
        """Return messages by priority, then by age."""
        given = await self._client.fetch(
            mail_address,
            group=group_name,
            deliver=deliver,
            from_time=from_time,
            from_id=from_id,
            force_deliver=force_deliver,
            max_msgs=num_msgs,
            max_wait=max_wait_ms / 1000,
        )
        return [_message(message) for message in given]

    async def ack(self, mail_address: str, group_name: str, msg_id: int) -> None:
        """Confirm a message and all that were fetched before it."""
        await self._client.ack(address=mail_address, group=group_name, msg_ids=[msg_id])

    async def consume(
        self,
        mail_address: str,
        handler: Handler,
        *,
        group_name: str | None = None,
        deliver: Deliver = "latest",
        num_msgs: int = 10,
        max_wait_ms: int = 500,
        auto_ack: bool = True,
        error_handler: ErrorHandler | None = None,
    ) -> Consumer:
        """Handle messages in the background until the consumer is stopped.

        A message whose handler raises is given to `error_handler` and comes again after a second.
        Without a group, this consumer alone is one, which is removed when it stops.
        """
        group = group_name or f"consumer.{uuid.uuid4().hex}"
        consumer = Consumer()

        async def handle(message: Message) -> None:
            try:
                await handler(message)
            except Exception as error:
                await self._failed(message, error, error_handler)
                # Without this it would come again at once, and again.
                with contextlib.suppress(Mq9Error):
                    await self._client.nak(
                        address=mail_address, group=group, msg_ids=[message.msg_id], delay=_RETRY_S
                    )
                return
            consumer.processed_count += 1
            if auto_ack or group_name is None:
                await self._acknowledge(mail_address, group, message.msg_id)

        async def work() -> None:
            while True:
                try:
                    given = await self._client.fetch(
                        mail_address,
                        group=group,
                        deliver=deliver,
                        max_msgs=num_msgs,
                        max_wait=max_wait_ms / 1000,
                        ack_wait=_LEASE_S,
                    )
                except ClientClosed:
                    return
                except Mq9Error as error:
                    _logger.error("messages of %s cannot be fetched: %s", mail_address, error)
                    await asyncio.sleep(_RETRY_S)
                    continue
                waiting = {message.msg_id: _message(message) for message in given}
                # The last of a batch may have to wait for longer than its lease.
                renewing = asyncio.create_task(self._renew(mail_address, group, waiting))
                try:
                    for message in tuple(waiting.values()):
                        await handle(message)
                        del waiting[message.msg_id]
                finally:
                    await end_tasks(renewing)

        async def work_and_tidy() -> None:
            try:
                await work()
            finally:
                if group_name is None:
                    with contextlib.suppress(Mq9Error):
                        await self._client.remove_group(mail_address, group)

        consumer.start(work_and_tidy())
        return consumer

    async def _failed(
        self, message: Message, error: Exception, error_handler: ErrorHandler | None
    ) -> None:
        if error_handler is None:
            _logger.error("the handler of message %d failed", message.msg_id, exc_info=error)
            return
        try:
            told = error_handler(message, error)
            if inspect.isawaitable(told):
                await told
        except Exception:
            _logger.exception("the error_handler of message %d failed", message.msg_id)

    async def _acknowledge(self, mail_address: str, group: str, msg_id: int) -> None:
        """Tells that a message was handled; that is so, whatever the broker answers."""
        while True:
            try:
                return await self._client.ack(
                    address=mail_address, group=group, msg_ids=[msg_id], only=True
                )
            except Mq9Error as error:
                if not isinstance(error, _PASSING) or isinstance(error, _FINAL):
                    _logger.warning("message %d was handled, but: %s", msg_id, error)
                    return None
            await asyncio.sleep(_RETRY_S)

    async def _renew(self, mail_address: str, group: str, waiting: Mapping[int, object]) -> None:
        while True:
            await asyncio.sleep(_RENEWAL_S)
            for msg_id in tuple(waiting):
                # One at a time: the handler may have settled the one it works on.
                with contextlib.suppress(Mq9Error):
                    await self._client.progress(address=mail_address, group=group, msg_ids=[msg_id])

    async def query(
        self,
        mail_address: str,
        *,
        key: str | None = None,
        limit: int | None = None,
        since: int | None = None,
    ) -> list[Message]:
        """Look at messages without taking them."""
        found = await self._client.query(mail_address, key=key, limit=limit, since=since)
        return [_message(message) for message in found]

    async def delete(self, mail_address: str, msg_id: int) -> None:
        """Delete a message."""
        await self._client.delete(mail_address, msg_id)

    async def agent_register(self, agent_card: Mapping[str, Any]) -> None:
        """Register an agent."""
        await self._client.register(agent_card)

    async def agent_unregister(self, mailbox: str) -> None:
        """Remove an agent from the registry."""
        await self._client.unregister(mailbox)

    async def agent_report(self, report: Mapping[str, Any]) -> None:
        """Report that an agent is alive, and what it does."""
        await self._client.report(report)

    async def agent_discover(
        self,
        *,
        text: str | None = None,
        semantic: str | None = None,
        limit: int = 20,
        page: int = 1,
    ) -> list[dict[str, Any]]:
        """Find cards of agents, best match first."""
        return list(await self._client.discover(text, semantic=semantic, limit=limit, page=page))


def _message(given: Given) -> Message:
    return Message(
        msg_id=given.msg_id,
        payload=given.payload,
        priority=Priority.of(given.level),
        create_time=given.create_time,
    )
