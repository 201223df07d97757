"""`mq9.sync.Client`: the methods of `mq9.Client` for programs that do not write asyncio.

Each method is made from the one of `mq9.Client`, so that arguments, defaults, types and texts are
the same. What a method does is the business of that one.
"""

import functools
from collections.abc import Callable, Coroutine, Sequence
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, Unpack

from mq9.client import Client as AsyncClient
from mq9.client import Consumer as AsyncConsumer
from mq9.client import Subscription as AsyncSubscription
from mq9.client.connecting import Options
from mq9.sync.consumer import Consumer
from mq9.sync.portal import Portal
from mq9.sync.subscription import Subscription

Given = ParamSpec("Given")
Result = TypeVar("Result")
Item = TypeVar("Item")


def _waiting(
    method: Callable[Concatenate[AsyncClient, Given], Coroutine[Any, Any, Result]],
) -> Callable[Concatenate["Client", Given], Result]:
    """The method, carried out in the client's thread while the caller waits."""

    @functools.wraps(method)
    def call(self: "Client", /, *given: Given.args, **named: Given.kwargs) -> Result:
        return self._portal.run(method(self._client, *given, **named))

    return call


def _consuming(
    method: Callable[Concatenate[AsyncClient, Given], AsyncConsumer],
) -> Callable[Concatenate["Client", Given], Consumer]:
    @functools.wraps(method)
    def call(self: "Client", /, *given: Given.args, **named: Given.kwargs) -> Consumer:
        return Consumer(self._portal, method(self._client, *given, **named))

    return call


def _subscribing(
    method: Callable[Concatenate[AsyncClient, Given], AsyncSubscription[Item]],
) -> Callable[Concatenate["Client", Given], Subscription[Item]]:
    @functools.wraps(method)
    def call(self: "Client", /, *given: Given.args, **named: Given.kwargs) -> Subscription[Item]:
        return Subscription(self._portal, method(self._client, *given, **named))

    return call


class Client:
    """A connection to a broker; all times are in seconds.

    Use it with `with`, or call `connect` and `close`. Any number of threads may share it. The
    connection belongs to a thread of its own, so a forked process must create another client.
    Arguments are those of `mq9.Client`.
    """

    def __init__(self, url: str | Sequence[str] | None = None, **options: Unpack[Options]) -> None:
        self._client = AsyncClient(url, **options)
        self._portal = Portal(self._client.close)

    @property
    def connected(self) -> bool:
        """Whether there is a connection right now."""
        return self._client.connected

    @property
    def timeout(self) -> float:
        """How long a request may take, unless its call has a `timeout`."""
        return self._client.timeout

    @timeout.setter
    def timeout(self, seconds: float) -> None:
        self._client.timeout = seconds

    def connect(self) -> Self:
        """Connect; raises `BrokerUnavailable` or `AccessDenied` at once if that fails."""
        self._portal.run(self._client.connect())
        return self

    def close(self) -> None:
        """Close the connection; requests under way fail with `ClientClosed`."""
        self._portal.close()

    def __enter__(self) -> Self:
        try:
            return self.connect()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self.close()

    create_mailbox = _waiting(AsyncClient.create_mailbox)
    create_mailbox_and_token = _waiting(AsyncClient.create_mailbox_and_token)
    update_mailbox = _waiting(AsyncClient.update_mailbox)
    replay_dead_letter = _waiting(AsyncClient.replay_dead_letter)
    purge_mailbox = _waiting(AsyncClient.purge_mailbox)
    remove_mailbox = _waiting(AsyncClient.remove_mailbox)
    show_mailbox = _waiting(AsyncClient.show_mailbox)
    list_mailboxes = _waiting(AsyncClient.list_mailboxes)
    list_public_mailboxes = _waiting(AsyncClient.list_public_mailboxes)

    send = _waiting(AsyncClient.send)
    send_many = _waiting(AsyncClient.send_many)
    list_delayed = _waiting(AsyncClient.list_delayed)
    cancel_delayed = _waiting(AsyncClient.cancel_delayed)

    fetch = _waiting(AsyncClient.fetch)
    ack = _waiting(AsyncClient.ack)
    nak = _waiting(AsyncClient.nak)
    progress = _waiting(AsyncClient.progress)
    term = _waiting(AsyncClient.term)
    query = _waiting(AsyncClient.query)
    delete = _waiting(AsyncClient.delete)
    groups = _waiting(AsyncClient.groups)
    remove_group = _waiting(AsyncClient.remove_group)
    consume = _consuming(AsyncClient.consume)

    subscribe = _subscribing(AsyncClient.subscribe)
    inbox = _subscribing(AsyncClient.inbox)
    unread = _waiting(AsyncClient.unread)
    broadcast = _waiting(AsyncClient.broadcast)
    on_broadcast = _subscribing(AsyncClient.on_broadcast)

    status = _waiting(AsyncClient.status)
    register = _waiting(AsyncClient.register)
    unregister = _waiting(AsyncClient.unregister)
    report = _waiting(AsyncClient.report)
    discover = _waiting(AsyncClient.discover)
    discover_page = _waiting(AsyncClient.discover_page)


def connect(url: str | Sequence[str] | None = None, **options: Unpack[Options]) -> Client:
    """A connected client; options are those of `mq9.Client`."""
    return Client(url, **options).__enter__()
