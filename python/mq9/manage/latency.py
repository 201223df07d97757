"""Durations of syncs and commits: counts of the broker, as quantiles.

Owns the arithmetic. Counts are those of each bucket alone, and grow as long as the broker lives.
"""

from collections.abc import Mapping, Sequence
from typing import Any

KINDS = ("sync", "commit")
NAMES = tuple(f"{kind}_p{percent}" for kind in KINDS for percent in (50, 99))


class Latencies:
    """Quantiles of what has happened between two looks."""

    def __init__(self) -> None:
        self._before: dict[str, list[int]] = {}

    def since(self, told: Mapping[str, Any]) -> dict[str, float | None]:
        """`sync_p99` and its like, in milliseconds, of what happened since this was last asked."""
        found: dict[str, float | None] = {}
        bounds = told.get("bounds_us", ())
        for kind in KINDS:
            counts = list(told.get(kind, {}).get("counts", ()))
            before = self._before.get(kind) or [0] * len(counts)
            if any(now < then for now, then in zip(counts, before, strict=False)):
                # Another life of the broker.
                before = [0] * len(counts)
            self._before[kind] = counts
            new = [now - then for now, then in zip(counts, before, strict=True)]
            for percent in (50, 99):
                us = quantile(new, bounds, percent / 100)
                found[f"{kind}_p{percent}"] = None if us is None else round(us / 1000, 3)
        return found


def quantile(counts: Sequence[int], bounds: Sequence[float], share: float) -> float | None:
    """What this share stayed below; None if nothing happened."""
    wanted = share * sum(counts)
    seen, low = 0, 0.0
    for at, count in enumerate(counts):
        high = float(bounds[at]) if at < len(bounds) else low
        if count and seen + count >= wanted:
            return low + (high - low) * (wanted - seen) / count
        seen, low = seen + count, high
    return None
