"""Numbers of the whole broker over the last half hour.

Owns the points. A missing point is a gap, never a zero.
"""

import time
from collections import deque
from collections.abc import Mapping
from typing import Any

STEP_S = 5
_POINTS = 360


class Series:
    """A point every few seconds."""

    def __init__(self) -> None:
        self._points: deque[dict[str, Any]] = deque(maxlen=_POINTS)
        self._before: tuple[float, dict[str, int]] | None = None

    def add(
        self,
        counters: dict[str, int],
        levels: list[int],
        now: float | None = None,
        *,
        values: Mapping[str, float | None] | None = None,
    ) -> None:
        """The counters of now: rates are what they grew by since the last point. `values` are kept
        as they are."""
        now = time.time() if now is None else now
        point: dict[str, Any] = {"time": round(now, 3), "levels": levels, **(values or {})}
        if self._before is not None:
            then, old = self._before
            passed = max(now - then, 0.001)
            for name, value in counters.items():
                point[name] = round(max(value - old.get(name, 0), 0) / passed, 2)
        self._before = (now, dict(counters))
        self._points.append(point)

    def gap(self) -> None:
        """The broker is not there: rates begin anew when it is back."""
        if self._before is not None:
            self._before = None
            self._points.append({"time": round(time.time(), 3), "levels": None})

    def points(self) -> list[dict[str, Any]]:
        """All points, oldest first."""
        return list(self._points)
