"""Places of dead letters: mailboxes and streams.

Owns which these are, and how their messages are read. Streams are asked for when consumers or
streams have come or gone, and now and then, since their subjects may change.
"""

import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from mq9.manage.link import Link, RefusedError
from mq9.manage.mirror import Mirror

STREAM = "stream:"
"""In front of the name of a stream; no address of a mailbox begins like this."""
_PAGE = 500
_LOOK_AGAIN_S = 30.0
_BEHIND_ALL = 2**62


@dataclass(frozen=True, slots=True)
class LetterPlace:
    """A mailbox or a stream with dead letters."""

    address: str
    """Of a mailbox; of a stream its name behind `stream:`."""
    prefixes: tuple[str, ...] = ()
    """What subjects of letters begin with, where a stream has other messages too."""

    @property
    def stream(self) -> str:
        """The name of the stream; empty for a mailbox."""
        return self.address.removeprefix(STREAM) if self.address.startswith(STREAM) else ""

    def find(self, mirror: Mirror) -> tuple[int, tuple[int, int]] | None:
        """When it was made, how many messages it has, and the number of the next one."""
        name, is_stream = self.stream or self.address, int(bool(self.stream))
        place = mirror.find(name, "stream" if is_stream else "mailbox")
        if place is None:
            return None
        depth, next_id = mirror.numbers(place)
        # Messages of a stream are numbered from 1.
        return mirror.created_ms(place), (depth, next_id + is_stream)

    async def look(self, link: Link) -> tuple[int, int]:
        """When it was made, in seconds, and the number of the next message, as the broker says."""
        if self.stream:
            fields = {"first": _BEHIND_ALL, "limit": 1}
            told = await link.request(f"ADMIN.STREAM.QUERY.{self.stream}", fields)
            return int(told["created_ms"]) // 1000, int(told["end"])
        told = (await link.request(f"ADMIN.MAILBOX.SHOW.{self.address}"))["mailbox"]
        return int(told["created"]), int(told["next_id"])

    async def page(
        self, link: Link, first: int, limit: int = _PAGE
    ) -> tuple[list[dict[str, Any]], int | None]:
        """Messages from a number on, and where to go on if there may be more."""
        if self.stream:
            fields = {"first": first, "limit": limit, "prefixes": list(self.prefixes)}
            told = await link.request(f"ADMIN.STREAM.QUERY.{self.stream}", fields)
            return told["messages"], told["next"]
        wanted: dict[str, Any] = {"limit": limit, "since": 0}
        if first:
            wanted["after_id"] = first - 1
        page = (await link.request(f"MSG.QUERY.{self.address}", wanted))["messages"]
        return page, int(page[-1]["msg_id"]) + 1 if page else None


class LetterPlaces:
    """All of them."""

    def __init__(self, link: Link, mirror: Mirror) -> None:
        self._link = link
        self._mirror = mirror
        self._streams: list[LetterPlace] = []
        self._known: tuple[int, list[str]] | None = None
        self._looked = 0.0

    async def find(self) -> list[LetterPlace]:
        """Mailboxes and streams that dead letters go to."""
        mirror = self._mirror
        state = (mirror.stream_changes, sorted(mirror.groups.prefixes))
        now = time.monotonic()
        if state != self._known or (state[1] and now - self._looked >= _LOOK_AGAIN_S):
            # Refused by an older broker, or to a user who may not: those that are known stay.
            with suppress(RefusedError):
                self._streams = await self._ask(state[1]) if state[1] else []
            self._known, self._looked = state, now
        mailboxes = [LetterPlace(address) for address in sorted(mirror.dead_letter_mailboxes())]
        return [*mailboxes, *self._streams]

    async def _ask(self, prefixes: list[str]) -> list[LetterPlace]:
        told = await self._link.request("ADMIN.DEAD.STREAMS", {"prefixes": prefixes})
        found = [(STREAM + each["stream"], tuple(each["prefixes"])) for each in told["streams"]]
        return [LetterPlace(address, begins) for address, begins in found]
