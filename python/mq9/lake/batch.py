"""All tables from all of an export, in one go."""

from collections.abc import Mapping

from pyspark.sql import SparkSession

from mq9.lake import folder, lifecycle, owner
from mq9.lake.owner import Owner
from mq9.lake.sla import TARGETS_MS
from mq9.lake.summed import hour_tables
from mq9.lake.tables import Tables, tasks_at_once
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
    with into.files.locked():
        into.recover()
        owner.let_build(into.files)
        if not files:
            into.commit(None, made_by=Owner())
            return into
        tasks = tasks_at_once(spark)
        layout = lifecycle.Layout.of(files, tasks, hours)
        made = hour_tables(targets_ms)
        lives = into.staging("message_lifecycle")
        target = lifecycle.Into(lives, folder=into.staging(""), tables=made)
        lifecycle.write(spark, files, target, layout)
        tell("message_lifecycle and the tables of hours")
        rebuild(into, made, tell)
    return into
