"""Compares SEND through three nodes with a JetStream stream of three copies on the same servers.

Both have the same three nats-servers, which sync what they confirm. One run, in turns. Owns what is
measured in which order; what is made of the numbers is in cluster_report.py.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cluster_report
import nats_runs
from cluster_failover import gaps
from mailbox_servers import NAME, JetStream, Mq9
from mailboxes import file_system
from nats_core import machine, progress
from nats_runs import ROOT, BenchError, Server
from server_questions import ask, expect

from mq9.cluster.local import LocalCluster, Process

SIZE = 128
OUTSTANDING = (1, 200, 1_000, 4_000)
LEADER, FOLLOWER, STREAM = "mq9, leader", "mq9, follower", "JetStream R3"
WAYS = (LEADER, FOLLOWER, STREAM)
FULL = {"rounds": 5, "seconds": 2.0, "warmup": 0.7, "kills": 10}
QUICK = {"rounds": 1, "seconds": 0.3, "warmup": 0.1, "kills": 1}
_START_S = 30.0


class Comparison:
    """Three servers and three nodes, and what is asked of them."""

    def __init__(self, cluster: LocalCluster, load: Path, options: argparse.Namespace) -> None:
        self.cluster = cluster
        self.load = load
        self.options = options

    def prepare(self) -> None:
        """A mailbox, and a stream with as many copies as the log has."""
        leader = self.cluster.wait_for_leader()
        expect(ask(address(leader), "$mq9.AI.MAILBOX.CREATE", {"name": NAME}), error="")
        stream = {
            "name": NAME,
            "subjects": [JetStream.SUBJECT],
            "storage": "file",
            "num_replicas": 3,
        }
        where = address(self.cluster.servers[0])
        expect(ask(where, f"$JS.API.STREAM.CREATE.{NAME}", stream), did_create=True)

    def once(self, way: str, outstanding: int) -> dict[str, float]:
        """What the load generator reports, and what strangers used meanwhile."""
        process = self.asked(way)
        contender = JetStream([]) if way == STREAM else Mq9([])
        words = [*contender.send_arguments(), "--size", str(SIZE), "--window", str(outstanding)]
        words += ["--seconds", str(self.options.seconds), "--warmup", str(self.options.warmup)]
        everybody = [*self.cluster.servers, *self.cluster.nodes]
        started, before = time.monotonic(), nats_runs.machine_busy_s() - used_s(everybody)
        server = Server(process.pid, address(process))
        run = nats_runs.run_load(self.load, words, server, self.options.cpu)
        others = nats_runs.machine_busy_s() - used_s(everybody) - before
        return {
            "rate": float(run["rate"]),
            "p50_us": float(run["latency_us"]["p50"]),
            "p99_us": float(run["latency_us"]["p99"]),
            "others_cores": max(others, 0.0) / (time.monotonic() - started),
        }

    def asked(self, way: str) -> Process:
        """Who is put under load: of the stream, the server that leads it."""
        leader = self.cluster.wait_for_leader()
        if way == LEADER:
            return leader
        if way == FOLLOWER:
            return next(node for node in self.cluster.nodes if node is not leader)
        return self.stream_leader(NAME)

    def stream_leader(self, name: str) -> Process:
        """The nats-server that leads a stream."""
        until = time.monotonic() + _START_S
        while time.monotonic() < until:
            found = ask(address(self.cluster.servers[0]), f"$JS.API.STREAM.INFO.{name}", {})
            if named := found.get("cluster", {}).get("leader"):
                return self.cluster.servers[int(named.removeprefix("s")) - 1]
            time.sleep(0.1)
        raise BenchError(f"nobody leads the stream {name}")


def used_s(processes: Sequence[Process]) -> float:
    """Processor time of these, and of load generators that have ended."""
    return sum(nats_runs.process_s(each.pid) for each in processes) + nats_runs.children_s()


def address(process: Process) -> str:
    """Where it listens."""
    return f"127.0.0.1:{process.port}"


@contextmanager
def running(folder: Path) -> Iterator[LocalCluster]:
    """A cluster in `folder`, ended in the end."""
    cluster = LocalCluster(folder)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """All rows and the failovers, as they go into the result file."""
    load = options.load_cmd or nats_runs.build_load()
    data = (options.data or options.out).resolve()
    data.mkdir(parents=True, exist_ok=True)
    runs: dict[int, dict[str, list[dict[str, float]]]] = {
        outstanding: {way: [] for way in WAYS} for outstanding in OUTSTANDING
    }
    with tempfile.TemporaryDirectory(prefix="data-", dir=data) as name:
        with running(Path(name) / "rates") as cluster:
            comparison = Comparison(cluster, load, options)
            comparison.prepare()
            for number in range(options.rounds):
                for outstanding in OUTSTANDING:
                    progress(f"round {number + 1}: {outstanding} outstanding:", end="")
                    # Who is first changes with every round.
                    for way in WAYS[number % 3 :] + WAYS[: number % 3]:
                        found = comparison.once(way, outstanding)
                        runs[outstanding][way].append(found)
                        progress(f" {way} {found['rate']:,.0f}", end="")
                    progress("")
        with running(Path(name) / "failover") as cluster:
            found_gaps = gaps(cluster, options.kills)
            progress(f"failover: {[round(gap, 2) for gap in found_gaps]}")
    return {
        "machine": machine() | {"file_system": file_system(data)},
        "measured": time.strftime("%Y-%m-%d"),
        "settings": {name: getattr(options, name) for name in FULL},
        "rows": [summary(outstanding, found) for outstanding, found in runs.items()],
        "failover_s": found_gaps,
    }


def summary(outstanding: int, runs: Mapping[str, Sequence[Mapping[str, float]]]) -> dict[str, Any]:
    """A row: medians, and the ratio to the stream in each round."""
    medians = {
        way: {name: statistics.median(run[name] for run in found) for name in found[0]}
        for way, found in runs.items()
    }
    pairs = zip(runs[LEADER], runs[STREAM], strict=True)
    ratios = [ours["rate"] / theirs["rate"] for ours, theirs in pairs]
    return {
        "outstanding": outstanding,
        "ways": medians,
        "ratio": statistics.median(ratios),
        "ratios_by_round": ratios,
        "rounds": dict(runs),
    }


def parse(words: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Compare a cluster of mq9 with JetStream R3.")
    for name, kind in (("rounds", int), ("kills", int), ("seconds", float), ("warmup", float)):
        parser.add_argument(f"--{name}", type=kind, help=f"{FULL[name]}; quick: {QUICK[name]}")
    parser.add_argument("--quick", action="store_true", help="little of everything, as QUICK=1")
    parser.add_argument("--load-cmd", type=Path, help="a built mq9-load; otherwise cargo builds it")
    parser.add_argument("--cpu", type=int, default=-1, help="the core of the load generator")
    parser.add_argument("--out", type=Path, help=".build/bench-cluster; quick: another one")
    parser.add_argument("--data", type=Path, help="a folder on a disk (that of --out)")
    parser.add_argument("--report", action="store_true", help="write the page into --docs")
    parser.add_argument("--stored", action="store_true", help="measure nothing: what --out has")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", help="%(default)s")
    options = parser.parse_args(words)
    options.quick |= bool(os.environ.get("QUICK"))
    options.out = options.out or ROOT / f".build/bench-cluster{'-quick' if options.quick else ''}"
    for name, default in (QUICK if options.quick else FULL).items():
        if getattr(options, name) is None:
            setattr(options, name, default)
    return options


def main(words: Sequence[str] | None = None) -> int:
    """Measures, keeps the results, prints the table and writes the page if that was asked for."""
    options = parse(words)
    file = options.out / "result.json"
    if not options.stored:
        document = measure(options)
        file.write_text(json.dumps(document, indent=1), "utf-8")
    document = json.loads(file.read_text("utf-8"))
    sys.stdout.write(f"{cluster_report.table(document)}\n\n{cluster_report.failover(document)}\n")
    if options.report:
        for path in cluster_report.write(document, options.docs):
            progress(f"written: {path}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BenchError as error:
        progress(f"cluster: {error}")
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
