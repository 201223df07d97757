"""Groups of all mailboxes and consumers of all streams: numbers in columns, order and search.

Owns lists over all of them. A question never walks over groups one by one, so it always costs
the same.
"""

import time
from collections import Counter
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from mq9.manage.names import Order, Places, Texts, top
from mq9.manage.rows import IDLE_S, Group, Kind

_FIELDS = (
    *("place", "is_stream", "pending", "lag", "ack_pending", "members", "used_ms", "delivered"),
    *("redelivered", "alone_ms", "changed_ms"),
    # What it had been given when the window of redeliveries began, and in the middle of it.
    *("old_delivered", "old_redelivered", "mid_delivered", "mid_redelivered", "mid_ms"),
)
_HALF_MS = 450_000
"""Half of the longest time for which redeliveries count."""
SORTS = ("pending", "lag", "name", "members", "used", "in_flight", "redelivered")


_COLUMNS = {"used": "used_ms", "in_flight": "ack_pending"}


class Groups:
    """Every group that is known."""

    def __init__(self) -> None:
        self._groups: list[Group | None] = []
        self._free: list[int] = []
        self._numbers = np.zeros((0, len(_FIELDS)), np.int64)
        self._is_used = np.zeros(0, bool)
        self._order = Order()
        self._texts = Texts()
        self.prefixes: Counter[str] = Counter()
        """What subjects of dead letters begin with, and of how many consumers."""

    def __len__(self) -> int:
        return len(self._groups) - len(self._free)

    def put(self, group: Group, place: int, old: Group | None) -> None:
        """A group of the mailbox in this place, instead of what was known of it."""
        group.at = self._take() if old is None else old.at
        self._note(old, -1)
        self._note(group, 1)
        self._groups[group.at] = group
        now_ms = int(time.time() * 1000)
        window = (0, 0, 0, 0, now_ms) if old is None else self._window(group.at, now_ms)
        if old is None:
            self._order.add(_key(group), group.at)
            self._texts.set(group.at, f"{group.name}\0{group.queue}")
            self._is_used[group.at] = True
        self._numbers[group.at] = (
            place,
            group.kind == "stream",
            group.pending,
            group.lag,
            group.ack_pending,
            group.members,
            group.used_ms,
            group.delivered,
            group.redelivered,
            0 if group.alone_since is None else int(group.alone_since * 1000),
            now_ms,
            *window,
        )

    def _note(self, group: Group | None, step: int) -> None:
        if group is not None and group.dead_letters:
            self.prefixes[group.dead_letters] += step
            if not self.prefixes[group.dead_letters]:
                del self.prefixes[group.dead_letters]

    def _take(self) -> int:
        if self._free:
            return self._free.pop()
        self._groups.append(None)
        size = len(self._groups)
        if size > len(self._numbers):
            more = max(size, 64)
            self._numbers = np.concatenate(
                [self._numbers, np.zeros((more, len(_FIELDS)), np.int64)]
            )
            self._is_used = np.concatenate([self._is_used, np.zeros(more, bool)])
        return size - 1

    def drop(self, group: Group) -> None:
        """It is gone."""
        self._note(group, -1)
        self._order.remove(_key(group))
        self._texts.set(group.at, "")
        self._groups[group.at] = None
        self._numbers[group.at] = 0
        self._is_used[group.at] = False
        self._free.append(group.at)

    def page(
        self, *, search: str, sort: str, offset: int, limit: int, kind: Kind | None
    ) -> tuple[list[Group], int]:
        """A part of them: numbers come largest first, names from a on; `-` is the other way."""
        chosen = self._is_used
        if search:
            chosen = np.zeros(len(self._is_used), bool)
            if "\0" not in search:
                chosen[self._texts.find(search)] = True
        if kind is not None:
            chosen = chosen & (self._column("is_stream") == (kind == "stream"))
        places = np.flatnonzero(chosen)
        reverse, key = sort.startswith("-"), sort.removeprefix("-")
        if key == "name":
            among = None if len(places) == len(self) else chosen
            found = self._order.part(offset, limit, reverse=reverse, among=among)
        else:
            column = self._column(_COLUMNS.get(key, key))[places]
            found = places[top(column, offset, limit, smallest=reverse)].tolist()
        return list(self._at(found)), len(places)

    def named(self, name: str, queue: str, offset: int, limit: int) -> tuple[list[Group], int]:
        """A part of those of this name, of one queue or of all."""
        prefix = _escaped(name) + (f"\0{_escaped(queue)}" if queue else "")
        first, end = self._order.rank(f"{prefix}\0"), self._order.rank(f"{prefix}\1")
        limit = max(min(limit, end - first - offset), 0)
        found = self._order.part(first + offset, limit, among=None) if limit else []
        return list(self._at(found)), end - first

    def alone(self) -> tuple[Places, npt.NDArray[np.int64]]:
        """Places of queues with a group that has work and that nobody has asked for, with one entry
        for each such group; and since when, in milliseconds."""
        at = self._alone()
        return self._column("place")[at], self._column("alone_ms")[at]

    def most_alone(self) -> Group | None:
        """Of these groups the one with the most work."""
        return self._first(self._alone(), "pending")

    def _alone(self) -> Places:
        since = self._column("alone_ms")
        later = np.maximum(since, self._column("used_ms"))
        return np.flatnonzero((since > 0) & (later < (time.time() - IDLE_S) * 1000))

    def given_again(self, share: float, least: int) -> tuple[int, Group | None, float]:
        """How many were given more than this share of their messages more than once lately, and
        the one with most of these, and its share."""
        delivered = self._column("delivered") - self._column("old_delivered")
        again = self._column("redelivered") - self._column("old_redelivered")
        is_fresh = self._column("changed_ms") > time.time() * 1000 - 2 * _HALF_MS
        at = np.flatnonzero(is_fresh & (delivered >= least) & (again > share * delivered))
        if not len(at):
            return 0, None, 0.0
        most = int(at[np.argmax(again[at])])
        return len(at), self._groups[most], float(again[most] / delivered[most])

    def _window(self, at: int, now_ms: int) -> tuple[int, ...]:
        """The window of redeliveries of a group, moved on if it is time to."""
        known = dict(zip(_FIELDS, self._numbers[at].tolist(), strict=True))
        window = [known[name] for name in _FIELDS[-5:]]
        if now_ms - known["mid_ms"] >= _HALF_MS:
            latest = [known["delivered"], known["redelivered"]]
            is_over = now_ms - known["mid_ms"] >= 2 * _HALF_MS
            window = [*(latest if is_over else window[2:4]), *latest, now_ms]
        return tuple(window)

    def busiest(self, most: int) -> list[Group]:
        """Those with the most to do and done."""
        work = self._column("pending") + self._column("delivered")
        places = np.flatnonzero(self._is_used)
        return list(self._at(places[top(work[places], 0, most, smallest=False)].tolist()))

    def _first(self, at: Places, field: str) -> Group | None:
        if not len(at):
            return None
        return self._groups[int(at[np.argmax(self._column(field)[at])])]

    def _column(self, field: str) -> npt.NDArray[np.int64]:
        return self._numbers[:, _FIELDS.index(field)]

    def _at(self, found: Iterable[int]) -> Iterator[Group]:
        for at in found:
            group = self._groups[at]
            if group is not None:
                yield group


def _key(group: Group) -> str:
    return f"{_escaped(group.name)}\0{_escaped(group.queue)}\0{group.kind}"


def _escaped(name: str) -> str:
    """The name without the characters that end a name, or come right behind them."""
    return name.replace("\1", "\1\1").replace("\0", "\1\2")
