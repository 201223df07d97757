"""The tables kept up to date while an export grows.

Spark keeps the place in the export; all else is in tables (`changes`). A micro-batch that was cut
off is done again with the same files and gives the same tables: each row counts exactly once.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace

from pyspark.errors import StreamingQueryException
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

# Spark gives a Python that reads an export ten seconds to start, which no setting changes, and ends
# the stream if it takes longer. On a busy machine it does.
LATE = "Python worker failed to connect back"
TRIES = 5


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


def finish(
    begin: Callable[[], StreamingQuery], timeout_s: int | None = None, tell: Tell = silent
) -> StreamingQuery:
    """Waits for the end of a stream, and begins it again where Python was too slow for Spark.

    It goes on where it was: the checkpoint has its place. TimeoutError if it takes too long.
    """
    tries = 0
    while True:
        query = begin()
        try:
            if query.awaitTermination(timeout_s) is False:
                raise TimeoutError(f"the stream has not ended after {timeout_s} s")
        except StreamingQueryException as error:
            tries = 1 if query.lastProgress else tries + 1
            if LATE not in str(error) or tries == TRIES:
                raise
            tell("Python was too slow to start for Spark: beginning the stream again")
        else:
            return query
