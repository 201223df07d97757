"""Functions that a program gives to be called with messages: plain ones run in a thread."""

import asyncio
import contextvars
import inspect
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from mq9.errors import InvalidField


def threads_for(handler: Callable[[Any], object], count: int) -> ThreadPoolExecutor | None:
    """Threads for a handler that may block; None for an `async def`."""
    if not callable(handler):
        raise InvalidField(f"the handler is {handler!r}: it must be a function of a message")
    return None if is_async(handler) else ThreadPoolExecutor(count, "mq9-work")


async def call(
    handler: Callable[[Any], object], message: object, threads: ThreadPoolExecutor | None
) -> None:
    """Calls a handler, in a thread if there are some; what it returns may be awaited.

    A handler that raises CancelledError has failed like any other: who calls it goes on.
    """
    try:
        if threads is None:
            result = handler(message)
        else:
            context = contextvars.copy_context()
            running = asyncio.get_running_loop()
            result = await running.run_in_executor(
                threads, context.run, _without_stop_iteration, handler, message
            )
        if inspect.isawaitable(result):
            await result
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise RuntimeError("the handler raised CancelledError") from error


def _without_stop_iteration(handler: Callable[[Any], object], message: object) -> object:
    # A future refuses it, and then whoever waits for that waits for ever.
    try:
        return handler(message)
    except StopIteration as error:
        raise RuntimeError("the handler raised StopIteration") from error


def is_async(handler: Callable[[Any], object]) -> bool:
    """Whether a handler runs in the event loop."""
    called = getattr(handler, "__call__", None)  # noqa: B004
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(called)
