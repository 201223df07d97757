"""Compares mailboxes with JetStream and Redis streams: same machine, same run, same load generator.

Owns what is measured in which order and what is made of it. The rows and their goals are in
mailbox_rows.py, what runs meanwhile in mailbox_servers.py.
"""

import argparse
import json
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nats_runs
import ratio_plot
from mailbox_rows import QUICK_ROWS, ROWS, Drain, Row
from mailbox_servers import Contender, JetStream, Mq9, Redis, Stores
from nats_core import QUIET_CORES, machine, micros, progress, rate
from nats_runs import BenchError

OURS, PEERS = "mq9", ("JetStream", "Redis")
NUMBERS = ("rounds", "seconds", "warmup", "attempts", "wait", "stored")
MEDIANS = ("rate", "server_cpu_us", "server_cores", "generator_cores", "others_cores")
# JetStream stores all that waits before it answers the first, with a sync for each if it has to.
PATIENCE_SECONDS = 25
IN_MEMORY = {"tmpfs", "ramfs", "devtmpfs"}


@dataclass
class Results:
    """All measurements of one row, by contender, in the order of the rounds."""

    row: Row
    contenders: Sequence[Contender]
    runs: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def best(self, server: str) -> Contender | None:
        """The fastest way of using a server, by the median of its rates."""
        ways = [way for way in self.contenders if way.server == server]
        return max(ways, key=lambda way: self.median(way, "rate"), default=None)

    def median(self, contender: Contender, name: str) -> float:
        """The median of a number that was measured."""
        return statistics.median(float(run[name]) for run in self.runs[contender.name])

    def latency_us(self, contender: Contender, percentile: str) -> float:
        """The median over the rounds of a percentile of the latencies."""
        runs = self.runs[contender.name]
        return statistics.median(float(run["latency_us"][percentile]) for run in runs)

    def ratios(self, peer: str) -> list[float]:
        """Our rate over the peer's in each round: a machine drifts from one to the next."""
        ours, theirs = self.best(OURS), self.best(peer)
        if ours is None or theirs is None:
            return []
        pairs = zip(self.runs[ours.name], self.runs[theirs.name], strict=True)
        return [our["rate"] / their["rate"] for our, their in pairs]

    def ratio(self, peer: str) -> float | None:
        """The median of the rounds, if the peer was measured."""
        ratios = self.ratios(peer)
        return statistics.median(ratios) if ratios else None

    def goal(self, peer: str) -> float:
        """The least ratio."""
        return self.row.goal if peer == "JetStream" else 1.0

    def summary(self) -> dict[str, Any]:
        """The row as it goes into the result file."""
        result: dict[str, Any] = {"row": self.row.name, "peers": {}, "contenders": {}}
        for peer in PEERS:
            ratio = self.ratio(peer)
            if ratio is not None:
                goal = self.goal(peer)
                result["peers"][peer] = {
                    "ratio": ratio,
                    "ratios_by_round": self.ratios(peer),
                    "goal": goal,
                    "met": ratio >= goal,
                }
        for contender in self.contenders:
            numbers = {name: self.median(contender, name) for name in MEDIANS}
            percentiles = self.runs[contender.name][0]["latency_us"]
            latency_us = {name: self.latency_us(contender, name) for name in percentiles}
            result["contenders"][contender.name] = {
                **numbers,
                "latency_us": latency_us,
                "rounds": self.runs[contender.name],
            }
        return result


@dataclass(frozen=True)
class Bench:
    """What every measurement needs."""

    load: Path
    folder: Path
    stores: Stores
    options: argparse.Namespace
    awake: Sequence[int]

    def round(self, number: int, results: Sequence[Results]) -> None:
        """Every row on every contender; who is first changes with the number of the round."""
        total = self.options.rounds * len(results)
        for done, result in enumerate(results, start=number * len(results) + 1):
            progress(f"[{done}/{total}] round {number + 1}: {result.row.name}:", end="")
            order = list(result.contenders)[:: -1 if number % 2 else 1]
            for name, run in self.turn(result.row, order).items():
                result.runs.setdefault(name, []).append(run)
                progress(f" {name} {rate(run['rate'])}", end="")
            progress("")

    def turn(self, row: Row, order: Sequence[Contender]) -> dict[str, dict[str, Any]]:
        """One row on all, again while others disturb it; the least disturbed attempt counts."""
        turns: list[tuple[float, dict[str, dict[str, Any]]]] = []
        while len(turns) < self.options.attempts:
            nats_runs.wait_until_quiet(QUIET_CORES, self.options.wait)
            turn = {contender.name: self.once(row, contender) for contender in order}
            others_cores = max(float(run["others_cores"]) for run in turn.values())
            turns.append((others_cores, turn))
            if others_cores <= QUIET_CORES:
                break
            progress(f" (others used {others_cores:.2f} cores)", end="")
        return min(turns, key=lambda turn: turn[0])[1]

    def once(self, row: Row, contender: Contender) -> dict[str, Any]:
        """One row on a server that was started for it."""
        with tempfile.TemporaryDirectory(dir=self.folder) as name:
            folder = Path(name)
            drains = isinstance(row, Drain)
            if drains:
                self.stores.copy(contender, row.size, folder)
            # What was written before must not be written meanwhile.
            os.sync()
            with contender.run(folder, row.sync) as server:
                if drains:
                    contender.join(server.address)
                else:
                    contender.create(server.address)
                words = contender.arguments(row, self.stores.stored)
                words += ["--seconds", str(self.options.seconds)]
                # A drained mailbox cannot be measured, so its warm-up is short.
                warmup = min(self.options.warmup, 0.1) if drains else self.options.warmup
                words += ["--warmup", str(warmup), "--patience", str(PATIENCE_SECONDS)]
                try:
                    run = self.run_load(words, server)
                except BenchError as error:
                    raise BenchError(f"{row.name}: {contender.name}: {error}") from None
                kept = contender.kept(server.address)
                if kept < run["messages"]:
                    raise BenchError(
                        f"{row.name}: {contender.name} answered {run['messages']} messages "
                        f"and has kept {kept}"
                    )
                return run

    def run_load(self, words: Sequence[str], server: nats_runs.Server) -> dict[str, Any]:
        """What the load generator reports; what keeps the cores awake is none of the others."""
        started, awake_s = time.monotonic(), sum(map(nats_runs.process_s, self.awake))
        run = nats_runs.run_load(self.load, words, server, self.options.cpu)
        awake_s = sum(map(nats_runs.process_s, self.awake)) - awake_s
        others_cores = run["others_cores"] - awake_s / (time.monotonic() - started)
        return run | {"others_cores": max(others_cores, 0.0)}


@contextmanager
def keeping_awake(cores: Collection[int]) -> Iterator[list[int]]:
    """Processes that use what nobody else wants of these cores.

    A core of a virtual machine that has nothing to do is given away, and takes up to 100 µs to come
    back. Where one message at a time is under way, that would be most of what is measured.
    """
    spin = (
        "import os, sys; os.sched_setaffinity(0, {int(sys.argv[1])})\n"
        "os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))\n"
        "while os.getppid() == int(sys.argv[2]):\n"
        "    for _ in range(1_000_000): pass\n"
    )
    processes = [
        subprocess.Popen([sys.executable, "-c", spin, str(core), str(os.getpid())])
        for core in cores
    ]
    try:
        yield [process.pid for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()


def line_up(row: Row, servers: Mapping[str, Sequence[str]]) -> list[Contender]:
    """Who is measured in a row, each in every way it can be used in."""
    drains = isinstance(row, Drain)
    found: list[Contender] = []
    if "mq9" in servers:
        found += [Mq9(servers["mq9"], way) for way in (("raw", "json") if drains else ("",))]
    if "JetStream" in servers and (isinstance(row, Drain) or not row.skips_jetstream):
        ways = ("all", "each") if drains else ("",)
        found += [JetStream(servers["JetStream"], way) for way in ways]
    if "Redis" in servers:
        found.append(Redis(servers["Redis"]))
    return found


def table(results: Sequence[Results], servers: Sequence[str]) -> str:
    """The results as an aligned Markdown table."""
    peers = [peer for peer in PEERS if peer in servers]
    header = ["", *servers, *(f"to {peer}" for peer in peers), "goal", "met"]
    header += [f"{server} p99" for server in servers] + [f"{server} CPU" for server in servers]
    lines = [header]
    for result in results:
        ways = [result.best(server) for server in servers]
        cells = [result.row.name]
        cells += [shown(result, way, lambda r, w: rate(r.median(w, "rate"))) for way in ways]
        cells += [ratio_text(result.ratio(peer)) for peer in peers]
        # Without JetStream there is nothing to hold against its goal.
        goal = f"{result.row.goal:g}" if result.best("JetStream") else ""
        cells += [goal, verdict(result, peers)]
        cells += [shown(result, way, lambda r, w: micros(r.latency_us(w, "p99"))) for way in ways]
        cells += [
            shown(result, way, lambda r, w: micros(r.median(w, "server_cpu_us"))) for way in ways
        ]
        lines.append(cells)
    widths = [max(len(line[at]) for line in lines) for at in range(len(header))]
    lines.insert(1, ["-" * width for width in widths])
    return "\n".join(
        "| "
        + " | ".join(f"{cell:{width}}" for cell, width in zip(line, widths, strict=True))
        + " |"
        for line in lines
    )


def shown(result: Results, way: Contender | None, text: Callable[[Results, Contender], str]) -> str:
    """A cell of a server, empty where it was not measured."""
    return "" if way is None else text(result, way)


def ratio_text(ratio: float | None) -> str:
    """A ratio for people."""
    if ratio is None:
        return ""
    return f"{ratio:.0f}" if ratio >= 100 else f"{ratio:.3g}"


def verdict(result: Results, peers: Sequence[str]) -> str:
    """Whether the row meets its goals, or what it falls short of."""
    ratios = {peer: result.ratio(peer) for peer in peers}
    short = [
        peer for peer, ratio in ratios.items() if ratio is not None and ratio < result.goal(peer)
    ]
    if short:
        return f"no: {', '.join(short)}"
    missing = [peer for peer, ratio in ratios.items() if ratio is None]
    return f"yes, without {', '.join(missing)}" if missing else "yes"


def ways_table(results: Sequence[Results]) -> str:
    """The rates of every way of taking messages, where a server has several."""
    lines = []
    for result in results:
        if isinstance(result.row, Drain):
            parts = [f"{way.name} {rate(result.median(way, 'rate'))}" for way in result.contenders]
            lines.append(f"{result.row.name}: {', '.join(parts)}")
    return "\n".join(lines)


def plot(results: Sequence[Results], sync: str) -> str:
    """How far each row is from its goal as a picture: ratios reach from 1 to some hundreds."""
    bars = []
    for result in results:
        ratio = result.ratio("JetStream")
        if result.row.sync == sync and ratio is not None:
            label, goal = result.row.name.replace(f" {sync},", ""), result.row.goal
            bars.append(ratio_plot.Bar(label, ratio / goal, f"{ratio_text(ratio)} of {goal:g}"))
    return ratio_plot.svg(f"mq9 to JetStream, in parts of the goal, sync={sync}", bars)


def version(command: Sequence[str]) -> str:
    """What a server says to this command."""
    run = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    return (run.stdout or run.stderr).strip()


def find_servers(options: argparse.Namespace) -> dict[str, list[str]]:
    """The commands of the servers that are there."""
    servers = {
        "mq9": shlex.split(options.mq9_cmd or "") or [sys.executable, "-m", "mq9", "serve"],
        "JetStream": shlex.split(options.nats_cmd or "") or [nats_runs.find_peer()],
    }
    redis = shlex.split(options.redis_cmd or "") or [shutil.which("redis-server") or ""]
    if redis[0]:
        servers["Redis"] = redis
    else:
        progress("no redis-server on PATH (Debian: redis-server): its columns are left out")
    only = set(filter(None, options.servers.split(",")))
    if unknown := only - servers.keys():
        raise BenchError(f"--servers {','.join(unknown)}: there are {', '.join(servers)}")
    return {name: command for name, command in servers.items() if not only or name in only}


def check_disk(folder: Path) -> None:
    """Durability costs nothing in memory: the data must be on a disk."""
    real, found = folder.resolve(), ("/", "")
    for line in Path("/proc/mounts").read_text("utf-8").splitlines():
        point, kind = line.split()[1:3]
        if real.is_relative_to(point) and len(point) >= len(found[0]):
            found = (point, kind)
    if found[1] in IN_MEMORY:
        raise BenchError(f"{folder} is on {found[1]}, in memory: give --data a folder on a disk")


def parse(words: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Compare mailboxes with JetStream and Redis.")
    parser.add_argument("--rounds", type=int, help="how often each row is measured (3; quick: 1)")
    parser.add_argument("--seconds", type=float, help="how long each time (1; quick: 0.1)")
    parser.add_argument("--warmup", type=float, help="seconds before (0.3; quick: 0.05)")
    parser.add_argument("--attempts", type=int, help="most tries on a busy machine (3; quick: 1)")
    parser.add_argument("--wait", type=float, help="most seconds for quiet (5; quick: 0)")
    parser.add_argument("--stored", type=int, help="messages to drain (400000; quick: 20000)")
    parser.add_argument("--quick", action="store_true", help="a smoke run of a few rows")
    parser.add_argument(
        "--only", action="append", default=[], metavar="TEXT", help="rows whose name holds a TEXT"
    )
    parser.add_argument(
        "--awake", action="store_true", help="keep the cores of a virtual machine from halting"
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
    out = nats_runs.ROOT / ".build/bench-mailboxes"
    parser.add_argument("--out", type=Path, default=out, help="%(default)s")
    parser.add_argument("--data", type=Path, help="a folder on a disk (that of --out)")
    options = parser.parse_args(words)
    defaults = (1, 0.1, 0.05, 1, 0.0, 20_000) if options.quick else (3, 1.0, 0.3, 3, 5.0, 400_000)
    for name, default in zip(NUMBERS, defaults, strict=True):
        if getattr(options, name) is None:
            setattr(options, name, default)
    if min(options.rounds, options.attempts, options.stored) < 1 or options.seconds <= 0:
        parser.error("--rounds, --attempts, --stored and --seconds must be more than 0")
    return options


def main(words: Sequence[str] | None = None) -> int:
    """Measures, prints the table, writes the results and the plots."""
    options = parse(words)
    rows = QUICK_ROWS if options.quick and not options.only else ROWS
    if options.only:
        rows = tuple(row for row in rows if any(text in row.name for text in options.only))
    if not rows:
        names = "".join(f"{row.name}\n" for row in ROWS)
        raise BenchError(f"--only {' '.join(options.only)}: no such row; there are:\n{names}")
    servers = find_servers(options)
    load = options.load_cmd or nats_runs.build_load()
    options.out.mkdir(parents=True, exist_ok=True)
    data = (options.data or options.out).resolve()
    check_disk(data)
    asked = {"mq9": [*servers.get("mq9", [])[:-1], "version"]}
    about = {
        "machine": machine(),
        "versions": {
            name: version(asked.get(name, [*command, "--version"]))
            for name, command in servers.items()
        },
        "settings": {name: getattr(options, name) for name in (*NUMBERS, "cpu", "awake", "quick")},
        "servers": list(servers),
    }
    results = [Results(row, line_up(row, servers)) for row in rows]
    cores = os.sched_getaffinity(0) if options.awake else ()
    with (
        tempfile.TemporaryDirectory(prefix="data-", dir=data) as folder,
        keeping_awake(cores) as awake,
    ):
        stores = Stores(Path(folder), load, options.stored)
        bench = Bench(load, Path(folder), stores, options, awake)
        for number in range(options.rounds):
            bench.round(number, results)
            # A later round may fail, and takes minutes.
            write(options.out, about, results)
    sys.stdout.write(table(results, list(servers)) + "\n" + ways_table(results) + "\n")
    if "Redis" not in servers:
        sys.stdout.write("Redis was not measured.\n")
    others = statistics.median(
        run["others_cores"] for result in results for runs in result.runs.values() for run in runs
    )
    progress(f"other processes used {others:.2f} cores meanwhile; results are in {options.out}")
    return 0


def write(out: Path, about: Mapping[str, Any], results: Sequence[Results]) -> None:
    """Puts what was measured so far into files."""
    document = {**about, "rows": [result.summary() for result in results]}
    (out / "result.json").write_text(json.dumps(document, indent=1) + "\n", "utf-8")
    if {"mq9", "JetStream"} <= set(about["servers"]):
        for sync in ("interval", "always"):
            (out / f"ratio-{sync}.svg").write_text(plot(results, sync), "utf-8")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BenchError as error:
        progress(f"mailboxes: {error}")
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
