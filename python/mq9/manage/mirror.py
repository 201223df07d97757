"""What the broker holds, as this process knows it: a row for each mailbox, in columns.

Owns numbers, order and search. A row lies where the broker's own slot lies, so that a change costs
the same whether there are ten mailboxes or a million. Knows neither the broker nor the page.
"""

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from mq9.manage.rows import RATE_S, Group, Kind, Row

LEVELS = 10
_INTEGERS = (
    *("depth", "in_flight", "delayed", "bytes", "next_id", "consumers", "oldest_ms", "lag"),
    *("created_ms", "is_stream"),
)
_FLOATS = ("rate_in", "rate_out", "changed", "weight")
_WEIGHTS = {"growing": 3e15, "drains": 2e15, "steady": 1e15}
_NOBODY = 4e15

SORTS = {"name", "outlook", "depth", "in_flight", "delayed", "consumers", "oldest", "bytes"} | {
    *("rate_in", "rate_out", "lag")
}


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
        self._letter_boxes: Counter[str] = Counter()
        self._alone: set[int] = set()
        """Places with groups that have work and no members, be it for long or not."""
        self._growing: dict[int, float] = {}
        """Places that grow, and since when without a pause."""
        self._looked = 0.0
        self._text: bytes | None = None
        self._ends: npt.NDArray[np.int64] = np.zeros(0, np.int64)
        self._used: npt.NDArray[np.int64] = np.zeros(0, np.int64)
        self._by_name: npt.NDArray[np.int64] | None = None
        self.count = 0
        self.streams = 0
        """How many of them are streams."""
        self.levels = np.zeros(LEVELS, np.int64)
        self.totals = dict.fromkeys(("sent", "delivered", "redelivered", "acked", "dead"), 0)
        self.totals |= dict.fromkeys(("returned", "bytes", "delayed", "in_flight"), 0)
        self.whole = False
        """Whether all mailboxes have been read since the broker was last found."""

    def take_over(self, other: "Mirror") -> None:
        """Become what the other one is; nobody may use that one any more."""
        self.__dict__.update(other.__dict__)

    def apply(self, rows: Iterable[Mapping[str, Any]], gone: Iterable[int] = ()) -> None:
        """Rows have changed since the last look; mailboxes of other places are gone."""
        now = time.time()
        for place in gone:
            self._remove(place)
        for row in rows:
            self._put(row, now)

    def looked(self) -> None:
        """All that has changed by now is known: what comes is from later."""
        self._looked = time.time()

    def _remove(self, place: int) -> None:
        if place >= len(self._names) or not self._names[place]:
            return
        is_stream = int(self._integers["is_stream"][place])
        self._places.pop(_key(self._names[place], is_stream), None)
        self._names[place] = ""
        self._text = self._by_name = None
        self.count -= 1
        self.streams -= is_stream
        self.levels -= self._levels[place]
        self._levels[place] = 0
        for name in ("bytes", "delayed", "in_flight"):
            self.totals[name] -= int(self._integers[name][place])
        for column in (*self._integers.values(), *self._floats.values()):
            column[place] = 0
        self.groups.pop(place, None)
        self._alone.discard(place)
        self._growing.pop(place, None)
        self._aim(place, "")

    def _aim(self, place: int, target: str) -> None:
        """Dead letters of a mailbox go there."""
        old = self._targets.pop(place, "")
        if old:
            self._letter_boxes[old] -= 1
            if not self._letter_boxes[old]:
                del self._letter_boxes[old]
        if target:
            self._targets[place] = target
            self._letter_boxes[target] += 1

    def _put(self, row: Mapping[str, Any], now: float) -> None:
        place, is_stream = int(row["slot"]), int("stream" in row)
        name, created_ms = str(row["stream" if is_stream else "address"]), int(row["created_ms"])
        self._reserve(place)
        was = (int(self._integers[column][place]) for column in ("is_stream", "created_ms"))
        known = (self._names[place], *was) == (name, is_stream, created_ms)
        if not known:
            self._remove(place)
            self._names[place] = name
            self._places[_key(name, is_stream)] = place
            self._text = self._by_name = None
            self.count += 1
            self.streams += is_stream
        levels = np.zeros(LEVELS, np.int64)
        for level, count in row["levels"]:
            levels[level - 1] = count
        depth = int(levels.sum())
        if is_stream:
            # Its messages are kept, not waiting, and have no priority.
            levels[:] = 0
        before = {name: int(self._integers[name][place]) for name in _INTEGERS}
        # Whatever happened, happened since the last look, however long nothing had happened before.
        changed = float(self._floats["changed"][place])
        passed = now - max(changed, self._looked) if known else 0.0
        if now - changed > RATE_S:
            self._growing.pop(place, None)
        self._groups_of(place, row, passed, now)
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
            "created_ms": created_ms,
            "is_stream": is_stream,
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
        self._rate("rate_in", place, max(came, 0), passed)
        self._rate("rate_out", place, max(left, 0), passed)
        self._floats["changed"][place] = now
        word, _ = self._trend(place, groups, now)
        self._floats["weight"][place] = _WEIGHTS.get(word, 0.0)
        if word == "growing":
            self._growing.setdefault(place, now)
        else:
            self._growing.pop(place, None)
        if any(group.alone_since is not None for group in groups):
            self._alone.add(place)
        else:
            self._alone.discard(place)
        self._aim(place, str(row["dead_letter"]))

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
                queue=self._names[place],
                kind="stream" if "stream" in row else "mailbox",
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
                oldest_ms=int(given["oldest_ms"]),
            )
            old = known.get(group.name)
            for name in ("delivered", "redelivered", "acked", "returned", "dead"):
                more = getattr(group, name) - (getattr(old, name) if old else 0)
                if self.whole and more > 0:
                    self.totals[name] += more
            if old is not None and passed:
                group.rate, group.rated = max(group.acked - old.acked, 0) / max(passed, 0.5), now
            if group.pending and not group.members:
                group.alone_since = (old.alone_since if old else None) or now
            found.append(group)
        self.groups[place] = found

    def _outlook(self, place: int, groups: Iterable[Group], now: float) -> tuple[str, float | None]:
        if any(group.is_alone(now) for group in groups):
            return "nobody reads", None
        return self._trend(place, groups, now)

    def _trend(self, place: int, groups: Iterable[Group], now: float) -> tuple[str, float | None]:
        lag = int(self._integers["lag"][place])
        rate_in, rate_out = self._live("rate_in", place, now), self._live("rate_out", place, now)
        out = max(rate_out, *(group.ack_rate(now) for group in groups), 0.0)
        if lag and rate_in > out * 1.05 + 0.1:
            return "growing", rate_in - out
        if lag and out > rate_in:
            return "drains", lag / max(out - rate_in, 0.001)
        if rate_in or out:
            return "steady", None
        if not int(self._integers["consumers"][place]) and int(self._integers["depth"][place]):
            return "not read", max(now - float(self._integers["oldest_ms"][place]) / 1000, 0.0)
        return "idle", None

    def growing(self, for_s: float, least: int) -> list[Row]:
        """Queues with so much to do that have grown for so long, those with most first."""
        now = time.time()
        found = [
            self.row(place)
            for place, since in self._growing.items()
            if now - since >= for_s and int(self._integers["lag"][place]) >= least
        ]
        found = [row for row in found if row.outlook == "growing"]
        return sorted(found, key=lambda row: -row.lag)

    def _is_live(self, place: int, now: float) -> bool:
        return now - float(self._floats["changed"][place]) < RATE_S

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

    def find(self, name: str, kind: Kind | None = "mailbox") -> int | None:
        """The place of a mailbox or stream; of a mailbox first if the kind is open."""
        found = self._places.get(name) if kind != "stream" else None
        if found is None and kind != "mailbox":
            found = self._places.get(_key(name, True))
        return found

    def created_ms(self, place: int) -> int:
        """When a mailbox was created."""
        return int(self._integers["created_ms"][place])

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
            kind="stream" if numbers["is_stream"] else "mailbox",
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
        self,
        *,
        search: str = "",
        sort: str = "outlook",
        offset: int = 0,
        limit: int = 50,
        kind: Kind | None = None,
    ) -> tuple[list[Row], int]:
        """A part of the mailboxes that have `search` in their names, and how many have.

        `sort` is one of SORTS; with a `-` before it, smallest first, or z to a.
        """
        places = self._matching(search)
        if kind is not None:
            places = places[(self._integers["is_stream"][places] == 1) == (kind == "stream")]
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
        return set(self._letter_boxes)

    def _column(self, key: str) -> npt.NDArray[Any]:
        if key in self._integers:
            return self._integers[key]
        if key == "oldest":
            # The oldest has the smallest time of creation; none at all comes last.
            times = self._integers["oldest_ms"]
            return np.where(times > 0, -times, np.iinfo(np.int64).min)
        if key in ("rate_in", "rate_out"):
            live = time.time() - self._floats["changed"] < RATE_S
            return np.where(live, self._floats[key], 0.0)
        # What was so when it changed last holds as long as its rates do.
        now = time.time()
        live = now - self._floats["changed"] < RATE_S
        scores: npt.NDArray[np.float64] = np.where(live, self._floats["weight"], 0.0)
        scores += self._integers["lag"]
        for place in self._alone:
            if any(group.is_alone(now) for group in self.groups.get(place, ())):
                scores[place] = _NOBODY + float(self._integers["lag"][place])
        return scores

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
            encoded = [name.lower().encode() for name in self._names]
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


def _key(name: str, is_stream: int) -> str:
    # A stream may be called like a mailbox, but no mailbox like this.
    return f"\0{name}" if is_stream else name


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
