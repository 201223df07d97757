"""Compares mq9 with JetStream and Redis streams: same machine, same run, same load generator.

Owns what is measured in which order. The rows and their goals are in mailbox_rows.py, how each is
measured in mailbox_runs.py, what is made of the numbers in mailbox_results.py, mailbox_tables.py
and mailbox_report.py.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import mailbox_report
import nats_runs
import peer_commands
from mailbox_results import COMPARED, ResultFile, Results
from mailbox_rows import FULL_SCALE, QUICK_ROWS, QUICK_SCALE, ROWS, Drain, Row, SecureSend
from mailbox_runs import Measuring, Numbers
from mailbox_servers import Contender, JetStream, Mq9, Redis
from mailbox_stores import Stores
from mailbox_tables import tables
from nats_core import QUIET_CORES, machine, progress, rate
from nats_runs import ROOT, BenchError

NUMBERS = ("rounds", "long_rounds", "seconds", "warmup", "attempts", "wait")
FULL = (3, 3, 1.0, 0.3, 3, 5.0)
QUICK = (1, 1, 0.1, 0.01, 1, 0.0)
IN_MEMORY = {"tmpfs", "ramfs", "devtmpfs"}


class Comparison:
    """All rows that were asked for, on all servers that are there."""

    def __init__(self, rows: Sequence[Row], options: argparse.Namespace) -> None:
        self.options = options
        self.servers = peer_commands.find_servers(options)
        self.results = [Results(row, line_up(row, self.servers)) for row in rows]
        self.file = ResultFile(options.out / "result.json")
        self.failures: list[str] = []
        self.data = (options.data or options.out).resolve()
        self.data.mkdir(parents=True, exist_ok=True)
        memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        disk = {"memory_bytes": memory_bytes, "file_system": file_system(self.data)}
        self.about: dict[str, Any] = {
            "machine": machine() | disk,
            "versions": peer_commands.versions(self.servers),
        }

    def run(self, load: Path) -> None:
        """Measures everything, and keeps each row as soon as it is complete."""
        scale = QUICK_SCALE if self.options.quick else FULL_SCALE
        with tempfile.TemporaryDirectory(prefix="data-", dir=self.data) as name:
            folder = Path(name)
            stores = Stores(folder, load, scale.stored)
            measuring = Measuring(load, folder, stores, scale, self.options)
            try:
                for number in range(max(self.options.rounds, self.options.long_rounds)):
                    self.round(number, measuring)
            finally:
                self.keep_what_is_new()

    def rounds_of(self, row: Row) -> int:
        """How often a row is measured."""
        return int(self.options.long_rounds if row.long else self.options.rounds)

    def round(self, number: int, measuring: Measuring) -> None:
        """Every row on every contender; who is first changes with the number of the round."""
        wanted = [result for result in self.results if number < self.rounds_of(result.row)]
        for done, result in enumerate(wanted, start=1):
            place = f"[round {number + 1}, {done}/{len(wanted)}]"
            progress(f"{place} {result.row.name}:", end="")
            order = list(result.contenders)[:: -1 if number % 2 else 1]
            try:
                turn = self.turn(result.row, order, measuring)
            except BenchError as error:
                # An hour of measurements must not be lost for one that failed.
                progress(f" FAILED\n{error}")
                self.failures.append(str(error).splitlines()[0])
            else:
                result.add(turn)
                compared = COMPARED.get(result.row.kind)
                shown = [f" {name} {rate(run[compared])}" for name, run in turn.items() if compared]
                progress("".join(shown))
            if result.runs and number + 1 == self.rounds_of(result.row):
                self.file.keep([self.summary(result)], **self.about)

    def turn(
        self, row: Row, order: Sequence[Contender], measuring: Measuring
    ) -> dict[str, Numbers]:
        """One row on all, again while others disturb it; the least disturbed attempt counts.

        All are measured again and not only the one that was disturbed, so that what is compared was
        measured under the same conditions, whatever they were.
        """
        turns: list[tuple[float, dict[str, Numbers]]] = []
        while len(turns) < (1 if row.long else self.options.attempts):
            nats_runs.wait_until_quiet(QUIET_CORES, self.options.wait)
            turn = {contender.name: measuring.once(row, contender) for contender in order}
            others_cores = max(run["others_cores"] for run in turn.values())
            turns.append((others_cores, turn))
            if others_cores <= QUIET_CORES:
                break
            progress(f" (others used {others_cores:.2f} cores)", end="")
        return min(turns, key=lambda turn: turn[0])[1]

    def keep_what_is_new(self) -> None:
        """Rows of which some round is missing, unless there are complete ones from before."""
        new = [result for result in self.results if result.runs and not self.file.has(result.row)]
        self.file.keep([self.summary(result) for result in new], **self.about)

    def summary(self, result: Results) -> dict[str, Any]:
        """A row with when and how it was measured."""
        settings = {name: getattr(self.options, name) for name in (*NUMBERS, "quick")}
        return result.summary({"measured": time.strftime("%Y-%m-%d"), "settings": settings})

    def others_cores(self) -> float:
        """What others used meanwhile."""
        found = [
            run["others_cores"]
            for result in self.results
            for runs in result.runs.values()
            for run in runs
        ]
        return statistics.median(found) if found else 0.0


def line_up(row: Row, servers: Mapping[str, Sequence[str]]) -> list[Contender]:
    """Who is measured in a row, each in every way it can be used in."""
    drains = isinstance(row, Drain)
    if isinstance(row, SecureSend):
        kinds: tuple[type[Contender], ...] = (Mq9, JetStream)
        return [kind(servers[kind.server], tls=True) for kind in kinds if kind.server in servers]
    found: list[Contender] = []
    if "mq9" in servers:
        found += [Mq9(servers["mq9"], way) for way in (("raw", "json") if drains else ("",))]
    if "JetStream" in servers and not row.skips_jetstream:
        ways = ("all", "each") if drains else ("",)
        found += [JetStream(servers["JetStream"], way) for way in ways]
    if "Redis" in servers:
        found.append(Redis(servers["Redis"]))
    return found


def file_system(folder: Path) -> str:
    """Its kind. Durability costs nothing in memory: the data must be on a disk."""
    real, found = folder.resolve(), ("/", "")
    for line in Path("/proc/mounts").read_text("utf-8").splitlines():
        point, kind = line.split()[1:3]
        if real.is_relative_to(point) and len(point) >= len(found[0]):
            found = (point, kind)
    if found[1] in IN_MEMORY:
        raise BenchError(f"{folder} is on {found[1]}, in memory: give --data a folder on a disk")
    return found[1]


def parse(words: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Compare mq9 with JetStream and Redis.")
    parser.add_argument("--rounds", type=int, help="how often each row is measured (3; quick: 1)")
    parser.add_argument("--long-rounds", type=int, help="CREATE and BACKLOG (3; quick: 1)")
    parser.add_argument("--seconds", type=float, help="how long each time (1; quick: 0.1)")
    parser.add_argument("--warmup", type=float, help="seconds before (0.3; quick: 0.01)")
    parser.add_argument("--attempts", type=int, help="most tries on a busy machine (3; quick: 1)")
    parser.add_argument("--wait", type=float, help="most seconds for quiet (5; quick: 0)")
    parser.add_argument("--quick", action="store_true", help="a smoke run of a few rows")
    parser.add_argument(
        "--only", action="append", default=[], metavar="TEXT", help="rows whose name holds a TEXT"
    )
    parser.add_argument("--servers", default="", metavar="A,B", help="only mq9, JetStream or Redis")
    parser.add_argument("--nats-cmd", help="nats-server's command, without options")
    parser.add_argument("--redis-cmd", help="redis-server's command, without options")
    parser.add_argument("--mq9-cmd", help="mq9's command, without options: '... -m mq9 serve'")
    parser.add_argument("--load-cmd", type=Path, help="a built mq9-load; otherwise cargo builds it")
    parser.add_argument(
        "--cpu",
        type=int,
        default=max(os.sched_getaffinity(0)),
        help="the core of the load generator (%(default)s); -1: any",
    )
    parser.add_argument("--out", type=Path, help=".build/bench; quick: .build/bench-quick")
    parser.add_argument("--data", type=Path, help="a folder on a disk (that of --out)")
    parser.add_argument(
        "--report", action="store_true", help="put tables and charts of all rows into --docs"
    )
    parser.add_argument("--stored", action="store_true", help="measure nothing: what --out has")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", help="%(default)s")
    options = parser.parse_args(words)
    # A smoke run must not replace what was measured.
    options.out = options.out or ROOT / (".build/bench-quick" if options.quick else ".build/bench")
    for name, default in zip(NUMBERS, QUICK if options.quick else FULL, strict=True):
        if getattr(options, name) is None:
            setattr(options, name, default)
    if min(options.rounds, options.long_rounds, options.attempts) < 1 or options.seconds <= 0:
        parser.error("--rounds, --long-rounds, --attempts and --seconds must be more than 0")
    return options


def chosen(options: argparse.Namespace) -> Sequence[Row]:
    """The rows that were asked for."""
    if not options.only:
        return QUICK_ROWS if options.quick else ROWS
    if rows := [row for row in ROWS if any(text in row.name for text in options.only)]:
        return rows
    names = "".join(f"{row.name}\n" for row in ROWS)
    raise BenchError(f"--only {' '.join(options.only)}: no such row; there are:\n{names}")


def main(words: Sequence[str] | None = None) -> int:
    """Measures, keeps the results, prints the tables and writes the page if that was asked for."""
    options = parse(words)
    failures: list[str] = []
    if not options.stored:
        comparison = Comparison(chosen(options), options)
        comparison.run(options.load_cmd or nats_runs.build_load())
        failures = comparison.failures
        progress(f"other processes used {comparison.others_cores():.2f} cores meanwhile")
    document = ResultFile(options.out / "result.json").document
    if not document["rows"]:
        raise BenchError(f"{options.out / 'result.json'} has no rows: measure some first")
    sys.stdout.write("\n\n".join(tables(document).values()) + "\n")
    progress(f"all rows measured so far are in {options.out / 'result.json'}")
    if options.report:
        for path in mailbox_report.write(document, options.out, options.docs):
            progress(f"written: {path}")
    for failure in failures:
        progress(f"FAILED: {failure}")
    return 1 if failures else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BenchError as error:
        progress(f"mailboxes: {error}")
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
