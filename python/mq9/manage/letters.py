"""Dead letters: sending them back or purging them, one or many, and marking them as dealt with.

Owns jobs and what is sent. Which letters there are, `letter_index` knows; resolved ones are the
broker's to remember.
"""

import asyncio
import itertools
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

from mq9.manage.letter import Letter
from mq9.manage.letter_index import LetterIndex
from mq9.manage.letter_places import LetterPlace
from mq9.manage.link import BrokerGoneError, Link, RefusedError
from mq9.manage.mirror import Mirror

_MAX_JOBS = 100


@dataclass
class Job:
    """Many letters that are being sent back, or purged."""

    number: int
    user: str
    total: int
    action: Literal["replay", "purge"] = "replay"
    count: int = 0
    """How many were sent back or purged by now."""
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
        """Send a letter back where it came from: the broker sends it and takes it out in one."""
        await link.request(f"ADMIN.DEAD.REPLAY.{_place(letter)}", {"created_ms": letter.created_ms})
        self.drop(letter)

    async def resolve(self, link: Link, letter: Letter, how: str) -> None:
        """Somebody has dealt with a letter."""
        fields = {"how": how, "created_ms": letter.created_ms}
        await link.request(f"ADMIN.DEAD.RESOLVE.{_place(letter)}", fields)
        self.drop(letter)

    async def purge(self, link: Link, letter: Letter) -> None:
        """Take a letter out and send it nowhere; it is told among those that are resolved."""
        await self.resolve(link, letter, "purged")

    def start(
        self,
        link: Link,
        letters: list[Letter],
        user: str,
        ended: Callable[[Job], None],
        action: Literal["replay", "purge"],
    ) -> Job:
        """Send many back or purge them, one after the other."""
        job = Job(next(self._numbers), user, len(letters), action)
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
        work = self.purge if job.action == "purge" else self.replay
        try:
            for letter in letters:
                if job.stopped:
                    break
                try:
                    await work(link, letter)
                    job.count += 1
                except RefusedError as error:
                    job.failed += 1
                    job.error = str(error)
        except BrokerGoneError as error:
            job.error = str(error)
        finally:
            job.ended.set()
            ended(job)


def _place(letter: Letter) -> str:
    stream = LetterPlace(letter.address).stream
    return f"{f'$stream.{stream}' if stream else letter.address}.{letter.msg_id}"
