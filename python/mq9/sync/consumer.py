"""A worker of a group for programs without asyncio: `mq9.Consumer`, waited for."""

import contextvars
from collections.abc import Callable

from mq9.client import Consumer as AsyncConsumer
from mq9.client import Message
from mq9.client.handlers import is_async
from mq9.client.spans import Span
from mq9.errors import InvalidField
from mq9.sync.portal import Portal
from mq9.sync.waited import Waited

Handler = Callable[[Message], object]
"""A plain function, which runs in a thread; an `async def` runs in the client's event loop."""

_handled_by: contextvars.ContextVar["Consumer | None"] = contextvars.ContextVar(
    "mq9_handled_by", default=None
)


class Consumer(Waited[Message]):
    """Iterate over it with `for` inside `with`, or `run` it with a handler."""

    def __init__(self, portal: Portal, consumer: AsyncConsumer) -> None:
        super().__init__(portal, consumer)
        self._consumer = consumer

    @property
    def address(self) -> str:
        """The mailbox."""
        return self._consumer.address

    @property
    def group(self) -> str:
        """The group that it works for."""
        return self._consumer.group

    @property
    def member(self) -> str:
        """Its name in the group."""
        return self._consumer.member

    def run(self, handler: Handler) -> None:
        """Call `handler` for every message until `stop` is called, by a handler or a thread.

        Handlers run in threads, up to `concurrency` at a time. A message is acknowledged when its
        handler returns. If the handler raises, the message is delivered again after the next of
        `retry_delays`. Ctrl-C gives unfinished messages back.
        """
        if not callable(handler):
            raise InvalidField(f"the handler is {handler!r}: it must be a function of a message")
        if is_async(handler):
            return self._portal.run(self._consumer.run(handler))

        def handle(message: Message) -> object:
            _handled_by.set(self)
            return handler(message)

        return self._portal.run(self._consumer.run(handle))

    def stop(self, *, timeout: float | None = None) -> None:
        """Fetch no more, let handlers finish, and give back messages that have no handler yet.

        After `timeout` seconds, the messages of running handlers are given back too; the handlers
        run on. Called from a handler, it does not wait for the others.
        """
        stopping = self._portal.start(self._consumer.stop(timeout=timeout))
        if _handled_by.get() is not self:
            stopping.ended.result()

    def ack(self, message: Message) -> None:
        """Confirm a message; for consumers without `auto_ack`."""
        self._portal.run(self._consumer.ack(message))

    def nak(self, message: Message, *, delay: Span = 0) -> None:
        """Give a message back: the next free worker gets it, after `delay`."""
        self._portal.run(self._consumer.nak(message, delay=delay))

    def term(self, message: Message) -> None:
        """Give a message up: the group never gets it again."""
        self._portal.run(self._consumer.term(message))
