"""Commands in turns: the event loop is never held for long, and no connection crowds out another.

Owns when work runs. Knows nothing of what it does.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Generator
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from mq9.commands.context import Clients

Pause: TypeAlias = asyncio.Future[Any] | None
"""Until the next turn, or until something has happened."""
Work: TypeAlias = Generator[Pause, None, None]

# What commands may take of one round of the loop.
_ROUND_S = 0.001
# A connection with so many requests in line, or bytes of them, is not read until few are left.
_LONG_LINE = 1000
_SHORT_LINE = 100
_MANY_BYTES = 4 << 20
_FEW_BYTES = 1 << 20
# While all together have so much in line, whoever asks for more is not read, until it is half.
_ALL_BYTES = 64 << 20


@dataclass(eq=False, frozen=True, slots=True)
class _Job:
    """Some work, and how many bytes it keeps until it is done."""

    work: Work
    size: int


class CommandScheduler:
    """The work of each connection in order, and the connections in turn.

    Work is a generator that stops after a millisecond or so and never raises; if it changes
    anything, it does not stop before. Work that waits for something lets others pass.
    """

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._lines: dict[int, deque[_Job]] = {}
        self._waiting: Counter[int] = Counter()
        self._bytes: Counter[int] = Counter()
        self._all_bytes = 0
        self._paused: set[int] = set()
        self._spent_s = 0.0
        self._round_is_due = False
        # Work that waits for something when all is given up never runs again.
        self._life = 0

    def add(self, cid: int, work: Work, size: int = 0) -> None:
        """Begin with some work now, or in a later round of the loop if this one has had enough.

        Until it is done, it keeps `size` bytes.
        """
        self._bytes[cid] += size
        self._all_bytes += size
        self._begin(cid, _Job(work, size))
        self._pause(cid)

    def _begin(self, cid: int, job: _Job) -> None:
        self._round_soon()
        line = self._lines.setdefault(cid, deque())
        line.append(job)
        if len(line) == 1 and self._spent_s < _ROUND_S:
            self._step(cid)

    def close(self) -> None:
        """Give up all work."""
        self._lines.clear()
        self._waiting.clear()
        self._bytes.clear()
        self._all_bytes = 0
        self._paused.clear()
        self._life += 1

    def _round_soon(self) -> None:
        if not self._round_is_due:
            self._round_is_due = True
            asyncio.get_running_loop().call_soon(self._round)

    def _round(self) -> None:
        self._spent_s = 0.0
        try:
            while self._lines and self._spent_s < _ROUND_S:
                self._turn(next(iter(self._lines)))
        finally:
            self._round_is_due = False
            if self._lines:
                self._round_soon()
            else:
                self._spent_s = 0.0

    def _turn(self, cid: int) -> None:
        self._step(cid)
        self._resume(cid)

    def _step(self, cid: int) -> None:
        """One step of a connection, which then goes to the back."""
        # It stays in its line meanwhile: a reply may bring more requests, which go behind it.
        line = self._lines[cid]
        # What a client asked to be done before it left is done in one step; nobody waits for more.
        if self._is_off(cid, line[0]):
            line.popleft()
        elif cid not in self._clients.open:
            self._shed(cid, line.popleft())
        if self._lines.pop(cid, None) is not None and line:
            self._lines[cid] = line

    def _is_off(self, cid: int, job: _Job) -> bool:
        """Makes a step; whether the work is out of its line, being done or waiting."""
        start = perf_counter()
        try:
            until = next(job.work)
        except StopIteration:
            self._shed(cid, job)
            return True
        finally:
            self._spent_s += perf_counter() - start
        if until is None:
            return False
        life = self._life
        self._waiting[cid] += 1
        until.add_done_callback(lambda _: self._go_on(cid, job, life))
        return True

    def _go_on(self, cid: int, job: _Job, life: int) -> None:
        if life != self._life:
            return
        self._waiting[cid] -= 1
        if not self._waiting[cid]:
            del self._waiting[cid]
        if cid in self._clients.open:
            self._begin(cid, job)
            self._resume(cid)
        else:
            self._shed(cid, job)
            self._paused.discard(cid)

    def _shed(self, cid: int, job: _Job) -> None:
        """Some work is over, and what it kept is free."""
        self._bytes[cid] -= job.size
        if self._bytes[cid] <= 0:
            del self._bytes[cid]
        before = self._all_bytes
        self._all_bytes = max(0, before - job.size)
        if before > _ALL_BYTES // 2 >= self._all_bytes:
            for paused in tuple(self._paused):
                self._resume(paused)

    def _length(self, cid: int) -> int:
        return len(self._lines.get(cid, ())) + self._waiting[cid]

    def _pause(self, cid: int) -> None:
        if cid in self._paused:
            return
        client = self._clients.open.get(cid)
        too_much = (
            self._length(cid) >= _LONG_LINE
            or self._bytes[cid] >= _MANY_BYTES
            or self._all_bytes >= _ALL_BYTES
        )
        if client and too_much:
            self._paused.add(cid)
            client.pause_reading()

    def _resume(self, cid: int) -> None:
        if cid not in self._paused:
            return
        if (
            self._length(cid) <= _SHORT_LINE
            and self._bytes[cid] <= _FEW_BYTES
            and self._all_bytes <= _ALL_BYTES // 2
        ):
            self._paused.discard(cid)
            if client := self._clients.open.get(cid):
                client.resume_reading()
