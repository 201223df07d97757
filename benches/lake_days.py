"""A stream over simulated days: how large its state is, and how long a micro-batch takes.

    python benches/lake_days.py FOLDER [--days 90] [--a-day 2000]

Prints one line of JSON. Each micro-batch is about a day; all messages are settled in the end, so
what the stream remembers should not grow.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from mq9.lake import stream
from mq9.lake.jobs import running
from mq9.lake.output import rows_in

sys.path.insert(0, str(Path(__file__).parents[1] / "spark"))

from generate import Traffic


def main() -> None:
    """Reads the command line and does it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--days", type=int, default=90)
    parser.add_argument("--a-day", type=int, default=2000, help="messages of a day")
    asked = parser.parse_args()
    print(json.dumps(simulate(asked.folder, asked.days, asked.a_day)))


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
    begun = 0.0

    def tell(what: str) -> None:
        nonlocal begun
        now = time.monotonic()
        if what.startswith("micro-batch"):
            if begun:
                steps.append({"seconds": round(now - begun, 2), **sizes(tables)})
            begun = now
            sys.stderr.write(f"{what} {steps[-1:]}\n")

    with running("mq9-days", memory="2g", parallelism=4) as spark:
        stream.start(
            *(spark, str(export), str(tables), str(tables / "_checkpoint")),
            files_per_batch=truth.files // days,
            tell=tell,
        ).awaitTermination()
    steps.append({"seconds": round(time.monotonic() - begun, 2), **sizes(tables)})
    return {"days": days, "messages": truth.messages, "steps": steps}


def sizes(tables: Path) -> dict[str, int]:
    """What the stream remembers: rows of its state, and bytes of state and checkpoint."""
    parts = [tables / name for name in ("part_state", "part_mailboxes", "part_orphans")]
    files = [file for part in parts for file in part.rglob("*.parquet")]
    rows = sum(rows_in(str(file)) for file in files)
    kept = sum(file.stat().st_size for file in files)
    place = sum(
        file.stat().st_size for file in (tables / "_checkpoint").rglob("*") if file.is_file()
    )
    return {"state_rows": rows, "state_bytes": kept, "checkpoint_bytes": place}


if __name__ == "__main__":
    main()
