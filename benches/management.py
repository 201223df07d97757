"""What it costs SENDs to be watched: metrics each second, the page in browsers, many mailboxes.

Three states take turns in every round: a broker without management, one whose management, browsers
and scraper are stopped (SIGSTOP), and the same one while they run. Owns the order and the ratios;
who watches is in management_watchers.py, the page in management_report.py.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import management_report
import nats_runs
import psutil
from bystanders import family_s
from mailboxes import file_system
from nats_core import QUIET_CORES, machine, progress
from nats_runs import ROOT, BenchError, Server, machine_busy_s, run_load, running
from plain_client import Client
from server_questions import free_port

WITHOUT, STOPPED, WITH = "without", "stopped", "with"
STATES = (WITHOUT, STOPPED, WITH)
GOAL = 0.03
BOX, PREFIX, NUMBER = "bench", "m", "%%%%%%%%%%%%"
READY_S, AGAIN_S = 120.0, 60.0
# After a stop: until all that has waited is done, and the pages ask at their pace again.
SETTLE_S = 2.5
SETTINGS = {"rounds": 9, "seconds": 1.5, "warmup": 0.4, "mailboxes": 100_000, "wait": 3.0}
QUICK_SETTINGS = {"rounds": 1, "seconds": 0.3, "warmup": 0.1, "mailboxes": 500, "wait": 0.0}

Run: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Row:
    """One load."""

    name: str
    title: str
    arguments: str
    """Of the load generator; whether it goes to one mailbox or to all, `is_spread` says."""
    is_spread: bool = False
    has_rate: bool = True
    """Whether the rate is what the broker takes, and not what it is given."""


ROWS = (
    Row("one", "as many as it takes, into one mailbox", "--connections 8 --window 64"),
    Row(
        "all",
        "as many as it takes, into all mailboxes in turn",
        "--connections 8 --window 64",
        is_spread=True,
    ),
    Row(
        "even",
        "5,000 a second, into all mailboxes in turn",
        "--connections 8 --window 8192 --rate 5000",
        is_spread=True,
        has_rate=False,
    ),
)


@dataclass
class Site:
    """A broker with its mailboxes, and who watches it, if anybody does."""

    server: Server
    url: str = ""
    watchers: subprocess.Popen[str] | None = None

    def watching(self) -> list[psutil.Process]:
        """Management and everything that asks it."""
        roots = [psutil.Process(self.server.pid)]
        roots += [psutil.Process(self.watchers.pid)] if self.watchers else []
        children = [child for root in roots for child in root.children(recursive=True)]
        return children + roots[1:]

    def stop(self) -> None:
        """Nobody watches, from now on."""
        for process in self.watching():
            process.suspend()

    def go_on(self) -> None:
        """They watch again; returns when they have made up for what they have missed."""
        for process in self.watching():
            process.resume()
        wait_healthy(self.url)
        time.sleep(SETTLE_S)

    def asked(self) -> dict[str, int]:
        """How much was asked so far."""
        assert self.watchers is not None
        assert self.watchers.stdin is not None
        assert self.watchers.stdout is not None
        self.watchers.stdin.write("\n")
        self.watchers.stdin.flush()
        line = self.watchers.stdout.readline()
        if not line:
            raise BenchError("the watchers have ended: what they said is above")
        found: dict[str, int] = json.loads(line)
        return found


class Comparison:
    """All rows in all states."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.options = options
        self.folder = folder
        self.load: Path = options.load_cmd or nats_runs.build_load()
        self.runs: dict[str, dict[str, list[Run]]] = {
            row.name: {state: [] for state in STATES} for row in ROWS
        }

    def measure(self) -> None:
        """All rounds; who is first changes with each."""
        with self.site(watched=False) as alone, self.site(watched=True) as watched:
            progress(f"both brokers have {self.options.mailboxes:,} mailboxes")
            for number in range(self.options.rounds):
                at = number % len(STATES)
                for state in STATES[at:] + STATES[:at]:
                    self.turn(alone if state == WITHOUT else watched, state)
                self.tell(number)

    @contextmanager
    def site(self, *, watched: bool) -> Iterator[Site]:
        """A broker with mailboxes; watched, with all that watches it, stopped."""
        folder = self.folder / ("watched" if watched else "alone")
        folder.mkdir()
        listen = f"127.0.0.1:{free_port()}"
        management = f'management {{ listen: "{listen}" }}' if watched else "management: off"
        settings = folder / "mq9.conf"
        settings.write_text(f"mq9 {{ {management}\n embedder: none }}\n", "utf-8")
        command = [sys.executable, "-m", "mq9", "serve", "-c", str(settings)]
        command += ["--data", str(folder / "data"), "--sync", self.options.sync]
        with running(command, folder) as server:
            fill(self.load, server, self.options.mailboxes)
            site = Site(server)
            if not watched:
                yield site
                return
            site.url = f"http://{listen}"
            wait_healthy(site.url)
            with watching(site.url, self.options.browsers) as site.watchers:
                site.stop()
                try:
                    yield site
                finally:
                    site.go_on()

    def turn(self, site: Site, state: str) -> None:
        """Every row once in this state."""
        if state == WITH:
            site.go_on()
        nats_runs.wait_until_quiet(QUIET_CORES if state != WITH else 2.0, self.options.wait)
        for row in ROWS:
            self.runs[row.name][state].append(self.once(row, site, state))
        if state == WITH:
            site.stop()

    def once(self, row: Row, site: Site, state: str) -> Run:
        """One measurement, and how much was asked meanwhile."""
        subject = f"{PREFIX}{NUMBER}" if row.is_spread else BOX
        words = ["request", "--responders", "0", "--subject", f"$mq9.AI.MSG.SEND.{subject}"]
        words += ["--expect", '{"error":"","msg_id":', *row.arguments.split()]
        words += ["--spread", str(self.options.mailboxes)] if row.is_spread else []
        words += ["--seconds", str(self.options.seconds), "--warmup", str(self.options.warmup)]
        asked = site.asked() if state == WITH else {}
        watching_s = sum_s(site.watching())
        began, busy_s, own_s = time.monotonic(), machine_busy_s(), family_s(os.getpid())
        run = run_load(self.load, words, site.server, self.options.cpu)
        passed = time.monotonic() - began
        others_s = machine_busy_s() - busy_s - (family_s(os.getpid()) - own_s)
        run |= {"others_cores": max(others_s, 0.0) / passed}
        run["watching_cores"] = (sum_s(site.watching()) - watching_s) / passed
        if state == WITH:
            run |= {name: (n - asked[name]) / passed for name, n in site.asked().items()}
        if not row.is_spread:
            client = Client(site.server.address)
            client.ask(f"MAILBOX.PURGE.{BOX}", {})
            client.close()
        return run

    def tell(self, number: int) -> None:
        """What a round has brought."""
        found = [
            f"{row.name} {ratio(self.runs[row.name], 'rate')[-1]:.3f}"
            if row.has_rate
            else f"{row.name} p99 {ratio(self.runs[row.name], 'p99')[-1]:.2f}"
            for row in ROWS
        ]
        progress(f"round {number + 1} of {self.options.rounds}, with to without: {found}")


def fill(load: Path, server: Server, mailboxes: int) -> None:
    """The mailboxes that are sent to."""
    client = Client(server.address)
    client.ask("MAILBOX.CREATE", {"name": BOX})
    client.close()
    words = ["create", "--what", "mailbox", "--prefix", PREFIX, "--count", str(mailboxes)]
    run_load(load, [*words, "--connections", "4"], server, -1, READY_S)


def wait_healthy(url: str) -> None:
    """Returns when management follows its broker."""
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"{url}/healthz", timeout=10):
                return
        except (urllib.error.URLError, TimeoutError, ConnectionError):
            time.sleep(0.1)
    raise BenchError(f"management at {url} does not follow its broker")


@contextmanager
def watching(url: str, browsers: int) -> Iterator[subprocess.Popen[str]]:
    """Browsers and a scraper, when all pages are drawn."""
    command = [sys.executable, str(Path(__file__).with_name("management_watchers.py"))]
    command += [url, str(browsers)]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        if process.stdout.readline() != "ready\n":
            raise BenchError("the page could not be opened: why is above")
        yield process
    finally:
        family = psutil.Process(process.pid).children(recursive=True)
        process.stdin.close()
        try:
            process.wait(AGAIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for each in psutil.wait_procs(family, timeout=5)[1]:
            each.kill()
        process.stdout.close()


def sum_s(processes: Sequence[psutil.Process]) -> float:
    """Processor time of these so far."""
    total = 0.0
    for process in processes:
        try:
            total += sum(process.cpu_times()[:2])
        except psutil.NoSuchProcess:
            continue
    return total


def number_of(run: Run, name: str) -> float:
    """A number of a run: one of its latencies, or one of its own."""
    return float(run["latency_us"][name] if name.startswith("p") else run[name])


def ratio(runs: Mapping[str, Sequence[Run]], name: str, to: str = WITHOUT) -> list[float]:
    """With to another state, of each round."""
    pairs = zip(runs[WITH], runs[to], strict=True)
    return [number_of(ours, name) / number_of(theirs, name) for ours, theirs in pairs]


def summary(row: Row, runs: Mapping[str, Sequence[Run]]) -> dict[str, Any]:
    """Medians of the rounds, and of the ratios within each: a machine drifts between them."""
    names = ("rate", "p50", "p99", "server_cpu_us", "server_cores", "others_cores")
    medians = {
        state: {name: statistics.median(number_of(run, name) for run in found) for name in names}
        for state, found in runs.items()
    }
    compared = ("rate", "p99", "server_cpu_us")
    return {
        "row": row.name,
        "title": row.title,
        "has_rate": row.has_rate,
        "medians": medians,
        "ratios": {name: ratio(runs, name) for name in compared},
        "ratios_to_stopped": {name: ratio(runs, name, STOPPED) for name in compared},
        "meanwhile": {
            name: statistics.median(run[name] for run in runs[WITH])
            for name in ("scrapes", "requests", "watching_cores")
        },
        "rounds": runs,
    }


def parse(words: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, help="how often each row is measured (9; quick: 1)")
    parser.add_argument("--seconds", type=float, help="how long each time (1.5; quick: 0.3)")
    parser.add_argument("--warmup", type=float, help="the same before (0.4; quick: 0.1)")
    parser.add_argument("--mailboxes", type=int, help="how many there are (100000; quick: 500)")
    parser.add_argument("--wait", type=float, help="most seconds for quiet (3; quick: 0)")
    parser.add_argument("--browsers", type=int, default=3, help="%(default)s")
    parser.add_argument("--quick", action="store_true", help="a smoke run: numbers mean nothing")
    parser.add_argument("--sync", default="interval", choices=("interval", "always", "none"))
    parser.add_argument("--load-cmd", type=Path, help="a built mq9-load; otherwise cargo builds it")
    parser.add_argument(
        "--cpu", type=int, default=-1, help="the core of the load generator; -1: any"
    )
    parser.add_argument("--out", type=Path, help=".build/bench-management; quick: ...-quick")
    parser.add_argument("--report", action="store_true", help="write the page into --docs")
    parser.add_argument("--stored", action="store_true", help="measure nothing: what --out has")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", help="%(default)s")
    options = parser.parse_args(words)
    name = "bench-management-quick" if options.quick else "bench-management"
    options.out = (options.out or ROOT / ".build" / name).resolve()
    for name, default in (QUICK_SETTINGS if options.quick else SETTINGS).items():
        if getattr(options, name) is None:
            setattr(options, name, default)
    if min(options.rounds, options.mailboxes) < 1 or options.seconds <= 0:
        parser.error("--rounds, --mailboxes and --seconds must be more than 0")
    return options


def measure(options: argparse.Namespace, file: Path) -> None:
    """Measures everything and keeps it."""
    options.out.mkdir(parents=True, exist_ok=True)
    kind = file_system(options.out)
    with tempfile.TemporaryDirectory(prefix="data-", dir=options.out) as folder:
        comparison = Comparison(options, Path(folder))
        comparison.measure()
    document = {
        "machine": machine() | {"file_system": kind},
        "measured": time.strftime("%Y-%m-%d"),
        "settings": {name: getattr(options, name) for name in (*SETTINGS, "browsers", "sync")},
        "goal": GOAL,
        "rows": [summary(row, comparison.runs[row.name]) for row in ROWS],
    }
    file.write_text(json.dumps(document, indent=1) + "\n", "utf-8")


def main(words: Sequence[str] | None = None) -> int:
    """Measures, prints the tables, and writes the page if that was asked for."""
    options = parse(words)
    file = options.out / "result.json"
    if not options.stored:
        measure(options, file)
    if not file.exists():
        raise BenchError(f"there is no {file}: measure first")
    document = json.loads(file.read_text("utf-8"))
    sys.stdout.write(management_report.tables(document) + "\n")
    if options.report:
        progress(f"written: {management_report.write(document, options.docs)}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BenchError as error:
        progress(f"management: {error}")
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
