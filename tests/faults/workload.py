"""Clients under whose load the broker is killed: senders, workers of groups, and one who deletes.

Workers who give messages back, and let them become dead letters, are in `poison`.

Each is a thread with a connection of its own, and writes down in the ledger what it is about to ask
and what it was told. Whether that is right is not for them to say.
"""

import json
import random
import threading
import time
import zlib
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

from tests.faults.ledger import Ledger
from tests.mail import Json, Mail

LEVELS = {"critical": 1, "urgent": 3, "normal": 5, "notify": 9}
FILLER = "".join(chr(97 + number * 7 % 26) for number in range(65_536))
# Errors after which a message may be stored or not, as after a lost connection.
OUTCOME_OPEN = ("cannot write ", "writes stopped after a failed sync")
UIDS_EACH = 10**9
WAIT_MS = 50
# What may be in a mailbox before its senders pause.
BACKLOG = 2_000


def level_of(priority: str) -> int:
    """The number of a priority as replies have it."""
    return LEVELS.get(priority) or int(priority)


def uid_of(payload: str) -> int:
    """Which message a payload is; -1 if it is none of ours."""
    word = payload.split(" ", 1)[0]
    return int(word) if word.isdigit() else -1


class Link(Mail):
    """A connection that sends when it has to wait: a batch of requests costs one call."""

    def __init__(self, url: str) -> None:
        self.unsent = bytearray()
        super().__init__(url, deadline_s=30.0)

    def send(self, data: bytes) -> None:
        self.unsent += data

    def _receive(self, timeout_s: float) -> None:
        if self.unsent:
            self.socket.settimeout(self.deadline_s)
            self.socket.sendall(self.unsent)
            self.unsent.clear()
        super()._receive(timeout_s)


class Gate:
    """Lets the clients work while a broker is there, and knows when all have noticed its end."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.url = ""
        self.life = 0
        self.is_open = self.over = False
        self.waiting = 0
        self.failures: list[BaseException] = []

    def open(self, url: str) -> None:
        with self.changed:
            self.url, self.is_open, self.life = url, True, self.life + 1
            self.changed.notify_all()

    def close(self) -> None:
        self.is_open = False

    def end(self) -> None:
        with self.changed:
            self.is_open, self.over = False, True
            self.changed.notify_all()

    def fail(self, error: BaseException) -> None:
        with self.changed:
            self.failures.append(error)
            self.changed.notify_all()

    def next_life(self, last: int) -> int:
        """Waits for a broker after the life `last`; 0 if there will be none."""
        with self.changed:
            self.waiting += 1
            self.changed.notify_all()
            self.changed.wait_for(lambda: self.over or (self.is_open and self.life > last))
            self.waiting -= 1
            return 0 if self.over else self.life

    def all_wait(self, count: int, deadline_s: float) -> None:
        """Returns when `count` clients have nothing under way."""
        with self.changed:
            done = self.changed.wait_for(
                lambda: bool(self.failures) or self.waiting == count, deadline_s
            )
        if self.failures:
            raise self.failures[0]
        if not done:
            raise TimeoutError(f"only {self.waiting} of {count} clients noticed the kill")


class Stock:
    """About how many messages each mailbox holds, as far as the clients know."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.held: Counter[str] = Counter()

    def add(self, box: str, count: int) -> None:
        with self.lock:
            self.held[box] += count

    def is_full(self, box: str, most: int = BACKLOG) -> bool:
        return self.held[box] > most


class Client(threading.Thread):
    """Works in each life of the broker until its connection breaks or the gate closes."""

    def __init__(self, gate: Gate, ledger: Ledger, name: str, box: str, seed: int) -> None:
        super().__init__(name=name, daemon=True)
        self.gate, self.ledger, self.box = gate, ledger, box
        self.stock = Stock()
        self.choose = random.Random(f"{seed} {name}")
        self.link: Link

    def run(self) -> None:
        life = 0
        while life := self.gate.next_life(life):
            try:
                self.link = self.connect(self.gate.url)
                try:
                    self.begin(life)
                    while self.gate.is_open:
                        self.turn()
                finally:
                    self.link.close()
            except ConnectionError:
                continue
            except BaseException as error:
                # Also a reply that stays away.
                self.gate.fail(error)
                return

    def connect(self, url: str) -> Link:
        return Link(url)

    def begin(self, life: int) -> None:
        """What is to be done first on a new connection."""

    def turn(self) -> None:
        raise NotImplementedError


Headers = Callable[[random.Random, int], dict[str, object]]


class Sender(Client):
    """Sends windows of messages; what is under way when the broker dies is never sent again."""

    def __init__(
        self,
        gate: Gate,
        ledger: Ledger,
        name: str,
        box: str,
        seed: int,
        place: int,
        headers: Headers,
        window: int = 64,
        backlog: int = BACKLOG,
    ) -> None:
        super().__init__(gate, ledger, name, box, seed)
        self.headers, self.window, self.backlog = headers, window, backlog
        self.next_uid = place * UIDS_EACH
        self.active = True
        self.mean_bytes = 200

    def turn(self) -> None:
        if not self.active or self.stock.is_full(self.box, self.backlog):
            time.sleep(0.005)
            return
        self.send_window(self.choose.randint(1, self.window))

    def send_window(self, count: int) -> list[str]:
        """Sends so many; the errors of those that were refused."""
        messages: list[list[Any]] = []
        requests = []
        for _ in range(count):
            uid = self.next_uid
            self.next_uid += 1
            text = f"{uid} {FILLER[: int(self.choose.expovariate(1 / self.mean_bytes))]}"
            said = self.headers(self.choose, uid)
            level = level_of(str(said.get("priority", "normal")))
            times = [said.get("delay", 0), said.get("ttl", 0)]
            payload = text.encode()
            messages.append([uid, zlib.crc32(payload), level, said.get("key", ""), *times])
            named = {f"mq9-{name}": str(value) for name, value in said.items()}
            requests.append((payload, named or None))
        self.ledger.write("send", self.box, self.name, time.monotonic_ns(), messages)
        waiting = [self.link.begin(f"MSG.SEND.{self.box}", *request) for request in requests]
        sent: list[list[int]] = []
        refused: list[int] = []
        errors = []
        try:
            for reply, message in zip(waiting, messages, strict=True):
                answer = self.link.answer(reply)
                if answer["error"]:
                    errors.append(answer["error"])
                    if not answer["error"].startswith(OUTCOME_OPEN):
                        refused.append(message[0])
                else:
                    sent.append([message[0], answer["msg_id"]])
        finally:
            self.write_outcome(sent, refused)
        return errors

    def write_outcome(self, sent: list[list[int]], refused: list[int]) -> None:
        """Writes down what the replies said."""
        now = time.monotonic_ns()
        if sent:
            self.ledger.write("sent", self.box, self.name, now, sent)
            self.stock.add(self.box, len(sent))
        if refused:
            self.ledger.write("refused", self.box, self.name, now, refused)


class Worker(Client):
    """A member of a group: fetches, confirms, and leaves some for later now and then."""

    def __init__(
        self, gate: Gate, ledger: Ledger, name: str, box: str, seed: int, group: str
    ) -> None:
        super().__init__(gate, ledger, name, box, seed)
        self.group = group
        self.asked = 0
        self.member = ""
        self.unanswered: list[int] = []
        self.forgettable = False
        """Whether the broker may forget that it has delivered something."""
        self.asked_ns = 0
        """When the last FETCH was sent."""
        self.idle_ns = 0
        """The same, if it brought nothing; otherwise 0."""
        self.confirmed: Callable[[list[int]], None] = lambda _ids: None

    def begin(self, life: int) -> None:
        self.member = f"{self.name}.{life}"
        if self.unanswered:
            # An ACK for a delivery made before the restart still counts, and twice is no error.
            self.acknowledge(self.unanswered, only=True)

    def turn(self) -> None:
        entries = self.fetch(self.choose.randint(1, 100))
        self.idle_ns = 0 if entries else self.asked_ns
        if not entries:
            return
        kept = entries
        if self.choose.random() < 0.1:
            kept = entries[: self.choose.randint(1, len(entries))]
        # What somebody else may have had before is confirmed one by one.
        first = all(entry["deliveries"] == 1 for entry in entries)
        only = kept is not entries or not first or self.choose.random() < 0.3
        self.acknowledge([entry["msg_id"] for entry in kept], only=only)

    def fetch(self, count: int, wait_ms: int = WAIT_MS) -> list[Json]:
        self.asked += 1
        config = {"num_msgs": count, "max_wait_ms": wait_ms}
        request: Json = {"group_name": self.group, "deliver": "earliest", "config": config}
        request |= self.said()
        place = (self.box, self.group, self.member, self.asked)
        self.asked_ns = time.monotonic_ns()
        self.ledger.write("fetch", *place, self.asked_ns)
        answer = self.link.done(f"MSG.FETCH.{self.box}", request)
        now = time.monotonic_ns()
        entries: list[Json] = answer["messages"]
        shown = [[*shown_as(entry), entry["deliveries"]] for entry in entries]
        self.ledger.write("got", *place, now, shown)
        write_dead(self.ledger, self.box, entries)
        return entries

    def said(self) -> Json:
        """What a FETCH says besides: who nobody names is its connection."""
        return {}

    def acknowledge(self, ids: list[int], *, only: bool) -> None:
        self.unanswered = ids
        self.ledger.write("ack", self.box, self.group, self.member, only, ids)
        fields: Json = {"msg_ids": ids, "only": True} if only else {"msg_id": ids[-1]}
        answer = self.link.ask(f"MSG.ACK.{self.box}", {"group_name": self.group} | fields)
        if self.forgettable and "has not been given" in answer["error"]:
            # Then all of it comes again.
            self.unanswered = []
            return
        assert answer["error"] == "", (self.box, answer, ids)
        self.ledger.write("acked", self.box, self.group, self.member, ids)
        self.unanswered = []
        self.confirmed(ids)


class Deleter(Client):
    """Deletes what it is told to, and asks again for what was under way."""

    def __init__(self, gate: Gate, ledger: Ledger, name: str, box: str, seed: int) -> None:
        super().__init__(gate, ledger, name, box, seed)
        self.wanted: deque[int] = deque()

    def turn(self) -> None:
        if not self.wanted:
            time.sleep(0.005)
            return
        ids = [self.wanted.popleft() for _ in range(min(len(self.wanted), 50))]
        try:
            self.delete(ids)
        except OSError:
            self.wanted.extendleft(ids)
            raise

    def delete(self, ids: list[int]) -> None:
        self.ledger.write("delete", self.box, ids)
        replies = [self.link.begin(f"MSG.DELETE.{self.box}.{msg_id}") for msg_id in ids]
        for reply in replies:
            answer = self.link.answer(reply)
            assert answer["error"] in ("", "message not found"), answer
        self.ledger.write("deleted", self.box, ids)
        self.stock.add(self.box, -len(ids))


def shown_as(entry: Json) -> list[int]:
    """An entry of a reply as the ledger has it."""
    payload = entry["payload"]
    crc = zlib.crc32(payload.encode())
    return [entry["msg_id"], uid_of(payload), crc, level_of(entry["priority"])]


def look(mail: Mail, ledger: Ledger, box: str) -> int:
    """Writes down all that is in a mailbox, without touching it; how much that is."""
    ledger.write("look", box, time.monotonic_ns())
    entries: list[list[int]] = []
    found: list[Json] = []
    request: Json = {}
    more = True
    while more:
        answer = json.loads(mail.text(f"MSG.QUERY.{box}", request))
        # A mailbox that is gone holds nothing: that is for the check to judge.
        assert answer["error"] in ("", f"mailbox {box} does not exist"), answer
        found += answer["messages"]
        entries += [shown_as(entry) for entry in answer["messages"]]
        more = answer.get("more", False)
        if more:
            request = {"after_id": entries[-1][0]}
    ledger.write("looked", box, time.monotonic_ns(), entries)
    write_dead(ledger, box, found)
    return len(entries)


def write_dead(ledger: Ledger, box: str, entries: list[Json]) -> None:
    """Writes down what those of the entries that are dead letters say of themselves."""
    dead = []
    for entry in entries:
        headers = entry.get("headers", {})
        if "mq9-dead-msg-id" in headers:
            numbers = [int(headers[f"mq9-dead-{name}"][0]) for name in ("msg-id", "deliveries")]
            dead.append([uid_of(entry["payload"]), *numbers])
    if dead:
        ledger.write("buried", box, dead)
