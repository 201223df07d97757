"""Mail without a broker: append-only files of JSON lines, for agents on one machine.

Needs nothing but the standard library, and nothing else of mq9.
"""

from mq9.local.errors import QueueDisabledError, QueueError, QueueStorageError, TopicError
from mq9.local.queue import Queue
from mq9.local.settings import DEFAULT_BODY_THRESHOLD, TOPICS

__all__ = [
    "DEFAULT_BODY_THRESHOLD",
    "TOPICS",
    "Queue",
    "QueueDisabledError",
    "QueueError",
    "QueueStorageError",
    "TopicError",
]
