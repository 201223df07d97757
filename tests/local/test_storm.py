"""Eight senders, pollers and expire at once, all of them killed at random.

No torn line, no message lost, none twice, and the order of each sender kept.
"""

import json
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.local.conftest import Folder
from tests.local.stops import started

from mq9.local import Queue

SENDERS = 8
EACH = int(os.environ.get("MQ9_TEST_LOCAL_EACH", "2000"))
POLLERS = 2
DEADLINE_S = 300


class Storm:
    """Processes that are begun again when they were killed, until their work is done."""

    def __init__(self, root: Path, notes: Path) -> None:
        self.root = root
        self.notes = notes
        self.kills: dict[str, int] = {}
        self._works: dict[str, Callable[[], None]] = {}
        self._running: dict[int, str] = {}

    def run(self, name: str, work: Callable[[], None]) -> None:
        self.kills[name] = 0
        self._works[name] = work
        self._running[started(work)] = name

    def kill(self, name: str) -> None:
        [pid] = [pid for pid, running in self._running.items() if running == name]
        os.kill(pid, signal.SIGKILL)

    def running(self, prefix: str) -> list[str]:
        return [name for name in self._running.values() if name.startswith(prefix)]

    def tend(self) -> None:
        """Begins again what was killed; forgets what has ended."""
        for pid, name in list(self._running.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if not ended:
                continue
            del self._running[pid]
            code = os.waitstatus_to_exitcode(status)
            if code == -signal.SIGKILL:
                self.kills[name] += 1
                self._running[started(self._works[name])] = name
            else:
                assert code == 0, f"{name} ended with {code}"

    def end(self) -> None:
        for pid in self._running:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def note(file: int, text: str) -> None:
    os.write(file, f"{text}\n".encode())


def opened(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def send(root: Path, notes: Path, name: str) -> None:
    """Sends numbers and notes each when `send` has returned; one in doubt is not sent again."""
    begun, done = opened(notes / f"{name}-begun"), opened(notes / name)
    queue = Queue(root)
    number = len(lines_of(notes / f"{name}-begun"))
    for _ in range(EACH - len(lines_of(notes / name))):
        note(begun, f"{number}")
        # Every tenth is long, and every fifth leaves something for `expire` to do.
        body = f"{number}" if number % 10 else f"{number} {'long' * 1000}"
        if number % 5 == 0:
            queue.send("status", body, to="nobody", ttl_s=0, sender=name)
        queue.send("ask", body, sender=name)
        note(done, f"{number}")
        number += 1


def poll(root: Path, notes: Path, name: str) -> None:
    queue, file = Queue(root), opened(notes / name)
    while True:
        ended = (notes / "stop").exists()
        found = queue.wait(name, 0.2)
        text = "".join(f"{m['from']} {m['body'].split()[0]}\n" for m in found)
        assert not [m for m in found if "_body_error" in m]
        os.write(file, text.encode())
        if ended and not found:
            return


def expire(root: Path, notes: Path) -> None:
    queue = Queue(root)
    while not (notes / "stop").exists():
        queue.expire()
        time.sleep(0.05)


def check(
    acknowledged: dict[str, list[int]],
    everything: list[str],
    others: dict[str, list[str]],
    gaps: int,
) -> None:
    """What a poller that was never killed got, and what those got that were."""
    by_sender: dict[str, list[int]] = {}
    for text in everything:
        name, number = text.split()
        by_sender.setdefault(name, []).append(int(number))
    for name, numbers in acknowledged.items():
        got = by_sender[name]
        assert got == sorted(set(got)), f"{name}: twice, or out of order"
        assert set(numbers) <= set(got), f"{name}: lost"
    place = {text: number for number, text in enumerate(everything)}
    for name, texts in others.items():
        places = [place[text] for text in texts]
        assert places == sorted(set(places)), f"{name}: twice, or out of order"
        holes = sum(b - a > 1 for a, b in zip([-1, *places], [*places, len(place)], strict=True))
        assert holes <= gaps, f"{name}: {holes} gaps"


def lines_of(path: Path) -> list[str]:
    return path.read_text().splitlines()


def fragments(path: Path) -> list[bytes]:
    """Lines that are not whole."""
    found = []
    for line in path.read_bytes().split(b"\n"):
        try:
            json.loads(line)
        except ValueError:
            found.append(line)
    assert found.pop() == b"", "the last line is torn"
    return found


def test_a_storm(root: Path, tmp_path: Path, folder: Folder) -> None:
    choose = random.Random(os.environ.get("MQ9_TEST_SEED", "storm"))
    notes = tmp_path / "notes"
    notes.mkdir()
    storm = Storm(root, notes)
    for number in range(SENDERS):
        storm.run(f"s{number}", lambda name=f"s{number}": send(root, notes, name))  # type: ignore[misc]
    for number in range(POLLERS):
        storm.run(f"p{number}", lambda name=f"p{number}": poll(root, notes, name))  # type: ignore[misc]
    storm.run("witness", lambda: poll(root, notes, "witness"))
    storm.run("expire", lambda: expire(root, notes))
    end = time.monotonic() + DEADLINE_S
    try:
        while storm.running("s"):
            assert time.monotonic() < end, storm.running("")
            time.sleep(choose.uniform(0.01, 0.08))
            storm.kill(choose.choice([n for n in storm.running("") if n != "witness"]))
            storm.tend()
        (notes / "stop").touch()
        while storm.running(""):
            assert time.monotonic() < end, storm.running("")
            time.sleep(0.02)
            storm.tend()
    finally:
        storm.end()
    senders = [f"s{number}" for number in range(SENDERS)]
    acknowledged = {name: [int(n) for n in lines_of(notes / name)] for name in senders}
    assert {len(numbers) for numbers in acknowledged.values()} == {EACH}
    killed = {kind: sum(n for name, n in storm.kills.items() if name[0] == kind) for kind in "spe"}
    assert all(killed.values()), f"nobody was killed: {storm.kills}"
    check(
        acknowledged,
        lines_of(notes / "witness"),
        {f"p{n}": lines_of(notes / f"p{n}") for n in range(POLLERS)},
        max(storm.kills.values()),
    )
    # A write that a kill has cut is no message, and the next one does not become part of it.
    torn = fragments(folder.messages)
    assert len(torn) <= killed["s"]
    assert len(fragments(root / "audit.jsonl")) <= sum(killed.values())
    queue = Queue(root)
    queue.expire()
    status = queue.status()["default"]
    assert (status["expired"], status["unparseable"]) == (0, len(torn))
    living: list[dict[str, Any]] = queue.tail(10**6)
    assert not [message for message in living if "_body_error" in message]
    aside = {f"{m['msg_id']}.txt" for m in living if m.get("_body_source")}
    assert folder.bodies() == aside


SENT = {"s": [0, 1, 2, 4]}
ALL = ["s 0", "s 1", "s 2", "s 3", "s 4"]


@pytest.mark.parametrize(
    ("acknowledged", "everything", "other", "gaps"),
    [
        ({"s": [5]}, ALL, ALL, 0),
        (SENT, ["s 0", "s 1", "s 2", "s 2", "s 4"], ALL, 0),
        (SENT, ["s 0", "s 2", "s 1", "s 4"], ALL, 0),
        (SENT, ALL, ["s 0", "s 0"], 9),
        (SENT, ALL, ["s 1", "s 0"], 9),
        (SENT, ALL, ["s 0", "s 2", "s 4"], 1),
    ],
)
def test_the_check_finds_what_is_wrong(
    acknowledged: dict[str, list[int]], everything: list[str], other: list[str], gaps: int
) -> None:
    check(SENT, ALL, {"p": ["s 0", "s 3", "s 4"]}, 1)
    with pytest.raises((AssertionError, KeyError)):
        check(acknowledged, everything, {"p": other}, gaps)
