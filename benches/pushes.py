"""Compares what mq9, JetStream and Redis push: same machine, same run, same load generator.

Owns the rows, what is measured in which order, and the ratios. How each server is started and
filled is in mailbox_servers.py, what is made of the numbers in push_report.py.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import nats_runs
import peer_commands
import push_report
from mailbox_servers import NAME, Contender, JetStream, Mq9, Redis
from mailboxes import file_system
from nats_core import QUIET_CORES, machine, progress
from nats_runs import ROOT, BenchError, Server

SIZE = 128
SECONDS = 300.0
# The ways to be pushed to, by what the load generator calls them.
WAYS = {
    "mailbox": "mq9 MAILBOX.MSG",
    "inbox": "mq9 INBOX",
    "jetstream-ordered": "JetStream ordered",
    "jetstream-push": "JetStream push",
    "redis": "Redis XREAD BLOCK",
    "redis-group": "Redis XREADGROUP",
}
OURS = ("mailbox", "inbox")
# Whoever only reads, and whoever has the server remember what was read.
READING = ("mailbox", "jetstream-ordered", "redis")
REMEMBERING = ("inbox", "jetstream-push", "redis-group")

Run: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Row:
    """One load."""

    name: str
    ways: tuple[str, ...]
    subscribers: int = 1
    stored: int = 0
    rate: int = 0
    goals: Mapping[str, float] | None = None
    """The least ratio to each of those that are compared, where it is not 1."""

    @property
    def numbers(self) -> tuple[str, ...]:
        """What is compared."""
        return ("p50", "p99") if self.rate else ("rate",)


def rows(replayed: int, stored: int) -> tuple[Row, ...]:
    """All rows; so many messages are replayed, and fanned out."""
    four = {"jetstream-ordered": 4.0, "jetstream-push": 4.0}
    everybody = (*READING, *REMEMBERING)
    text = f"{replayed // 1000:,} k"
    return (
        Row("LIVE, 1 subscriber", everybody, rate=1000),
        Row("LIVE, 100 subscribers", READING, 100, rate=100),
        Row(f"REPLAY of {text} messages", everybody, stored=replayed, goals=four),
        # Subscribers of an inbox share it: it has no fan-out.
        Row("FAN-OUT to 1", everybody, stored=stored),
        *(
            Row(f"FAN-OUT to {each}", (*READING, "jetstream-push"), each, stored=stored)
            for each in (10, 100)
        ),
    )


# Not longer than a machine stays quiet: some ten minutes.
FULL = {"rounds": 3, "seconds": 3.0, "warmup": 0.5, "attempts": 2, "wait": 3.0}
QUICK = {"rounds": 1, "seconds": 0.2, "warmup": 0.1, "attempts": 1, "wait": 0.0}


class Comparison:
    """All rows that were asked for, on all servers that are there."""

    def __init__(self, chosen: Sequence[Row], options: argparse.Namespace) -> None:
        self.options = options
        self.rows = chosen
        servers = peer_commands.find_servers(options)
        kinds = {"mq9": Mq9, "JetStream": JetStream, "Redis": Redis}
        self.servers: dict[str, Contender] = {
            name: kinds[name](command) for name, command in servers.items()
        }
        self.load = options.load_cmd or nats_runs.build_load()
        self.data = (options.data or options.out).resolve()
        self.data.mkdir(parents=True, exist_ok=True)
        self.about = {
            "machine": machine() | {"file_system": file_system(self.data)},
            "versions": peer_commands.versions(servers),
            "measured": time.strftime("%Y-%m-%d"),
            "commit": commit(),
            "settings": {name: getattr(options, name) for name in FULL},
        }

    def run(self) -> Iterator[dict[str, Any]]:
        """All that was measured so far, after each round, as it goes to the result file."""
        runs: dict[str, dict[str, list[Run]]] = {
            row.name: {way: [] for way in row.ways if self.server_of(way)} for row in self.rows
        }
        with tempfile.TemporaryDirectory(prefix="data-", dir=self.data) as name:
            for number in range(self.options.rounds):
                for row in self.rows:
                    progress(f"round {number + 1}: {row.name}:", end="")
                    # Who is first changes with every round.
                    ways = sorted(runs[row.name], reverse=number % 2 == 1)
                    for way in ways:
                        found = self.quietest(row, way, Path(name))
                        runs[row.name][way].append(found)
                        progress(f" {way} {push_report.shown(row.numbers, found)}", end="")
                    progress("")
                yield self.about | {"rows": [summary(row, runs[row.name]) for row in self.rows]}

    def server_of(self, way: str) -> Contender | None:
        """Who pushes in this way, if it is there."""
        names = dict.fromkeys(OURS, "mq9") | dict.fromkeys(("redis", "redis-group"), "Redis")
        return self.servers.get(names.get(way, "JetStream"))

    def quietest(self, row: Row, way: str, folder: Path) -> Run:
        """The run beside which others did least; one on a quiet machine is the last."""
        found: list[Run] = []
        while len(found) < self.options.attempts:
            nats_runs.wait_until_quiet(QUIET_CORES, self.options.wait)
            found.append(self.once(row, way, folder))
            if found[-1]["others_cores"] <= QUIET_CORES:
                break
        return min(found, key=lambda run: float(run["others_cores"]))

    def once(self, row: Row, way: str, folder: Path) -> Run:
        """One row in one way, on a server that is started and filled for it."""
        contender = self.server_of(way)
        assert contender is not None
        with (
            tempfile.TemporaryDirectory(dir=folder) as name,
            contender.run(Path(name), "interval") as server,
        ):
            contender.create(server.address)
            try:
                if row.stored:
                    self.fill(contender, server, row.stored)
                return self.push(row, way, server)
            except BenchError as error:
                raise BenchError(f"{row.name}: {way}: {error}") from None

    def fill(self, contender: Contender, server: Server, stored: int) -> None:
        """Stores messages."""
        words = [*contender.send_arguments(), "--window", "1024", "--size", str(SIZE)]
        words += ["--count", str(stored), "--warmup", "0"]
        nats_runs.run_load(self.load, words, server, self.options.cpu, SECONDS)
        if (kept := contender.kept(server.address)) != stored:
            raise BenchError(f"kept {kept} of {stored} messages")

    def push(self, row: Row, way: str, server: Server) -> Run:
        """What the load generator reports."""
        words = ["push", "--from", way, "--name", NAME, "--size", str(SIZE)]
        words += ["--subscribers", str(row.subscribers), "--stored", str(row.stored)]
        if row.rate:
            words += ["--rate", str(row.rate), "--seconds", str(self.options.seconds)]
            words += ["--warmup", str(self.options.warmup)]
        run = nats_runs.run_load(self.load, words, server, self.options.cpu, SECONDS)
        names = ("rate", "server_cpu_us", "server_cores", "generator_cores", "others_cores")
        latency = run["latency_us"] if row.rate else {}
        return {name: run[name] for name in names} | latency


def commit() -> str:
    """Which mq9 is measured; empty where that is not known."""
    said = []
    for words in (["rev-parse", "--short", "HEAD"], ["status", "--porcelain", "-uno"]):
        run = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
        if run.returncode != 0:
            return ""
        said.append(run.stdout.strip())
    return f"{said[0]} with changes" if said[1] else said[0]


def summary(row: Row, runs: Mapping[str, list[Run]]) -> dict[str, Any]:
    """A row as it goes into the result file: medians, and ratios of ours to each of the others."""
    medians = {
        way: {name: statistics.median(run[name] for run in found) for name in found[0]}
        for way, found in runs.items()
    }
    ratios: dict[str, dict[str, dict[str, float]]] = {}
    for ours in (way for way in runs if way in OURS):
        for other in (way for way in runs if way not in OURS):
            # Larger is better for us, whatever is compared.
            for name in row.numbers:
                parts = [
                    theirs[name] / mine[name] if row.rate else mine[name] / theirs[name]
                    for mine, theirs in zip(runs[ours], runs[other], strict=True)
                ]
                ratio = ratios.setdefault(ours, {}).setdefault(other, {})
                ratio[name] = statistics.median(parts)
    return {
        "row": row.name,
        "numbers": row.numbers,
        "subscribers": row.subscribers,
        "ways": medians,
        "ratios": ratios,
        "goals": {way: (row.goals or {}).get(way, 1.0) for way in runs if way not in OURS},
        "rounds": dict(runs),
    }


def parse(words: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Compare what mq9, JetStream and Redis push.")
    for name, kind in (("rounds", int), ("attempts", int), ("seconds", float), ("warmup", float)):
        parser.add_argument(f"--{name}", type=kind, help=f"{FULL[name]}; quick: {QUICK[name]}")
    parser.add_argument("--wait", type=float, help="most seconds for a quiet machine")
    parser.add_argument("--quick", action="store_true", help="little of everything")
    parser.add_argument("--only", action="append", default=[], metavar="TEXT", help="some rows")
    parser.add_argument("--servers", default="", metavar="A,B", help="only mq9, JetStream or Redis")
    parser.add_argument("--nats-cmd", help="nats-server's command, without options")
    parser.add_argument("--redis-cmd", help="redis-server's command, without options")
    parser.add_argument("--mq9-cmd", help="mq9's command, without options: '... -m mq9 serve'")
    parser.add_argument("--load-cmd", type=Path, help="a built mq9-load; otherwise cargo builds it")
    cpu = max(os.sched_getaffinity(0))
    parser.add_argument("--cpu", type=int, default=cpu, help="the core of the load generator")
    parser.add_argument(
        "--out", type=Path, help=".build/bench-push; quick: .build/bench-push-quick"
    )
    parser.add_argument("--data", type=Path, help="a folder on a disk (that of --out)")
    parser.add_argument("--report", action="store_true", help="write the page into --docs")
    parser.add_argument("--stored", action="store_true", help="measure nothing: what --out has")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", help="%(default)s")
    options = parser.parse_args(words)
    quick = "-quick" if options.quick else ""
    options.out = options.out or ROOT / f".build/bench-push{quick}"
    for name, default in (QUICK if options.quick else FULL).items():
        if getattr(options, name) is None:
            setattr(options, name, default)
    return options


def main(words: Sequence[str] | None = None) -> int:
    """Measures, keeps the results, prints the table and writes the page if that was asked for."""
    options = parse(words)
    file = options.out / "result.json"
    if not options.stored:
        every = rows(5_000, 500) if options.quick else rows(1_000_000, 20_000)
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
    sys.stdout.write(push_report.table(document) + "\n\n" + push_report.ratios(document) + "\n")
    if options.report:
        for path in push_report.write(document, options.docs):
            progress(f"written: {path}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BenchError as error:
        progress(f"pushes: {error}")
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
