"""Stops a process at any of its system calls, or has that call fail.

Replaces the functions of `os` (and `flock`) that the queue uses by ones that count.
"""

import errno
import fcntl
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CALLS = (
    *("open", "close", "read", "write", "lseek", "fstat", "stat", "listdir", "mkdir", "chmod"),
    *("chown", "replace", "rename", "link", "unlink", "ftruncate", "truncate", "fsync"),
)
STOPPED = 77
FINISHED = 0

How = str
"""`before` or `after` the call, `half` of a write done, or the name of an error."""


@contextmanager
def counting(at: int | None = None, how: How = "before") -> Iterator[list[str]]:
    """Counts calls; at number `at` it stops the process, or has the call fail."""
    made: list[str] = []
    originals: dict[tuple[Any, str], Any] = {(os, name): getattr(os, name) for name in CALLS}
    originals[fcntl, "flock"] = fcntl.flock

    def replaced(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401
            number = len(made)
            made.append(name)
            if number != at:
                return call(*arguments, **options)
            if how in {"before", "after", "half"}:
                try:
                    if how == "after":
                        call(*arguments, **options)
                    elif how == "half" and name == "write":
                        call(arguments[0], bytes(arguments[1])[: len(arguments[1]) // 2])
                finally:
                    os._exit(STOPPED)
            if name == "close":
                # It is closed even when it fails.
                return call(*arguments, **options)
            raise OSError(getattr(errno, how), os.strerror(getattr(errno, how)))

        return counted

    for (module, name), call in originals.items():
        setattr(module, name, replaced(name, call))
    try:
        yield made
    finally:
        for (module, name), call in originals.items():
            setattr(module, name, call)


def fork() -> int:
    """`os.fork`: nothing of the threads there may be is needed in the child."""
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def started(work: Callable[[], object]) -> int:
    """Does something in a process of its own; its id."""
    pid = fork()
    if pid:
        return pid
    code = 1
    try:
        work()
        code = FINISHED
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def forked(work: Callable[[], object]) -> int:
    """Does something in a process of its own; how that ended (negative: the signal)."""
    _, status = os.waitpid(started(work), 0)
    return os.waitstatus_to_exitcode(status)


def stopped(work: Callable[[Path], object], root: Path, at: int, how: How) -> bool:
    """Runs in a process that is stopped at a call; whether that call came before the end."""

    def until_there() -> None:
        with counting(at, how):
            work(root)

    code = forked(until_there)
    assert code in {STOPPED, FINISHED}, code
    return code == STOPPED
