"""All tables from all of an export, in one go."""

from collections.abc import Mapping

from pyspark.sql import SparkSession

from mq9_tables.folder import dataset
from mq9_tables.lifecycle import facts, gather
from mq9_tables.sla import TARGETS_MS
from mq9_tables.tables import Tables
from mq9_tables.update import rebuild


def run(
    spark: SparkSession, export: str, tables: str, targets_ms: Mapping[str, int] = TARGETS_MS
) -> Tables:
    """Reads the export under `export` and replaces the tables under `tables`."""
    found = facts(dataset(spark, export, "messages"), dataset(spark, export, "events"))
    into = Tables(spark, tables)
    rebuild(into, gather(found), targets_ms)
    return into
