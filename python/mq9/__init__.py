"""mq9: durable priority mailboxes for agents, reachable with any NATS client."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mq9 import sync
    from mq9._core import __version__
    from mq9.client import Broadcast, Client, Consumer, Message, NewMessage, Subscription, connect

__all__ = [
    "Broadcast",
    "Client",
    "Consumer",
    "Message",
    "NewMessage",
    "Subscription",
    "__version__",
    "connect",
    "sync",
]


def __getattr__(name: str) -> object:
    # Imported on first use: the broker and most commands do without the client, and mail in plain
    # files (`mq9.local`) does without the native module.
    if name == "__version__":
        from mq9 import _core

        return _core.__version__
    if name in __all__ and name != "sync":
        from mq9 import client

        return getattr(client, name)
    if name == "sync":
        import mq9.sync

        return mq9.sync
    raise AttributeError(f"module 'mq9' has no attribute {name!r}")
