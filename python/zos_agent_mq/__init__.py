"""The file queue of mq9 under the name that programs for zos-agent-mq know it by."""

from mq9.local import (
    DEFAULT_BODY_THRESHOLD,
    TOPICS,
    Queue,
    QueueDisabledError,
    QueueError,
    QueueStorageError,
    TopicError,
)

__all__ = [
    "DEFAULT_BODY_THRESHOLD",
    "TOPICS",
    "Queue",
    "QueueDisabledError",
    "QueueError",
    "QueueStorageError",
    "TopicError",
]
