"""Imports modules that stay until the process ends."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def imports_that_stay() -> Iterator[None]:
    """Nothing of it is garbage: it is not looked through, neither now nor while the broker runs."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
