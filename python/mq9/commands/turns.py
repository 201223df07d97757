"""Commands in turns: the event loop is never held for long, and no connection crowds out another.

Owns when work runs. Knows nothing of what it does.
"""

from __future__ import annotations

import asyncio
from collections import deque
from time import perf_counter
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Generator

    from mq9.commands.surroundings import Clients

    Work: TypeAlias = Generator[None, None, None]

# What commands may take of one round of the loop.
_ROUND_S = 0.001
# A connection with so many requests in line is not read from until most are done.
_LONG_LINE = 1000
_SHORT_LINE = 100


class Turns:
    """The work of each connection in order, and the connections in turn.

    Work is a generator that stops after a millisecond or so and never raises; if it changes
    anything, it does not stop before.
    """

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._lines: dict[int, deque[Work]] = {}
        self._spent_s = 0.0
        self._round_is_due = False

    def add(self, cid: int, work: Work) -> None:
        """Begin with some work now, or in a later round of the loop if this one has had enough."""
        if not self._round_is_due:
            self._round_is_due = True
            asyncio.get_running_loop().call_soon(self._round)
        line = self._lines.get(cid)
        if line is None:
            if self._spent_s < _ROUND_S and self._is_done(work):
                return
            self._lines[cid] = deque([work])
            return
        line.append(work)
        if len(line) == _LONG_LINE and (client := self._clients.open.get(cid)):
            client.pause_reading()

    def close(self) -> None:
        """Give up all work."""
        self._lines.clear()

    def _round(self) -> None:
        self._spent_s = 0.0
        try:
            while self._lines and self._spent_s < _ROUND_S:
                self._turn(next(iter(self._lines)))
        finally:
            self._round_is_due = bool(self._lines)
            if self._round_is_due:
                asyncio.get_running_loop().call_soon(self._round)
            else:
                self._spent_s = 0.0

    def _turn(self, cid: int) -> None:
        """One step of a connection, which then goes to the back."""
        line = self._lines.pop(cid)
        client = self._clients.open.get(cid)
        # What a client asked to be done before it left is done in one step; nobody waits for more.
        if self._is_done(line[0]) or client is None:
            line.popleft()
            if client and len(line) == _SHORT_LINE:
                client.resume_reading()
        if line:
            self._lines[cid] = line

    def _is_done(self, work: Work) -> bool:
        start = perf_counter()
        try:
            next(work)
        except StopIteration:
            return True
        finally:
            self._spent_s += perf_counter() - start
        return False
