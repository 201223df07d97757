"""The audit log: who did what and when, never what a message says."""

import os

from mq9.local import files, locking
from mq9.local.record import Record, encoded, timestamp


def write(path: str, operation: str, session: str, now_ms: int, details: Record) -> None:
    """Appends one line; if it cannot, the operation must not happen."""
    line = encoded({"ts": timestamp(now_ms), "op": operation, "session": session, **details})
    fd = os.open(path, files.APPEND, 0o666)
    try:
        # Sessions share this file, and each has a lock of its own.
        locking.acquire(fd)
        try:
            files.append_line(fd, line)
        finally:
            locking.release(fd)
    finally:
        os.close(fd)
