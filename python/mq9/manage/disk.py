"""The pace at which the disk fills.

Owns a day of samples. A store that makes room now and then fills no disk: what counts is how much
less is free than long ago.
"""

from collections import deque

_EVERY_S = 300.0
_LONGEST_S = 24 * 3600.0
_LEAST_S = 3600.0


class DiskTrend:
    """What was free, and when."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque(maxlen=int(_LONGEST_S / _EVERY_S))
        self._latest: tuple[float, int] | None = None

    def add(self, free: int, now: float) -> None:
        """So many bytes are free now."""
        self._latest = now, free
        if not self._samples or now - self._samples[-1][0] >= _EVERY_S:
            self._samples.append(self._latest)

    def full_in(self) -> tuple[float, float] | None:
        """In how many seconds it is full at the pace so far, and for how many that was watched.

        None if it does not fill, or has not been watched for an hour.
        """
        if self._latest is None:
            return None
        (then, before), (now, free) = self._samples[0], self._latest
        watched, used = now - then, before - free
        if watched < _LEAST_S or used <= 0:
            return None
        return free / (used / watched), watched
