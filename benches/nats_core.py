"""Compares mq9 with a real nats-server: same machine, same run, same load generator.

Owns what is measured, in which order, and what is made of it. What runs on the machine meanwhile is
in nats_runs.py, how a plot looks in ratio_plot.py.
"""

import argparse
import json
import os
import platform
import shlex
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nats_runs
import ratio_plot

PEER, OURS = "nats-server", "mq9"

NUMBERS = ("rounds", "seconds", "warmup", "attempts", "wait")

# What other processes and other virtual machines may use while something is measured.
QUIET_CORES = 0.2


@dataclass(frozen=True)
class Row:
    """One load, as `mq9-load` takes it, and what its rate counts."""

    name: str
    unit: str
    arguments: tuple[str, ...]


def row(name: str, unit: str, arguments: str) -> Row:
    """A row from the words of a command line."""
    return Row(name, unit, tuple(arguments.split()))


ROWS = (
    row("publish 128 B", "messages", "publish --size 128"),
    row("publish 1 KiB", "messages", "publish --size 1024"),
    row("publish 128 B, 8 connections", "messages", "publish --size 128 --connections 8"),
    row("fan-out 1 to 10", "deliveries", "fanout --subscribers 10"),
    row("fan-out 1 to 100", "deliveries", "fanout --subscribers 100"),
    row("request/reply, 1 connection", "replies", "request --connections 1"),
    row("request/reply, 8 connections", "replies", "request --connections 8"),
    row("request/reply, 64 connections", "replies", "request --connections 64"),
    row("request/reply, 8 x 16 under way", "replies", "request --connections 8 --window 16"),
)


@dataclass
class Results:
    """All measurements of one row, by server, in the order of the rounds."""

    row: Row
    runs: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def median(self, server: str, name: str) -> float | None:
        """The median of a number that the load generator reports, if it reports it."""
        values = [run[name] for run in self.runs.get(server, []) if run.get(name) is not None]
        return statistics.median(values) if values else None

    def latency_us(self, server: str, percentile: str) -> float | None:
        """The median over the rounds of a percentile of the latencies."""
        runs = [run["latency_us"] for run in self.runs.get(server, []) if "latency_us" in run]
        return statistics.median(run[percentile] for run in runs) if runs else None

    def ratio(self) -> float | None:
        """Our rate over the peer's: the median of the rounds, as a machine drifts between them."""
        ratios = self.ratios_by_round()
        return statistics.median(ratios) if ratios else None

    def ratios_by_round(self) -> list[float]:
        """Our rate over the peer's in each round."""
        pairs = zip(self.runs.get(OURS, []), self.runs.get(PEER, []), strict=False)
        return [ours["rate"] / peer["rate"] for ours, peer in pairs]

    def summary(self) -> dict[str, Any]:
        """The row as it goes into the result file."""
        result: dict[str, Any] = {
            "row": self.row.name,
            "unit": self.row.unit,
            "arguments": list(self.row.arguments),
            "ratio": self.ratio(),
            "ratios_by_round": self.ratios_by_round(),
        }
        for server, runs in self.runs.items():
            names = ("rate", "server_cpu_us", "server_cores", "generator_cpu_us", "generator_cores")
            medians: dict[str, Any] = {name: self.median(server, name) for name in names}
            if "latency_us" in runs[0]:
                medians["latency_us"] = {
                    name: self.latency_us(server, name) for name in runs[0]["latency_us"]
                }
            result[server] = medians | {"rounds": runs}
        return result


def measure(
    rows: Sequence[Row],
    servers: Mapping[str, Sequence[str]],
    load: Path,
    options: argparse.Namespace,
) -> list[Results]:
    """Every row on every server in every round; who comes first changes from round to round."""
    results = [Results(row, {server: [] for server in servers}) for row in rows]
    total = options.rounds * len(rows)
    for number in range(options.rounds):
        order = sorted(servers, reverse=number % 2 == 0)
        for done, result in enumerate(results, start=number * len(rows) + 1):
            progress(f"[{done}/{total}] round {number + 1}: {result.row.name}:", end="")
            turn = measure_turn(result.row, {name: servers[name] for name in order}, load, options)
            for server, run in turn.items():
                result.runs[server].append(run)
                progress(f" {server} {rate(run['rate'])}", end="")
            progress("")
    return results


def measure_turn(
    row: Row, servers: Mapping[str, Sequence[str]], load: Path, options: argparse.Namespace
) -> dict[str, dict[str, Any]]:
    """One row on all servers, again while others disturb it; the least disturbed attempt counts.

    All are measured again and not only the one that was disturbed, so that what is compared was
    measured under the same conditions, whatever they were.
    """
    turns: list[tuple[float, dict[str, dict[str, Any]]]] = []
    while len(turns) < options.attempts:
        nats_runs.wait_until_quiet(QUIET_CORES, options.wait)
        turn = {name: measure_once(row, servers[name], load, options) for name in servers}
        others_cores = max(float(run["others_cores"]) for run in turn.values())
        turns.append((others_cores, turn))
        if others_cores <= QUIET_CORES:
            break
        progress(f" (others used {others_cores:.2f} cores)", end="")
    return min(turns, key=lambda turn: turn[0])[1]


def measure_once(
    row: Row, command: Sequence[str], load: Path, options: argparse.Namespace
) -> dict[str, Any]:
    """One row on a server that was started for it."""
    with (
        tempfile.TemporaryDirectory(prefix="mq9-bench-") as folder,
        nats_runs.running(command, Path(folder)) as server,
    ):
        times = (f"--seconds={options.seconds}", f"--warmup={options.warmup}")
        arguments = [word for time in times for word in time.split("=")]
        return nats_runs.run_load(load, [*row.arguments, *arguments], server, options.cpu)


def progress(text: str, end: str = "\n") -> None:
    """Says on stderr what is going on."""
    sys.stderr.write(text + end)
    sys.stderr.flush()


def rate(per_second: float | None) -> str:
    """A rate for people."""
    if per_second is None:
        return ""
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if per_second >= size:
            return f"{per_second / size:.3g} {unit}/s"
    return f"{per_second:.3g} /s"


def table(results: Sequence[Results], servers: Sequence[str]) -> str:
    """The results as an aligned Markdown table."""
    both = len(servers) == 2
    header = ["", *servers]
    header += ["ratio", "by round"] if both else []
    header += [f"{server} CPU" for server in servers]
    header += [f"{server} p99" for server in servers]
    header += ["generator"]
    lines = []
    for result in results:
        cells = [result.row.name, *(rate(result.median(server, "rate")) for server in servers)]
        if both:
            ratios = result.ratios_by_round()
            ratio = result.ratio()
            cells += [f"{ratio:.2f}" if ratio else "", f"{min(ratios):.2f} to {max(ratios):.2f}"]
        cells += [micros(result.median(server, "server_cpu_us")) for server in servers]
        cells += [micros(result.latency_us(server, "p99")) for server in servers]
        shares = [result.median(server, "generator_cores") or 0.0 for server in servers]
        cells.append(" / ".join(f"{share:.0%}" for share in shares))
        lines.append(cells)
    widths = [max(len(line[at]) for line in [header, *lines]) for at in range(len(header))]
    lines[:0] = [header, ["-" * width for width in widths]]
    return "\n".join(
        "| "
        + " | ".join(f"{cell:{width}}" for cell, width in zip(line, widths, strict=True))
        + " |"
        for line in lines
    )


def micros(value: float | None) -> str:
    """Microseconds for people."""
    if value is None:
        return ""
    if value >= 10_000:
        return f"{value / 1000:.3g} ms"
    return f"{value:.0f} µs" if value >= 100 else f"{value:.3g} µs"


def machine() -> dict[str, Any]:
    """What the numbers depend on."""
    lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return {
        "cores": len(os.sched_getaffinity(0)),
        "processor": models[0] if models else platform.machine(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load_average": list(os.getloadavg()),
    }


def parse(words: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Compare mq9 with a real nats-server.")
    parser.add_argument("--rounds", type=int, help="how often each row is measured (5; quick: 1)")
    parser.add_argument("--seconds", type=float, help="how long each time (2; quick: 0.2)")
    parser.add_argument(
        "--warmup", type=float, help="seconds before, not counted (0.5; quick: 0.1)"
    )
    parser.add_argument("--attempts", type=int, help="most tries on a busy machine (4; quick: 1)")
    parser.add_argument(
        "--wait", type=float, help="most seconds for quiet before each (10; quick: 0)"
    )
    parser.add_argument("--quick", action="store_true", help="a smoke run: rates mean nothing")
    parser.add_argument("--only", default="", metavar="TEXT", help="rows whose name holds TEXT")
    parser.add_argument("--peer-only", action="store_true", help="only nats-server")
    parser.add_argument("--ours-only", action="store_true", help="only mq9")
    parser.add_argument("--peer-cmd", help="nats-server's command, without options")
    parser.add_argument("--mq9-cmd", help="mq9's command, without options: '... -m mq9 serve'")
    parser.add_argument("--load-cmd", type=Path, help="a built mq9-load; otherwise cargo builds it")
    parser.add_argument(
        "--cpu",
        type=int,
        default=max(os.sched_getaffinity(0)),
        help="the core of the load generator (%(default)s); -1: any",
    )
    parser.add_argument("--out", type=Path, default=Path(".build/bench-nats"), help="%(default)s")
    options = parser.parse_args(words)
    defaults = (1, 0.2, 0.1, 1, 0.0) if options.quick else (5, 2.0, 0.5, 4, 10.0)
    for name, default in zip(NUMBERS, defaults, strict=True):
        if getattr(options, name) is None:
            setattr(options, name, default)
    if min(options.rounds, options.attempts) < 1 or options.seconds <= 0:
        parser.error("--rounds, --attempts and --seconds must be more than 0")
    if options.peer_only and options.ours_only:
        parser.error("--peer-only and --ours-only exclude each other")
    return options


def main(words: Sequence[str] | None = None) -> int:
    """Measures, prints the table, writes the results and the plot."""
    options = parse(words)
    rows = [row for row in ROWS if options.only in row.name]
    if not rows:
        raise nats_runs.BenchError(
            f"--only {options.only}: no such row; there are: {', '.join(row.name for row in ROWS)}"
        )
    servers: dict[str, list[str]] = {}
    if not options.ours_only:
        servers[PEER] = shlex.split(options.peer_cmd or "") or [nats_runs.find_peer()]
    if not options.peer_only:
        servers[OURS] = shlex.split(options.mq9_cmd or "") or [sys.executable, "-m", "mq9", "serve"]
    load = options.load_cmd or nats_runs.build_load()
    before = machine()
    results = measure(rows, servers, load, options)
    options.out.mkdir(parents=True, exist_ok=True)
    settings = {name: getattr(options, name) for name in (*NUMBERS, "cpu")}
    document = {
        "machine": before,
        "settings": settings | {"quick": options.quick},
        "rows": [result.summary() for result in results],
    }
    (options.out / "result.json").write_text(json.dumps(document, indent=1) + "\n", "utf-8")
    sys.stdout.write(table(results, list(servers)) + "\n")
    if len(servers) == 2:
        bars = [
            ratio_plot.Bar(
                result.row.name,
                result.ratio() or 0.0,
                f"{rate(result.median(OURS, 'rate'))} to {rate(result.median(PEER, 'rate'))}",
            )
            for result in results
        ]
        plot = ratio_plot.svg("Rate of mq9, in parts of nats-server's", bars)
        (options.out / "ratio.svg").write_text(plot, "utf-8")
    others = statistics.median(
        run["others_cores"] for result in results for runs in result.runs.values() for run in runs
    )
    progress(f"other processes used {others:.2f} cores meanwhile; results are in {options.out}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except nats_runs.BenchError as error:
        progress(f"nats_core: {error}")
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
