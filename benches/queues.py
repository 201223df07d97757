"""Compares work queues over JetStream's API: mq9 and nats-server, same machine, same run.

Owns the rows, what is measured in which order, and the ratios. Both servers are asked the same
questions; only their commands differ. What is made of the numbers is in queue_report.py.
"""

import argparse
import json
import os
import shlex
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import nats_runs
import peer_commands
import queue_report
from mailbox_rows import (
    DURABLE_GOAL_OF_MANY,
    DURABLE_GOALS,
    GOALS,
    MANY,
    TOO_MANY_FOR_JETSTREAM,
    WINDOWS,
    Sync,
)
from mailbox_servers import NAME, JetStream
from mailboxes import file_system
from nats_core import QUIET_CORES, machine, progress, rate
from nats_runs import ROOT, BenchError, Server
from server_questions import ask, ask_all, expect

OURS, PEER = "mq9", "nats-server"
SIZE = 128
SIZES = ("--size", str(SIZE))
LOAD_SECONDS = 120.0
_SETTLED_S = 10.0
SUBJECT = "bench.in"
CONSUMER = "workers"

Run: TypeAlias = dict[str, Any]


class Mq9(JetStream):
    """mq9, where it serves JetStream's API."""

    def run(self, folder: Path, sync: Sync) -> AbstractContextManager[Server]:
        return nats_runs.running([*self.command, "-js", "--sync", sync], folder)


@dataclass(frozen=True)
class Publish:
    """Messages published, each answered with a PubAck."""

    sync: Sync
    connections: int
    window: int

    @property
    def name(self) -> str:
        """What the row is called."""
        return f"PUBLISH {self.sync}, {self.connections} x {self.window}"

    @property
    def goal(self) -> float:
        """The least ratio: that of SEND to a stream of nats-server."""
        load = (self.connections, self.window)
        if self.sync == "interval":
            return GOALS.get(load, 1.0)
        if self.connections * self.window >= MANY:
            return DURABLE_GOAL_OF_MANY
        return DURABLE_GOALS.get(load, 1.0)

    @property
    def is_measured_at_peer(self) -> bool:
        """With a sync for each message nats-server answers none of so many for minutes."""
        waiting = self.connections * self.window
        return self.sync == "interval" or waiting < TOO_MANY_FOR_JETSTREAM


@dataclass(frozen=True)
class Work:
    """Stored messages taken in batches, each acknowledged."""

    batch: int
    workers: int
    consumers: int = 0
    """So many, each for one subject, one after the other; none: all share one."""

    @property
    def name(self) -> str:
        """What the row is called."""
        everyone = "1 worker" if self.workers == 1 else f"{self.workers} workers"
        what = "FILTER" if self.consumers else "FETCH+ACK"
        return f"{what}, batches of {self.batch}, {everyone}"

    @property
    def goal(self) -> float:
        """The least ratio."""
        return 3.0 if self.batch >= 100 and not self.consumers else 1.0


Row = Publish | Work
PUBLISHES = tuple(
    Publish(sync, connections, window)
    for sync in ("interval", "always")
    for connections, window in WINDOWS
)
# Larger batches come last: they take the most.
FETCHES = tuple(Work(batch, workers) for batch in (1, 10, 100) for workers in (1, 8))
FILTERS = (Work(1, 1, 20), Work(10, 1, 100), Work(100, 1, 200), Work(100, 8, 200))
FULL = {
    "rounds": 3,
    "seconds": 1.0,
    "warmup": 0.3,
    "attempts": 2,
    "wait": 3.0,
    "minutes": 11.0,
    "queued": 2_000_000,
    "pending": 1_000_000,
    "subjects": 1000,
}
QUICK = {
    "rounds": 1,
    "seconds": 0.1,
    "warmup": 0.05,
    "attempts": 1,
    "wait": 0.0,
    "minutes": 11.0,
    "queued": 100_000,
    "pending": 10_000,
    "subjects": 1000,
}


class Comparison:
    """All rows that were asked for, on both servers."""

    def __init__(self, chosen: Sequence[Row], options: argparse.Namespace) -> None:
        self.options = options
        self.rows = chosen
        commands = {
            OURS: shlex.split(options.mq9_cmd or "") or [sys.executable, "-m", "mq9", "serve"],
            PEER: shlex.split(options.nats_cmd or "") or [nats_runs.find_peer()],
        }
        self.servers = {OURS: Mq9(commands[OURS]), PEER: JetStream(commands[PEER])}
        self.load = options.load_cmd or nats_runs.build_load()
        self.data = (options.data or options.out).resolve()
        self.data.mkdir(parents=True, exist_ok=True)
        self.about = {
            "machine": machine() | {"file_system": file_system(self.data)},
            "versions": peer_commands.versions(commands),
            "measured": time.strftime("%Y-%m-%d"),
            "settings": {name: getattr(options, name) for name in FULL},
        }

    def run(self) -> Iterator[dict[str, Any]]:
        """All that was measured so far, after each round, as it goes to the result file."""
        runs: dict[str, dict[str, list[Run]]] = {row.name: {} for row in self.rows}
        started, longest = time.monotonic(), 0.0
        with tempfile.TemporaryDirectory(prefix="data-", dir=self.data) as name:
            for number in range(self.options.rounds):
                begun = time.monotonic()
                if begun - started + longest > 60 * self.options.minutes:
                    progress(f"no time for round {number + 1}")
                    break
                self.round(number, runs, Path(name))
                longest = max(longest, time.monotonic() - begun)
                yield self.about | {"rows": [summary(row, runs[row.name]) for row in self.rows]}

    def round(self, number: int, runs: dict[str, dict[str, list[Run]]], folder: Path) -> None:
        """Each row on both servers. Who comes first changes with every round."""
        order = sorted(self.servers, reverse=number % 2 == 1)
        for row in self.rows:
            if isinstance(row, Publish):
                there = [each for each in order if each == OURS or row.is_measured_at_peer]
                found = self.quietest(row, there, folder)
                note(number, row, found, runs)
        for group in (FETCHES, FILTERS):
            rows = [row for row in self.rows if isinstance(row, Work) and row in group]
            if rows:
                by_server = {server: self.take(rows, server, folder) for server in order}
                for row in rows:
                    found = {server: by_server[server][row.name] for server in order}
                    note(number, row, found, runs)

    def quietest(self, row: Publish, order: Sequence[str], folder: Path) -> dict[str, Run]:
        """The attempt beside which others did least; one on a quiet machine is the last."""
        found: list[dict[str, Run]] = []
        while len(found) < self.options.attempts:
            nats_runs.wait_until_quiet(QUIET_CORES, self.options.wait)
            found.append({server: self.publish(row, server, folder) for server in order})
            if busiest(found[-1]) <= QUIET_CORES:
                break
        return min(found, key=busiest)

    def publish(self, row: Publish, server: str, folder: Path) -> Run:
        """One row on a server that is started for it."""
        with self.started(server, row.sync, folder) as running:
            words = ["--connections", str(row.connections), "--window", str(row.window)]
            times = ["--seconds", str(self.options.seconds), "--warmup", str(self.options.warmup)]
            return self.carry(row, running, [*publishing(), *words, *times])

    def take(self, rows: Sequence[Work], server: str, folder: Path) -> dict[str, Run]:
        """All rows of workers on one server, which is filled once for them."""
        filtered = rows[0].consumers > 0
        stored = self.options.pending if filtered else self.options.queued
        with self.started(server, "interval", folder) as running:
            fill = [*publishing(self.options.subjects if filtered else 0), "--window", "1024"]
            fill += ["--count", str(stored), "--warmup", "0"]
            nats_runs.run_load(self.load, [*fill, *SIZES], running, self.options.cpu, LOAD_SECONDS)
            first, found = 0, {}
            for row in rows:
                nats_runs.wait_until_quiet(QUIET_CORES, self.options.wait)
                names = self.join(running.address, row, first)
                words = ["work", "--name", NAME, "--group", CONSUMER, "--stored", str(stored)]
                words += ["--workers", str(row.workers), "--batch", str(row.batch)]
                words += ["--seconds", str(self.options.seconds)]
                if filtered:
                    # Short enough without a warm-up, which would take what is to be measured.
                    words += ["--subjects", str(self.options.subjects), "--warmup", "0"]
                    words += ["--consumers", str(row.consumers), "--first-subject", str(first)]
                else:
                    # However fast it is, something is left for the rows behind it.
                    words += ["--first", str(first), "--most", str((stored - first) // 2)]
                    words += ["--warmup", str(self.options.warmup)]
                report = self.carry(row, running, words)
                first = first + row.consumers if filtered else report["next"]
                check(running.address, names, 0 if filtered else stored - first)
                found[row.name] = report
            return found

    def join(self, address: str, row: Work, first: int) -> list[str]:
        """Makes the consumers of a row; their names."""
        names = [CONSUMER]
        configs: list[dict[str, Any]] = [{}]
        if row.consumers:
            subjects = [f"{number:012x}" for number in range(first, first + row.consumers)]
            names = [f"{CONSUMER}-{subject}" for subject in subjects]
            configs = [{"filter_subject": f"{SUBJECT}.{subject}"} for subject in subjects]
        questions = []
        for name, config in zip(names, configs, strict=True):
            body = {"stream_name": NAME, "config": config | consumer(name)}
            questions.append((f"$JS.API.CONSUMER.DURABLE.CREATE.{NAME}.{name}", body))
        for name, reply in zip(names, ask_all(address, questions), strict=True):
            expect(reply, name=name)
        return names

    @contextmanager
    def started(self, server: str, sync: Sync, folder: Path) -> Iterator[Server]:
        """A server in a folder of its own, with an empty work queue."""
        stream = {
            "name": NAME,
            "subjects": [SUBJECT, f"{SUBJECT}.*"],
            "retention": "workqueue",
            "storage": "file",
            "num_replicas": 1,
        }
        with (
            tempfile.TemporaryDirectory(dir=folder) as name,
            self.servers[server].run(Path(name), sync) as running,
        ):
            expect(ask(running.address, f"$JS.API.STREAM.CREATE.{NAME}", stream), did_create=True)
            yield running

    def carry(self, row: Row, server: Server, words: Sequence[str]) -> Run:
        """What the load generator reports."""
        try:
            run = nats_runs.run_load(
                self.load, [*words, *SIZES], server, self.options.cpu, LOAD_SECONDS
            )
        except BenchError as error:
            raise BenchError(f"{row.name}: {error}") from None
        names = ("rate", "messages", "server_cpu_us", "server_cores", "generator_cores")
        kept = {name: run[name] for name in (*names, "others_cores")}
        return kept | run["latency_us"] | {"next": run.get("next", 0)}


def consumer(name: str) -> dict[str, Any]:
    """As document 003 has them."""
    policies = {"ack_policy": "explicit", "deliver_policy": "all"}
    return policies | {"durable_name": name, "max_ack_pending": 1000}


def publishing(subjects: int = 0) -> list[str]:
    """The scenario that publishes, without its numbers."""
    words = ["request", "--responders", "0", "--subject", SUBJECT, "--expect", '{"stream":"']
    return [*words, "--subjects", str(subjects)] if subjects else words


def check(address: str, names: Sequence[str], pending: int) -> None:
    """The consumers have given everything else, and all of that is acknowledged."""
    subjects = [(f"$JS.API.CONSUMER.INFO.{NAME}.{name}", {}) for name in names]
    until = time.monotonic() + _SETTLED_S
    # Acknowledgements without a reply subject may still be on their way, or wait in the server.
    while True:
        replies = ask_all(address, subjects)
        waiting = sum(reply["num_ack_pending"] for reply in replies)
        if waiting == 0:
            break
        if time.monotonic() > until:
            raise BenchError(f"{waiting} messages are not acknowledged at {address}")
        time.sleep(0.1)
    if pending and (left := sum(reply["num_pending"] for reply in replies)) != pending:
        raise BenchError(f"{left} messages are left, not {pending}")


def busiest(found: Mapping[str, Run]) -> float:
    """What others used beside the runs of a row, at most."""
    return max(float(run["others_cores"]) for run in found.values())


def note(
    number: int, row: Row, found: Mapping[str, Run], runs: dict[str, dict[str, list[Run]]]
) -> None:
    """Keeps the runs of a row, and says what they were."""
    for server, run in found.items():
        runs[row.name].setdefault(server, []).append(run)
    shown = ", ".join(f"{server} {rate(run['rate'])}" for server, run in sorted(found.items()))
    progress(f"round {number + 1}: {row.name}: {shown}")


def summary(row: Row, runs: Mapping[str, list[Run]]) -> dict[str, Any]:
    """A row as it goes into the result file: medians, and the ratio of each round."""
    medians = {
        server: {name: statistics.median(run[name] for run in found) for name in found[0]}
        for server, found in runs.items()
    }
    pairs = zip(runs.get(OURS, []), runs.get(PEER, []), strict=False)
    ratios = [ours["rate"] / theirs["rate"] for ours, theirs in pairs]
    return {
        "row": row.name,
        "goal": row.goal,
        "servers": medians,
        "ratio": statistics.median(ratios) if ratios else None,
        "ratios_by_round": ratios,
        "rounds": dict(runs),
    }


def parse(words: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Compare work queues of mq9 and nats-server.")
    for name, default in FULL.items():
        shown = f"{default:,}; quick: {QUICK[name]:,}"
        parser.add_argument(f"--{name}", type=type(default), help=shown)
    parser.add_argument("--quick", action="store_true", help="little of everything")
    parser.add_argument("--only", action="append", default=[], metavar="TEXT", help="some rows")
    parser.add_argument("--nats-cmd", help="nats-server's command, without options")
    parser.add_argument("--mq9-cmd", help="mq9's command, without options: '... -m mq9 serve'")
    parser.add_argument("--load-cmd", type=Path, help="a built mq9-load; otherwise cargo builds it")
    cpu = max(os.sched_getaffinity(0))
    parser.add_argument("--cpu", type=int, default=cpu, help="the core of the load generator")
    parser.add_argument(
        "--out", type=Path, help=".build/bench-queues; quick: .build/bench-queues-quick"
    )
    parser.add_argument("--data", type=Path, help="a folder on a disk (that of --out)")
    parser.add_argument("--report", action="store_true", help="write the page into --docs")
    parser.add_argument("--stored", action="store_true", help="measure nothing")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", help="%(default)s")
    options = parser.parse_args(words)
    quick = "-quick" if options.quick else ""
    options.out = options.out or ROOT / f".build/bench-queues{quick}"
    for name, default in (QUICK if options.quick else FULL).items():
        if getattr(options, name) is None:
            setattr(options, name, default)
    return options


def main(words: Sequence[str] | None = None) -> int:
    """Measures, keeps the results, prints the table and writes the page if that was asked for."""
    options = parse(words)
    file = options.out / "result.json"
    if not options.stored:
        every: tuple[Row, ...] = (*PUBLISHES, *FETCHES, *FILTERS)
        chosen = [
            row for row in every if not options.only or any(t in row.name for t in options.only)
        ]
        before = json.loads(file.read_text("utf-8")) if options.only and file.exists() else None
        for document in Comparison(chosen, options).run():
            if before is not None:
                new = {row["row"]: row for row in document["rows"]}
                document["rows"] = [new.pop(row["row"], row) for row in before["rows"]]
                document["rows"] += new.values()
            file.write_text(json.dumps(document, indent=1), "utf-8")
    document = json.loads(file.read_text("utf-8"))
    sys.stdout.write(queue_report.table(document) + "\n")
    if options.report:
        for path in queue_report.write(document, options.docs):
            progress(f"written: {path}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BenchError as error:
        progress(f"queues: {error}")
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
