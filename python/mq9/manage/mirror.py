"""This process's copy of the broker's state: a row for each mailbox, in columns.

Owns numbers, order and search. A row lies where the broker's own slot lies, so that a change costs
the same whether there are ten mailboxes or a million. Knows neither the broker nor the page.
"""

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mq9.manage.groups import Groups
from mq9.manage.names import Order, Places, Texts, top
from mq9.manage.rows import RATE_S, Group, Kind, Row

LEVELS = 10
_INTEGERS = (
    *("depth", "in_flight", "delayed", "bytes", "next_id", "consumers", "oldest_ms", "lag"),
    *("created_ms", "is_stream"),
)
_FLOATS = ("rate_in", "rate_out", "changed", "weight")
_COUNTED = ("delivered", "redelivered", "acked", "returned", "dead")
# So many rows of a list are put in order at a time, and stay so for as long if nothing changes.
_AHEAD = 1000
_KEPT_S = 1.0
_MOST_KEPT = 32
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
        self._by_place: dict[int, list[Group]] = {}
        self.groups = Groups()
        self._targets: dict[int, str] = {}
        self._letter_boxes: Counter[str] = Counter()
        self._growing: dict[int, float] = {}
        """Places that grow, and since when without a pause."""
        self._looked = 0.0
        self._order = Order()
        self._texts = Texts()
        self._changes = 0
        self._kept: dict[tuple[str, str, Kind | None], _Kept] = {}
        self._is_used = np.zeros(0, bool)
        self._past: Mirror | None = None
        self._is_new_life = False
        self.count = 0
        self.streams = 0
        """How many of them are streams."""
        self.stream_changes = 0
        """How many streams came or went."""
        self.levels = np.zeros(LEVELS, np.int64)
        self.totals = dict.fromkeys(("sent", *_COUNTED, "bytes", "delayed", "in_flight"), 0)
        self.whole = False
        """Whether all mailboxes have been read since the broker was last found."""

    def begin_again(self, *, is_new_life: bool) -> "Mirror":
        """An empty one, for all that is there to be read into: its sums go on, with what happened
        meanwhile. What groups did, the broker counts anew in a new life."""
        fresh = Mirror()
        fresh.totals |= {name: self.totals[name] for name in ("sent", *_COUNTED)}
        fresh._past = self if self.count or self.whole else None
        fresh._is_new_life = is_new_life
        return fresh

    def take_over(self, other: "Mirror") -> None:
        """Become what the other one is, now that it has all; nobody may use that one any more."""
        other._past, other.whole = None, True
        other.looked()
        self.__dict__.update(other.__dict__)

    def apply(self, rows: Iterable[Mapping[str, Any]], gone: Iterable[int] = ()) -> None:
        """Rows have changed since the last look; mailboxes of other places are gone."""
        now = time.time()
        self._changes += 1
        for place in gone:
            self._remove(place)
        # Each mailbox once, as it is now: sums count by how much it has changed.
        if last := {int(row["slot"]): row for row in rows}:
            self._put(list(last.values()), now)

    def looked(self) -> None:
        """All that has changed by now is known: what comes is from later."""
        self._looked = time.time()

    def _remove(self, place: int) -> None:
        if place >= len(self._names) or not self._names[place]:
            return
        is_stream = int(self._integers["is_stream"][place])
        self._places.pop(_key(self._names[place], is_stream), None)
        self._order.remove(_key(self._names[place], is_stream))
        self._names[place] = ""
        self._texts.set(place, "")
        self._is_used[place] = False
        self.count -= 1
        self.streams -= is_stream
        self.stream_changes += is_stream
        self.levels -= self._levels[place]
        self._levels[place] = 0
        for name in ("bytes", "delayed", "in_flight"):
            self.totals[name] -= int(self._integers[name][place])
        for column in (*self._integers.values(), *self._floats.values()):
            column[place] = 0
        for group in self._by_place.pop(place, ()):
            self.groups.drop(group)
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

    def _put(self, rows: Sequence[Mapping[str, Any]], now: float) -> None:
        """Rows of different mailboxes: their numbers are taken a column at a time."""
        places = _numbers(rows, "slot")
        self._reserve(int(places.max()))
        known = self._identify(rows, places)
        levels = _levels(rows)
        depth = levels.sum(axis=1)
        # Messages of a stream are kept, not waiting.
        levels[self._integers["is_stream"][places] == 1] = 0
        after = {
            name: _numbers(rows, name) for name in ("delayed", "bytes", "next_id", "oldest_ms")
        }
        after |= {"depth": depth, "consumers": _numbers(rows, "group_count")}
        before = {name: self._integers[name][places] for name in after}
        # Whatever happened, happened since the last look, however long nothing had happened before.
        changed = self._floats["changed"][places]
        passed = np.where(known, now - np.maximum(changed, self._looked), 0.0)
        for place in places[now - changed > RATE_S].tolist():
            self._growing.pop(place, None)
        for name, column in after.items():
            self._integers[name][places] = column
        self.levels += (levels - self._levels[places]).sum(axis=0)
        self._levels[places] = levels
        for name in ("bytes", "delayed"):
            self.totals[name] += int((after[name] - before[name]).sum())
        came = np.where(known, after["next_id"] - before["next_id"], 0)
        left = np.where(known, came - (depth - before["depth"]), 0)
        if self.whole:
            self.totals["sent"] += int(np.where(known, came, after["next_id"]).sum())
        elif self._past is not None:
            had = [self._had(self._past, place) for place in places.tolist()]
            self.totals["sent"] += int(np.maximum(after["next_id"] - had, 0).sum())
        for name, count in (("rate_in", came), ("rate_out", left)):
            rate = np.maximum(count, 0) / np.maximum(passed, 0.5)
            self._floats[name][places] = np.where(passed, rate, 0.0)
        self._floats["changed"][places] = now
        for place, row, since in zip(places.tolist(), rows, passed.tolist(), strict=True):
            if row["groups"] or place in self._by_place:
                self._read_groups(place, row["groups"], since, now)
                if len(row["groups"]) >= int(row["group_count"]):
                    self._keep_only(place, {str(given["name"]) for given in row["groups"]})
                self._look_at(place, now)
            if row["dead_letter"] or place in self._targets:
                self._aim(place, str(row["dead_letter"]))
        self._look_at_lonely(places[[place not in self._by_place for place in places.tolist()]])

    def _identify(self, rows: Sequence[Mapping[str, Any]], places: Places) -> npt.NDArray[np.bool_]:
        """Which rows are of what is known in their place; what the others are of is put there."""
        kinds = np.array(["stream" in row for row in rows], np.int64)
        created = _numbers(rows, "created_ms")
        names = [str(row["stream" if "stream" in row else "address"]) for row in rows]
        at = places.tolist()
        same = [self._names[place] == name for place, name in zip(at, names, strict=True)]
        known: npt.NDArray[np.bool_] = np.array(same)
        for column, values in (("is_stream", kinds), ("created_ms", created)):
            known &= self._integers[column][places] == values
        strange = np.flatnonzero(~known).tolist()
        # All that were there go first: one of them may have come back to another place.
        for index in strange:
            self._remove(at[index])
        for index in strange:
            place, name, is_stream = at[index], names[index], int(kinds[index])
            self._names[place] = name
            self._places[_key(name, is_stream)] = place
            self._order.add(_key(name, is_stream), place)
            self._texts.set(place, name)
            self._is_used[place] = True
            self.count += 1
            self.streams += is_stream
            self.stream_changes += is_stream
        self._integers["is_stream"][places] = kinds
        self._integers["created_ms"][places] = created
        return known

    def _had(self, past: "Mirror", place: int) -> int:
        """How many messages the mailbox in a place ever had by the time of another copy."""
        was = (int(self._integers[column][place]) for column in ("is_stream", "created_ms"))
        found = past.find_same(self._names[place], *was)
        return 0 if found is None else past.numbers(found)[1]

    def _look_at_lonely(self, places: Places) -> None:
        """What follows from it that queues have no groups: just their rates say something."""
        self._changes += 1
        self.totals["in_flight"] -= int(self._integers["in_flight"][places].sum())
        self._integers["in_flight"][places] = self._integers["lag"][places] = 0
        is_busy = (self._floats["rate_in"][places] > 0) | (self._floats["rate_out"][places] > 0)
        self._floats["weight"][places] = np.where(is_busy, _WEIGHTS["steady"], 0.0)
        for place in self._growing.keys() & places.tolist():
            del self._growing[place]

    def _look_at(self, place: int, now: float) -> None:
        """What follows from a queue's groups."""
        self._changes += 1
        groups = self._by_place.get(place, ())
        in_flight = sum(group.ack_pending for group in groups)
        self.totals["in_flight"] += in_flight - int(self._integers["in_flight"][place])
        self._integers["in_flight"][place] = in_flight
        self._integers["lag"][place] = max((group.lag for group in groups), default=0)
        word, _ = self._trend(place, groups, now)
        self._floats["weight"][place] = _WEIGHTS.get(word, 0.0)
        if word == "growing":
            self._growing.setdefault(place, now)
        else:
            self._growing.pop(place, None)

    def apply_groups(self, place: int, found: Sequence[Mapping[str, Any]]) -> None:
        """More groups of a mailbox than its row had room for."""
        now = time.time()
        self._read_groups(place, found, now - self._looked if self.whole else 0.0, now)
        self._look_at(place, now)

    def keep_groups(self, place: int, names: set[str]) -> None:
        """All groups of a mailbox were read, and these are there."""
        self._keep_only(place, names)
        self._look_at(place, time.time())

    def _keep_only(self, place: int, names: set[str]) -> None:
        groups = self._by_place.get(place, [])
        for group in groups:
            if group.name not in names:
                self.groups.drop(group)
        left = [group for group in groups if group.name in names]
        if left:
            self._by_place[place] = left
        else:
            self._by_place.pop(place, None)

    def _read_groups(
        self, place: int, rows: Sequence[Mapping[str, Any]], passed: float, now: float
    ) -> None:
        if not rows:
            return
        kind: Kind = "stream" if self._integers["is_stream"][place] else "mailbox"
        known = {group.name: group for group in self._by_place.get(place, ())}
        past = self._past_groups(place) if self._past is not None else {}
        for given in rows:
            group = _group(given, self._names[place], kind)
            old = known.get(group.name)
            self._count(group, old, past.get(group.name))
            if old is not None and passed:
                group.rate, group.rated = max(group.acked - old.acked, 0) / max(passed, 0.5), now
            if group.pending and not group.members:
                group.alone_since = (old.alone_since if old else None) or now
            self.groups.put(group, place, old)
            known[group.name] = group
        self._by_place[place] = list(known.values())

    def _past_groups(self, place: int) -> dict[str, Group]:
        assert self._past is not None
        was = (int(self._integers[column][place]) for column in ("is_stream", "created_ms"))
        found = self._past.find_same(self._names[place], *was)
        return {} if found is None else {g.name: g for g in self._past.groups_of(found)}

    def _count(self, group: Group, old: Group | None, past: Group | None) -> None:
        """Adds to the sums what it has done since it was last looked at."""
        if not self.whole and self._past is None:
            return
        base = old or (None if self._is_new_life else past)
        for name in _COUNTED:
            more = getattr(group, name) - (getattr(base, name) if base else 0)
            self.totals[name] += max(more, 0)

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
        self._is_used = np.concatenate([self._is_used, np.zeros(more, bool)])
        self._levels = np.concatenate([self._levels, np.zeros((more, LEVELS), np.int64)])

    def find(self, name: str, kind: Kind | None = "mailbox") -> int | None:
        """The place of a mailbox or stream; of a mailbox first if the kind is open."""
        found = self._places.get(name) if kind != "stream" else None
        if found is None and kind != "mailbox":
            found = self._places.get(_key(name, True))
        return found

    def find_same(self, name: str, is_stream: int, created_ms: int) -> int | None:
        """The place of this very mailbox or stream, not of another one of its name."""
        place = self._places.get(_key(name, is_stream))
        return place if place is not None and self.created_ms(place) == created_ms else None

    def is_at(self, place: int, address: str) -> bool:
        """Whether the mailbox of this address is known to be in this place, or a stream is."""
        if not address or place >= len(self._names) or not self._names[place]:
            return False
        return bool(self._integers["is_stream"][place]) or self._names[place] == address

    def crowded(self) -> list[int]:
        """Places with more groups than are known."""
        places = np.flatnonzero(self._integers["consumers"] > 0)
        known = self._by_place
        counts = self._integers["consumers"][places].tolist()
        pairs = zip(places.tolist(), counts, strict=True)
        return [place for place, count in pairs if len(known.get(place, ())) < count]

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
        word, value = self._outlook(place, self._by_place.get(place, ()), now)
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
        last = offset + limit
        if last > _AHEAD:
            found, total = self._find(search, sort, kind, offset, limit)
            return [self.row(place) for place in found], total
        # Many pages are open, and each asks again after a while.
        asked, now = (search, sort, kind), time.time()
        kept = self._kept.get(asked)
        if kept is None or kept.changes != self._changes or abs(now - kept.since) > _KEPT_S:
            if len(self._kept) >= _MOST_KEPT:
                self._kept.clear()
            found, total = self._find(search, sort, kind, 0, _AHEAD)
            kept = self._kept[asked] = _Kept(self._changes, now, found, total)
        return [self.row(place) for place in kept.places[offset:last]], kept.total

    def _find(
        self, search: str, sort: str, kind: Kind | None, offset: int, limit: int
    ) -> tuple[list[int], int]:
        places = self._matching(search)
        if kind is not None:
            places = places[(self._integers["is_stream"][places] == 1) == (kind == "stream")]
        total = len(places)
        reverse, key = sort.startswith("-"), sort.removeprefix("-")
        if key == "name":
            among = None
            if total < self.count:
                among = np.zeros(len(self._is_used), bool)
                among[places] = True
            # Having found all, it looks no further.
            limit = min(limit, total)
            return self._order.part(offset, limit, reverse=reverse, among=among), total
        column = self._column(key)[places]
        return places[top(column, offset, limit, smallest=reverse)].tolist(), total

    def named(self, names: Iterable[str]) -> list[int]:
        """Places of the mailboxes and streams with these names."""
        found = (self._places.get(_key(name, kind)) for name in names for kind in (False, True))
        return [place for place in found if place is not None]

    def busiest(self, most: int) -> list[int]:
        """Places of the mailboxes with the most work."""
        places = self._matching("")
        work = self._integers["depth"][places] + self._integers["in_flight"][places]
        return [int(place) for place in places[top(work, 0, most, smallest=False)]]

    @property
    def group_count(self) -> int:
        """How many groups all mailboxes have."""
        return int(self._integers["consumers"].sum())

    def groups_of(self, place: int) -> list[Group]:
        """The groups of a mailbox."""
        return self._by_place.get(place, [])

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
        alone, _ = self.groups.alone()
        scores[alone] = _NOBODY + self._integers["lag"][alone]
        return scores

    def _matching(self, search: str) -> Places:
        """Places of the names with `search` in them."""
        wanted = search.strip()
        return self._texts.find(wanted) if wanted else np.flatnonzero(self._is_used)


@dataclass(slots=True, frozen=True)
class _Kept:
    """The first places of a list, in order, as of a change."""

    changes: int
    since: float
    places: list[int]
    total: int


def _key(name: str, is_stream: int) -> str:
    # A stream may be called like a mailbox, but no mailbox like this.
    return f"{name}\0" if is_stream else name


def _group(given: Mapping[str, Any], queue: str, kind: Kind) -> Group:
    return Group(
        name=str(given["name"]),
        queue=queue,
        kind=kind,
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
        dead_letters=str(given.get("dead_letter") or ""),
    )


def _numbers(rows: Sequence[Mapping[str, Any]], name: str) -> npt.NDArray[np.int64]:
    return np.array([row[name] for row in rows], np.int64)


def _levels(rows: Sequence[Mapping[str, Any]]) -> npt.NDArray[np.int64]:
    """Messages by level, a row of them for each."""
    counts = [
        (at, level - 1, count) for at, row in enumerate(rows) for level, count in row["levels"]
    ]
    levels = np.zeros((len(rows), LEVELS), np.int64)
    if counts:
        at, level, count = np.array(counts, np.int64).T
        levels[at, level] = count
    return levels
