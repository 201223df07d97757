"""The tables kept up to date while an export grows.

Spark keeps the place in the export; all else is in tables (`changes`). A micro-batch that was cut
off is done again with the same files and gives the same tables: each row counts exactly once.
"""

import json
from collections.abc import Mapping
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.utils import is_remote

from mq9.lake import owner
from mq9.lake.batch import silent
from mq9.lake.changes import apply
from mq9.lake.files import Files
from mq9.lake.lifecycle import File
from mq9.lake.sla import TARGETS_MS
from mq9.lake.tables import Tables
from mq9.lake.update import Tell

# A job that was started by mistake is refused soon, and should not end a stream of months.
PATIENCE_S = 60.0


def start(
    spark: SparkSession,
    export: str,
    tables: str,
    checkpoint: str,
    *,
    every_s: float | None = None,
    files_per_batch: int | None = None,
    targets_ms: Mapping[str, int] = TARGETS_MS,
    tell: Tell = silent,
) -> StreamingQuery:
    """Starts the stream; without `every_s` it ends when it has read what is there now."""
    # With Spark Connect a micro-batch runs where Spark is, with a session of its own.
    here = None if is_remote() else spark
    source = spark.readStream.format("mq9").option("dataset", "files")
    if files_per_batch is not None:
        source = source.option("maxFilesPerTrigger", files_per_batch)

    def bring(listed: DataFrame, number: int) -> None:
        files = [File(row["path"], row["size"]) for row in listed.collect()]
        tell(f"micro-batch {number}: {len(files)} files")
        # Spark's own name for a stream, which stays the same as long as its checkpoint.
        stream = json.loads(Files(checkpoint).read_text("metadata"))["id"]
        into = Tables(here or listed.sparkSession, tables)
        with into.files.locked(PATIENCE_S):
            into.recover()
            found = owner.let_stream(into.files, stream, number)
            apply(into, files, targets_ms, tell, replace(found, stream=stream, batch=number))

    writer = (
        source.load(export)
        .writeStream.queryName("mq9-tables")
        .option("checkpointLocation", checkpoint)
        .foreachBatch(bring)
    )
    if every_s is None:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{every_s} seconds").start()
