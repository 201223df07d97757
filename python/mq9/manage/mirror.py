"""What the broker holds, as this process knows it: a row for each mailbox, in columns.

Owns numbers, order and search. A row lies where the broker's own slot lies, so that a change costs
the same whether there are ten mailboxes or a million. Knows neither the broker nor the page.
"""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

LEVELS = 10
# A rate that nothing has confirmed for so long is over.
_RATE_S = 6.0
_IDLE_S = 60.0
_INTEGERS = ("depth", "in_flight", "delayed", "bytes", "next_id", "consumers", "oldest_ms", "lag")
_FLOATS = ("rate_in", "rate_out", "changed", "score")

SORTS = {"name", "outlook", "depth", "in_flight", "delayed", "consumers", "oldest", "bytes"} | {
    *("rate_in", "rate_out", "lag")
}


@dataclass(slots=True)
class Group:
    """A group of a mailbox."""

    name: str
    queue: str
    lag: int
    ack_pending: int
    members: int
    used_ms: int
    delivered: int
    redelivered: int
    acked: int
    returned: int
    dead: int
    durations: list[int]
    ack_rate: float = 0.0
    oldest_ms: int = 0
    alone_since: float | None = None
    """Since when nobody has asked for its messages, though there are some."""

    @property
    def pending(self) -> int:
        """What is not done: not given out yet, or not acknowledged."""
        return self.lag + self.ack_pending


@dataclass(slots=True, frozen=True)
class Row:
    """A mailbox as a list shows it."""

    name: str
    depth: int
    in_flight: int
    delayed: int
    consumers: int
    oldest_s: float | None
    bytes: int
    rate_in: float
    rate_out: float
    lag: int
    outlook: str
    outlook_s: float | None
    levels: dict[int, int]


class Mirror:
    """All mailboxes of the broker."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._places: dict[str, int] = {}
        self._integers = {name: np.zeros(0, np.int64) for name in _INTEGERS}
        self._floats = {name: np.zeros(0, np.float64) for name in _FLOATS}
        self._levels = np.zeros((0, LEVELS), np.int64)
        self.groups: dict[int, list[Group]] = {}
        self._targets: dict[int, str] = {}
        self._text: bytes | None = None
        self._ends: npt.NDArray[np.int64] = np.zeros(0, np.int64)
        self._used: npt.NDArray[np.int64] = np.zeros(0, np.int64)
        self._by_name: npt.NDArray[np.int64] | None = None
        self.count = 0
        self.levels = np.zeros(LEVELS, np.int64)
        self.totals = dict.fromkeys(("sent", "delivered", "redelivered", "acked", "dead"), 0)
        self.totals |= dict.fromkeys(("returned", "bytes", "delayed", "in_flight"), 0)
        self.whole = False
        """Whether all mailboxes have been read since the broker was last found."""

    def take_over(self, other: "Mirror") -> None:
        """Become what the other one is; nobody may use that one any more."""
        self.__dict__.update(other.__dict__)

    def apply(self, rows: Iterable[Mapping[str, Any]], gone: Iterable[int] = ()) -> None:
        """Rows have changed; mailboxes of other places are not there any more."""
        now = time.time()
        for place in gone:
            self._remove(place)
        for row in rows:
            self._put(row, now)

    def _remove(self, place: int) -> None:
        if place >= len(self._names) or not self._names[place]:
            return
        self._places.pop(self._names[place], None)
        self._names[place] = ""
        self._text = self._by_name = None
        self.count -= 1
        self.levels -= self._levels[place]
        self._levels[place] = 0
        for name in ("bytes", "delayed", "in_flight"):
            self.totals[name] -= int(self._integers[name][place])
        for column in (*self._integers.values(), *self._floats.values()):
            column[place] = 0
        self.groups.pop(place, None)
        self._targets.pop(place, None)

    def _put(self, row: Mapping[str, Any], now: float) -> None:
        place, address = int(row["slot"]), str(row["address"])
        self._reserve(place)
        known = self._names[place] == address
        if not known:
            self._remove(place)
            self._names[place] = address
            self._places[address] = place
            self._text = self._by_name = None
            self.count += 1
        levels = np.zeros(LEVELS, np.int64)
        for level, count in row["levels"]:
            levels[level - 1] = count
        depth = int(levels.sum())
        before = {name: int(self._integers[name][place]) for name in _INTEGERS}
        passed = now - float(self._floats["changed"][place])
        self._groups_of(place, row, passed if known else 0.0, now)
        groups = self.groups.get(place, ())
        after = {
            "depth": depth,
            "in_flight": sum(group.ack_pending for group in groups),
            "delayed": int(row["delayed"]),
            "bytes": int(row["bytes"]),
            "next_id": int(row["next_id"]),
            "consumers": int(row["group_count"]),
            "oldest_ms": int(row["oldest_ms"]),
            "lag": max((group.lag for group in groups), default=0),
        }
        for name, value in after.items():
            self._integers[name][place] = value
        self.levels += levels - self._levels[place]
        self._levels[place] = levels
        for name in ("bytes", "delayed", "in_flight"):
            self.totals[name] += after[name] - before[name]
        came = after["next_id"] - before["next_id"] if known else 0
        left = came - (depth - before["depth"]) if known else 0
        if self.whole:
            self.totals["sent"] += came if known else after["next_id"]
        self._rate("rate_in", place, max(came, 0), passed if known else 0.0)
        self._rate("rate_out", place, max(left, 0), passed if known else 0.0)
        self._floats["changed"][place] = now
        self._floats["score"][place] = self._score(place, groups, now)
        if row["dead_letter"]:
            self._targets[place] = str(row["dead_letter"])
        else:
            self._targets.pop(place, None)

    def _rate(self, name: str, place: int, count: int, passed: float) -> None:
        self._floats[name][place] = count / max(passed, 0.5) if passed else 0.0

    def _groups_of(self, place: int, row: Mapping[str, Any], passed: float, now: float) -> None:
        if not row["groups"]:
            self.groups.pop(place, None)
            return
        known = {group.name: group for group in self.groups.get(place, ())}
        found: list[Group] = []
        for given in row["groups"]:
            group = Group(
                name=str(given["name"]),
                queue=str(row["address"]),
                lag=int(given["lag"]),
                ack_pending=int(given["outstanding"]),
                members=int(given["members"]),
                used_ms=int(given["used_ms"]),
                delivered=int(given["delivered"]),
                redelivered=int(given["redelivered"]),
                acked=int(given["acked"]),
                returned=int(given["returned"]),
                dead=int(given["dead"]),
                durations=list(given["durations"]),
                oldest_ms=int(row["oldest_ms"]),
            )
            old = known.get(group.name)
            for name in ("delivered", "redelivered", "acked", "returned", "dead"):
                more = getattr(group, name) - (getattr(old, name) if old else 0)
                if self.whole and more > 0:
                    self.totals[name] += more
            if old is not None and passed:
                group.ack_rate = max(group.acked - old.acked, 0) / max(passed, 0.5)
            if group.pending and not group.members:
                group.alone_since = (old.alone_since if old else None) or now
            found.append(group)
        self.groups[place] = found

    def _score(self, place: int, groups: Iterable[Group], now: float) -> float:
        word, _ = self._outlook(place, groups, now)
        weight = {"nobody reads": 4e15, "growing": 3e15, "drains": 2e15, "steady": 1e15}
        return weight.get(word, 0.0) + float(self._integers["lag"][place])

    def _outlook(self, place: int, groups: Iterable[Group], now: float) -> tuple[str, float | None]:
        lag = int(self._integers["lag"][place])
        if any(group.pending and not group.members and _idle(group, now) for group in groups):
            return "nobody reads", None
        rate_in, rate_out = self._live("rate_in", place, now), self._live("rate_out", place, now)
        acked = max((group.ack_rate for group in groups), default=0.0)
        out = max(rate_out, acked if self._is_live(place, now) else 0.0)
        if lag and rate_in > out * 1.05 + 0.1:
            return "growing", rate_in - out
        if lag and out > rate_in:
            return "drains", lag / max(out - rate_in, 0.001)
        if rate_in or out:
            return "steady", None
        if not int(self._integers["consumers"][place]) and int(self._integers["depth"][place]):
            return "not read", max(now - float(self._integers["oldest_ms"][place]) / 1000, 0.0)
        return "idle", None

    def _is_live(self, place: int, now: float) -> bool:
        return now - float(self._floats["changed"][place]) < _RATE_S

    def _live(self, name: str, place: int, now: float) -> float:
        return float(self._floats[name][place]) if self._is_live(place, now) else 0.0

    def _reserve(self, place: int) -> None:
        if place < len(self._names):
            return
        size = max(place + 1, 2 * len(self._names), 64)
        more = size - len(self._names)
        self._names += [""] * more
        for columns in (self._integers, self._floats):
            for name, column in columns.items():
                columns[name] = np.concatenate([column, np.zeros(more, column.dtype)])
        self._levels = np.concatenate([self._levels, np.zeros((more, LEVELS), np.int64)])

    def find(self, address: str) -> int | None:
        """The place of a mailbox."""
        return self._places.get(address)

    def numbers(self, place: int) -> tuple[int, int]:
        """How many messages a mailbox has, and how many it ever had."""
        return int(self._integers["depth"][place]), int(self._integers["next_id"][place])

    def row(self, place: int) -> Row:
        """A mailbox as a list shows it."""
        now = time.time()
        numbers = {name: int(column[place]) for name, column in self._integers.items()}
        word, value = self._outlook(place, self.groups.get(place, ()), now)
        oldest = numbers["oldest_ms"]
        levels = self._levels[place]
        return Row(
            name=self._names[place],
            depth=numbers["depth"],
            in_flight=numbers["in_flight"],
            delayed=numbers["delayed"],
            consumers=numbers["consumers"],
            oldest_s=max(now - oldest / 1000, 0.0) if oldest else None,
            bytes=numbers["bytes"],
            rate_in=self._live("rate_in", place, now),
            rate_out=self._live("rate_out", place, now),
            lag=numbers["lag"],
            outlook=word,
            outlook_s=value,
            levels={at + 1: int(count) for at, count in enumerate(levels) if count},
        )

    def page(
        self, *, search: str = "", sort: str = "outlook", offset: int = 0, limit: int = 50
    ) -> tuple[list[Row], int]:
        """A part of the mailboxes that have `search` in their names, and how many have.

        `sort` is one of SORTS; with a `-` before it, smallest first, or z to a.
        """
        places = self._matching(search)
        total = len(places)
        reverse, key = sort.startswith("-"), sort.removeprefix("-")
        if key == "name":
            order = self._in_order(places)
            chosen = (order[::-1] if reverse else order)[offset : offset + limit]
        else:
            column = self._column(key)[places]
            chosen = places[_top(column, offset, limit, smallest=reverse)]
        return [self.row(place) for place in chosen.tolist()], total

    def busiest(self, most: int) -> list[int]:
        """Places of the mailboxes with the most work."""
        places = self._matching("")
        work = self._integers["depth"][places] + self._integers["in_flight"][places]
        return [int(place) for place in places[_top(work, 0, most, smallest=False)]]

    def all_groups(self) -> list[Group]:
        """Every group that is known."""
        return [group for groups in self.groups.values() for group in groups]

    @property
    def group_count(self) -> int:
        """How many groups all mailboxes have."""
        return int(self._integers["consumers"].sum())

    def groups_of(self, place: int) -> list[Group]:
        """The groups of a mailbox."""
        return self.groups.get(place, [])

    def dead_letter_mailboxes(self) -> set[str]:
        """Addresses that mailboxes send their dead letters to."""
        return set(self._targets.values())

    def _column(self, key: str) -> npt.NDArray[Any]:
        if key in self._integers:
            return self._integers[key]
        if key == "oldest":
            # The oldest has the smallest time of creation; none at all comes last.
            times = self._integers["oldest_ms"]
            return np.where(times > 0, -times, np.iinfo(np.int64).min)
        if key in ("rate_in", "rate_out"):
            live = time.time() - self._floats["changed"] < _RATE_S
            return np.where(live, self._floats[key], 0.0)
        return self._floats["score"]

    def _in_order(self, places: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        if self._by_name is None:
            used = [place for place, name in enumerate(self._names) if name]
            used.sort(key=self._names.__getitem__)
            self._by_name = np.array(used, np.int64)
        if len(places) == len(self._by_name):
            return self._by_name
        wanted = np.zeros(len(self._names), bool)
        wanted[places] = True
        return self._by_name[wanted[self._by_name]]

    def _matching(self, search: str) -> npt.NDArray[np.int64]:
        """Places of the names with `search` in them: one pass over one long text."""
        if self._text is None:
            encoded = [name.encode() for name in self._names]
            self._text = b"\n".join(encoded)
            self._ends = np.cumsum(np.fromiter(map(len, encoded), np.int64, len(encoded)) + 1)
            lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
            self._used = np.flatnonzero(lengths)
        wanted = search.strip().lower().encode()
        if not wanted:
            return self._used
        if b"\n" in wanted:
            return np.zeros(0, np.int64)
        hits: list[int] = []
        at = self._text.find(wanted)
        while at >= 0:
            hits.append(at)
            end = self._text.find(b"\n", at)
            at = self._text.find(wanted, end) if end >= 0 else -1
        return np.searchsorted(self._ends, np.array(hits, np.int64), side="right")


def _idle(group: Group, now: float) -> bool:
    return now - group.used_ms / 1000 > _IDLE_S


def _top(
    values: npt.NDArray[Any], offset: int, limit: int, *, smallest: bool
) -> npt.NDArray[np.int64]:
    """Indexes of the values from place `offset` on, in order: sorts no more than it has to."""
    ranked = values if smallest else -values.astype(np.float64)
    last = min(offset + limit, len(ranked))
    if last <= 0 or offset >= len(ranked):
        return np.zeros(0, np.int64)
    if last < len(ranked):
        first = np.argpartition(ranked, last - 1)[:last]
        # Those that are equal to the last one come in the order of their places.
        edge = ranked[first].max()
        below = np.flatnonzero(ranked < edge)
        equal = np.flatnonzero(ranked == edge)[: last - len(below)]
        first = np.concatenate([below, equal])
    else:
        first = np.arange(len(ranked))
    order = np.argsort(ranked[first], kind="stable")
    return first[order][offset:last]
