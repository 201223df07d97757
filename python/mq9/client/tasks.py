"""Ends tasks of the client's own.

Must not know what the tasks do.
"""

import asyncio
from typing import Any

_AGAIN_S = 0.2


async def end_tasks(*tasks: asyncio.Future[Any]) -> None:
    """Cancels tasks until they have ended; whatever they raise is dropped.

    `asyncio.wait_for` of Python 3.11, which nats-py uses as well, takes a cancellation for a result
    if both come at once. So one may not be enough.
    """
    running = {task for task in tasks if not task.done()}
    while running:
        for task in running:
            task.cancel()
        _, running = await asyncio.wait(running, timeout=_AGAIN_S)
    await asyncio.gather(*tasks, return_exceptions=True)
