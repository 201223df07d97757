"""Vectors of cards, computed in a process of the lowest rank: thousands of them may be waiting, and
neither a search nor a message waits for them.

Started when there is something to read, ended when there was nothing for a while.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, cast

import numpy as np

from mq9.registry import frames
from mq9.registry.embedder import load_embedder

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mq9.registry.embedder import Name

_NICE = 10
_READ_BYTES = 1 << 20


class Reader:
    """The worker's end of it: one batch at a time."""

    def __init__(self, embedder: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "mq9.registry.reader", embedder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._decoder = frames.Decoder()
        self.asked: dict[bytes, str] = {}
        """What it is reading."""
        self.asked_s = self.idle_since_s = monotonic()
        self.is_ready = False
        """Whether its model is loaded."""

    @property
    def is_idle(self) -> bool:
        """Whether it has nothing to do."""
        return not self.asked

    def fileno(self) -> int:
        """Readable when there may be an answer."""
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    def ask(self, texts: dict[bytes, str]) -> None:
        """Give it texts, each under its key."""
        assert self._process.stdin is not None
        self.asked = texts
        self.asked_s = monotonic()
        body = "\0".join(text.replace("\0", " ") for text in texts.values())
        # A batch is small; the process takes it in before it computes.
        self._process.stdin.write(frames.encode({}, body.encode("utf-8", "replace")))
        self._process.stdin.flush()

    def answers(self) -> list[tuple[bytes, NDArray[np.float32]]]:
        """What came, if it is whole; EOFError if the process is gone."""
        data = os.read(self.fileno(), _READ_BYTES)
        if not data:
            raise EOFError
        found: list[tuple[bytes, NDArray[np.float32]]] = []
        for frame in self._decoder.feed(data):
            if not self.is_ready:
                self.is_ready = True
                # It may have taken as long as it takes.
                self.asked_s = monotonic()
                continue
            keys = list(self.asked)
            rows = np.frombuffer(frame.body, np.float32).reshape(len(keys), -1)
            self.asked = {}
            self.idle_since_s = monotonic()
            found += zip(keys, rows, strict=True)
        return found

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


def main() -> int:
    """Run a reader: `python -m mq9.registry.reader <embedder>`."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    os.nice(_NICE)
    prefer_to_be_killed()
    sink = os.dup(1)
    os.dup2(2, 1)
    embedder = load_embedder(cast("Name", sys.argv[1]))
    _write(sink, frames.encode({}))
    decoder = frames.Decoder()
    while data := os.read(0, _READ_BYTES):
        for frame in decoder.feed(data):
            vectors = embedder.embed(frame.body.decode().split("\0"))
            _write(sink, frames.encode({}, vectors.astype(np.float32).tobytes()))
    return 0


def prefer_to_be_killed() -> None:
    """Where memory runs out, this process goes before the broker; not every system knows how."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("500")


def _write(sink: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(sink, rest) :]


if __name__ == "__main__":
    sys.exit(main())
