"""mq9 for programs that do not write asyncio: the same client, and every call waits."""

from mq9.sync.client import Client, connect
from mq9.sync.consumer import Consumer
from mq9.sync.subscription import Subscription

__all__ = ["Client", "Consumer", "Subscription", "connect"]
