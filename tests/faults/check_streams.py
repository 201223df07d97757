"""Holds the ledger of streams against what mq9 promises. Knows the ledger and nothing else.

["stream", name, retention, [[consumer, filter], ...]]
["publish", stream, [[uid, subject, crc], ...]]
["published", stream, [[uid, sequence], ...]]           the PubAcks have come
["given", stream, consumer, [[sequence, uid, crc, count], ...]]
["done", stream, consumer, [sequence, ...]]             about to be acknowledged
["done for good", stream, consumer, [sequence, ...]]    confirmed
["given up", stream, [sequence, ...]]                   for good: a dead letter each
["dead", stream, [[sequence, uid, crc], ...]]           all its dead letters, before `stored`
["stored", stream, [[sequence, uid, crc], ...]]         all of it, while nobody else is there
["counted", stream, consumer, pending, ack_pending, floor]
["ended"]                                               the consumers have taken all
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tests.faults.check import MOST_EXAMPLES
from tests.faults.ledger import Event

KEPT = "limits"


@dataclass
class Taker:
    """What a consumer was given, and what it has acknowledged."""

    filter: str
    begun: set[int] = field(default_factory=set)
    """Sequences whose acknowledgement was about to leave."""
    done: set[int] = field(default_factory=set)
    counts: dict[int, int] = field(default_factory=dict)
    """How often each was given, as the last delivery said."""

    def wants(self, subject: str) -> bool:
        return self.filter in ("", subject)


@dataclass
class Stream:
    """A stream as its publishers and consumers know it."""

    retention: str
    takers: dict[str, Taker]
    sent: dict[int, tuple[str, int]] = field(default_factory=dict)
    """Subject and CRC of each message that was published, by uid."""
    sequences: dict[int, int] = field(default_factory=dict)
    """The sequence of each message that was certainly stored, by uid."""
    uids: dict[int, int] = field(default_factory=dict)
    given_up: set[int] = field(default_factory=set)
    dead: set[int] = field(default_factory=set)
    """Sequences of messages that are dead letters."""


class StreamCheck:
    """Takes events in order; `violations` tells what was broken."""

    def __init__(self) -> None:
        self.streams: dict[str, Stream] = {}
        self.broken: Counter[str] = Counter()
        self.violations: list[str] = []
        """Examples; `broken` counts all."""
        self.delivered = self.repeated = self.looked = 0
        self.pushed = self.pushed_again = 0
        self.line = 0
        self._stored: dict[str, set[int]] = {}
        self._rules: dict[str, Callable[..., None]] = {
            "stream": self._stream,
            "publish": self._publish,
            "published": self._published,
            "given": self._given,
            "done": self._done,
            "done for good": self._done_for_good,
            "given up": self._given_up,
            "dead": self._dead,
            "stored": self._look,
            "counted": self._counted,
            "ended": self._ended,
            "forgot": self._forgot,
        }

    def feed(self, events: Iterable[Event]) -> None:
        """Goes on with these events."""
        for event in events:
            self.line += 1
            if rule := self._rules.get(event[0]):
                rule(*event[1:])

    def _wrong(self, rule: str, what: str) -> None:
        self.broken[rule] += 1
        if len(self.violations) < MOST_EXAMPLES:
            self.violations.append(f"{rule}: {what} (line {self.line})")

    def _forgot(self) -> None:
        """That something was delivered is no promise: it may be new to its consumer again."""
        for stream in self.streams.values():
            for taker in stream.takers.values():
                taker.counts.clear()

    def _stream(self, name: str, retention: str, consumers: list[list[str]]) -> None:
        takers = {consumer: Taker(wanted) for consumer, wanted in consumers}
        self.streams[name] = Stream(retention, takers)

    def _publish(self, name: str, messages: list[list[object]]) -> None:
        for uid, subject, crc in messages:
            assert isinstance(uid, int)
            assert isinstance(crc, int)
            self.streams[name].sent[uid] = (str(subject), crc)

    def _published(self, name: str, pairs: list[list[int]]) -> None:
        for uid, sequence in pairs:
            self._known(name, uid, sequence)

    def _known(self, name: str, uid: int, sequence: int) -> None:
        """It has this sequence for certain."""
        stream = self.streams[name]
        if stream.uids.setdefault(sequence, uid) != uid:
            self._wrong("id reused", f"{name}: {sequence} is {stream.uids[sequence]} and {uid}")
        if stream.sequences.setdefault(uid, sequence) != sequence:
            before = stream.sequences[uid]
            self._wrong("stored twice", f"{name}: {uid} is {before} and {sequence}")

    def _seen(self, name: str, sequence: int, uid: int, crc: int) -> None:
        found = self.streams[name].sent.get(uid)
        if found is None:
            self._wrong("invented", f"{name}: {sequence} ({uid}): nobody published it")
        elif found[1] != crc:
            self._wrong("changed", f"{name}: {sequence} ({uid}) has other bytes")
        else:
            self._known(name, uid, sequence)

    def _given(self, name: str, consumer: str, entries: list[list[int]]) -> None:
        taker = self.streams[name].takers[consumer]
        for sequence, uid, crc, count in entries:
            self.delivered += 1
            self.repeated += count > 1
            self._seen(name, sequence, uid, crc)
            what = f"{name}/{consumer}: {sequence} ({uid})"
            if sequence in taker.done:
                self._wrong("duplicated", f"{what}: though its acknowledgement was confirmed")
            if count <= taker.counts.get(sequence, 0):
                before = taker.counts[sequence]
                self._wrong("not marked", f"{what}: delivery {count} after {before}")
            taker.counts[sequence] = count
            if not taker.wants(self.streams[name].sent.get(uid, ("", 0))[0]):
                self._wrong("not wanted", f"{what}: is not what the consumer filters")

    def _done(self, name: str, consumer: str, sequences: list[int]) -> None:
        self.streams[name].takers[consumer].begun.update(sequences)

    def _done_for_good(self, name: str, consumer: str, sequences: list[int]) -> None:
        self.streams[name].takers[consumer].done.update(sequences)

    def _given_up(self, name: str, sequences: list[int]) -> None:
        self.streams[name].given_up.update(sequences)

    # While nobody else is there.

    def _dead(self, name: str, entries: list[list[int]]) -> None:
        stream, dead = self.streams[name], set()
        for sequence, uid, crc in entries:
            self._seen(name, sequence, uid, crc)
            if sequence in dead:
                self._wrong("buried twice", f"{name}: {sequence} ({uid}) has two dead letters")
            dead.add(sequence)
            done = any(sequence in taker.done for taker in stream.takers.values())
            if done and sequence not in stream.given_up:
                what = f"{name}: {sequence} ({uid}) is a dead letter"
                self._wrong("in both", f"{what}, though its acknowledgement was confirmed")
        for sequence in stream.given_up | stream.dead:
            if sequence not in dead:
                self._wrong("lost", f"{name}: the dead letter of {sequence} is not there")
        stream.dead = dead

    def _look(self, name: str, entries: list[list[int]]) -> None:
        stream = self.streams[name]
        there = set()
        last = 0
        for sequence, uid, crc in entries:
            self.looked += 1
            if sequence <= last:
                self._wrong("reordered", f"{name}: {sequence} behind {last}")
            last = sequence
            there.add(sequence)
            self._seen(name, sequence, uid, crc)
        self._stored[name] = there
        for uid, sequence in stream.sequences.items():
            what = f"{name}: {uid} (sequence {sequence})"
            if sequence in there:
                if self._is_gone(stream, uid, sequence):
                    self._wrong("came back", f"{what}: though all have acknowledged it")
            elif not self._may_be_gone(stream, uid, sequence):
                self._wrong("lost", f"{what} is gone")

    def _wanted_by(self, stream: Stream, uid: int) -> list[Taker]:
        subject = stream.sent[uid][0]
        return [taker for taker in stream.takers.values() if taker.wants(subject)]

    def _is_gone(self, stream: Stream, uid: int, sequence: int) -> bool:
        wanted = self._wanted_by(stream, uid)
        return stream.retention != KEPT and all(sequence in taker.done for taker in wanted)

    def _may_be_gone(self, stream: Stream, uid: int, sequence: int) -> bool:
        wanted = self._wanted_by(stream, uid)
        is_over = all(sequence in taker.begun for taker in wanted) or sequence in stream.dead
        return stream.retention != KEPT and is_over

    def _counted(
        self, name: str, consumer: str, pending: int, ack_pending: int, floor: int
    ) -> None:
        """What a consumer says of itself, right after a look."""
        stream, there = self.streams[name], self._stored[name]
        taker = stream.takers[consumer]
        wanted = {each for each in there if taker.wants(stream.sent[stream.uids[each]][0])}
        # What died since the look is counted no more.
        wanted_still = wanted - taker.begun - stream.dead
        most, least = len(wanted - taker.done), len(wanted_still)
        what = f"{name}/{consumer}: {pending} pending and {ack_pending} given out"
        if not least <= pending + ack_pending <= most:
            self._wrong("miscounted", f"{what}, and there are {least} to {most}")
        # A delivery that nobody has seen may have been made. One that somebody has seen has been.
        if pending > (unseen := len(wanted - taker.done - taker.counts.keys())):
            self._wrong("miscounted", f"{what}, and {unseen} were never given")
        if ack_pending < (seen := len(wanted_still & taker.counts.keys())):
            self._wrong("miscounted", f"{what}, and {seen} were given and are open")
        if open_below := [each for each in wanted_still if each <= floor]:
            self._wrong("miscounted", f"{what}: the floor is {floor} above {open_below[0]}")

    def _ended(self) -> None:
        """All that was stored was acknowledged by all who wanted it."""
        for name, stream in self.streams.items():
            for uid, sequence in stream.sequences.items():
                for taker in self._wanted_by(stream, uid):
                    if sequence not in taker.begun | stream.dead:
                        self._wrong("lost", f"{name}: {uid} ({sequence}) never came to {taker}")
