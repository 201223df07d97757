"""`mq9.Subscription` for programs without asyncio: pushed messages, waited for."""

from collections.abc import Callable

from mq9.client import Subscription as AsyncSubscription
from mq9.errors import InvalidField
from mq9.sync.portal import Portal
from mq9.sync.waited import Item, Waited


class Subscription(Waited[Item]):
    """Iterate over it with `for` inside `with`, or `run` it with a handler."""

    def __init__(self, portal: Portal, subscription: AsyncSubscription[Item]) -> None:
        super().__init__(portal, subscription)
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

    async def _stop(self) -> None:
        self._subscription.stop()
