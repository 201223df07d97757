"""Publishers and consumers of streams under whose load the broker is killed, and their run.

Owns who they are and what they write down; whether it is right is decided in `check_streams`.
"""

import base64
import json
import re
import time
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.faults.check_streams import StreamCheck
from tests.faults.kills import DRAIN_DEADLINE_S, PARK_DEADLINE_S, Run
from tests.faults.ledger import Ledger
from tests.faults.power import PowerRun
from tests.faults.workload import FILLER, UIDS_EACH, Client, Gate, Link, uid_of
from tests.mail import Json, Mail
from tests.peers import until
from tests.wire import Message

API = "$JS.API."
ACK_WAIT_MS = 1500
WORKERS = 3
BACKLOG = 1_500
PULL_MS = 50
# Sequences of a stream that are asked for in one go, while nobody else is there.
LOOK_AT_ONCE = 500
# Consumers of each stream, and what they filter.
STREAMS: dict[str, tuple[str, dict[str, str]]] = {
    "JOBS": ("workqueue", {"crew": ""}),
    "NEWS": ("interest", {"all": "", "some": "news.1"}),
    "LOGS": ("limits", {"all": "", "some": "logs.2"}),
}
# Its messages have priorities, and are given by them.
BY_PRIORITY = "JOBS"
# Which of them have so many deliveries of a message, and what is given up where.
MOST_DELIVERIES = {"JOBS": 3}
DEAD, DEAD_PREFIX = "DEAD", "dead"
# A stream that keeps everything grows: its publisher pauses sooner.
MOST_KEPT = 5_000
SUBJECTS = 3


class PullLink(Link):
    """A connection that keeps deliveries apart from replies."""

    def __init__(self, url: str) -> None:
        self.given: list[Message] = []
        super().__init__(url)

    def came_in(self, message: Message) -> None:
        if message.reply.startswith("$JS.ACK."):
            self.given.append(message)
            del self.arrived[message.subject]


def asked(mail: Mail, what: str, request: object = b"") -> str:
    """Asks the API without waiting; the subject of the reply."""
    reply = f"{mail.inbox}.{next(mail.numbers)}"
    mail.publish(API + what, request, None, reply)
    return reply


class Publisher(Client):
    """Publishes windows of messages; again what is unconfirmed when the broker dies."""

    def __init__(self, gate: Gate, ledger: Ledger, stream: str, seed: int, place: int) -> None:
        super().__init__(gate, ledger, f"publisher{place}", stream, seed)
        self.next_uid = place * UIDS_EACH
        self.active = True
        self.open: dict[int, tuple[str, bytes]] = {}
        """Published with an id, and not confirmed."""
        self.kept = 0

    def begin(self, _life: int) -> None:
        if self.open:
            self._publish(dict(self.open), ids=True)

    def turn(self) -> None:
        is_full = self.stock.is_full(self.box, BACKLOG) or self.kept > MOST_KEPT
        if not self.active or is_full:
            time.sleep(0.005)
            return
        messages = {}
        for _ in range(self.choose.randint(1, 64)):
            uid = self.next_uid
            self.next_uid += 1
            subject = f"{self.box.lower()}.{self.choose.randrange(SUBJECTS)}"
            text = f"{uid} {FILLER[: int(self.choose.expovariate(1 / 200))]}"
            messages[uid] = (subject, text.encode())
        ids = self.choose.random() < 0.5
        if ids:
            self.open |= messages
        self._publish(messages, ids=ids)

    def _publish(self, messages: dict[int, tuple[str, bytes]], *, ids: bool) -> None:
        lines = [[uid, subject, zlib.crc32(data)] for uid, (subject, data) in messages.items()]
        self.ledger.write("publish", self.box, lines)
        waiting = {}
        for uid, (subject, data) in messages.items():
            waiting[uid] = f"{self.link.inbox}.{next(self.link.numbers)}"
            said = {"Nats-Msg-Id": str(uid)} if ids else {}
            if self.box == BY_PRIORITY:
                said["mq9-priority"] = str(1 + uid % 10)
            self.link.publish(subject, data, said or None, waiting[uid])
        published: list[list[int]] = []
        try:
            for uid, reply in waiting.items():
                answer = self.link.reply(reply)
                # Without a stream, or a log that takes nothing, there is no sequence.
                found = json.loads(answer.payload) if answer.payload else {}
                if found.get("seq") and "error" not in found:
                    published.append([uid, found["seq"]])
        finally:
            for uid, _ in published:
                self.open.pop(uid, None)
            if published:
                self.ledger.write("published", self.box, published)
                self.kept += len(published) * (STREAMS[self.box][0] == "limits")
                self.stock.add(self.box, len(published))


class Puller(Client):
    """Takes messages of a consumer: acknowledges, gives some back, ends some, and forgets a few."""

    link: PullLink

    def __init__(
        self, gate: Gate, ledger: Ledger, stream: str, consumer: str, seed: int, number: int
    ) -> None:
        super().__init__(gate, ledger, f"{stream}.{consumer}{number}", stream, seed)
        self.consumer = consumer
        self.finishing = False
        self.idle_ns = 0
        self.forgot_ns = 0

    def connect(self, url: str) -> Link:
        return PullLink(url)

    def turn(self) -> None:
        since = time.monotonic_ns()
        link, batch = self.link, self.choose.randint(1, 100)
        inbox = f"{link.inbox}.{next(link.numbers)}"
        request = {"batch": batch, "expires": PULL_MS * 1_000_000}
        link.publish(f"{API}CONSUMER.MSG.NEXT.{self.box}.{self.consumer}", request, None, inbox)
        # A status ends the request, unless its messages have.
        deadline = time.monotonic() + link.deadline_s
        while len(link.given) < batch and inbox not in link.arrived:
            link.pump(deadline)
        link.arrived.pop(inbox, None)
        taken, link.given = link.given, []
        found = [delivery(message) for message in taken]
        if found:
            self.ledger.write("given", self.box, self.consumer, [entry for entry, _ in found])
            self._answer(found)
        is_idle = not found and since > self.forgot_ns + 2 * ACK_WAIT_MS * 1_000_000
        self.idle_ns = since if is_idle else 0

    def _answer(self, found: list[tuple[list[int], str]]) -> None:
        done: list[tuple[int, str, bytes]] = []
        for (sequence, *_), to in found:
            kind = self.choose.random()
            if kind < 0.85 or self.finishing:
                said = self.choose.choice([b"+ACK", b"", b"+TERM", b"+ACK"])
                done.append((sequence, to, said))
            elif kind < 0.97:
                delay = self.choose.choice([b"", b' {"delay": 20000000}'])
                self.link.publish(to, b"-NAK" + delay)
            else:
                self.forgot_ns = time.monotonic_ns()
        if not done:
            return
        self.ledger.write("done", self.box, self.consumer, [sequence for sequence, *_ in done])
        waiting = []
        for sequence, to, said in done:
            reply = f"{self.link.inbox}.{next(self.link.numbers)}"
            self.link.publish(to, said, None, reply)
            waiting.append((sequence, reply, said == b"+TERM"))
        confirmed, given_up = [], []
        try:
            for sequence, reply, is_given_up in waiting:
                # A status refuses: somebody else was given it since.
                if not self.link.reply(reply).headers:
                    confirmed.append(sequence)
                    given_up += [sequence] * is_given_up
        finally:
            if confirmed:
                if self.box in MOST_DELIVERIES:
                    self.ledger.write("given up", self.box, given_up)
                self.ledger.write("done for good", self.box, self.consumer, confirmed)
                if self.consumer != "some":
                    self.stock.add(self.box, -len(confirmed))


def delivery(message: Message) -> tuple[list[int], str]:
    """Sequence, uid, CRC and count of a delivery, and where it is answered."""
    count, sequence = message.reply.split(".")[4:6]
    payload = message.payload
    crc = zlib.crc32(payload)
    return [int(sequence), uid_of(payload.decode()), crc, int(count)], message.reply


class StreamCast:
    """The streams, and who works on them."""

    def __init__(self, gate: Gate, ledger: Ledger, seed: int) -> None:
        self.ledger = ledger
        self.publishers = [
            Publisher(gate, ledger, stream, seed, place + 1)
            for place, stream in enumerate([*STREAMS, "JOBS"])
        ]
        self.pullers = [
            Puller(gate, ledger, stream, consumer, seed, number)
            for stream, (_, consumers) in STREAMS.items()
            for consumer in consumers
            for number in range(WORKERS if consumer == "crew" else 1)
        ]
        stock = self.publishers[0].stock
        for client in self.clients:
            client.stock = stock

    @property
    def clients(self) -> list[Client]:
        return [*self.publishers, *self.pullers]

    def create(self, mail: Mail) -> None:
        made(mail, f"STREAM.CREATE.{DEAD}", {"name": DEAD, "subjects": [f"{DEAD_PREFIX}.>"]})
        for stream, (retention, consumers) in STREAMS.items():
            config: Json = {"name": stream, "subjects": [f"{stream.lower()}.>"]}
            # A publisher may come back long after.
            config |= {"retention": retention, "duplicate_window": 3_600_000_000_000}
            if stream == BY_PRIORITY:
                config["metadata"] = {"mq9.priority": "true"}
            made(mail, f"STREAM.CREATE.{stream}", config)
            for consumer, wanted in consumers.items():
                config = {"durable_name": consumer, "ack_policy": "explicit"}
                config |= {"ack_wait": ACK_WAIT_MS * 1_000_000, "max_ack_pending": 500}
                config |= {"filter_subject": wanted} if wanted else {}
                if stream in MOST_DELIVERIES:
                    config |= {"max_deliver": MOST_DELIVERIES[stream]}
                    config |= {"metadata": {"mq9.dead_letter_prefix": DEAD_PREFIX}}
                request = {"stream_name": stream, "config": config}
                made(mail, f"CONSUMER.DURABLE.CREATE.{stream}.{consumer}", request)
            self.ledger.write("stream", stream, retention, list(consumers.items()))

    def look(self, mail: Mail) -> None:
        """Writes down all that is in the streams, and what their consumers say of themselves."""
        for stream, (_, consumers) in STREAMS.items():
            entries = list(stored(mail, stream))
            counted = []
            for place, consumer in enumerate(consumers):
                info = mail.answer(asked(mail, f"CONSUMER.INFO.{stream}.{consumer}"))
                if "error" in info:
                    # A consumer that is gone has nothing: that is for the check to judge.
                    info = {"num_pending": 0, "num_ack_pending": 0, "ack_floor": {"stream_seq": 0}}
                counts = [info["num_pending"], info["num_ack_pending"]]
                floor = info["ack_floor"]["stream_seq"]
                counted.append([stream, consumer, *counts, floor])
                if place == 0:
                    self.publishers[0].stock.held[stream] = sum(counts)
            if stream in MOST_DELIVERIES:
                # Looked at last: what died meanwhile is in both.
                self.ledger.write("dead", stream, list(stored(mail, DEAD)))
            self.ledger.write("stored", stream, entries)
            for entry in counted:
                self.ledger.write("counted", *entry)


def made(mail: Mail, what: str, request: object) -> None:
    answer = mail.answer(asked(mail, what, request))
    assert "error" not in answer, answer


def stored(mail: Mail, stream: str) -> Iterator[list[int]]:
    """Sequence, uid and CRC of each message of a stream; of a dead letter, the sequence it had."""
    info = mail.answer(asked(mail, f"STREAM.INFO.{stream}"))
    if "error" in info:
        # A stream that is gone holds nothing.
        return
    first, last = info["state"]["first_seq"], info["state"]["last_seq"]
    for start in range(first, last + 1, LOOK_AT_ONCE):
        sequences = range(start, min(start + LOOK_AT_ONCE, last + 1))
        get = f"STREAM.MSG.GET.{stream}"
        for reply in [asked(mail, get, {"seq": sequence}) for sequence in sequences]:
            answer = mail.answer(reply)
            if "error" not in answer:
                payload = base64.b64decode(answer["message"].get("data", ""))
                uid, sequence = uid_of(payload.decode()), answer["message"]["seq"]
                headers = base64.b64decode(answer["message"].get("hdrs", "")).decode()
                if had := re.search(r"^mq9-dead-sequence: (\d+)", headers, re.MULTILINE):
                    sequence = int(had[1])
                yield [sequence, uid, zlib.crc32(payload)]


class StreamRun(Run):
    """Kills under the load of streams: the run with others who work, and other books."""

    check: StreamCheck  # type: ignore[assignment]
    cast: StreamCast  # type: ignore[assignment]

    def __init__(self, folder: Path, sync: str, seed: int, around: Sequence[str] = ()) -> None:
        super().__init__(folder, sync, seed, tuple(around))
        self.supervisor.config += "jetstream { }\n"
        self.check = StreamCheck()
        self.cast = StreamCast(self.gate, self.ledger, seed)

    def look(self, url: str) -> None:
        with Mail(url) as mail:
            self.cast.look(mail)
        self.check.feed(self.reader.new())

    def end(self) -> None:
        """Publishers stop, consumers go on until there is nothing left."""
        for publisher in self.cast.publishers:
            publisher.active = False
        for puller in self.cast.pullers:
            puller.finishing = True
        since = time.monotonic_ns()
        idle = [each.name for each in self.cast.pullers]
        until(
            lambda: self.gate.failures or all(p.idle_ns > since for p in self.cast.pullers),
            f"the consumers were done: {idle}",
            DRAIN_DEADLINE_S,
        )
        self.gate.close()
        self.gate.all_wait(len(self.cast.clients), PARK_DEADLINE_S)
        # What became a dead letter is known by this look.
        self.look(self.supervisor.running.url)
        self.ledger.write("ended")
        self.check.feed(self.reader.new())
        self.supervisor.stop()

    def given_up(self) -> int:
        """Messages that a worker has ended by itself."""
        return sum(len(stream.given_up) for stream in self.check.streams.values())

    def dead(self) -> int:
        return sum(len(stream.dead) for stream in self.check.streams.values())


class StreamPowerRun(PowerRun, StreamRun):
    """Power cuts under the load of streams."""

    def forgettable(self) -> None:
        """The check takes deliveries for new from a cut on; nobody else minds."""
