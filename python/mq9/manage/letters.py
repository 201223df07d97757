"""Dead letters: sending them back, one or many, and marking them as dealt with.

Owns jobs and what is sent. Which letters there are, `letter_index` knows; resolved ones are the
broker's to remember.
"""

import asyncio
import hashlib
import itertools
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from mq9.manage.letter import DEAD, Letter, header, own_headers, payload_of, read_entry
from mq9.manage.letter_index import LetterIndex
from mq9.manage.link import BrokerGoneError, Link, RefusedError
from mq9.manage.mirror import Mirror

_MAX_JOBS = 100


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


class Letters(LetterIndex):
    """All dead letters that are not resolved, and sending them back."""

    def __init__(self, link: Link, mirror: Mirror) -> None:
        super().__init__(link, mirror)
        self.jobs: dict[int, Job] = {}
        self._numbers = itertools.count(1)
        self._tasks: set[asyncio.Task[None]] = set()

    async def replay(self, link: Link, letter: Letter) -> None:
        """Send a letter back where it came from, then resolve it.

        Made twice it is sent once: the broker remembers the id of the sending.
        """
        entry = await read_entry(link, letter)
        headers = own_headers(entry)
        headers["mq9-id"] = _id_of_replay(letter, entry)
        headers["mq9-priority"] = str(entry["priority"])
        if key := header(entry, f"{DEAD}key"):
            headers["mq9-key"] = key
        if tags := entry.get("tags"):
            headers["mq9-tags"] = ",".join(tags)
        await link.request(f"MSG.SEND.{letter.subject}", payload=payload_of(entry), headers=headers)
        await self.resolve(link, letter, "replayed")

    async def resolve(self, link: Link, letter: Letter, how: str) -> None:
        """Somebody has dealt with a letter."""
        await link.request(f"ADMIN.DEAD.RESOLVE.{letter.address}.{letter.msg_id}", {"how": how})
        self.drop(letter)

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


def _id_of_replay(letter: Letter, entry: dict[str, Any]) -> str:
    """The same for every sending of one letter, and for no other letter.

    The address and number alone are those of another letter as well, if the mailbox was removed and
    made again: what the broker takes for a repetition is resolved without being sent.
    """
    content = hashlib.sha256(payload_of(entry))
    for name in ("create_time", "headers", "priority", "tags"):
        content.update(repr(entry.get(name)).encode("utf-8", "surrogatepass"))
    place = f"{letter.created_ms}.{letter.address}.{letter.msg_id}"
    return f"replay.{hashlib.sha256(place.encode()).hexdigest()[:16]}.{content.hexdigest()[:32]}"
