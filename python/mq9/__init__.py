"""mq9: durable priority mailboxes for agents, reachable with any NATS client."""

from typing import TYPE_CHECKING

from mq9._core import __version__

if TYPE_CHECKING:
    from mq9.client import Client, Consumer, Message, NewMessage, connect

__all__ = ["Client", "Consumer", "Message", "NewMessage", "__version__", "connect"]


def __getattr__(name: str) -> object:
    # Imported on first use: the broker and most commands do without the client.
    if name in {"Client", "Consumer", "Message", "NewMessage", "connect"}:
        from mq9 import client

        return getattr(client, name)
    raise AttributeError(f"module 'mq9' has no attribute {name!r}")
