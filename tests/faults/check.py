"""Holds a ledger against what mq9 promises. Knows the ledger and nothing else.

It shares no code with the clients that wrote the ledger, and never asks a broker. Every rule
compares a reply with what was certain before its request was written down; what was under way is
given the benefit of the doubt.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from tests.faults.ledger import Event

SECOND_NS = 1_000_000_000
# Promised for delays and lifetimes; the broker's clock counts whole milliseconds, for leases too.
EXACT_NS = SECOND_NS // 10
CLOCK_NS = 2_000_000
ACK_WAIT_NS = 30 * SECOND_NS

NEVER = 1 << 62
MOST_EXAMPLES = 50


@dataclass(slots=True)
class Sending:
    """A message as its sender knows it."""

    uid: int
    crc: int
    level: int
    key: str
    delay_ns: int
    ttl_ns: int
    sending_ns: int
    stored_ns: int = NEVER
    """When it was certainly stored: confirmed, or seen."""
    msg_id: int = -1
    may_be_gone: bool = False
    gone_line: int = NEVER
    """The line from which on it is certainly gone."""


@dataclass
class Group:
    """What a group was given and has confirmed."""

    alone: bool
    confirmed_line: dict[int, int] = field(default_factory=dict)
    times: Counter[int] = field(default_factory=Counter)
    holder: dict[int, tuple[str, int]] = field(default_factory=dict)
    """Who was given a message in this life of the broker, and when that was asked for."""
    given_to: dict[int, str] = field(default_factory=dict)
    """Who was given it last in this life."""
    highest: dict[tuple[str, int], int] = field(default_factory=dict)
    """The highest message given for the first time, by worker and level."""
    outstanding: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))


@dataclass
class Box:
    """A mailbox."""

    work_queue: bool
    groups: dict[str, Group]
    messages: dict[int, Sending] = field(default_factory=dict)
    """Those that may still be there, by uid."""
    uid_of: dict[int, int] = field(default_factory=dict)
    ack_wait_ns: int = ACK_WAIT_NS
    max_deliver: int = 0
    dead: dict[int, int] = field(default_factory=dict)
    """Those seen in the dead-letter mailbox, by uid: the `msg_id` that they have there."""
    pushed_on: dict[int, str] = field(default_factory=dict)
    """The connection that a message was pushed on last."""
    answered: set[int] = field(default_factory=set)
    """Messages of an inbox that a reader has answered for, whether the broker heard it or not."""
    read: set[int] = field(default_factory=set)
    """Messages of an inbox that the broker knows were read."""
    keys: dict[str, list[Sending]] = field(default_factory=lambda: defaultdict(list))
    last_id_of: dict[str, int] = field(default_factory=dict)


class Check:
    """Takes events in order; `violations` tells what was broken."""

    def __init__(self) -> None:
        self.boxes: dict[str, Box] = {}
        self.source_of: dict[str, str] = {}
        """The mailbox whose dead letters a mailbox takes."""
        self.line = 0
        self.broken: Counter[str] = Counter()
        self.violations: list[str] = []
        """Examples; `broken` counts all."""
        self.sent = self.acked = self.delivered = self.repeated = self.looked = self.lives = 0
        self.pushed = self.pushed_again = 0
        self._conns: set[str] = set()
        """Connections that something was pushed on, and that have not broken."""
        self._asked: dict[Any, tuple[int, int]] = {}

    @property
    def lost(self) -> int:
        """Messages that were stored for certain and are gone."""
        return self.broken["lost"]

    def feed(self, events: Iterable[Event]) -> None:
        """Goes on with these events."""
        for event in events:
            self.line += 1
            rule: Callable[..., None] = getattr(self, f"_{event[0]}")
            rule(*event[1:])

    def _wrong(self, rule: str, what: str) -> None:
        self.broken[rule] += 1
        if len(self.violations) < MOST_EXAMPLES:
            self.violations.append(f"{rule}: {what} (line {self.line})")

    def _box(
        self,
        name: str,
        groups: list[str],
        alone: list[str],
        work_queue: bool,
        policy: dict[str, Any] | None = None,
    ) -> None:
        box = Box(work_queue, {group: Group(group in alone) for group in groups})
        if policy:
            box.ack_wait_ns = policy["ack_wait_ms"] * 1_000_000
            box.max_deliver = policy["max_deliver"]
            self.source_of[policy["dead_letter"]] = name
        self.boxes[name] = box

    def _life(self, _number: int) -> None:
        self.lives += 1

    def _killed(self, _number: int) -> None:
        self._asked.clear()
        self._conns.clear()
        for box in self.boxes.values():
            for group in box.groups.values():
                group.holder.clear()
                group.given_to.clear()
                group.outstanding.clear()
                group.highest = {
                    lane: highest for lane, highest in group.highest.items() if lane[0] == ""
                }

    def _forgot(self) -> None:
        """That something was delivered is no promise: it may be new to its group again."""
        for box in self.boxes.values():
            box.read.clear()
            for group in box.groups.values():
                for msg_id in group.times:
                    if msg_id not in group.confirmed_line:
                        group.times[msg_id] = 0
                group.highest.clear()

    # Sending.

    def _send(self, name: str, _sender: str, at_ns: int, messages: list[list[Any]]) -> None:
        box = self.boxes[name]
        for uid, crc, level, key, delay_s, ttl_s in messages:
            delay_ns, ttl_ns = delay_s * SECOND_NS, ttl_s * SECOND_NS
            new = Sending(uid, crc, level, key, delay_ns, ttl_ns, at_ns)
            box.messages[uid] = new
            if key:
                for old in box.keys[key]:
                    old.may_be_gone = True
                box.keys[key].append(new)

    def _sent(self, name: str, sender: str, at_ns: int, pairs: list[list[int]]) -> None:
        box = self.boxes[name]
        for uid, msg_id in pairs:
            self.sent += 1
            message = box.messages.get(uid)
            if message is None:
                # A worker was done with it before its sender had read the reply.
                if box.uid_of.get(msg_id, uid) != uid:
                    self._wrong("id reused", f"{name}: {msg_id} is {box.uid_of[msg_id]} and {uid}")
                continue
            if message.delay_ns:
                message.stored_ns = min(message.stored_ns, at_ns)
                continue
            if msg_id <= box.last_id_of.get(sender, -1):
                self._wrong("reordered", f"{name}: {uid} of {sender} got the earlier id {msg_id}")
            box.last_id_of[sender] = msg_id
            self._stored(name, box, message, msg_id, at_ns)

    def _refused(self, name: str, _sender: str, _at_ns: int, uids: list[int]) -> None:
        box = self.boxes[name]
        for uid in uids:
            message = box.messages[uid]
            message.may_be_gone, message.gone_line = True, self.line

    def _stored(self, name: str, box: Box, message: Sending, msg_id: int, at_ns: int) -> None:
        """It has this id for certain."""
        message.stored_ns = min(message.stored_ns, at_ns)
        if box.uid_of.setdefault(msg_id, message.uid) != message.uid:
            self._wrong("id reused", f"{name}: {msg_id} is {box.uid_of[msg_id]} and {message.uid}")
        if message.msg_id not in (-1, msg_id):
            self._wrong("stored twice", f"{name}: {message.uid} is {message.msg_id} and {msg_id}")
        message.msg_id = msg_id
        if message.key:
            same = box.keys[message.key]
            while same and same[0] is not message and message in same:
                self._gone(box, same.pop(0))

    def _gone(self, box: Box, message: Sending) -> None:
        message.may_be_gone = True
        message.gone_line = min(message.gone_line, self.line)
        # A message that all are done with needs no room here: its id still tells who it was. One
        # that may be a dead letter as well has to be known to the end.
        if message.msg_id >= 0 and box.work_queue and not box.max_deliver:
            box.messages.pop(message.uid, None)

    # Receiving.

    def _fetch(self, name: str, group: str, worker: str, number: int, at_ns: int) -> None:
        self._asked[name, group, worker, number] = (self.line, at_ns)
        # Who fetches again gives back all that it holds: what it is not given again may go to
        # others.
        found = self.boxes[name].groups[group]
        for msg_id in found.outstanding.pop(worker, ()):
            if found.holder.get(msg_id, ("",))[0] == worker:
                del found.holder[msg_id]

    def _got(
        self, name: str, of: str, worker: str, number: int, at_ns: int, entries: list[list[int]]
    ) -> None:
        box = self.boxes[name]
        group = box.groups[of]
        asked = self._asked.pop((name, of, worker, number))
        order: tuple[int, int] = (0, -1)
        for msg_id, uid, crc, level, deliveries in entries:
            self.delivered += 1
            self.repeated += deliveries > 1
            what = f"{name}/{of}: msg_id {msg_id} ({uid}) to {worker}"
            if (level, msg_id) <= order:
                self._wrong("reordered", f"{what}: behind {order}")
            order = (level, msg_id)
            if group.confirmed_line.get(msg_id, NEVER) < asked[0]:
                self._wrong("duplicated", f"{what}: though its ACK was confirmed")
            self._entry(name, box, what, asked, at_ns, (msg_id, uid, crc, level))
            self._given(box, group, what, worker, asked, at_ns, (msg_id, level, deliveries))

    def _given(
        self,
        box: Box,
        group: Group,
        what: str,
        worker: str,
        asked: tuple[int, int],
        at_ns: int,
        entry: tuple[int, int, int],
    ) -> None:
        msg_id, level, deliveries = entry
        # Whoever was given it last may ask again: that is the same delivery.
        again = group.given_to.get(msg_id) == worker and deliveries == group.times[msg_id]
        if deliveries <= group.times[msg_id] and not again:
            self._wrong(
                "not marked", f"{what}: deliveries {deliveries} after {group.times[msg_id]}"
            )
        if box.max_deliver and deliveries > box.max_deliver:
            self._wrong("too often", f"{what}: delivery {deliveries} of {box.max_deliver}")
        first = not group.times[msg_id]
        group.times[msg_id] = deliveries
        group.given_to[msg_id] = worker
        holder, since_ns = group.holder.get(msg_id, (worker, 0))
        if holder != worker and at_ns < since_ns + box.ack_wait_ns - CLOCK_NS:
            self._wrong("given twice", f"{what}: though {holder} had it")
        group.holder[msg_id] = (worker, asked[1])
        if group.alone or deliveries == 1:
            lane = ("" if group.alone else worker, level)
            if first:
                if msg_id < group.highest.get(lane, -1):
                    self._wrong("reordered", f"{what}: for the first time behind a later one")
                group.highest[lane] = max(msg_id, group.highest.get(lane, -1))
        group.outstanding[worker].add(msg_id)

    def _entry(
        self,
        name: str,
        box: Box,
        what: str,
        asked: tuple[int, int],
        at_ns: int,
        entry: tuple[int, int, int, int],
    ) -> None:
        """Whatever the broker shows was sent, is what was sent, and is due."""
        msg_id, uid, crc, level = entry
        message = box.messages.get(uid)
        if message is None and box.uid_of.get(msg_id) != uid:
            message = self._dead(name, box, what, asked, uid, msg_id)
            if message is None:
                self._wrong("invented", f"{what}: nobody sent it")
        if message is None:
            return
        if (crc, level) != (message.crc, message.level):
            self._wrong("changed", f"{what}: its bytes or its level are not those that were sent")
        if message.gone_line < asked[0]:
            if uid in box.dead:
                self._wrong("in both", f"{what}: though it is a dead letter")
            else:
                self._wrong("came back", f"{what}: though it was deleted, replaced or refused")
        if at_ns < message.sending_ns + message.delay_ns - CLOCK_NS:
            self._wrong("early", f"{what}: before its delay was over")
        if message.ttl_ns and asked[1] > message.stored_ns + message.ttl_ns + EXACT_NS:
            self._wrong("late", f"{what}: though its lifetime was over")
        self._stored(name, box, message, msg_id, at_ns)

    # Push.

    def _pushed(
        self, name: str, reader: str, conn: str, at_ns: int, entries: list[list[int]]
    ) -> None:
        box = self.boxes[name]
        [group] = box.groups.values()
        self._conns.add(conn)
        for msg_id, uid, crc, level in entries:
            self.pushed += 1
            what = f"{name}: msg_id {msg_id} ({uid}) to {reader}"
            if msg_id in box.read:
                self._wrong("duplicated", f"{what}: though it was read")
            before = box.pushed_on.get(msg_id)
            if before in self._conns:
                self._wrong("given twice", f"{what}: though it was pushed on {before}")
            self.pushed_again += before is not None
            box.pushed_on[msg_id] = conn
            group.times[msg_id] += 1
            self._entry(name, box, what, (self.line, at_ns), at_ns, (msg_id, uid, crc, level))

    def _dropped(self, _name: str, conn: str) -> None:
        self._conns.discard(conn)

    def _answering(self, name: str, ids: list[int]) -> None:
        self.boxes[name].answered.update(ids)

    def _read(self, name: str, ids: list[int]) -> None:
        self.boxes[name].read.update(ids)

    # Dead letters.

    def _dead(
        self, name: str, box: Box, what: str, asked: tuple[int, int], uid: int, msg_id: int
    ) -> Sending | None:
        """The copy of a message in a dead-letter mailbox, seen for the first time."""
        source = self.boxes.get(self.source_of.get(name, ""))
        original = source.messages.get(uid) if source else None
        if source is None or original is None:
            return None
        if uid in source.dead:
            self._wrong("stored twice", f"{what}: it was {source.dead[uid]} before")
        source.dead[uid] = msg_id
        for group in source.groups.values():
            if group.confirmed_line.get(original.msg_id, NEVER) < asked[0]:
                self._wrong("in both", f"{what}: though its ACK was confirmed")
        self._gone(source, original)
        copy = Sending(uid, original.crc, original.level, "", 0, 0, original.sending_ns)
        box.messages[uid] = copy
        return copy

    def _buried(self, name: str, entries: list[list[int]]) -> None:
        source = self.boxes[self.source_of[name]]
        for uid, msg_id, deliveries in entries:
            original = source.messages.get(uid)
            if original is None or original.msg_id not in (-1, msg_id):
                self._wrong("changed", f"{name}: {uid} says that it was {msg_id}")
            if deliveries < source.max_deliver:
                self._wrong("buried early", f"{name}: {uid} after {deliveries} deliveries")

    def _nak(self, name: str, of: str, worker: str, ids: list[int]) -> None:
        group = self.boxes[name].groups[of]
        for msg_id in ids:
            group.outstanding[worker].discard(msg_id)
            group.holder.pop(msg_id, None)

    # Confirming and deleting.

    def _ack(self, name: str, of: str, worker: str, only: bool, ids: list[int]) -> None:
        box = self.boxes[name]
        touched = set(ids) if only else set(ids) | box.groups[of].outstanding[worker]
        if box.work_queue:
            self._maybe_gone(box, touched)

    def _acked(self, name: str, of: str, worker: str, ids: list[int]) -> None:
        box = self.boxes[name]
        group = box.groups[of]
        for msg_id in ids:
            self.acked += 1
            group.confirmed_line.setdefault(msg_id, self.line)
            group.outstanding[worker].discard(msg_id)
            message = box.messages.get(box.uid_of.get(msg_id, -1))
            if message is not None and message.uid in box.dead:
                self._wrong("in both", f"{name}/{of}: {msg_id} confirmed, though a dead letter")
            if box.work_queue and message is not None:
                self._gone(box, message)

    def _delete(self, name: str, ids: list[int]) -> None:
        self._maybe_gone(self.boxes[name], ids)

    def _deleted(self, name: str, ids: list[int]) -> None:
        box = self.boxes[name]
        for msg_id in ids:
            message = box.messages.get(box.uid_of.get(msg_id, -1))
            if message is not None:
                self._gone(box, message)

    def _maybe_gone(self, box: Box, ids: Iterable[int]) -> None:
        for msg_id in ids:
            message = box.messages.get(box.uid_of.get(msg_id, -1))
            if message is not None:
                message.may_be_gone = True

    # The export, of which check_export has the rest.

    def _unreadable(self, file: str, error: str) -> None:
        self._wrong("half written", f"{file}: {error}")

    def _exported(self, *_rows: object) -> None:
        pass

    def _exported_all(self, _gaps: int) -> None:
        pass

    # Looking.

    def _look(self, name: str, at_ns: int) -> None:
        self._asked[name] = (self.line, at_ns)

    def _looked(self, name: str, at_ns: int, entries: list[list[int]]) -> None:
        box = self.boxes[name]
        asked = self._asked.pop(name)
        seen = set()
        last = -1
        for msg_id, uid, crc, level in entries:
            self.looked += 1
            what = f"{name}: msg_id {msg_id} ({uid}) in the mailbox"
            if msg_id <= last:
                self._wrong("reordered", f"{what}: behind {last}")
            last = msg_id
            seen.add(uid)
            self._entry(name, box, what, asked, at_ns, (msg_id, uid, crc, level))
            group = next(iter(box.groups.values()), None)
            if box.work_queue and group and group.confirmed_line.get(msg_id, NEVER) < asked[0]:
                self._wrong("came back", f"{what}: though its ACK was confirmed")
        for message in box.messages.values():
            if message.uid not in seen and self._must_be_there(message, asked[1], at_ns):
                self._wrong("lost", f"{name}: {message.uid} (msg_id {message.msg_id}) is gone")
                message.may_be_gone = True

    def _must_be_there(self, message: Sending, asked_ns: int, at_ns: int) -> bool:
        if message.stored_ns == NEVER or message.may_be_gone:
            return False
        if message.delay_ns and asked_ns < message.stored_ns + message.delay_ns + EXACT_NS:
            return False
        return not message.ttl_ns or at_ns < message.sending_ns + message.ttl_ns - CLOCK_NS

    def _end(self) -> None:
        """All that was stored and never removed has come to every group.

        Where there are dead letters, each has come to its end: confirmed, or one of them.
        """
        for name, box in self.boxes.items():
            for message in box.messages.values() if box.max_deliver else ():
                if message.stored_ns != NEVER and not message.may_be_gone:
                    what = f"{name}: {message.uid} ({message.msg_id})"
                    self._wrong("left over", f"{what} is neither confirmed nor a dead letter")
            for of, group in box.groups.items():
                # A push that nobody answered for was in vain: the message has to come again.
                came = box.answered if box.pushed_on else group.times
                for message in box.messages.values():
                    if message.stored_ns == NEVER or message.may_be_gone or message.ttl_ns:
                        continue
                    if message.msg_id not in came:
                        uid = message.uid
                        self._wrong("lost", f"{name}/{of}: {uid} ({message.msg_id}) never came")
