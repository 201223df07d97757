"""`make faults`: all fault tests of the real broker in one run, and the table of what came of them.

    python -m tests.faults [--kills N] [--report] [--only PART ...] [--data DIR --cut COMMAND]

Kills and power cuts run here, with a line for each; the rest are tests of this folder, and of the
simulated disk of the core, run with pytest and cargo. Owns the order, the sizes and the page;
decides nothing else.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
from tests.faults import shim
from tests.faults.kills import Outcome, Run
from tests.faults.power import MountedRun, PowerRun
from tests.faults.report import PARTS, ROWS, Row, record, rows, table, write_page
from tests.faults.streams import StreamPowerRun, StreamRun
from tests.faults.supervisor import report_line

ROOT = Path(__file__).parents[2]
WORK = ROOT / ".build" / "faults"
PAGE = ROOT / "docs" / "faults.md"

# Acknowledgements before a kill, on average: 500 kills come to over a million.
EACH = 2600
CUTS_PER_KILLS = 10
LEAST_CUTS = 10
FUZZ_SECONDS = 60
CLIENT_SECONDS = 5
FLIPS = 100
STEPS = 300

# Simulated disks, in the tests of the core: where each is, and what a run of it shows.
SIMULATED = {
    "crash": (
        "mq9-core",
        "power",
        "simulated disk: cut at every operation, at every sync of a long run, in recovery",
    ),
    "power_cut": ("mq9-export", "power", "simulated disk: an export cut at every operation"),
    "faults": ("mq9-core", "disk", "simulated disk: any call fails"),
    "corruption": ("mq9-core", "disk", "simulated disk: flips, cuts, lost and foreign files"),
}


def main() -> int:
    """Runs everything that was asked for; 0 if every promise was kept."""
    parser = argparse.ArgumentParser(prog="make faults", description="Fault tests of the broker.")
    parser.add_argument("--kills", type=int, default=20, help="how often to kill it (20)")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="for random moments")
    parser.add_argument("--report", action="store_true", help="write the table to docs/faults.md")
    parser.add_argument("--only", nargs="+", choices=PARTS, help="these parts only")
    parser.add_argument("--data", type=Path, help="an empty folder on a file system that forgets")
    parser.add_argument("--cut", help="the command that makes it forget what was not synced")
    asked = parser.parse_args()
    if (asked.data is None) != (asked.cut is None):
        parser.error("--data and --cut belong together: where the data is, and what cuts the power")
    parts = asked.only or list(PARTS)
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    os.environ[ROWS] = str(WORK / "rows.jsonl")
    began = time.monotonic()
    if asked.cut:
        work = [("power cuts", mounted_run(asked.kills, asked.seed, asked.data, asked.cut))]
    else:
        work = plan(asked.kills, asked.seed, parts)
    failed = [name for name, step in work if not step()]
    found = rows(WORK / "rows.jsonl")
    sys.stdout.write(f"\n{table(found)}\n\n")
    if asked.report:
        write_page(PAGE, found, said(asked.kills, time.monotonic() - began))
        sys.stdout.write(f"written to {PAGE.relative_to(ROOT)}\n")
    if failed:
        sys.stdout.write(f"FAILED: {', '.join(failed)}\n")
        return 1
    sys.stdout.write("all promises were kept, and every control was found out\n")
    return 0


def plan(kills: int, seed: int, parts: list[str]) -> list[tuple[str, Callable[[], bool]]]:
    """What is to be done, in order: a name, and what says whether it went well."""
    found: list[tuple[str, Callable[[], bool]]] = []
    if "kill" in parts:
        for turn, sync in enumerate(("always", "interval")):
            count = (kills + 1 - turn) // 2
            found.append((f"kills, sync {sync}", kill_run(Run, "", sync, count, seed + turn)))
            name = f"kills of streams, sync {sync}"
            found.append((name, kill_run(StreamRun, ", streams", sync, count, seed + turn)))
    if "power" in parts and shim.missing() is None:
        cuts = max(LEAST_CUTS, kills // CUTS_PER_KILLS)
        found.append(("power cuts", power_run(PowerRun, "", cuts, seed)))
        found.append(("power cuts of streams", power_run(StreamPowerRun, ", streams", cuts, seed)))
    if files := tests_of(parts):
        found.append(("tests", lambda: pytest(files)))
    for target, (package, part, fault) in SIMULATED.items():
        if part in parts and shutil.which("cargo"):
            found.append((f"cargo test {target}", cargo(package, target, part, fault)))
    return found


def kill_run(kind: type[Run], what: str, sync: str, kills: int, seed: int) -> Callable[[], bool]:
    """Kills under load."""

    def work() -> bool:
        report_line(f"\n{kills} kills{what}, sync {sync}, seed {seed}")
        folder = WORK / f"kills-{kind.__name__}-{sync}"
        outcome = kind(folder, sync, seed).play(kills, EACH, report_line)
        return booked(outcome, "kill", f"SIGKILL under load{what}, sync {sync}", folder)

    return work


def power_run(kind: type[PowerRun], what: str, cuts: int, seed: int) -> Callable[[], bool]:
    """Power cuts under load."""

    def work() -> bool:
        report_line(f"\n{cuts} power cuts{what}, sync always, seed {seed}")
        folder = WORK / f"power-{kind.__name__}"
        run = kind(folder, "always", seed)
        outcome = run.play(cuts, EACH, report_line)
        note = f"{run.undone} unsynced changes taken back"
        return booked(outcome, "power", f"power cut under load{what}, sync always", folder, note)

    return work


def mounted_run(cuts: int, seed: int, data: Path, cut: str) -> Callable[[], bool]:
    """Power cuts on a file system that was mounted for it."""

    def work() -> bool:
        report_line(f"\n{cuts} power cuts in {data}, sync always, seed {seed}")
        folder = WORK / "mounted"
        run = MountedRun(folder, "always", seed, data=data, cut=cut)
        fault = "power cut under load, on a file system that forgets"
        return booked(run.play(cuts, EACH, report_line), "power", fault, folder)

    return work


def booked(outcome: Outcome, part: str, fault: str, folder: Path, note: str = "") -> bool:
    """Writes down what a run came to; its folder stays if something was wrong."""
    reordered = outcome.broken["reordered"]
    note = f"{note}; " if note else ""
    note += f"{reordered} reordered; {outcome.repeated:,} unacknowledged delivered again; "
    note += f"{outcome.segments_gone} segments compacted away; {outcome.dead:,} dead letters; "
    note += f"{outcome.exported:,} messages exported once"
    record(
        Row(
            part,
            fault,
            outcome.kills,
            outcome.acknowledged,
            outcome.lost,
            outcome.doubled,
            outcome.times.ready_s[1:],
            outcome.times.fetch_s[1:],
            note,
        )
    )
    rate = outcome.acknowledged / max(outcome.seconds, 1)
    report_line(f"{outcome.acknowledged:,} acknowledged in {outcome.seconds:.0f} s ({rate:,.0f}/s)")
    if outcome.violations:
        report_line("\n".join([f"broken: {dict(outcome.broken)}", *outcome.violations]))
        report_line(f"the ledger and the data are in {folder}")
        return False
    shutil.rmtree(folder)
    return True


def tests_of(parts: list[str]) -> list[str]:
    """The files of this folder that hold the tests of these parts."""
    files = {
        "kill": [
            "test_check",
            "test_check_export",
            "test_check_streams",
            "test_kills",
            "test_kills_streams",
            "test_store_processes",
            "test_order_under_load",
            "test_registry_crash",
            "test_export_of_dead_segments",
        ],
        "power": ["test_kills"],
        "disk": [
            "test_disk_errors",
            "test_bit_flips",
            "test_bit_flips_export",
            "test_registry_crash",
        ],
        "clock": ["test_clock", "test_expiry"],
        "clients": ["test_clients", "test_server_floods", "test_server_hostile"],
    }
    return sorted({f"tests/faults/{name}.py" for part in parts for name in files[part]})


def pytest(files: list[str]) -> bool:
    """The tests in these files, except for the runs that were done here already."""
    report_line(f"\npytest {' '.join(files)}")
    sizes = {
        "MQ9_FAULTS_FUZZ_S": str(FUZZ_SECONDS),
        "MQ9_FAULTS_CLIENT_S": str(CLIENT_SECONDS),
        "MQ9_FAULTS_FLIPS": str(FLIPS),
    }
    done = "not test_kills_lose_nothing and not test_power_cuts_lose_nothing"
    command = [sys.executable, "-m", "pytest", "-q", "-k", done, *files]
    return subprocess.run(command, cwd=ROOT, env=os.environ | sizes, check=False).returncode == 0


def cargo(package: str, target: str, part: str, fault: str) -> Callable[[], bool]:
    """Tests of the core on simulated disks."""

    def work() -> bool:
        report_line(f"\ncargo test --test {target}")
        command = ["cargo", "test", "--locked", "-p", package, "--test", target]
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=os.environ | {"MQ9_FAULTS_STEPS": str(STEPS)},
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        if done.returncode:
            report_line(done.stdout)
            return False
        passed = sum(int(count) for count in re.findall(r"(\d+) passed", done.stdout))
        controls = len(re.findall(r"^test control_", done.stdout, re.MULTILINE))
        note = f"{passed} tests in process" + (f", {controls} of them controls" if controls else "")
        record(Row(part, fault, passed, note=note))
        return True

    return work


def said(kills: int, seconds: float) -> str:
    """Where and when the table was made."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    memory = psutil.virtual_memory().total / 2**30
    today = time.strftime("%Y-%m-%d")
    return (
        f"`make faults N={kills} ARGS=--report` on {today}, at {commit or 'an unpacked archive'}: "
        f"{os.cpu_count()} cores, {memory:.0f} GiB, {seconds / 60:.0f} minutes."
    )


if __name__ == "__main__":
    sys.exit(main())
