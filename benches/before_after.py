"""Compares mq9 with an earlier commit of itself, beside JetStream and Redis, all in one run.

The earlier commit is built in a worktree of its own below .build. Owns which rows are compared and
in which order; how each is measured is in mailbox_runs.py.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import mailbox_report
import nats_runs
import peer_commands
from mailbox_rows import FULL_SCALE, ROWS, Drain, Latency, Row
from mailbox_runs import Measuring, Numbers
from mailbox_servers import Contender, JetStream, Mq9, Redis
from mailbox_stores import Stores
from mailbox_tables import markdown, ratio_text
from nats_core import micros, progress, rate
from nats_runs import ROOT, BenchError

BEFORE, NOW = "before", "now"
# The last commit before the engine had a thread of its own.
COMMIT = "2b629dc"
NAMES = (
    *(
        f"SEND interval, {load}"
        for load in (
            *("128 B, 1 x 1", "128 B, 64 x 1", "128 B, 1 x 64", "128 B, 8 x 64"),
            *("128 B, 1 x 1024", "1 KiB, 8 x 64"),
        )
    ),
    *(f"SEND always, {load}" for load in ("128 B, 1 x 1", "1 KiB, 1 x 1", "128 B, 64 x 1")),
    *(f"FETCH+ACK {load}" for load in ("interval, batches of 1", "interval, batches of 100")),
    *(f"FETCH+ACK {load}" for load in ("always, batches of 1", "always, batches of 100")),
    "LATENCY interval, 128 B, 8 connections",
)
RUN = "import sys; sys.argv[0] = 'mq9'; from mq9.cli import main; sys.exit(main())"


def build(commit: str) -> Path:
    """The package of an earlier commit, built if it is not."""
    tree, target = ROOT / f".build/before-{commit}", ROOT / ".build/before-target"
    if not tree.exists():
        call(["git", "worktree", "add", "--detach", str(tree), commit], ROOT, {})
    found = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=tree, capture_output=True, text=True, check=True
    )
    if not found.stdout.startswith(commit):
        raise BenchError(f"{tree} is at {found.stdout.strip()}, not at {commit}")
    settings = {"CARGO_TARGET_DIR": str(target), "PYO3_PYTHON": sys.executable}
    call(["cargo", "build", "--release", "--locked", "-p", "mq9-binding"], tree, settings)
    shutil.copy(target / "release/lib_core.so", tree / "python/mq9/_core.abi3.so")
    return tree / "python"


def commit() -> str:
    """What is measured as today's."""
    words = ["git", "rev-parse", "--short", "HEAD"]
    found = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    return found.stdout.strip()


def call(command: Sequence[str], folder: Path, settings: Mapping[str, str]) -> None:
    """Runs a tool that must succeed."""
    if subprocess.run(command, cwd=folder, env=os.environ | settings, check=False).returncode:
        raise BenchError(f"failed: {' '.join(command)}")


def serve(package: Path) -> list[str]:
    """The command of the broker in this package."""
    return ["env", f"PYTHONPATH={package}", sys.executable, "-c", RUN, "serve"]


def line_up(servers: Mapping[str, Contender], row: Row) -> dict[str, Contender]:
    """Who is measured in a row. Latencies are of ours alone: others have no such peak."""
    return {
        name: one
        for name, one in servers.items()
        if name in (BEFORE, NOW) or not isinstance(row, Latency)
    }


def compare(
    rows: Sequence[Row], servers: Mapping[str, Contender], options: argparse.Namespace
) -> list[list[str]]:
    """The lines of the table."""
    lines = [
        [
            "",
            BEFORE,
            NOW,
            f"{NOW} to {BEFORE}",
            "to JetStream",
            "to Redis",
            "goal",
            "p99 before",
            "p99 now",
        ]
    ]
    with tempfile.TemporaryDirectory(prefix="data-", dir=options.data) as name:
        load = nats_runs.build_load()
        stores = Stores(Path(name), load, FULL_SCALE.stored)
        measuring = Measuring(load, Path(name), stores, FULL_SCALE, options)
        for row in rows:
            chosen = line_up(servers, row)
            runs: dict[str, list[Numbers]] = {who: [] for who in chosen}
            peak: float | None = None
            for number in range(options.rounds):
                names = list(chosen)
                # Who is first changes with every round.
                for who in names[number % len(names) :] + names[: number % len(names)]:
                    runs[who].append(measuring.once(row, chosen[who], peak))
                    if isinstance(row, Latency):
                        # All later ones are asked for the same rates as the first.
                        peak = peak or runs[who][0]["peak_rate"]
            new = latency_lines(row, runs) if isinstance(row, Latency) else [rate_line(row, runs)]
            for line in new:
                progress(" | ".join(line))
            lines += new
    return lines


def rate_line(row: Row, runs: Mapping[str, Sequence[Numbers]]) -> list[str]:
    """Rates, ratios within rounds, and the p99 of both."""
    cells = [row.name, *(rate(middle(runs[who], "rate")) for who in (BEFORE, NOW))]
    for peer in (BEFORE, "JetStream", "Redis"):
        pairs = zip(runs[NOW], runs.get(peer, ()), strict=False)
        ratios = [ours["rate"] / theirs["rate"] for ours, theirs in pairs]
        cells.append(spread(ratios) if ratios else "")
    return [
        *cells,
        f"{row.goal:g}",
        *(micros(middle(runs[who], "p99_us")) for who in (BEFORE, NOW)),
    ]


def latency_lines(row: Row, runs: Mapping[str, Sequence[Numbers]]) -> list[list[str]]:
    """The p99 at parts of one peak for both; a ratio below 1 is better."""
    lines = []
    for percent in (50, 80):
        name = f"p99_us_{percent}"
        ratios = [
            ours[name] / theirs[name] for ours, theirs in zip(runs[NOW], runs[BEFORE], strict=True)
        ]
        text = spread(ratios)
        shown = [micros(middle(runs[who], name)) for who in (BEFORE, NOW)]
        lines.append([f"{row.name}, p99 at {percent} %", "", "", text, "", "", "0.5", *shown])
    return lines


def spread(ratios: Sequence[float]) -> str:
    """The median of ratios, with the least and the most."""
    least, most = ratio_text(min(ratios)), ratio_text(max(ratios))
    return f"{ratio_text(statistics.median(ratios))} ({least} to {most})"


def middle(runs: Sequence[Numbers], name: str) -> float:
    """The median of a number."""
    return statistics.median(run[name] for run in runs)


def parse(words: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Compare mq9 with an earlier commit of itself.")
    parser.add_argument("--before", default=COMMIT, metavar="COMMIT", help="%(default)s")
    parser.add_argument("--rounds", type=int, default=5, help="%(default)s")
    parser.add_argument("--seconds", type=float, default=0.6, help="%(default)s")
    parser.add_argument("--warmup", type=float, default=0.2, help="%(default)s")
    parser.add_argument(
        "--only", action="append", default=[], metavar="TEXT", help="rows whose name holds a TEXT"
    )
    parser.add_argument(
        "--cpu", type=int, default=max(os.sched_getaffinity(0)), help="the generator's core"
    )
    parser.add_argument("--data", type=Path, default=ROOT / ".build", help="a folder on a disk")
    parser.add_argument(
        "--report", action="store_true", help="put the table into docs/benchmarks.md"
    )
    options = parser.parse_args(words)
    return argparse.Namespace(
        **vars(options), quick=False, redis_cmd=None, nats_cmd=None, mq9_cmd=None, servers=""
    )


def main(words: Sequence[str] | None = None) -> int:
    """Builds, measures and prints the table, and writes the page if that was asked for."""
    options = parse(words)
    rows = [row for row in ROWS if row.name in NAMES]
    rows = [
        row for row in rows if not options.only or any(text in row.name for text in options.only)
    ]
    commands = peer_commands.find_servers(options)
    # The worker takes in one way each, the faster one of most rows.
    servers: dict[str, Contender] = {
        BEFORE: Mq9(serve(build(options.before))),
        NOW: Mq9(serve(ROOT / "python")),
    }
    for kind, variant in ((JetStream, "all"), (Redis, "")):
        if kind.server in commands:
            servers[kind.server] = kind(commands[kind.server], variant)
    if any(isinstance(row, Drain) for row in rows):
        servers |= {name: Mq9(servers[name].command, "raw") for name in (BEFORE, NOW)}
    busy_s, started = nats_runs.machine_busy_s(), time.monotonic()
    table = markdown(compare(rows, servers, options))
    busy = (nats_runs.machine_busy_s() - busy_s) / (time.monotonic() - started)
    when = (
        f"{time.strftime('%Y-%m-%d')}, commit {options.before} before, {commit()} now, "
        f"{options.rounds} rounds of {options.seconds:g} s"
    )
    text = f"{table}\n\n{when}; {busy:.1f} of {os.cpu_count()} cores busy on average."
    sys.stdout.write(text + "\n")
    if options.report:
        page = ROOT / "docs" / mailbox_report.PAGE
        command = "make bench-before"
        page.write_text(
            mailbox_report.put(page.read_text("utf-8"), "before", text, command=command), "utf-8"
        )
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BenchError as error:
        progress(f"before_after: {error}")
        sys.exit(1)
