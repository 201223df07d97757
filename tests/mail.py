"""A plain NATS connection that asks the broker for things: commands out, replies in.

Knows subjects and JSON, and nothing of any SDK. What a reply should say is for the tests.
"""

import itertools
import json
import secrets
import socket
import time
import urllib.parse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from tests.wire import Message, cut, messages

DEADLINE_S = 10.0
PREFIX = "$mq9.AI."

Json = dict[str, Any]
Headers = Mapping[str, str] | Sequence[tuple[str, str]] | bytes


def encoded(headers: Headers | None) -> bytes:
    """The header block; bytes are taken as they are, so that they can be wrong."""
    if headers is None or isinstance(headers, bytes):
        return headers or b""
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    lines = "".join(f"{name}: {value}\r\n" for name, value in pairs)
    return f"NATS/1.0\r\n{lines}\r\n".encode()


def body(request: object) -> bytes:
    """The payload of a request: bytes as they are, anything else as JSON."""
    return request if isinstance(request, bytes) else json.dumps(request).encode()


@dataclass(frozen=True)
class Raw:
    """The answer to a FETCH in the raw format: one message per entry, and the status."""

    entries: list[Message]
    status: str


class Mail:
    """A connection with an inbox of its own."""

    def __init__(self, url: str, *, deadline_s: float = DEADLINE_S) -> None:
        parts = urllib.parse.urlsplit(url)
        self.deadline_s = deadline_s
        self.socket = socket.create_connection((parts.hostname, parts.port), timeout=deadline_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.received = bytearray()
        self.inbox = f"_INBOX.{secrets.token_hex(8)}"
        self.numbers = itertools.count()
        self.arrived: dict[str, list[Message]] = {}
        self.errors: list[str] = []
        self.pongs = 0
        try:
            while not self.received.endswith(b"\r\n"):
                self._receive(deadline_s)
            self.info: Json = json.loads(bytes(self.received)[5:])
            self.received.clear()
            options: Json = {"verbose": False, "pedantic": False}
            options |= {"headers": True, "no_responders": True}
            if parts.username and parts.password is None:
                options["auth_token"] = parts.username
            elif parts.username:
                options |= {"user": parts.username, "pass": parts.password}
            said = json.dumps(options).encode()
            self.send(b"CONNECT %s\r\nSUB %s.* 0\r\n" % (said, self.inbox.encode()))
            self.ping()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "Mail":
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        """Sends protocol bytes as they are."""
        self.socket.sendall(data)

    def _receive(self, timeout_s: float) -> None:
        self.socket.settimeout(max(timeout_s, 0.001))
        chunk = self.socket.recv(1 << 20)
        if not chunk:
            raise ConnectionError(f"the broker closed the connection: {self.errors}")
        self.received += chunk

    def pump(self, deadline: float) -> None:
        """Takes in what the broker sends next; TimeoutError after the deadline."""
        self._receive(deadline - time.monotonic())
        frames, rest = cut(bytes(self.received))
        del self.received[: len(self.received) - len(rest)]
        for frame in frames:
            if frame.startswith((b"MSG ", b"HMSG ")):
                [message] = messages(frame)
                self.arrived.setdefault(message.subject, []).append(message)
                self.came_in(message)
            elif frame == b"PING\r\n":
                self.pinged()
            elif frame == b"PONG\r\n":
                self.pongs += 1
            elif frame.startswith(b"-ERR "):
                self.errors.append(frame[5:-2].decode().strip("'"))

    def came_in(self, message: Message) -> None:
        """A message has arrived, in the order in which they do."""

    def pinged(self) -> None:
        """The broker has asked for a sign."""
        self.send(b"PONG\r\n")

    def ping(self) -> None:
        """Returns when the broker has carried out and answered all that it could by now."""
        expected = self.pongs + 1
        self.send(b"PING\r\n")
        deadline = time.monotonic() + self.deadline_s
        while self.pongs < expected:
            self.pump(deadline)

    def publish(
        self, subject: str, request: object = b"", headers: Headers | None = None, reply: str = ""
    ) -> None:
        """Publishes to a full subject; bytes go as they are."""
        payload, block = body(request), encoded(headers)
        words = [subject, reply] if reply else [subject]
        if block:
            line = f"HPUB {' '.join(words)} {len(block)} {len(block) + len(payload)}\r\n"
        else:
            line = f"PUB {' '.join(words)} {len(payload)}\r\n"
        self.send(line.encode() + block + payload + b"\r\n")

    def begin(self, command: str, request: object = b"", headers: Headers | None = None) -> str:
        """Asks without waiting; the reply subject, to be given to `reply`."""
        subject = f"{self.inbox}.{next(self.numbers)}"
        self.publish(PREFIX + command, request, headers, subject)
        return subject

    def reply(self, subject: str, deadline_s: float | None = None) -> Message:
        """The reply that comes, or has come, to a request."""
        deadline = time.monotonic() + (self.deadline_s if deadline_s is None else deadline_s)
        while not (waiting := self.arrived.get(subject)):
            try:
                self.pump(deadline)
            except TimeoutError:
                raise TimeoutError(f"no reply; the broker said {self.errors}") from None
        first = waiting.pop(0)
        if not waiting:
            del self.arrived[subject]
        return first

    def answer(self, subject: str, deadline_s: float | None = None) -> Json:
        """The same, as JSON."""
        found: Json = json.loads(self.reply(subject, deadline_s).payload)
        return found

    def text(self, command: str, request: object = b"", headers: Headers | None = None) -> str:
        """The reply to a command as it is on the wire."""
        return self.reply(self.begin(command, request, headers)).payload.decode()

    def ask(self, command: str, request: object = b"", headers: Headers | None = None) -> Json:
        """The reply to a command."""
        return self.answer(self.begin(command, request, headers))

    def done(self, command: str, request: object = b"", headers: Headers | None = None) -> Json:
        """The reply to a command that must succeed."""
        answer = self.ask(command, request, headers)
        assert answer["error"] == "", answer
        return answer

    def raw(self, command: str, request: object) -> Raw:
        """All messages of a reply in the raw format."""
        subject = self.begin(command, request)
        entries = []
        while not (message := self.reply(subject)).headers.startswith(b"NATS/1.0 "):
            entries.append(message)
        return Raw(entries, message.headers.split(b"\r\n", 1)[0].decode().split(" ", 1)[1])

    # Short forms of the commands that nearly every test needs.

    def deliver(self, address: str, payload: object = b"", **headers: object) -> int:
        """SEND that must succeed; `priority="urgent"` becomes `mq9-priority`. The `msg_id`."""
        named = {f"mq9-{name}": str(value) for name, value in headers.items()}
        found: int = self.done(f"MSG.SEND.{address}", payload, named or None)["msg_id"]
        return found

    def fetch(self, address: str, group: str | None = None, **fields: object) -> list[Json]:
        """FETCH from the earliest message on that must succeed and does not wait; the entries."""
        config = {"max_wait_ms": 0}
        for name in ("num_msgs", "max_wait_ms", "ack_wait_ms", "max_bytes", "min_priority"):
            if name in fields:
                config[name] = fields.pop(name)  # type: ignore[assignment]
        request: Json = {"deliver": "earliest", "config": config} | fields
        if group is not None:
            request["group_name"] = group
        found: list[Json] = self.done(f"MSG.FETCH.{address}", request)["messages"]
        return found

    def ack(self, address: str, group: str, msg_id: int, **fields: object) -> None:
        """ACK that must succeed."""
        request = {"group_name": group, "mail_address": address, "msg_id": msg_id} | fields
        self.done(f"MSG.ACK.{address}", request)


def ids(entries: Sequence[Json]) -> list[int]:
    """The `msg_id`s of entries."""
    return [entry["msg_id"] for entry in entries]


def payloads(entries: Sequence[Json]) -> list[str]:
    """The payloads of entries."""
    return [entry["payload"] for entry in entries]
