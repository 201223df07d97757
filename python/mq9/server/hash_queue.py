"""Password hashes wait here for one of two threads: networks take turns, and users in each network.

A hash takes a tenth of a second of a core or more, and everybody may ask for one. Whoever asks for
many waits behind himself. Other networks take turns with his; a user of his network that has
not asked before is the next of that network. Knows nothing of passwords.
"""

from __future__ import annotations

import asyncio
import socket
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

_THREADS = 2
# Of one network. More than that would not have their turn before clients give up.
_WAITING = 32


class CrowdedError(Exception):
    """A check that was given up, because its network asks for too many."""


@dataclass(eq=False, slots=True)
class _Check:
    """One hash, and all who wait for its result."""

    network: str
    user: str
    key: bytes
    work: Callable[[], bool]
    askers: set[asyncio.Future[bool]] = field(default_factory=set)


_Users: TypeAlias = "OrderedDict[str, OrderedDict[bytes, _Check]]"


class HashQueue:
    """Runs checks in threads, in turns."""

    def __init__(self) -> None:
        self._networks: OrderedDict[str, _Users] = OrderedDict()
        self._running: dict[tuple[str, str, bytes], _Check] = {}
        self._threads: ThreadPoolExecutor | None = None

    async def run(self, address: str, user: str, key: bytes, work: Callable[[], bool]) -> bool:
        """The result of `work`; checks of a user with the same `key` are done once.

        CrowdedError if there are too many of this address. Cancelling gives up the place.
        """
        network = _network(address)
        check = self._find(network, user, key)
        if check is None:
            check = _Check(network, user, key, work)
            self._add(check)
        asker: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        check.askers.add(asker)
        self._start()
        try:
            return await asker
        finally:
            check.askers.discard(asker)
            if not check.askers:
                self._leave(check)

    def close(self) -> None:
        """Let go of the threads without waiting for them."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    def _find(self, network: str, user: str, key: bytes) -> _Check | None:
        users = self._networks.get(network)
        waiting = users.get(user) if users else None
        check = waiting.get(key) if waiting else None
        return check or self._running.get((network, user, key))

    def _add(self, check: _Check) -> None:
        users = self._networks.setdefault(check.network, OrderedDict())
        if sum(map(len, users.values())) >= _WAITING:
            self._give_up_one(users)
        if check.user not in users:
            users[check.user] = OrderedDict()
            # Whoever has not had a turn is next, however many others wait.
            users.move_to_end(check.user, last=False)
        users[check.user][check.key] = check

    def _give_up_one(self, users: _Users) -> None:
        """The oldest of the user that asks for most."""
        most = max(reversed(users), key=lambda user: len(users[user]))
        given_up = next(iter(users[most].values()))
        self._leave(given_up)
        for asker in given_up.askers:
            if not asker.done():
                asker.set_exception(CrowdedError())

    def _leave(self, check: _Check) -> None:
        """Forget a check that waits; one that runs goes on."""
        users = self._networks.get(check.network, OrderedDict())
        waiting = users.get(check.user)
        if waiting is None or waiting.get(check.key) is not check:
            return
        del waiting[check.key]
        if not waiting:
            del users[check.user]
        if not users:
            del self._networks[check.network]

    def _next(self) -> _Check | None:
        if not self._networks:
            return None
        network, users = next(iter(self._networks.items()))
        user, waiting = next(iter(users.items()))
        self._networks.move_to_end(network)
        users.move_to_end(user)
        # The newest: those who have waited for long have given up, or will before the others.
        check = next(reversed(waiting.values()))
        self._leave(check)
        return check

    def _start(self) -> None:
        loop = asyncio.get_running_loop()
        while len(self._running) < _THREADS and (check := self._next()):
            if self._threads is None:
                self._threads = ThreadPoolExecutor(_THREADS, "bcrypt")
            self._running[check.network, check.user, check.key] = check
            done = loop.run_in_executor(self._threads, check.work)
            done.add_done_callback(partial(self._done, check))

    def _done(self, check: _Check, result: asyncio.Future[bool]) -> None:
        del self._running[check.network, check.user, check.key]
        for asker in check.askers:
            if asker.done():
                continue
            if result.cancelled():
                asker.cancel()
            elif (error := result.exception()) is not None:
                asker.set_exception(error)
            else:
                asker.set_result(result.result())
        if not result.cancelled():
            self._start()


def _network(address: str) -> str:
    """An IPv4 address, or the 64 bits of an IPv6 address that its owner cannot choose."""
    if ":" not in address:
        return address
    return socket.inet_pton(socket.AF_INET6, address)[:8].hex()
