"""What a broker pushes, for programs without asyncio: `mq9.Subscription`, waited for."""

from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Generic, Self, TypeVar

from mq9.client import Subscription as AsyncSubscription
from mq9.errors import InvalidField
from mq9.sync.portal import Portal

Item = TypeVar("Item")


class Subscription(Generic[Item]):
    """Iterate over it with `for` inside `with`, or `run` it with a handler."""

    def __init__(self, portal: Portal, subscription: AsyncSubscription[Item]) -> None:
        self._portal = portal
        self._subscription = subscription

    def run(self, handler: Callable[[Item], object]) -> None:
        """Call `handler` for every message, one at a time, until `stop` is called.

        The handler runs in a thread. If it raises, that is logged and the next message follows.
        """
        if not callable(handler):
            raise InvalidField(f"the handler is {handler!r}: it must be a function of a message")
        self._portal.run(self._subscription.run(handler))

    def stop(self) -> None:
        """Hand out no more messages; the one being handled is finished first."""
        self._portal.start(self._stop())

    def __enter__(self) -> Self:
        self._portal.run(self._subscription.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._portal.run(self._subscription.__aexit__(kind, error, traceback))

    def __iter__(self) -> Iterator[Item]:
        self._subscription.__aiter__()
        return self

    def __next__(self) -> Item:
        """The next message; the one before it is done."""
        item = self._portal.run(self._next())
        if item is None:
            raise StopIteration
        return item

    async def _next(self) -> Item | None:
        # No future can hold the end of an iteration.
        return await anext(self._subscription, None)

    async def _stop(self) -> None:
        self._subscription.stop()
