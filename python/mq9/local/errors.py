"""Errors of a file queue."""


class QueueError(Exception):
    """The base of them all."""


class TopicError(QueueError, ValueError):
    """A topic that is not one of `TOPICS`."""


class QueueDisabledError(QueueError, RuntimeError):
    """A send while `ZOS_MQ_DISABLED=1` holds everything."""


class QueueStorageError(QueueError, OSError):
    """A file could not be read or written; `errno` and `filename` say why and which."""
