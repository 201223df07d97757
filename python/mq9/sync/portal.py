"""An event loop in a thread of its own, and how other threads have it do something.

Owns the loop, its thread and their end. Knows nothing of mq9 but its exceptions.
"""

import asyncio
import concurrent.futures
import os
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Generic, TypeVar

from mq9.errors import ClientClosed

Value = TypeVar("Value")

_UNWINDING_S = 5.0
"""How long an interrupted call may take to give back what it holds."""
_PARTING_S = 5.0
"""How long the end of a program, or of a client that nobody closed, may take."""


class Work(Generic[Value]):
    """A coroutine that the loop runs, and its end."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Value]
    ) -> None:
        self.ended: concurrent.futures.Future[Value] = concurrent.futures.Future()
        self._loop = loop
        self._coroutine = coroutine
        self._task: asyncio.Task[Value] | None = None

    def begin(self) -> None:
        """Called by the loop."""
        self._task = self._loop.create_task(self._coroutine)
        self._task.add_done_callback(self._finish)

    def cancel(self) -> None:
        """Asks it to end early; `ended` tells when it has."""
        self._loop.call_soon_threadsafe(lambda: self._task and self._task.cancel())

    def _finish(self, task: asyncio.Task[Value]) -> None:
        if task.cancelled():
            self.ended.set_exception(ClientClosed("the client was closed"))
        elif (error := task.exception()) is not None:
            self.ended.set_exception(error)
        else:
            self.ended.set_result(task.result())


class Portal:
    """Runs coroutines in its own thread while callers wait in theirs; any thread may call.

    A process that was forked has no such thread: there every call fails at once.
    """

    def __init__(self, farewell: Callable[[], Awaitable[object]]) -> None:
        """`farewell` is run last, also when nobody calls `close`."""
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._open = True
        self._loop = asyncio.new_event_loop()
        # Neither the thread nor the finalizer may keep the portal alive: its end is theirs.
        self._thread = threading.Thread(
            target=_serve, args=(self._loop, farewell), name="mq9-sync", daemon=True
        )
        self._thread.start()
        self._finalizer = weakref.finalize(self, _end, self._loop, self._thread, self._pid)

    @property
    def forked(self) -> bool:
        """Whether this process is a fork of the one that has the thread."""
        return os.getpid() != self._pid

    def run(self, coroutine: Coroutine[Any, Any, Value]) -> Value:
        """What a coroutine returns or raises.

        A caller that is interrupted, by Ctrl-C for example, cancels it, and goes on when it has
        come to its end.
        """
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise RuntimeError(
                "a call that waits, from the event loop that it waits for: make the handler a "
                "plain function, or use mq9.Client"
            )
        work = self.start(coroutine)
        try:
            return work.ended.result()
        finally:
            # Only an interrupted caller is here before the end.
            if not work.ended.done():
                work.cancel()
                concurrent.futures.wait([work.ended], timeout=_UNWINDING_S)

    def start(self, coroutine: Coroutine[Any, Any, Value]) -> Work[Value]:
        """Begins it without waiting for its end."""
        work = Work(self._loop, coroutine)
        # First of all: in a fork, nobody may be there who would give the lock back.
        why = "belongs to the process that this one was forked from" if self.forked else ""
        if not why:
            with self._lock:
                if self._open:
                    self._loop.call_soon_threadsafe(work.begin)
                    return work
            why = "was closed"
        coroutine.close()
        raise ClientClosed(f"the client {why}: create another")

    def close(self) -> None:
        """Ends the loop; what is under way fails with `ClientClosed`. Twice is as good as once."""
        if threading.current_thread() is self._thread:
            raise RuntimeError("a client cannot be closed from its own event loop")
        if not self.forked:
            with self._lock:
                self._open = False
        self._finalizer()


def _serve(loop: asyncio.AbstractEventLoop, farewell: Callable[[], Awaitable[object]]) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        loop.run_until_complete(_finish_all(farewell))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        loop.close()


async def _finish_all(farewell: Callable[[], Awaitable[object]]) -> None:
    await farewell()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


def _end(loop: asyncio.AbstractEventLoop, thread: threading.Thread, pid: int) -> None:
    # The thread of a fork's parent is not here, and its sockets are not ours to say goodbye on.
    if os.getpid() == pid and not loop.is_closed():
        loop.call_soon_threadsafe(loop.stop)
        thread.join(_PARTING_S)
