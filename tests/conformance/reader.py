"""A client that is pushed to: its subscriptions, and what came to them in order."""

import time

from tests.mail import PREFIX, Mail
from tests.wire import Message


class Reader:
    """A connection with subscriptions, and what came to them in order."""

    def __init__(self, mail: Mail) -> None:
        self.mail = mail
        self.came: list[Message] = []
        mail.came_in = self._came_in  # type: ignore[method-assign]

    def _came_in(self, message: Message) -> None:
        if message.subject.startswith(PREFIX):
            self.came.append(message)

    def subscribe(self, subject: str, queue: str = "", sid: int = 9, most: int = 0) -> "Reader":
        # In one piece: a maximum counts for what is written from the beginning.
        end = f"UNSUB {sid} {most}\r\n" if most else ""
        self.mail.send(f"SUB {PREFIX}{subject} {queue} {sid}\r\n{end}".encode())
        return self

    def take(self, count: int) -> list[Message]:
        """The next so many, and no more."""
        deadline = time.monotonic() + self.mail.deadline_s
        while len(self.came) < count:
            self.mail.pump(deadline)
        self.mail.ping()
        assert len(self.came) == count, self.came
        found, self.came = self.came, []
        return found

    def texts(self, count: int) -> list[str]:
        return [message.payload.decode() for message in self.take(count)]

    def nothing(self) -> None:
        self.mail.ping()
        assert self.came == []

    def refused(self) -> str:
        """What the broker says of a subscription that it refuses."""
        self.mail.ping()
        [error] = self.mail.errors
        return error


def header(message: Message, name: str) -> str:
    for line in message.headers.decode().split("\r\n"):
        found, _, value = line.partition(":")
        if found == name:
            return value.strip()
    return ""
