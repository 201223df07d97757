"""A stream over simulated days: how large its state is, and how long a micro-batch takes.

    python benches/lake_days.py FOLDER [--days 90] [--a-day 2000]

Prints a line of JSON after each micro-batch: all that was measured so far. Each micro-batch is
about a day; all messages are settled in the end, so what the stream remembers should not grow:
`verdict` compares the last third of the days with the third before, in rows of state, in processor
time and in seconds. The program fails if rows or processor time grew; seconds also tell what else
the machine did.
"""

import argparse
import json
import sys
import time
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from mq9.lake import stream
from mq9.lake.jobs import running
from mq9.lake.output import rows_in

sys.path.insert(0, str(Path(__file__).parents[1] / "spark"))

from generate import Traffic

# Grown by more than this, it is not flat: days differ, and the machine may have other work.
MOST_TIMES = 1.25
JUDGED = ("state_rows", "processor_s")


def main() -> None:
    """Reads the command line and does it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--days", type=int, default=90)
    parser.add_argument("--a-day", type=int, default=2000, help="messages of a day")
    asked = parser.parse_args()
    result = simulate(asked.folder, asked.days, asked.a_day)
    grown = [name for name in JUDGED if not result["verdict"][name]["flat"]]
    if grown:
        sys.exit(f"it grows: {', '.join(grown)}")


def simulate(folder: Path, days: int, a_day: int) -> dict[str, Any]:
    """Makes an export of some days and follows it, a day at a time."""
    export, tables = folder / "export", folder / "tables"
    traffic = Traffic(
        days * a_day,
        hours=24.0 * days,
        agents=12,
        chunk=a_day,
        settles=True,
        records_per_file=10**9,
    )
    truth = traffic.write(export)
    steps: list[dict[str, float]] = []
    begun = worked = 0.0

    def done() -> None:
        nonlocal begun, worked
        now, spent = time.monotonic(), processor_s()
        if begun:
            took = {"seconds": round(now - begun, 2), "processor_s": round(spent - worked, 2)}
            steps.append({**took, **sizes(tables)})
            print(json.dumps(so_far()), flush=True)
        begun, worked = now, spent

    def so_far() -> dict[str, Any]:
        names = (*JUDGED, "seconds")
        return {
            "days": days,
            "messages": truth.messages,
            "steps": steps,
            "verdict": {name: verdict(steps, name) for name in names},
        }

    def tell(what: str) -> None:
        if what.startswith("micro-batch"):
            done()
            sys.stderr.write(f"{what} {steps[-1:]}\n")

    with running("mq9-days", memory="2g", parallelism=4, lasting=True) as spark:
        stream.start(
            *(spark, str(export), str(tables), str(tables / "_checkpoint")),
            files_per_batch=truth.files // days,
            tell=tell,
        ).awaitTermination()
        done()
    return so_far()


def verdict(steps: list[dict[str, float]], name: str) -> dict[str, float | bool]:
    """How much more the last third has than the third before, in the middle of each."""
    third = max(1, len(steps) // 3)
    last, before = (
        median(step[name] for step in part)
        for part in (steps[-third:], steps[-2 * third : -third] or steps)
    )
    times = round(last / max(before, 1e-9), 2)
    return {"times": times, "flat": times <= MOST_TIMES}


def processor_s() -> float:
    """What this process and all that it started have worked, Java and its Python included."""
    mine = psutil.Process()
    found = 0.0
    for each in (mine, *mine.children(recursive=True)):
        # One that ends meanwhile is among the children of its parent.
        with suppress(psutil.NoSuchProcess):
            t = each.cpu_times()
            found += t.user + t.system + t.children_user + t.children_system
    return found


def sizes(tables: Path) -> dict[str, int]:
    """What the stream remembers: rows of its state, and bytes of state and checkpoint."""
    parts = [tables / name for name in ("part_state", "part_mailboxes", "part_orphans")]
    # Of the balances of days only the last is looked at.
    parts += sorted((tables / "part_balance").glob("date=*"))[-1:]
    files = [file for part in parts for file in part.rglob("*.parquet")]
    rows = sum(rows_in(str(file)) for file in files)
    kept = sum(file.stat().st_size for file in files)
    place = sum(
        file.stat().st_size for file in (tables / "_checkpoint").rglob("*") if file.is_file()
    )
    return {"state_rows": rows, "state_bytes": kept, "checkpoint_bytes": place}


if __name__ == "__main__":
    main()
