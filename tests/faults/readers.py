"""Readers of an inbox under whose eyes the broker is killed.

What is pushed to them is written down as it comes; what they have read, before they say so, and
again when the broker has said that it knows.
"""

import threading
import time
import zlib

from tests.faults.ledger import Ledger
from tests.faults.workload import Client, Gate, Link, level_of, uid_of
from tests.mail import PREFIX
from tests.wire import Message

INBOX = "pushed"
GROUP = "inbox"
_TURN_S = 0.05
# How many of the connections are given up with messages that the broker takes for unread.
_DROP_SHARE = 0.1
# How many pings are answered late, so that a kill finds something that was not read.
_LATE_SHARE = 0.5
_LATE_S = 0.01


class Pushed(Link):
    """A connection whose pings are answered when what came before them was written down."""

    def __init__(self, url: str) -> None:
        self.came: list[Message | None] = []
        """What was pushed, in order; None for a ping."""
        super().__init__(url)

    def pinged(self) -> None:
        self.came.append(None)

    def came_in(self, message: Message) -> None:
        if message.subject.startswith(f"{PREFIX}INBOX."):
            self.came.append(message)
            del self.arrived[message.subject]


class InboxReader(Client):
    """Reads an inbox that it shares with others, and deletes what it has read."""

    link: Pushed
    _numbers = iter(range(1 << 30))
    _lock = threading.Lock()

    def __init__(self, gate: Gate, ledger: Ledger, name: str, box: str, seed: int) -> None:
        super().__init__(gate, ledger, name, box, seed)
        self.idle_ns = 0
        """Since when it has waited for something, after the last message; 0 while it has some."""
        self.conn = ""

    def connect(self, url: str) -> Link:
        return Pushed(url)

    def begin(self, _life: int) -> None:
        with self._lock:
            self.conn = f"{self.name}.{next(self._numbers)}"
        self.link.send(f"SUB {PREFIX}INBOX.{self.box}.* 1\r\n".encode())

    def turn(self) -> None:
        since = time.monotonic_ns()
        try:
            self.link.pump(time.monotonic() + _TURN_S)
        except TimeoutError:
            if not self.link.came:
                self.idle_ns = since
            # A ping may have come while the answer to something else was waited for.
            if None not in self.link.came:
                return
        self.idle_ns = 0
        read: list[int] = []
        while None in self.link.came:
            ping = self.link.came.index(None)
            batch, self.link.came = self.link.came[:ping], self.link.came[ping + 1 :]
            came = self._note([each for each in batch if each is not None])
            read += came
            if read and self.choose.random() < _DROP_SHARE:
                self._drop()
                return
            if read and self.choose.random() < _LATE_SHARE:
                time.sleep(_LATE_S)
            if came:
                self.ledger.write("answering", self.box, came)
            self.link.send(b"PONG\r\n")
        if read:
            self.link.ping()
            # The broker has carried out all that came before.
            self.ledger.write("read", self.box, read)
            self._remove(read)

    def _note(self, batch: list[Message]) -> list[int]:
        entries = []
        for message in batch:
            found = headers(message)
            entries.append([int(found["mq9-msg-id"]), *_content(message, found)])
        if entries:
            place = (self.box, self.name, self.conn)
            self.ledger.write("pushed", *place, time.monotonic_ns(), entries)
        return [entry[0] for entry in entries]

    def _drop(self) -> None:
        """What was not read goes to the others, and comes again."""
        self.ledger.write("dropped", self.box, self.conn)
        url = self.gate.url
        self.link.close()
        self.link = Pushed(url)
        self.begin(0)

    def _remove(self, ids: list[int]) -> None:
        self.ledger.write("delete", self.box, ids)
        replies = [self.link.begin(f"MSG.DELETE.{self.box}.{msg_id}") for msg_id in ids]
        for reply in replies:
            answer = self.link.answer(reply)
            assert answer["error"] in ("", "message not found"), answer
        self.ledger.write("deleted", self.box, ids)
        self.stock.add(self.box, -len(ids))


def _content(message: Message, found: dict[str, str]) -> list[int]:
    payload = message.payload
    crc = zlib.crc32(payload)
    return [uid_of(payload.decode()), crc, level_of(found["mq9-priority"])]


def headers(message: Message) -> dict[str, str]:
    """The headers of a message, the first of a name."""
    lines = message.headers.decode().split("\r\n")[1:]
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
