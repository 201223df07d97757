"""The subscriptions of clients, a few at a time.

The broker's thread looks them up, and does nothing else meanwhile: a question must be short. In
between, others get their turn here and there.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence

from mq9._core import ConnectionStats, SubscriptionInfo
from mq9.server.running import Running

_CONNECTIONS = 64
"""So many connections are asked how many subscriptions they have."""

_NAMED = 16_384
"""Of about so many it is found out at once which they are; of one connection always of all."""

_SUBSCRIPTIONS = 256
"""So many are looked up at once."""


async def subscriptions(
    running: Running, cids: Sequence[int]
) -> AsyncIterator[list[SubscriptionInfo]]:
    """The subscriptions of these connections, in the order of the connections."""
    for start in range(0, len(cids), _CONNECTIONS):
        stats = running.broker.connection_stats(cids[start : start + _CONNECTIONS])
        for some in _divide(stats):
            left = running.broker.subscriptions(some)
            while len(left):
                yield left.take(_SUBSCRIPTIONS)
                await asyncio.sleep(0)


def _divide(stats: Sequence[ConnectionStats]) -> Iterator[list[int]]:
    some: list[int] = []
    count = 0
    for one in stats:
        if some and count + one.subscriptions > _NAMED:
            yield some
            some, count = [], 0
        some.append(one.cid)
        count += one.subscriptions
    if some:
        yield some
