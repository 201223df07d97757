"""Sleeping until a file changes: inotify where there is one, else a look now and then.

It may wake up for nothing; it never sleeps through a change for longer than `LOOK_AGAIN_S`.
"""

import os
import select
import sys
import time
from types import TracebackType
from typing import Self

LOOK_AGAIN_S = 1.0
_FIRST_REST_S = 0.001
_LONGEST_REST_S = 0.1

_CHANGES = 0x2 | 0x8 | 0x80 | 0x100 | 0x400 | 0x800
"""IN_MODIFY, IN_CLOSE_WRITE, IN_MOVED_TO, IN_CREATE, IN_DELETE_SELF, IN_MOVE_SELF."""


class Watch:
    """Notices changes of a file in a folder from the moment this is made."""

    def __init__(self, folder: str, file: str) -> None:
        self._file = file
        self._state = _state(file)
        self._fd = _inotify(folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        if self._fd is not None:
            os.close(self._fd)

    def wait(self, timeout: float | None) -> None:
        """Returns when the file is not as it was, or when the time is over."""
        end = float("inf") if timeout is None else time.monotonic() + timeout
        rest = _FIRST_REST_S
        while (now := _state(self._file)) == self._state:
            left = end - time.monotonic()
            if left <= 0:
                return
            if self._fd is None:
                time.sleep(min(rest, left))
                rest = min(rest * 2, _LONGEST_REST_S)
            elif select.select([self._fd], [], [], min(left, LOOK_AGAIN_S))[0]:
                # What happened does not matter: the file is looked at.
                os.read(self._fd, 1 << 16)
        self._state = now


def _state(file: str) -> tuple[int, ...]:
    try:
        found = os.stat(file)
    except FileNotFoundError:
        return ()
    return found.st_ino, found.st_size, found.st_mtime_ns


def _inotify(folder: str) -> int | None:
    """A descriptor that can be read when something changes in the folder; None if there is none."""
    if not sys.platform.startswith("linux"):  # pragma: no cover
        return None
    import ctypes

    libc = ctypes.CDLL(None)
    fd = int(libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK))
    if fd < 0:
        # Too many of them: a look now and then does as well.
        return None
    if libc.inotify_add_watch(fd, os.fsencode(folder), _CHANGES) < 0:
        os.close(fd)
        return None
    return fd
