"""A limit to the processor time that one piece of work may take, in the main thread of a process.

A process that has to wait for others is not slow: what counts is the time it has computed.
"""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_LOOK_S = 0.25


class TooSlowError(Exception):
    """The work took more than its time."""


@contextmanager
def time_limit(limit_s: float) -> Iterator[None]:
    """TooSlowError in what runs for longer; it is noticed between two steps of the interpreter."""
    began_s = time.thread_time()

    def look(_number: int, _frame: FrameType | None) -> None:
        if time.thread_time() - began_s >= limit_s:
            raise TooSlowError(f"it took more than {limit_s:g} s")

    before = signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, _LOOK_S, _LOOK_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
