"""Dead letters: which there are, why, and sending them back.

Owns the list of those that nobody has dealt with, read from the mailboxes that dead letters go to
when these change. Resolved ones are the broker's to remember.
"""

import asyncio
import base64
import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from mq9.manage.link import BrokerGoneError, Link, RefusedError
from mq9.manage.mirror import Mirror

_DEAD = "mq9-dead-"
# More are counted, not listed.
MAX_LISTED = 100_000
_PAGE = 1000
_MAX_JOBS = 100
_NEVER_SENT = (_DEAD, "mq9-id", "nats-msg-id", "mq9-msg-id", "mq9-create-time", "mq9-deliveries")


@dataclass(slots=True)
class Letter:
    """A dead letter, without its payload."""

    address: str
    msg_id: int
    subject: str
    original_id: str
    group: str
    reason: str
    attempts: int
    first_seen: int
    last_failed: int
    bytes: int
    priority: str

    @property
    def id(self) -> str:
        """What it is called here."""
        return f"{self.address}:{self.msg_id}"


@dataclass
class Job:
    """Many letters that are being sent back."""

    number: int
    user: str
    total: int
    replayed: int = 0
    failed: int = 0
    error: str = ""
    stopped: bool = False
    began: float = field(default_factory=time.time)
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def done(self) -> bool:
        """Whether it has ended, in one way or another."""
        return self.ended.is_set()


class Letters:
    """All dead letters that are not resolved."""

    def __init__(self, link: Link, mirror: Mirror) -> None:
        self._link = link
        self._mirror = mirror
        self._by_mailbox: dict[str, dict[int, Letter]] = {}
        self._seen: dict[str, tuple[int, int]] = {}
        self.jobs: dict[int, Job] = {}
        self._numbers = itertools.count(1)
        self._tasks: set[asyncio.Task[None]] = set()
        self.unlisted = 0
        """Letters beyond the longest list."""

    async def refresh(self) -> None:
        """Read the mailboxes of dead letters that have changed."""
        wanted = self._mirror.dead_letter_mailboxes()
        for address in self._by_mailbox.keys() - wanted:
            del self._by_mailbox[address]
            self._seen.pop(address, None)
        unlisted = 0
        for address in sorted(wanted):
            place = self._mirror.find(address)
            if place is None:
                self._by_mailbox.pop(address, None)
                self._seen.pop(address, None)
                continue
            state = self._mirror.numbers(place)
            if self._seen.get(address) != state:
                await self._read(address, state)
            unlisted += max(state[0] - len(self._by_mailbox.get(address, ())), 0)
        self.unlisted = unlisted

    async def _read(self, address: str, state: tuple[int, int]) -> None:
        known = self._by_mailbox.get(address, {})
        depth, next_id = state
        seen = self._seen.get(address)
        newest = max(known, default=-1)
        # Only new ones came: the rest is as it was.
        grown = seen is not None and depth - len(known) == next_id - seen[1] and next_id >= seen[1]
        found = dict(known) if grown else {}
        after: int | None = newest if grown and newest >= 0 else None
        try:
            while len(found) < MAX_LISTED:
                fields: dict[str, Any] = {"limit": _PAGE, "since": 0}
                if after is not None:
                    fields["after_id"] = after
                page = (await self._link.request(f"MSG.QUERY.{address}", fields))["messages"]
                for entry in page:
                    letter = read_letter(address, entry)
                    if letter is not None:
                        found[letter.msg_id] = letter
                if not page:
                    break
                after = int(page[-1]["msg_id"])
        except RefusedError:
            # It has gone meanwhile, or is not for us to read.
            found = {}
        self._by_mailbox[address] = found
        self._seen[address] = state

    def all(self) -> list[Letter]:
        """Every letter, the newest first."""
        found = [letter for letters in self._by_mailbox.values() for letter in letters.values()]
        found.sort(key=lambda letter: (-letter.last_failed, letter.address, -letter.msg_id))
        return found

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
        return self._by_mailbox.get(address, {}).get(int(number))

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
        return sum(map(len, self._by_mailbox.values())) + self.unlisted

    def since(self, moment: float) -> int:
        """How many have died since."""
        return sum(
            letter.last_failed >= moment
            for letters in self._by_mailbox.values()
            for letter in letters.values()
        )

    def _drop(self, letter: Letter) -> None:
        self._by_mailbox.get(letter.address, {}).pop(letter.msg_id, None)

    async def replay(self, link: Link, letter: Letter) -> None:
        """Send a letter back where it came from, then resolve it.

        Made twice it is sent once: the broker remembers the id of the sending.
        """
        entry = await read_entry(link, letter)
        headers = _own_headers(entry)
        headers["mq9-id"] = f"replay.{letter.address}.{letter.msg_id}"
        headers["mq9-priority"] = str(entry["priority"])
        if key := _header(entry, f"{_DEAD}key"):
            headers["mq9-key"] = key
        if tags := entry.get("tags"):
            headers["mq9-tags"] = ",".join(tags)
        await link.request(f"MSG.SEND.{letter.subject}", payload=payload_of(entry), headers=headers)
        await self.resolve(link, letter, "replayed")

    async def resolve(self, link: Link, letter: Letter, how: str) -> None:
        """Somebody has dealt with a letter."""
        await link.request(f"ADMIN.DEAD.RESOLVE.{letter.address}.{letter.msg_id}", {"how": how})
        self._drop(letter)

    def start(
        self, link: Link, letters: list[Letter], user: str, ended: Callable[[Job], None]
    ) -> Job:
        """Send many back, one after the other."""
        job = Job(next(self._numbers), user, len(letters))
        self.jobs[job.number] = job
        for old in [number for number, each in self.jobs.items() if each.done][:-_MAX_JOBS]:
            del self.jobs[old]
        task = asyncio.get_running_loop().create_task(self._run(link, letters, job, ended))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return job

    async def finished(self, job: Job, timeout_s: float = 8.0) -> None:
        """Wait for the end, or for as long as a request may take."""
        with suppress(TimeoutError):
            await asyncio.wait_for(job.ended.wait(), timeout_s)

    async def _run(
        self, link: Link, letters: Iterable[Letter], job: Job, ended: Callable[[Job], None]
    ) -> None:
        try:
            for letter in letters:
                if job.stopped:
                    break
                try:
                    await self.replay(link, letter)
                    job.replayed += 1
                except RefusedError as error:
                    job.failed += 1
                    job.error = str(error)
        except BrokerGoneError as error:
            job.error = str(error)
        finally:
            job.ended.set()
            ended(job)


async def read_entry(link: Link, letter: Letter) -> dict[str, Any]:
    """The message of a letter; RefusedError if it is not there any more."""
    fields: dict[str, Any] = {"limit": 1, "since": 0}
    if letter.msg_id:
        fields["after_id"] = letter.msg_id - 1
    page = (await link.request(f"MSG.QUERY.{letter.address}", fields))["messages"]
    if not page or page[0]["msg_id"] != letter.msg_id:
        raise RefusedError("message not found", "message_not_found")
    entry: dict[str, Any] = page[0]
    return entry


def payload_of(entry: dict[str, Any]) -> bytes:
    """The bytes of a message."""
    text = str(entry["payload"])
    return base64.b64decode(text) if entry.get("encoding") == "base64" else text.encode()


def read_letter(address: str, entry: dict[str, Any]) -> Letter | None:
    """A message of a mailbox of dead letters; None if it is an ordinary one."""
    source = _header(entry, f"{_DEAD}mailbox")
    if not source:
        return None
    attempts = _header(entry, f"{_DEAD}deliveries")
    return Letter(
        address=address,
        msg_id=int(entry["msg_id"]),
        subject=source,
        original_id=_header(entry, f"{_DEAD}msg-id"),
        group=_header(entry, f"{_DEAD}group"),
        reason=_header(entry, f"{_DEAD}reason"),
        attempts=int(attempts) if attempts.isdigit() else 0,
        first_seen=int(entry["create_time"]),
        last_failed=int(entry["create_time"]),
        bytes=len(str(entry["payload"])),
        priority=str(entry["priority"]),
    )


def _header(entry: dict[str, Any], name: str) -> str:
    values = entry.get("headers", {}).get(name)
    return str(values[0]) if values else ""


def _own_headers(entry: dict[str, Any]) -> dict[str, str]:
    """What its sender gave it; the id of the first sending is not that of the next."""
    headers = entry.get("headers", {})
    return {
        name: str(values[0])
        for name, values in headers.items()
        if values and not name.lower().startswith(_NEVER_SENT)
    }
