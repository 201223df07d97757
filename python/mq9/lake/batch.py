"""All tables from all of an export, in one go."""

from collections.abc import Mapping

from pyspark.sql import SparkSession

from mq9.lake import folder, lifecycle
from mq9.lake.sla import TARGETS_MS
from mq9.lake.tables import Tables
from mq9.lake.update import Tell, rebuild


def silent(_: str) -> None:
    """Tells nobody."""


def run(
    spark: SparkSession,
    export: str,
    tables: str,
    targets_ms: Mapping[str, int] = TARGETS_MS,
    tell: Tell = silent,
) -> Tables:
    """Reads the export under `export` and replaces the tables under `tables`."""
    files, hours = folder.files(export)
    into = Tables(spark, tables)
    into.recover()
    if not files:
        into.commit(None)
        return into
    tasks = int(spark.sparkContext.defaultParallelism)
    layout = lifecycle.Layout.of(files, tasks, hours)
    target = lifecycle.Into(into.staging("message_lifecycle"))
    lifecycle.write(spark, files, target, layout)
    tell("message_lifecycle")
    rebuild(into, targets_ms, tell)
    return into
