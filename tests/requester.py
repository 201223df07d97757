"""Requests to the broker's commands over a raw connection: one reply each, as bytes or as JSON."""

import json
from typing import Any, Self

from tests.wire import Wire, messages

PREFIX = "$mq9.AI."


class NoRespondersError(Exception):
    """Nobody serves the subject."""


class Requester(Wire):
    """A connection that asks and reads the one reply."""

    def __init__(self, port: int, *, host: str = "127.0.0.1", **options: object) -> None:
        super().__init__(port, host=host)
        self.connect(**{"pedantic": False, **options})
        self.send(b"SUB _INBOX.requester.* 1\r\n")
        self._asked = 0

    def __enter__(self) -> Self:
        return self

    def raw(self, command: str, payload: bytes = b"", headers: bytes = b"") -> bytes:
        """The bytes of the reply to a request."""
        self._asked += 1
        reply = f"_INBOX.requester.{self._asked}"
        self.publish(command, payload, headers, reply)
        [message] = messages(self.message_frame())
        assert message.subject == reply
        if message.headers.startswith(b"NATS/1.0 503"):
            raise NoRespondersError(command)
        return message.payload

    def message_frame(self) -> bytes:
        """The next frame that holds a message; pings between are left out."""
        while not (frame := self.frame()).startswith((b"MSG ", b"HMSG ")):
            assert frame in (b"PING\r\n", b"PONG\r\n"), frame
        return frame

    def publish(
        self, command: str, payload: bytes = b"", headers: bytes = b"", reply: str = ""
    ) -> None:
        """A request without waiting for its reply."""
        subject = f"{PREFIX}{command} {reply}".strip().encode()
        if headers:
            block = b"NATS/1.0\r\n" + headers + b"\r\n"
            sizes = b"%d %d" % (len(block), len(block) + len(payload))
            self.send(b"HPUB %b %b\r\n%b%b\r\n" % (subject, sizes, block, payload))
        else:
            self.send(b"PUB %b %d\r\n%b\r\n" % (subject, len(payload), payload))

    def ask_json(self, command: str, **fields: object) -> dict[str, Any]:
        """The reply to a request with these fields."""
        answer = json.loads(self.raw(command, json.dumps(fields).encode() if fields else b""))
        assert isinstance(answer, dict)
        return answer

    def create(self, name: str, **fields: object) -> None:
        """A mailbox, for tests of something else."""
        assert self.ask_json("MAILBOX.CREATE", name=name, **fields)["error"] == ""

    def post(self, address: str, payload: bytes = b"", headers: bytes = b"") -> int:
        """A message, for tests of something else; its id."""
        answer = json.loads(self.raw(f"MSG.SEND.{address}", payload, headers))
        assert answer["error"] == ""
        return int(answer["msg_id"])
