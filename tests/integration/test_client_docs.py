"""The examples of docs/client.md and the worker of the README do what the pages say."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import TextIO

import pytest
from tests.pages import Session, blocks
from tests.peers import Serve, start

import mq9
from mq9 import errors

DEADLINE_S = 30


async def test_examples_of_the_client(serve: Serve, capsys: pytest.CaptureFixture[str]) -> None:
    server = serve()
    session = Session({})
    for block in blocks("docs/client.md", "python"):
        await session.run(block.replace("nats://127.0.0.1:4222", server.url))
    printed = capsys.readouterr().out
    assert printed.splitlines()[-1] == "mailbox no.such.mailbox does not exist"
    assert set(printed.splitlines()) >= {"c", "hello", "b"}


def test_every_exception_is_on_the_page() -> None:
    page = Path(__file__).parents[2].joinpath("docs/client.md").read_text("utf-8")
    table = page[page.index("| exception |") :]
    of_the_store_alone = {"Mq9Error", "StoreError", "StoreLocked", "NewerFormat", "ExportError"}
    named = set(re.findall(r"`(\w+)`", table))
    assert set(errors.__all__) - of_the_store_alone <= named


class Worker:
    """The worker of the README as a process."""

    def __init__(self, code: str, url: str, errors_to: TextIO) -> None:
        self.errors = errors_to
        self.process = subprocess.Popen(
            [sys.executable, "-u", "-c", code],
            env={**os.environ, "MQ9_URL": url},
            stdout=subprocess.PIPE,
            stderr=errors_to,
            text=True,
        )
        self._lines: Queue[str] = Queue()
        self._reader = Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                self._lines.put(line.rstrip("\n"))

    def next_line(self) -> str:
        try:
            return self._lines.get(timeout=DEADLINE_S)
        except Empty:
            raise TimeoutError("the worker prints nothing") from None

    def rest(self) -> list[str]:
        lines = []
        while not self._lines.empty():
            lines.append(self._lines.get())
        return lines

    def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        self.process.wait(DEADLINE_S)
        self._reader.join()
        return self.process.returncode


@contextmanager
def working(url: str) -> Iterator[Worker]:
    [code] = [block for block in blocks("README.md", "python") if "consume" in block]
    assert len([line for line in code.splitlines() if line]) <= 10
    with tempfile.TemporaryFile("w+", encoding="utf-8") as errors_to:
        worker = Worker(code, url, errors_to)
        try:
            yield worker
        finally:
            worker.end(signal.SIGKILL)


async def test_the_worker_of_the_readme_goes_on_where_it_was(serve: Serve) -> None:
    """It is killed with messages in hand, then its broker: nothing is lost, nothing starts over."""
    server = serve()
    tasks = [f"task {number}" for number in range(400)]
    seen: list[str] = []
    async with mq9.Client(server.url) as client:
        await client.create_mailbox("tasks")
        await client.send_many("tasks", tasks[:200])
        with working(server.url) as worker:
            seen += [worker.next_line() for _ in range(50)]
            worker.end(signal.SIGKILL)
            seen += worker.rest()
        first = len(seen)
        assert seen == tasks[:first]
        await client.send_many("tasks", tasks[200:])
    with working(server.url) as worker:
        began = time.monotonic()
        again = worker.next_line()
        # At once, not when the lease of the dead worker is over; and only what was in hand.
        assert time.monotonic() - began < 20
        assert tasks.index(again) >= first - 2
        seen.append(again)
        server.process.kill()
        server.process.wait()
        broker = start(server.log_file.parent, port=server.port)
        try:
            while set(seen) != set(tasks):
                seen.append(worker.next_line())
            assert worker.end(signal.SIGINT) == 0
            worker.errors.seek(0)
            # It says that the broker was away, and no more.
            assert "Traceback" not in worker.errors.read()
        finally:
            broker.stop()
    assert len(seen) <= len(tasks) + 10
