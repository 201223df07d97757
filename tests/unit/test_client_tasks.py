"""Tasks of the client end, whatever they make of a cancellation."""

import asyncio
import contextlib

from mq9.client.tasks import end_tasks


async def test_a_task_that_takes_a_cancellation_for_something_else_ends_too() -> None:
    started, swallowed = asyncio.Event(), asyncio.Event()

    async def swallow() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            started.set()
            await asyncio.Event().wait()
        swallowed.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(swallow())
    await started.wait()
    async with asyncio.timeout(30):
        await end_tasks(task)
    assert swallowed.is_set()
    assert task.cancelled()


async def test_what_a_task_raises_is_dropped() -> None:
    async def fail() -> None:
        raise ValueError

    task = asyncio.create_task(fail())
    await asyncio.wait([task])
    await end_tasks(task)
    assert isinstance(task.exception(), ValueError)
