"""Password hashes wait here for one of two threads: networks take turns, and users in each network.

A hash takes a tenth of a second of a core or more, and everybody may ask for one. A network has two
lines, served in turn: one for users that exist, who take turns, and one for names that do not. So
made-up names push nobody out. A refusal also waits for a place in the second line: its time does
not tell whether the user exists. Knows nothing of passwords.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from mq9.server.info import network_of

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from concurrent.futures import ThreadPoolExecutor

_THREADS = 2
# Of one line. More than that would not have their turn before clients give up.
_WAITING = 32
# Names that do not exist are nobody's: together they are one user.
_NOBODY = ""

_Key: TypeAlias = tuple[str, str, bytes]


class CrowdedError(Exception):
    """A check that was given up, because its network asks for too many."""


@dataclass(eq=False, slots=True)
class _Check:
    """One hash, and all who wait for its result."""

    network: str
    user: str
    key: bytes
    known: bool
    work: Callable[[], bool]
    askers: set[asyncio.Future[bool]] = field(default_factory=set)
    result: asyncio.Future[bool] | None = None
    """What the hash has shown."""
    had_place: bool = False
    """Whether its turn among names that do not exist has come: a refusal may be told."""
    is_late: bool = False
    """Whether that place was given up: a refusal must not be told."""

    @property
    def id(self) -> _Key:
        return self.network, self.user, self.key


class _Line:
    """Checks that wait: users in turn, of each user the oldest and the newest in turn."""

    def __init__(self) -> None:
        self._users: OrderedDict[str, OrderedDict[_Key, _Check]] = OrderedDict()
        self._newest = True

    def __len__(self) -> int:
        return sum(map(len, self._users.values()))

    def add(self, user: str, check: _Check) -> _Check | None:
        """Append a check; the one that is given up for it."""
        given_up = None
        if len(self) >= _WAITING:
            most = max(reversed(self._users), key=lambda each: len(self._users[each]))
            given_up = next(iter(self._users[most].values()))
            self.discard(most, given_up)
        if user not in self._users:
            self._users[user] = OrderedDict()
            # Whoever has not had a turn is next, however many others wait.
            self._users.move_to_end(user, last=False)
        self._users[user][check.id] = check
        return given_up

    def discard(self, user: str, check: _Check) -> None:
        waiting = self._users.get(user)
        if waiting is None or check.id not in waiting:
            return
        del waiting[check.id]
        if not waiting:
            del self._users[user]

    def take(self) -> _Check:
        """The next one, out of the line."""
        user, waiting = next(iter(self._users.items()))
        self._users.move_to_end(user)
        # The newest: those behind a long line have given up before it is their turn. The oldest:
        # who comes back at once after each refusal is always the newest.
        check = next(reversed(waiting.values()) if self._newest else iter(waiting.values()))
        self._newest = not self._newest
        self.discard(user, check)
        return check


@dataclass(slots=True)
class _Network:
    known: _Line = field(default_factory=_Line)
    unknown: _Line = field(default_factory=_Line)
    unknown_is_next: bool = False

    def take(self) -> tuple[_Check, bool]:
        """The next check, and whether it was in the line of names that do not exist."""
        unknown = bool(self.unknown) and (self.unknown_is_next or not self.known)
        self.unknown_is_next = not unknown
        return (self.unknown if unknown else self.known).take(), unknown


class HashQueue:
    """Runs checks in threads, in turns."""

    def __init__(self) -> None:
        self._networks: OrderedDict[str, _Network] = OrderedDict()
        self._checks: dict[_Key, _Check] = {}
        self._running = 0
        self._threads: ThreadPoolExecutor | None = None

    async def run(
        self, address: str, user: str, key: bytes, work: Callable[[], bool], *, known: bool = True
    ) -> bool:
        """The result of `work`; checks of a user with the same `key` are done once.

        `known` says whether the user exists. CrowdedError if there are too many of this address.
        Cancelling gives up the place.
        """
        new = _Check(network_of(address), user, key, known, work)
        check = self._checks.get(new.id)
        if check is None:
            check = self._checks[new.id] = new
            self._add(check)
        # Imported here: clients are greeted before there is an event loop.
        import asyncio

        asker: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        check.askers.add(asker)
        self._answer(check)
        self._start()
        try:
            return await asker
        finally:
            check.askers.discard(asker)
            if not check.askers:
                self._forget(check)

    def close(self) -> None:
        """Let go of the threads without waiting for them."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    def _add(self, check: _Check) -> None:
        network = self._networks.setdefault(check.network, _Network())
        if check.known and (given_up := network.known.add(check.user, check)):
            self._give_up(given_up)
        if late := network.unknown.add(_NOBODY, check):
            late.is_late = True
            if late.known:
                # Its password may be right.
                self._answer(late)
            else:
                self._give_up(late)

    def _give_up(self, check: _Check) -> None:
        for asker in check.askers:
            if not asker.done():
                asker.set_exception(CrowdedError())
        self._forget(check)

    def _forget(self, check: _Check) -> None:
        """A check that nobody waits for is not begun; one that runs goes on."""
        if self._checks.get(check.id) is check:
            del self._checks[check.id]
        if (network := self._networks.get(check.network)) is not None:
            network.known.discard(check.user, check)
            network.unknown.discard(_NOBODY, check)
            self._tidy(check.network)

    def _tidy(self, name: str) -> None:
        network = self._networks[name]
        if not network.known and not network.unknown:
            del self._networks[name]

    def _next(self) -> _Check | None:
        """The next check to be computed."""
        while self._networks:
            name, network = next(iter(self._networks.items()))
            check, unknown = network.take()
            self._networks.move_to_end(name)
            self._tidy(name)
            if unknown:
                check.had_place = True
                if check.known:
                    # Only its place: the hash is the other line's.
                    self._answer(check)
                    continue
            return check
        return None

    def _start(self) -> None:
        import asyncio
        from concurrent.futures import ThreadPoolExecutor

        loop = asyncio.get_running_loop()
        while self._running < _THREADS and (check := self._next()):
            if self._threads is None:
                self._threads = ThreadPoolExecutor(_THREADS, "bcrypt")
            self._running += 1
            done = loop.run_in_executor(self._threads, check.work)
            done.add_done_callback(partial(self._done, check))

    def _done(self, check: _Check, result: asyncio.Future[bool]) -> None:
        self._running -= 1
        check.result = result
        self._answer(check)
        if not result.cancelled():
            self._start()

    def _answer(self, check: _Check) -> None:
        """Tell the result, if it is there and may be told."""
        result = check.result
        if result is None:
            return
        for asker in check.askers:
            if asker.done():
                continue
            if result.cancelled():
                asker.cancel()
            elif (error := result.exception()) is not None:
                asker.set_exception(error)
            elif result.result() or check.had_place:
                asker.set_result(result.result())
            elif check.is_late:
                asker.set_exception(CrowdedError())
