"""Holds the rows of an export against the ledger: what was stored is there, once, as it was sent.

Reads the whole ledger, in which the rows are as well. Knows the ledger and nothing else.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from tests.faults.check import MOST_EXAMPLES
from tests.faults.ledger import Event


@dataclass
class Known:
    """What clients know of a mailbox."""

    sent: dict[int, tuple[int, int]] = field(default_factory=dict)
    """CRC and level of all that somebody has sent to it, by uid."""
    refused: set[int] = field(default_factory=set)
    stored: dict[int, int] = field(default_factory=dict)
    """The uid of every message that was confirmed or seen, by `msg_id`."""
    delayed: set[int] = field(default_factory=set)
    """Confirmed, of use for ever, and to get a `msg_id` when they are due."""
    rows: dict[int, int] = field(default_factory=dict)


class ExportCheck:
    """Takes events in order, to the end; `violations` tells what was broken."""

    def __init__(self) -> None:
        self.known: dict[str, Known] = defaultdict(Known)
        self.source_of: dict[str, str] = {}
        self.rows = 0
        self.broken: Counter[str] = Counter()
        self.violations: list[str] = []
        """Examples; `broken` counts all."""
        self._forever: set[int] = set()
        self._rules: dict[str, Callable[..., None]] = {
            "box": self._box,
            "send": self._send,
            "sent": self._sent,
            "refused": self._refused,
            "got": self._got,
            "looked": self._looked,
            "exported": self._exported,
            "exported_all": self._exported_all,
        }

    def feed(self, events: Iterable[Event]) -> None:
        """Goes on with these events."""
        for event in events:
            if rule := self._rules.get(event[0]):
                rule(*event[1:])

    def _wrong(self, rule: str, what: str) -> None:
        self.broken[rule] += 1
        if len(self.violations) < MOST_EXAMPLES:
            self.violations.append(f"{rule}: {what}")

    def _box(self, name: str, *more: Any) -> None:  # noqa: ANN401
        self.known[name]
        if len(more) > 3 and more[3]:
            self.source_of[more[3]["dead_letter"]] = name

    def _send(self, name: str, _sender: str, _at_ns: int, messages: list[list[Any]]) -> None:
        known = self.known[name]
        for uid, crc, level, _key, delay_s, ttl_s in messages:
            known.sent[uid] = (crc, level)
            if delay_s and not ttl_s:
                self._forever.add(uid)

    def _sent(self, name: str, _sender: str, _at_ns: int, pairs: list[list[int]]) -> None:
        known = self.known[name]
        for uid, msg_id in pairs:
            if msg_id >= 0:
                known.stored[msg_id] = uid
            elif uid in self._forever:
                known.delayed.add(uid)

    def _refused(self, name: str, _sender: str, _at_ns: int, uids: list[int]) -> None:
        self.known[name].refused.update(uids)

    def _got(
        self, name: str, _of: str, _worker: str, _number: int, _at_ns: int, entries: list[list[int]]
    ) -> None:
        self._seen(name, entries)

    def _looked(self, name: str, _at_ns: int, entries: list[list[int]]) -> None:
        self._seen(name, entries)

    def _seen(self, name: str, entries: list[list[int]]) -> None:
        for msg_id, uid, *_ in entries:
            self.known[name].stored.setdefault(msg_id, uid)

    # The rows.

    def _exported(self, name: str, entries: list[list[int]]) -> None:
        known = self.known[name]
        # A dead letter was sent to another mailbox.
        by_uid = self.known[self.source_of.get(name, name)]
        for msg_id, uid, crc, level in entries:
            self.rows += 1
            what = f"{name}: msg_id {msg_id} ({uid})"
            if msg_id in known.rows:
                self._wrong("exported twice", what)
            known.rows[msg_id] = uid
            if uid not in by_uid.sent or uid in by_uid.refused:
                self._wrong("invented", f"{what}: nobody sent it")
            elif by_uid.sent[uid] != (crc, level) or known.stored.get(msg_id, uid) != uid:
                self._wrong("changed", f"{what}: is not what was sent")

    def _exported_all(self, gaps: int) -> None:
        if gaps:
            self._wrong("not exported", f"{gaps} parts of the log were gone before")
        for name, known in self.known.items():
            for msg_id, uid in known.stored.items():
                if msg_id not in known.rows:
                    self._wrong("not exported", f"{name}: msg_id {msg_id} ({uid})")
            there = Counter(known.rows.values())
            for uid in known.delayed:
                if not there[uid]:
                    self._wrong("not exported", f"{name}: {uid}, which was delayed")
            for uid, times in there.items():
                if times > 1:
                    self._wrong("exported twice", f"{name}: {uid}, under {times} ids")
