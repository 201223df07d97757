"""Decides about connected clients anew after a reload: some have to go, others get new permissions.

Owns the order: nobody keeps an old right because others take a hash to be decided.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeAlias

from mq9.server.hash_queue import CrowdedError

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

    from mq9.server.auth import HashNeeded
    from mq9.server.running import Running
    from mq9.server.session import Session

# As many as the threads that compute them: those who come now wait behind no more of them.
_HASHES_AT_ONCE = 2

_Group: TypeAlias = "tuple[HashNeeded, list[Session]]"


def reconsider(running: Running) -> Coroutine[None, None, None] | None:
    """Decides at once where that takes no hash; the rest of the work, if there is any."""
    groups: dict[tuple[str, str, str], _Group] = {}
    for session in running.clients:
        if (hash_needed := session.reconsider()) is not None:
            key = (hash_needed.user, hash_needed.stored, hash_needed.given)
            groups.setdefault(key, (hash_needed, []))[1].append(session)
    return _decide_all(running, iter(tuple(groups.values()))) if groups else None


async def _decide_all(running: Running, groups: Iterator[_Group]) -> None:
    await asyncio.gather(*(_decide(running, groups) for _ in range(_HASHES_AT_ONCE)))


async def _decide(running: Running, groups: Iterator[_Group]) -> None:
    authenticator = running.settings.authenticator
    for hash_needed, sessions in groups:
        try:
            grant = await authenticator.settle(hash_needed)
        except CrowdedError:
            # Undecided is out: a client that may come in comes again.
            grant = None
        if authenticator is not running.settings.authenticator:
            # Another reload has reconsidered everybody.
            return
        for session in sessions:
            session.reconsidered(grant)
