"""Log lines about refused writes: at the start, now and then, at the end.

A full disk may refuse thousands of messages a second; each of their senders is told.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from mq9.server.logs import Log

_AGAIN_S = 60.0


class Refusals:
    """Looks at why writes are refused and how many were; the end is a look at which none was."""

    def __init__(self, log: Log, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._count = 0
        self._count_before = 0
        self._told_at: float | None = None

    def look(self, cause: str | None, count: int, *, is_over: bool) -> None:
        """`cause` is why writes are or were refused, `count` how many ever were."""
        is_quiet = is_over and count == self._count
        self._count = count
        if self._told_at is None:
            if is_quiet:
                self._count_before = count
                return
            self._say(f"the store refuses writes: {cause}")
        elif is_quiet:
            self._told_at = None
            self._log.info("the store takes writes again", refused=count - self._count_before)
            self._count_before = count
        elif self._clock() - self._told_at >= _AGAIN_S:
            self._say(f"the store still refuses writes: {cause}")

    def _say(self, text: str) -> None:
        self._log.error(text, refused=self._count - self._count_before)
        self._told_at = self._clock()
