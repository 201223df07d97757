"""The tables kept up to date while an export grows.

The state of the stream is the gathered facts of every message, so rows may come late, twice and in
any order. A micro-batch that was cut off is done again by Spark with the same rows, and `update`
gives the same tables however often it runs: each row counts exactly once.
"""

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from mq9_tables.lifecycle import facts, gather
from mq9_tables.sla import TARGETS_MS
from mq9_tables.tables import Tables
from mq9_tables.update import update


def start(
    spark: SparkSession,
    export: str,
    tables: str,
    checkpoint: str,
    *,
    every_s: float | None = None,
    files_per_batch: int | None = None,
    targets_ms: Mapping[str, int] = TARGETS_MS,
) -> StreamingQuery:
    """Starts the stream; without `every_s` it ends when it has read what is there now."""
    into = Tables(spark, tables)

    def read(dataset: str) -> DataFrame:
        source = spark.readStream.format("mq9").option("dataset", dataset)
        if files_per_batch is not None:
            source = source.option("maxFilesPerTrigger", files_per_batch)
        return source.load(export)

    def apply(changed: DataFrame, _batch: int) -> None:
        update(into, changed, targets_ms)

    writer = (
        gather(facts(read("messages"), read("events")))
        .writeStream.queryName("mq9-tables")
        .outputMode("update")
        .option("checkpointLocation", checkpoint)
        .foreachBatch(apply)
    )
    if every_s is None:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{every_s} seconds").start()
