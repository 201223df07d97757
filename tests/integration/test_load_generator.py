"""The load generator gives no rate for a load that was not carried: it says what is missing.

The server is broken on purpose, in ways no real one can be made to be.
"""

import itertools
import json
import re
import socketserver
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
Deliver = Callable[[int], int]


class BrokenServer(socketserver.ThreadingTCPServer):
    """Delivers each message as often as `deliver` says for its number."""

    daemon_threads = True

    def __init__(self, deliver: Deliver) -> None:
        self.deliver = deliver
        self.subscribers: list[tuple[bytes, socketserver.StreamRequestHandler]] = []
        self.published = 0
        super().__init__(("127.0.0.1", 0), Handler)


class Handler(socketserver.StreamRequestHandler):
    """One connection."""

    server: BrokenServer

    def handle(self) -> None:
        """Answers until the client leaves."""
        self.wfile.write(b'INFO {"max_payload":1048576}\r\n')
        for line in self.rfile:
            command, *words = line.split()
            if command == b"PING":
                self.wfile.write(b"PONG\r\n")
            elif command == b"SUB":
                self.server.subscribers.append((words[0].removesuffix(b"*"), self))
            elif command == b"PUB":
                payload = self.rfile.read(int(words[-1]) + 2)
                times = self.server.deliver(self.server.published)
                self.server.published += 1
                for subject, subscriber in self.server.subscribers:
                    if words[0].startswith(subject):
                        message = b"MSG " + b" ".join([words[0], b"1", *words[1:]]) + b"\r\n"
                        subscriber.wfile.write((message + payload) * times)


@contextmanager
def broken_server(deliver: Deliver) -> Iterator[str]:
    with BrokenServer(deliver) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def run_load(address: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["cargo", "run", "--quiet", "--release", "--locked", "-p", "mq9-load", "--"]
    return subprocess.run(
        [
            *command,
            *arguments,
            "--server",
            address,
            "--count",
            "20",
            "--warmup",
            "0",
            "--patience",
            "1",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.parametrize("load", ["publish", "fanout --subscribers 3 --window 8", "request"])
def test_load_that_is_carried_has_a_rate(load: str) -> None:
    with broken_server(lambda _: 1) as address:
        run = run_load(address, *load.split())
    assert run.returncode == 0, run.stderr
    expected = 60 if "fanout" in load else 20
    assert re.search(r'"messages":(\d+)', run.stdout)[1] == str(expected)  # type: ignore[index]


@pytest.mark.parametrize(
    ("load", "deliver", "message"),
    [
        ("fanout", lambda number: number != 5, "delivered message 6 instead of 5"),
        ("fanout", lambda number: 2 if number == 5 else 1, "delivered message 5 instead of 6"),
        ("fanout", lambda number: number != 19, "has 19 of 20 messages"),
        ("request", lambda number: number != 7, "replies to 3 of 4 requests"),
        ("request", lambda number: 2 if number == 7 else 1, "a reply that nobody waits for"),
    ],
    ids=["lost", "twice", "last lost", "reply lost", "reply twice"],
)
def test_lost_or_repeated_message_is_an_error(load: str, deliver: Deliver, message: str) -> None:
    with broken_server(deliver) as address:
        run = run_load(address, load)
    assert run.returncode == 1
    assert message in run.stderr
    assert run.stdout == ""


def test_a_server_that_stalls_is_late_for_all_that_was_due_meanwhile() -> None:
    stall_s, rate = 0.5, 100

    def deliver(number: int) -> int:
        if number == 0:
            time.sleep(stall_s)
        return 1

    # All of it is due while the server stalls, so not even the median can look good.
    with broken_server(deliver) as address:
        run = run_load(address, "request", "--rate", str(rate))
    assert run.returncode == 0, run.stderr
    report = json.loads(run.stdout)
    assert report["messages"] == 20
    assert report["latency_us"]["p50"] > (stall_s - 11 / rate) * 1e6


def test_requests_at_a_rate_do_not_wait_for_answers() -> None:
    calls, second = itertools.count(), threading.Event()

    def deliver(_: int) -> int:
        # The first request is answered when another one is here, from the other connection.
        if next(calls) == 0:
            return int(second.wait(10))
        second.set()
        return 1

    with broken_server(deliver) as address:
        run = run_load(address, "request", "--rate", "1000", "--connections", "2")
    assert run.returncode == 0, run.stderr
    assert second.is_set()
