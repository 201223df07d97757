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

_SUBSCRIPTIONS = 256
"""About so many subscriptions are looked up at once; those of one connection are never divided."""


async def subscriptions(
    running: Running, cids: Sequence[int]
) -> AsyncIterator[list[SubscriptionInfo]]:
    """The subscriptions of these connections, in the order of the connections."""
    for start in range(0, len(cids), _CONNECTIONS):
        stats = running.broker.connection_stats(cids[start : start + _CONNECTIONS])
        for few in _divide(stats):
            yield running.broker.subscriptions(few)
            await asyncio.sleep(0)


def _divide(stats: Sequence[ConnectionStats]) -> Iterator[list[int]]:
    few: list[int] = []
    count = 0
    for one in stats:
        if few and count + one.subscriptions > _SUBSCRIPTIONS:
            yield few
            few, count = [], 0
        few.append(one.cid)
        count += one.subscriptions
    if few:
        yield few
