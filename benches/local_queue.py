"""Mail in plain files beside SQLite in WAL mode and persist-queue, with one process and with eight.

Owns what is measured and how it is told. Rounds alternate between the queues; medians are told.
Nothing is synced by any of them, as each does by default or is told to.
"""

import argparse
import importlib.util
import multiprocessing
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from mq9.local import Queue

BODY = "the quick brown fox jumps over the lazy dog " * 4
PROCESSES = 8
LENGTHS = (1_000, 100_000, 1_000_000)
fork = multiprocessing.get_context("fork")


class Peer(Protocol):
    """A queue that agents send through; `take` gives an agent all that is new."""

    name: str
    share: float
    """How much of the work it gets, so that a slow one ends as well."""

    def __init__(self, folder: Path) -> None: ...
    def send(self, body: str, to: str) -> None: ...
    def take(self, agent: str) -> int: ...


class Files:
    """Ours."""

    name = "mq9.local"
    share = 1.0

    def __init__(self, folder: Path) -> None:
        self._queue = Queue(folder)

    def send(self, body: str, to: str) -> None:
        self._queue.send("ask", body, to=to)

    def take(self, agent: str) -> int:
        return len(self._queue.poll(agent))


class Sqlite:
    """What one would write with SQLite: a table of messages, a table of positions."""

    name = "SQLite (WAL)"
    share = 1.0

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self._db = sqlite3.connect(folder / "queue.db", timeout=60, isolation_level=None)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = NORMAL")
        self._db.execute(
            "CREATE TABLE IF NOT EXISTS messages "
            "(id INTEGER PRIMARY KEY, recipient TEXT, body TEXT)"
        )
        self._db.execute("CREATE TABLE IF NOT EXISTS cursors (agent TEXT PRIMARY KEY, id INTEGER)")

    def send(self, body: str, to: str) -> None:
        self._db.execute("INSERT INTO messages (recipient, body) VALUES (?, ?)", (to, body))

    def take(self, agent: str) -> int:
        db = self._db
        db.execute("BEGIN IMMEDIATE")
        row = db.execute("SELECT id FROM cursors WHERE agent = ?", (agent,)).fetchone()
        found = db.execute(
            "SELECT id, recipient, body FROM messages WHERE id > ? ORDER BY id",
            (row[0] if row else 0,),
        ).fetchall()
        if found:
            db.execute("INSERT OR REPLACE INTO cursors VALUES (?, ?)", (agent, found[-1][0]))
        db.execute("COMMIT")
        return sum(recipient in {None, agent} for _, recipient, _ in found)


class PersistQueue:
    """persist-queue's queue over SQLite: one queue for each agent, as it has no recipients."""

    name = "persist-queue"
    share = 0.1

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._queues: dict[str, Any] = {}

    def _queue(self, agent: str) -> Any:  # noqa: ANN401
        import persistqueue

        if agent not in self._queues:
            self._queues[agent] = persistqueue.SQLiteQueue(
                str(self._folder), name=agent, auto_commit=True, timeout=60
            )
        return self._queues[agent]

    def send(self, body: str, to: str) -> None:
        self._queue(to).put(body)

    def take(self, agent: str) -> int:
        import persistqueue

        taken = 0
        while True:
            try:
                self._queue(agent).get(block=False)
            except persistqueue.Empty:
                return taken
            taken += 1


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def sending(peer: Peer, agent: str, count: int) -> None:
    for _ in range(count):
        peer.send(BODY, agent)


def answering(peer: Peer, agent: str, count: int) -> None:
    for _ in range(count):
        peer.send(BODY, agent)
        peer.take(agent)


def alone(kind: type[Peer], folder: Path, count: int) -> dict[str, float]:
    """Messages a second of one process: sent, sent and taken in turn, taken together."""
    peer = kind(folder)
    peer.send(BODY, "a")
    sent = timed(lambda: sending(peer, "a", count))
    taken = timed(lambda: peer.take("a"))
    in_turn = timed(lambda: answering(peer, "a", count // 4))
    return {
        "send, 1 process": count / sent,
        "take a backlog, 1 process": count / taken,
        "send and take in turn, 1 process": count // 4 / in_turn,
    }


def together(kind: type[Peer], folder: Path, count: int) -> dict[str, float]:
    """Messages a second of eight processes: sent, and sent and taken in turn."""
    kind(folder).send(BODY, "a")
    rates = {}
    for row, work, each in (
        (f"send, {PROCESSES} processes", sending, count // PROCESSES),
        (f"send and take in turn, {PROCESSES} processes", answering, count // PROCESSES // 4),
    ):
        barrier = fork.Barrier(PROCESSES + 1)

        def run(number: int, work: Any = work, each: int = each, barrier: Any = barrier) -> None:  # noqa: ANN401
            peer = kind(folder)
            peer.take(f"agent{number}")
            barrier.wait()
            work(peer, f"agent{number}", each)

        processes = [fork.Process(target=run, args=(n,)) for n in range(PROCESSES)]
        for process in processes:
            process.start()
        barrier.wait()
        elapsed = timed(lambda processes=processes: [process.join() for process in processes])  # type: ignore[misc]
        if any(process.exitcode for process in processes):
            sys.exit(f"{kind.name}: a process failed")
        rates[row] = each * PROCESSES / elapsed
    return rates


def growth(folder: Path, lengths: Sequence[int]) -> None:
    """What a send and a poll cost when so many lines have been read before."""
    print("\n| lines read before | send, us | poll of one message, us |\n| --- | --- | --- |")
    queues = {}
    for lines in lengths:
        queue = Queue(folder / f"{lines}")
        queue.send("ask", BODY, to="b")
        file = queue.root / "sessions/default/messages.jsonl"
        file.write_bytes(file.read_bytes() * lines)
        queue.poll("a")
        queues[lines] = queue
    times: dict[int, tuple[list[float], list[float]]] = {lines: ([], []) for lines in lengths}
    for _ in range(300):
        for lines, queue in queues.items():
            times[lines][0].append(timed(lambda queue=queue: queue.send("ask", BODY, to="a")))  # type: ignore[misc]
            times[lines][1].append(timed(lambda queue=queue: queue.poll("a")))  # type: ignore[misc]
    for lines, (sent, polled) in times.items():
        send_us, poll_us = (statistics.median(all_) * 1e6 for all_ in (sent, polled))
        print(f"| {lines:,} | {send_us:.0f} | {poll_us:.0f} |")


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=8000, help="messages in a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--lengths", type=int, nargs="*", default=LENGTHS, help="lines read before")
    parser.add_argument("--folder", help="where the files go (default: the temporary folder)")
    arguments = parser.parse_args(argv)
    kinds: list[type[Peer]] = [Files, Sqlite]
    if importlib.util.find_spec("persistqueue"):
        kinds.append(PersistQueue)
    else:
        print("persist-queue is not installed: `pip install persist-queue` adds its column")
    rates: dict[tuple[str, str], list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="mq9-bench-local-", dir=arguments.folder) as folder:
        for number in range(arguments.rounds):
            for kind in kinds:
                count = max(int(arguments.count * kind.share), PROCESSES * 8)
                for measure in (alone, together):
                    place = Path(folder) / f"{number}-{kind.__name__}-{measure.__name__}"
                    for row, rate in measure(kind, place, count).items():
                        rates.setdefault((row, kind.name), []).append(rate)
        print("| messages a second | " + " | ".join(kind.name for kind in kinds) + " |")
        print("| --- |" + " --- |" * len(kinds))
        for row in dict.fromkeys(row for row, _ in rates):
            cells = [f"{statistics.median(rates[row, kind.name]):,.0f}" for kind in kinds]
            print(f"| {row} | " + " | ".join(cells) + " |")
        growth(Path(folder), arguments.lengths)


if __name__ == "__main__":
    main()
