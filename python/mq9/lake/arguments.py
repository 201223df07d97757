"""Command-line arguments that the jobs in the folder `spark` share."""

import argparse
from contextlib import AbstractContextManager

from pyspark.sql import SparkSession

from mq9.lake.jobs import running
from mq9.lake.sla import TARGETS_MS


def parser(doc: str | None) -> argparse.ArgumentParser:
    """A parser with the arguments of every job."""
    made = argparse.ArgumentParser(description=(doc or "").splitlines()[0])
    made.add_argument("export", help="folder of the export: a path, or file:, s3a: or hdfs:")
    made.add_argument("tables", help="folder of the tables")
    made.add_argument("--master", help="of Spark; that of spark-submit or local[*] otherwise")
    made.add_argument("--parallelism", type=int, help="tasks of a shuffle")
    made.add_argument("--memory", help="heap of a local Spark, such as 4g")
    for priority, target_ms in TARGETS_MS.items():
        made.add_argument(
            f"--{priority}-ms",
            type=int,
            default=target_ms,
            metavar="MS",
            help=f"how long a message that is {priority} may wait ({target_ms})",
        )
    return made


def session(name: str, asked: argparse.Namespace) -> AbstractContextManager[SparkSession]:
    """The session that the arguments ask for, for as long as the job runs."""
    return running(
        name,
        master=asked.master,
        parallelism=asked.parallelism or 8,
        memory=asked.memory,
        lasting=getattr(asked, "every", None) is not None,
    )


def targets_ms(asked: argparse.Namespace) -> dict[str, int]:
    """The targets of the table `sla`."""
    return {priority: getattr(asked, f"{priority}_ms") for priority in TARGETS_MS}
