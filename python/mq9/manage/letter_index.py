"""The index of dead letters, read from their mailboxes and streams when these change.

Owns the list of those that nobody has dealt with. Reads each message once, a few pages at a time,
and looks again at what it has only if some of it has gone without a word.
"""

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from mq9.manage.letter import Letter, read_letter
from mq9.manage.letter_places import LetterPlace, LetterPlaces
from mq9.manage.link import Link, RefusedError
from mq9.manage.mirror import Mirror

# More are counted, not listed: the newest are.
MAX_LISTED = 100_000
_PAGES_AT_ONCE = 8
_LOOK_AGAIN_S = 30.0


@dataclass(slots=True)
class _Box:
    """What is known of one mailbox or stream."""

    place: LetterPlace
    created_ms: int
    letters: dict[int, Letter] = field(default_factory=dict)
    ordinary: set[int] = field(default_factory=set)
    """Messages in it that are no dead letters."""
    first: int = 0
    """Older messages than this one were not read."""
    next: int = 0
    """What is from here on was not read yet."""
    looked: float = -_LOOK_AGAIN_S
    """When it was last begun to look which are still there."""
    look_at: int | None = None
    """Where that goes on, while it lasts."""
    seen: set[int] = field(default_factory=set)
    state: tuple[int, int] = (-1, -1)
    is_changed: bool = True
    """Whether it has changed since that."""

    def __len__(self) -> int:
        return len(self.letters) + len(self.ordinary)


class LetterIndex:
    """All dead letters that are not resolved."""

    def __init__(self, link: Link, mirror: Mirror) -> None:
        self._link = link
        self._mirror = mirror
        self._places = LetterPlaces(link, mirror)
        self._boxes: dict[str, _Box] = {}
        self._sorted: list[Letter] | None = None
        self.unlisted = 0
        """Letters beyond the longest list, or not read yet."""

    async def refresh(self) -> None:
        """Read what is new where dead letters lie: a part of it, if it is much."""
        wanted = {place.address: place for place in await self._places.find()}
        for address in self._boxes.keys() - wanted.keys():
            self._forget(address)
        pages, unlisted = _PAGES_AT_ONCE, 0
        for address, place in wanted.items():
            found = place.find(self._mirror)
            if found is None:
                self._forget(address)
                continue
            created_ms, state = found
            box = self._boxes.get(address)
            if box is None or (box.created_ms, box.place) != (created_ms, place):
                box = self._boxes[address] = _Box(place, created_ms)
                # Among other messages, letters may lie anywhere.
                box.first = box.next = 0 if place.prefixes else max(state[1] - MAX_LISTED, 0)
                self._sorted = None
            try:
                pages = await self._follow(box, state, pages)
            except RefusedError:
                # It has gone meanwhile, or is not for us to read.
                self._forget(address)
                continue
            if not place.prefixes:
                unlisted += max(state[0] - len(box), 0)
        self.unlisted = unlisted
        self._shorten()

    async def _follow(self, box: _Box, state: tuple[int, int], pages: int) -> int:
        depth, next_id = state
        while box.next < next_id and pages:
            pages -= 1
            page, following = await box.place.page(self._link, box.next)
            for entry in page:
                letter = read_letter(box.place.address, entry, box.created_ms)
                if letter is None:
                    box.ordinary.add(int(entry["msg_id"]))
                else:
                    box.letters[letter.msg_id] = letter
                    self._sorted = None
            box.next = next_id if following is None else following
        box.is_changed |= box.state != state
        box.state = state
        # With older or other ones that are not known, the numbers do not tell.
        is_part = box.first > 0 or bool(box.place.prefixes)
        doubtful = len(box) > depth or (is_part and box.is_changed)
        now = time.monotonic()
        if box.look_at is None and doubtful and now - box.looked >= _LOOK_AGAIN_S:
            box.look_at, box.looked, box.seen, box.is_changed = box.first, now, set(), False
        return await self._look_again(box, pages)

    async def _look_again(self, box: _Box, pages: int) -> int:
        while box.look_at is not None and pages:
            pages -= 1
            page, box.look_at = await box.place.page(self._link, box.look_at)
            box.seen.update(int(entry["msg_id"]) for entry in page)
            if box.look_at is None or box.look_at >= box.next:
                box.look_at = None
                gone = (box.letters.keys() | box.ordinary) - box.seen
                for msg_id in gone:
                    box.letters.pop(msg_id, None)
                box.ordinary -= gone
                box.seen = set()
                self._sorted = None
        return pages

    def _shorten(self) -> None:
        """Of too many, the oldest of the longest list are listed no more."""
        surplus = sum(map(len, self._boxes.values())) - MAX_LISTED
        while surplus > 0:
            box = max(self._boxes.values(), key=len)
            oldest = sorted(box.letters.keys() | box.ordinary)[:surplus]
            for msg_id in oldest:
                box.letters.pop(msg_id, None)
                box.ordinary.discard(msg_id)
            box.first = oldest[-1] + 1
            surplus -= len(oldest)
            self._sorted = None

    def _forget(self, address: str) -> None:
        if self._boxes.pop(address, None) is not None:
            self._sorted = None

    def all(self) -> list[Letter]:
        """Every letter, the newest first."""
        if self._sorted is None:
            found = [letter for box in self._boxes.values() for letter in box.letters.values()]
            found.sort(key=lambda letter: (-letter.last_failed, letter.address, -letter.msg_id))
            self._sorted = found
        return self._sorted

    def chosen(self, *, queue: str = "", reason: str = "") -> list[Letter]:
        """Letters from a mailbox, or for a reason."""
        return [
            letter
            for letter in self.all()
            if (not queue or letter.subject == queue) and (not reason or letter.reason == reason)
        ]

    def get(self, name: str) -> Letter | None:
        """The letter of an id."""
        address, _, number = name.rpartition(":")
        if not (number.isascii() and number.isdigit() and len(number) < 20):
            return None
        box = self._boxes.get(address)
        return box.letters.get(int(number)) if box is not None else None

    def reasons(self) -> list[dict[str, Any]]:
        """How many there are for each reason and queue, most first."""
        counts: Counter[tuple[str, str]] = Counter()
        newest: dict[tuple[str, str], int] = {}
        for letter in self.all():
            kind = (letter.reason, letter.subject)
            counts[kind] += 1
            newest[kind] = max(newest.get(kind, 0), letter.last_failed)
        return [
            {"reason": kind[0], "queue": kind[1], "count": count, "newest": newest[kind]}
            for kind, count in counts.most_common(200)
        ]

    def count(self) -> int:
        """How many there are."""
        return sum(len(box.letters) for box in self._boxes.values()) + self.unlisted

    def since(self, moment: float) -> int:
        """How many have died since."""
        found = 0
        for letter in self.all():
            if letter.last_failed < moment:
                break
            found += 1
        return found

    def drop(self, letter: Letter) -> None:
        """Somebody has dealt with it."""
        box = self._boxes.get(letter.address)
        if box is not None and box.letters.pop(letter.msg_id, None) is not None:
            self._sorted = None
