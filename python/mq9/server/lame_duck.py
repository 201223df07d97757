"""Lame duck mode: clients are asked to leave, then sent away a few at a time.

This is spread out, so that they do not all arrive at another server at once.
"""

import asyncio
import random

from mq9.server.running import Running

_LONGEST_GAP_S = 1.0
_SHORTEST_GAP_S = 0.001


async def retire(running: Running) -> None:
    """Tell clients, give them the grace period, and close who is left over the duration."""
    running.lame_duck = True
    running.log.info("Entering lame duck mode, stop accepting new clients")
    for session in running.clients:
        session.say_lame_duck()
    options = running.options
    try:
        async with asyncio.timeout(options.lame_duck_grace_period_ms / 1000):
            await running.clients.gone()
        return
    except TimeoutError:
        pass
    running.log.info("Closing existing clients")
    rest_ms = max(options.lame_duck_duration_ms - options.lame_duck_grace_period_ms, 0)
    leaving = list(running.clients)
    gap_s, batch = pace(len(leaving), rest_ms / 1000)
    for start in range(0, len(leaving), batch):
        for session in leaving[start : start + batch]:
            session.close("Server Shutdown")
        await asyncio.sleep(random.uniform(gap_s / 2, gap_s))


def pace(clients: int, seconds: float) -> tuple[float, int]:
    """How long to wait between closing how many, to be done in `seconds` at the latest."""
    if not clients:
        return 0.0, 1
    gap = seconds / clients
    if gap >= _SHORTEST_GAP_S:
        return min(gap, _LONGEST_GAP_S), 1
    rounds = max(int(seconds / _SHORTEST_GAP_S), 1)
    return seconds / rounds, -(-clients // rounds)
