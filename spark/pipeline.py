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
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import TypeVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import live_traffic
from live_traffic import DEAD, Life
from mq9.lake import batch, stream
from mq9.lake.report.figures import Figures, figures
from mq9.lake.report.page import write
from mq9.lake.tables import FOR_READERS, Tables
from mq9.spark import session

Made = TypeVar("Made")


class Differs(Exception):  # noqa: N818
    """Two things that must be the same are not."""


@dataclass(frozen=True)
class Done:
    """What the agents know, and what was made of their traffic."""

    lives: list[Life]
    tables: Tables
    streamed: Tables
    numbers: Figures
    report: list[Path]


def main() -> None:
    """Reads the command line and does it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="for all that is made; emptied first")
    parser.add_argument("--messages", type=int, default=20_000)
    asked = parser.parse_args()
    shutil.rmtree(asked.folder, ignore_errors=True)
    spark = session("mq9-pipeline", memory="2g", parallelism=4)
    spark.sparkContext.setLogLevel("ERROR")
    done = run(spark, asked.folder, asked.messages)
    outcomes = Counter(life.outcome for life in done.lives)
    print(", ".join(f"{count} {name}" for name, count in sorted(outcomes.items())))
    print(f"the report is {done.report[0]}")
    spark.stop()


def run(
    spark: SparkSession, folder: Path, messages: int, *, at_once: int = live_traffic.BATCH
) -> Done:
    """Traffic of so many messages, `at_once` in a round, and all that is made of it."""
    export = folder / "export"
    lives = timed("traffic and export", lambda: exported(folder, export, messages, at_once))
    tables = timed("batch", lambda: batch.run(spark, str(export), str(folder / "tables")))
    streamed = Tables(spark, str(folder / "streamed"))

    def follow() -> None:
        checkpoint = str(folder / "checkpoint")
        stream.finish(lambda: stream.start(spark, str(export), streamed.root, checkpoint))

    timed("stream", follow)
    timed("comparison", lambda: compare(tables, streamed, lives))
    numbers = timed("numbers of the report", lambda: figures(tables))
    report = timed("report", lambda: write(numbers, folder / "report"))
    return Done(lives, tables, streamed, numbers, report)


def timed(name: str, what: Callable[[], Made]) -> Made:
    """Does something and says how long it took."""
    start = time.monotonic()
    made = what()
    print(f"{name}: {time.monotonic() - start:.1f} s", flush=True)
    return made


def exported(folder: Path, export: Path, messages: int, at_once: int) -> list[Life]:
    """An export of traffic, and what became of the messages."""
    lives = live_traffic.run(folder / "broker", messages, batch=at_once)
    command = [sys.executable, "-m", "mq9", "export", "--data", str(folder / "broker" / "data")]
    subprocess.run([*command, "--out", str(export)], check=True)
    return lives


def compare(tables: Tables, streamed: Tables, lives: Sequence[Life]) -> None:
    """Holds the tables against each other, and against what the agents know, row by row."""
    for name in FOR_READERS:
        ours, theirs = tables.read(name), streamed.read(name)
        if ours is not None and theirs is not None:
            _hold(f"{name}: batch and stream", ours, theirs)
        elif ours is not None or theirs is not None:
            raise Differs(f"{name}: only one of batch and stream has rows")
    found = tables.read("message_lifecycle")
    if found is None:
        raise Differs("message_lifecycle is empty")
    # What went to a dead-letter mailbox is a message there as well, which nobody sent.
    sent = found.where(~F.col("mailbox").endswith(DEAD))
    sent = sent.select(*(column.name for column in fields(Life)))
    known = tables.spark.createDataFrame([astuple(life) for life in lives], sent.schema)
    _hold("message_lifecycle: the tables and what the agents know", sent, known)


def _hold(what: str, ours: DataFrame, theirs: DataFrame) -> None:
    """Each row must be there as often on one side as on the other."""
    sides = ours.withColumn("surplus", F.lit(1)).unionByName(
        theirs.withColumn("surplus", F.lit(-1))
    )
    counted = sides.groupBy(*ours.columns).agg(F.sum("surplus").alias("surplus"))
    differing = counted.where("surplus <> 0").take(2)
    if differing:
        rows = "; ".join(
            f"{row.asDict()} is only in the {'first' if row['surplus'] > 0 else 'second'}"
            for row in differing
        )
        raise Differs(f"{what} differ: {rows}")


if __name__ == "__main__":
    main()
