"""How long a SEND takes on a quiet broker, and beside others who keep the broker busy, in turns.

Owns what is measured in which order, and the ratios. What goes on beside is in bystander_rows.py,
what is made of the numbers in bystander_report.py.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeAlias

import bystander_report
import nats_runs
from bystander_report import ms
from bystander_rows import BOX, FULL, QUICK, ROWS, Row, Site
from mailboxes import file_system
from nats_core import QUIET_CORES, machine, progress
from nats_runs import ROOT, TICKS_PER_SECOND, BenchError, machine_busy_s, run_load

OURS, FIRST = "now", "now, first in line"
RATE = 500
# The most under way: what is due while the broker does not answer.
WINDOW = 65_536
GOAL = 2.0
SETTINGS = {"rounds": 5, "seconds": 4.0, "warmup": 0.5, "attempts": 3, "wait": 5.0}
QUICK_SETTINGS = {"rounds": 1, "seconds": 0.3, "warmup": 0.1, "attempts": 1, "wait": 0.0}
STATES = ("quiet", "beside")
NUMBERS = ("p50", "p99", "p99_9", "max")
# Until what was begun has its effect, or has ended.
SETTLE_S = 0.3

Run: TypeAlias = dict[str, Any]
Runs: TypeAlias = dict[str, dict[str, list[Run]]]


class Comparison:
    """All rows that were asked for, on one installation or two."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.scale = QUICK if options.quick else FULL
        self.load: Path = options.load_cmd or nats_runs.build_load()
        self.pythons = {OURS: sys.executable}
        if options.python:
            self.pythons = {options.called: options.python, **self.pythons}
        if options.first:
            self.pythons[FIRST] = sys.executable

    def measure(self, row: Row) -> dict[str, Any]:
        """All rounds of a row: quiet and beside in turns, on each installation in turns."""
        runs: Runs = {name: {state: [] for state in STATES} for name in self.pythons}
        with ExitStack() as stack:
            sites: dict[str, Site] = {}
            for name, python in self.pythons.items():
                out = self.options.out
                folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="data-", dir=out))
                arguments = (Path(folder), self.load, self.scale, self.options.sync)
                sites[name] = stack.enter_context(row.site(python, *arguments))
                sites[name].first = name == FIRST
            for number in range(self.options.rounds):
                turn = -1 if number % 2 else 1
                for name in list(sites)[::turn]:
                    for state, run in self.turn(row, sites[name], STATES[::turn]).items():
                        runs[name][state].append(run)
                self.tell(number, runs)
        return {
            "row": row.name,
            "title": row.describe(self.scale),
            "unit": row.unit,
            "sites": {name: summary(found) for name, found in runs.items()},
        }

    def turn(self, row: Row, site: Site, states: Sequence[str]) -> dict[str, Run]:
        """Both states, again while others disturb them; the least disturbed attempt counts."""
        turns: list[tuple[float, dict[str, Run]]] = []
        while len(turns) < self.options.attempts:
            nats_runs.wait_until_quiet(QUIET_CORES, self.options.wait)
            turn = {state: self.once(row, site, state == "beside") for state in states}
            others_cores = max(run["others_cores"] for run in turn.values())
            turns.append((others_cores, turn))
            if others_cores <= QUIET_CORES:
                break
        return min(turns, key=lambda turn: turn[0])[1]

    def once(self, row: Row, site: Site, beside: bool) -> Run:
        """One measurement; latencies in microseconds."""
        if not beside:
            return self.send(site)
        seconds = self.options.seconds + self.options.warmup + 2 * SETTLE_S
        with row.disturb(site, seconds) as noise:
            run = self.send(site)
        return run | {"noise": asdict(noise)}

    def send(self, site: Site) -> Run:
        """SENDs at an even pace, and what else ran meanwhile."""
        time.sleep(SETTLE_S)
        words = ["request", "--responders", "0", "--subject", f"$mq9.AI.MSG.SEND.{BOX}"]
        words += ["--expect", '{"error":"","msg_id":', "--rate", str(RATE), "--window", str(WINDOW)]
        words += ["--seconds", str(self.options.seconds), "--warmup", str(self.options.warmup)]
        began, busy_s, own_s = time.monotonic(), machine_busy_s(), family_s(os.getpid())
        with first_in_line(site.server.pid) if site.first else nullcontext():
            run = run_load(self.load, words, site.server, self.options.cpu)
        others_s = machine_busy_s() - busy_s - (family_s(os.getpid()) - own_s)
        return run | {"others_cores": max(others_s, 0.0) / (time.monotonic() - began)}

    def tell(self, number: int, runs: Runs) -> None:
        """What a round has brought."""
        p99s = [
            f"{name} {' -> '.join(ms(found[state][-1]['latency_us']['p99']) for state in STATES)}"
            for name, found in runs.items()
        ]
        progress(f"  round {number + 1} of {self.options.rounds}, p99: {', '.join(p99s)}")


@contextmanager
def first_in_line(pid: int) -> Iterator[None]:
    """The broker's thread, and the load generator started meanwhile, wait for no other process.

    Both need little. What is left of a latency is the broker's own doing, however busy the machine.
    """
    tasks = [path.parent for path in Path(f"/proc/{pid}/task").glob("*/comm")]
    broker = [int(task.name) for task in tasks if (task / "comm").read_text() == "mq9-broker\n"]
    if not broker:
        raise BenchError("--first: that broker has no thread of its own")
    threads = [*broker, threading.get_native_id()]
    try:
        for thread in threads:
            os.sched_setscheduler(thread, os.SCHED_FIFO, os.sched_param(1))
        yield
    except PermissionError:
        raise BenchError("--first: only root may let a process go first") from None
    finally:
        for thread in threads:
            os.sched_setscheduler(thread, os.SCHED_OTHER, os.sched_param(0))


def family_s(pid: int) -> float:
    """Processor time so far of a process, its descendants, and those of them that have ended."""
    ticks, children = {}, defaultdict(list)
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = stat.read_text("utf-8").rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        one = int(stat.parent.name)
        ticks[one] = sum(int(word) for word in words[11:15])
        children[int(words[1])].append(one)
    total, found = 0, [pid]
    while found:
        one = found.pop()
        total += ticks.get(one, 0)
        found += children[one]
    return total / TICKS_PER_SECOND


def summary(runs: Mapping[str, Sequence[Run]]) -> dict[str, Any]:
    """Medians of the rounds, and of the ratios within each: a machine drifts between them."""
    ratios = {
        name: [
            beside["latency_us"][name] / quiet["latency_us"][name]
            for quiet, beside in zip(runs["quiet"], runs["beside"], strict=True)
        ]
        for name in NUMBERS
    }
    medians = {
        state: {
            name: statistics.median(run["latency_us"][name] for run in runs[state])
            for name in NUMBERS
        }
        | {
            name: statistics.median(run[name] for run in runs[state])
            for name in ("server_cores", "others_cores")
        }
        for state in STATES
    }
    noises = [run["noise"] for run in runs["beside"]]
    return {
        "ratio": {name: statistics.median(found) for name, found in ratios.items()},
        "ratios_by_round": ratios,
        "medians_us": medians,
        "noise_per_second": statistics.median(one["count"] / one["seconds"] for one in noises),
        "noise_longest_s": max(one["longest_s"] for one in noises),
        "rounds": runs,
    }


def parse(words: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, help="how often each row is measured (5; quick: 1)")
    parser.add_argument("--seconds", type=float, help="how long each time (4; quick: 0.3)")
    parser.add_argument("--warmup", type=float, help="the same before (0.5; quick: 0.1)")
    parser.add_argument("--attempts", type=int, help="most tries on a busy machine (3; quick: 1)")
    parser.add_argument("--wait", type=float, help="most seconds for quiet (5; quick: 0)")
    parser.add_argument("--quick", action="store_true", help="a smoke run: numbers mean nothing")
    parser.add_argument("--sync", default="interval", choices=("interval", "always", "none"))
    names = [row.name for row in ROWS]
    parser.add_argument("--only", action="append", choices=names, help="some rows; others stay")
    parser.add_argument(
        "--python", help="the interpreter of another installation of mq9 to compare"
    )
    parser.add_argument("--called", default="before", help="its name in the tables (%(default)s)")
    parser.add_argument("--load-cmd", type=Path, help="a built mq9-load; otherwise cargo builds it")
    parser.add_argument(
        "--cpu", type=int, default=-1, help="the core of the load generator; -1: any"
    )
    parser.add_argument(
        "--first",
        action="store_true",
        help="measure again with real-time priority for broker and load generator; needs root",
    )
    parser.add_argument("--out", type=Path, help=".build/bench-bystanders; quick: ...-quick")
    parser.add_argument("--report", action="store_true", help="write page and picture into --docs")
    parser.add_argument("--stored", action="store_true", help="measure nothing: what --out has")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", help="%(default)s")
    options = parser.parse_args(words)
    name = "bench-bystanders-quick" if options.quick else "bench-bystanders"
    options.out = (options.out or ROOT / ".build" / name).resolve()
    for name, default in (QUICK_SETTINGS if options.quick else SETTINGS).items():
        if getattr(options, name) is None:
            setattr(options, name, default)
    if min(options.rounds, options.attempts) < 1 or options.seconds <= 0:
        parser.error("--rounds, --attempts and --seconds must be more than 0")
    if options.called in (OURS, FIRST):
        parser.error(f"--called {options.called}: that is what this installation is called")
    return options


def measure(options: argparse.Namespace, file: Path) -> None:
    """Measures rows and keeps each as soon as it is complete; those from before stay."""
    options.out.mkdir(parents=True, exist_ok=True)
    kind = file_system(options.out)
    comparison = Comparison(options)
    kept = json.loads(file.read_text("utf-8"))["rows"] if file.exists() else []
    rows = {row["row"]: row for row in kept}
    wanted = [row for row in ROWS if not options.only or row.name in options.only]
    for at, row in enumerate(wanted, start=1):
        progress(f"[{at}/{len(wanted)}] {row.describe(comparison.scale)}")
        rows[row.name] = comparison.measure(row)
        settings = {name: getattr(options, name) for name in (*SETTINGS, "sync", "quick")}
        document = {
            "machine": machine() | {"file_system": kind},
            "measured": time.strftime("%Y-%m-%d"),
            "settings": settings,
            "rate": RATE,
            "goal": GOAL,
            "rows": [rows[row.name] for row in ROWS if row.name in rows],
        }
        file.write_text(json.dumps(document, indent=1) + "\n", "utf-8")


def main(words: Sequence[str] | None = None) -> int:
    """Measures, prints the table, and writes the page if that was asked for."""
    options = parse(words)
    file = options.out / "result.json"
    if not options.stored:
        measure(options, file)
    if not file.exists():
        raise BenchError(f"there is no {file}: measure first")
    document = json.loads(file.read_text("utf-8"))
    sys.stdout.write(bystander_report.table(document) + "\n")
    progress(f"all rows measured so far are in {file}")
    if options.report:
        for path in bystander_report.write(document, options.docs):
            progress(f"written: {path}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BenchError as error:
        progress(f"bystanders: {error}")
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
