"""Whose search is next: connections take turns, and the worker has few searches at a time.

What the worker has cannot be taken back, so that everybody behind it waits. Knows searches by their
numbers only.
"""

from __future__ import annotations

from collections import Counter, OrderedDict

# One is carried out, and the next one is there when it is done.
_RUNNING = 2
# A search by meaning may wait in the worker, for its model or for a card that is being read.
_OF_A_CONNECTION = 8
_UNDER_WAY = 64


class SearchQueue:
    """Searches that wait, and those that the worker has."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[int, OrderedDict[int, None]] = OrderedDict()
        self._under_way: dict[int, int] = {}
        self._running: set[int] = set()
        self._of: Counter[int] = Counter()

    def add(self, cid: int, number: int) -> None:
        """A connection has asked."""
        self._waiting.setdefault(cid, OrderedDict())[number] = None

    def next(self) -> int | None:
        """The search to begin now; None if there is none, or the worker has enough."""
        if len(self._running) >= _RUNNING or len(self._under_way) >= _UNDER_WAY:
            return None
        cid = next((cid for cid in self._waiting if self._of[cid] < _OF_A_CONNECTION), None)
        if cid is None:
            return None
        number, _ = self._waiting[cid].popitem(last=False)
        self._waiting.move_to_end(cid)
        if not self._waiting[cid]:
            del self._waiting[cid]
        self._under_way[number] = cid
        self._running.add(number)
        self._of[cid] += 1
        return number

    def waits(self, number: int) -> None:
        """The worker goes on with others until it can answer this one."""
        self._running.discard(number)

    def done(self, cid: int, number: int) -> None:
        """A search is answered, or nobody waits for it any more."""
        waiting = self._waiting.get(cid)
        if waiting is not None and number in waiting:
            del waiting[number]
            if not waiting:
                del self._waiting[cid]
        if self._under_way.pop(number, None) is not None:
            self._running.discard(number)
            self._of[cid] -= 1
            if not self._of[cid]:
                del self._of[cid]
