"""The whole way once: traffic through a real broker, export, all jobs, report.

Starts a broker of its own on a free port of this machine, lets agents write to each other, stops
it, exports its data directory and runs the batch, the stream and the report. Batch and stream
must give the same tables, and the tables must say what the agents know they did.
"""

import argparse
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from pyspark.sql import functions as F

import live_traffic
from mq9.spark import session
from mq9_report.figures import figures
from mq9_report.page import write
from mq9_tables import batch, stream
from mq9_tables.tables import FOR_READERS, Tables

Made = TypeVar("Made")


class Differs(Exception):  # noqa: N818
    """Two things that must be the same are not."""


def main() -> None:
    """Reads the command line and does it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="for all that is made; emptied first")
    parser.add_argument("--messages", type=int, default=20_000)
    asked = parser.parse_args()
    shutil.rmtree(asked.folder, ignore_errors=True)
    asked.folder.mkdir(parents=True)
    export = asked.folder / "export"
    outcomes = timed("traffic and export", lambda: exported(asked.folder, export, asked.messages))
    spark = session("mq9-pipeline", memory="2g", parallelism=4)
    spark.sparkContext.setLogLevel("ERROR")
    tables = timed("batch", lambda: batch.run(spark, str(export), str(asked.folder / "tables")))
    streamed = Tables(spark, str(asked.folder / "streamed"))

    def follow() -> None:
        checkpoint = str(asked.folder / "checkpoint")
        stream.start(spark, str(export), streamed.root, checkpoint).awaitTermination()

    timed("stream", follow)
    timed("comparison", lambda: compare(tables, streamed, outcomes))
    paths = timed("report", lambda: write(figures(tables), asked.folder / "report"))
    print(f"the report is {paths[0]}")
    spark.stop()


def timed(name: str, what: Callable[[], Made]) -> Made:
    """Does something and says how long it took."""
    start = time.monotonic()
    made = what()
    print(f"{name}: {time.monotonic() - start:.1f} s", flush=True)
    return made


def exported(folder: Path, export: Path, messages: int) -> Counter[str]:
    """An export of traffic, and what became of the messages."""
    outcomes = live_traffic.run(folder / "broker", messages)
    command = [sys.executable, "-m", "mq9", "export", "--data", str(folder / "broker" / "data")]
    subprocess.run([*command, "--out", str(export)], check=True)
    return outcomes


def compare(tables: Tables, streamed: Tables, outcomes: Counter[str]) -> None:
    """Holds the tables against each other, and against what the agents know."""
    for name in FOR_READERS:
        ours, theirs = tables.read(name), streamed.read(name)
        if ours is None or theirs is None:
            if (ours is None) != (theirs is None):
                raise Differs(f"{name}: only one of batch and stream has rows")
            continue
        theirs = theirs.select(*ours.columns)
        if not (ours.exceptAll(theirs).isEmpty() and theirs.exceptAll(ours).isEmpty()):
            raise Differs(f"{name}: batch and stream differ")
    lives = tables.read("message_lifecycle")
    if lives is None:
        raise Differs("message_lifecycle is empty")
    # What went to a dead-letter mailbox is a message there as well, which nobody sent.
    sent = lives.where(F.col("counts") & ~F.col("mailbox").endswith(live_traffic.DEAD))
    found = Counter(
        {row["outcome"]: row["count"] for row in sent.groupBy("outcome").count().collect()}
    )
    if found != outcomes:
        raise Differs(f"the tables say {dict(found)}, the agents know {dict(outcomes)}")
    print(", ".join(f"{count} {name}" for name, count in sorted(found.items())))


if __name__ == "__main__":
    main()
