"""Locks between processes, and threads: the one place that knows how a system does it.

A lock belongs to the opened file: every user opens one of its own. The system takes it back from
a process that dies.
"""

import os
import sys

if sys.platform == "win32":  # pragma: no cover
    import msvcrt

    # It locks bytes, and others could not read them: one that no file has.
    _FAR = 1 << 60

    def acquire(fd: int) -> None:
        """Waits until nobody else has the lock."""
        os.lseek(fd, _FAR, os.SEEK_SET)
        while True:
            try:
                # It gives up after ten seconds.
                msvcrt.locking(fd, msvcrt.LK_LOCK, 1)
            except OSError:
                continue
            return

    def try_acquire(fd: int) -> bool:
        """Takes the lock if nobody has it."""
        os.lseek(fd, _FAR, os.SEEK_SET)
        try:
            msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def release(fd: int) -> None:
        """Lets the next one in."""
        os.lseek(fd, _FAR, os.SEEK_SET)
        msvcrt.locking(fd, msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def acquire(fd: int) -> None:
        """Waits until nobody else has the lock."""
        fcntl.flock(fd, fcntl.LOCK_EX)

    def try_acquire(fd: int) -> bool:
        """Takes the lock if nobody has it."""
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def release(fd: int) -> None:
        """Lets the next one in, even if a child that was forked meanwhile has the file open."""
        fcntl.flock(fd, fcntl.LOCK_UN)
