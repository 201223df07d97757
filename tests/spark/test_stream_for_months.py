"""What a stream remembers does not grow with time: a short form of `benches/lake_days.py`."""

import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from tests.spark.rows import Log, reveal
from tests.spark.test_batch_and_stream import contents

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAYS = 4
DAY_S = 24 * 3600
A_DAY = 4


def piece(export: Path, log: Log, number: int) -> None:
    """Adds what a log says to an export, as one more piece, and empties the log."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from generate import EVENTS, MESSAGES

    datasets = {"messages": (log.messages, MESSAGES), "events": (log.events, EVENTS)}
    for dataset, (rows, schema) in datasets.items():
        if rows:
            folder = export / dataset / "date=2026-05-02" / "hour=07"
            folder.mkdir(parents=True, exist_ok=True)
            name = f"part-{1:010d}-{number:010d}.parquet"
            pq.write_table(pa.Table.from_pylist(rows, schema=schema), folder / name)
    log.messages, log.events = [], []
    reveal(export, 1, number + 1)


def remembered(tables: Path) -> int:
    """Rows of the state of a stream."""
    import pyarrow.parquet as pq

    files = [
        file
        for part in ("part_state", "part_mailboxes", "part_orphans")
        for file in (tables / part).rglob("*.parquet")
    ]
    return sum(pq.ParquetFile(file).metadata.num_rows for file in files)


def test_settled_messages_leave_and_late_facts_find_their_hour(
    spark: "SparkSession", tmp_path: Path
) -> None:
    from mq9.lake import batch, stream
    from mq9.lake.tables import FOR_READERS, Tables

    export, tables = tmp_path / "export", tmp_path / "tables"

    def follow() -> int:
        folders = map(str, (export, tables, tmp_path / "checkpoint"))
        assert stream.start(spark, *folders).awaitTermination(300)
        return remembered(tables)

    log, sizes, msg_id = Log(), [], 0
    for day in range(DAYS):
        for _ in range(A_DAY):
            begin = day * DAY_S + msg_id % A_DAY * 60
            log.send("a", msg_id, begin).worked("a", msg_id, begin + 1, begin + 2)
            msg_id += 1
        piece(export, log, day + 1)
        sizes.append(follow())
    assert sizes[-1] == sizes[1], "what is settled and old is forgotten"
    # Given again and acknowledged by another group, days after the hour was forgotten.
    late = DAYS * DAY_S
    log.worked("a", 1, late, late + 5, group="late")
    piece(export, log, DAYS + 1)
    assert follow() <= sizes[1] + 1
    found = Tables(spark, str(tables))
    lives = found.read("message_lifecycle")
    assert lives is not None
    rows = lives.where("msg_id = 1").select("group", "acked").orderBy("group").collect()
    assert [row["group"] for row in rows] == ["g", "late"]
    expected = batch.run(spark, str(export), str(tmp_path / "expected"))
    for name in FOR_READERS:
        assert (name, contents(found, name)) == (name, contents(expected, name))
    assert rows[1]["acked"] - rows[0]["acked"] > datetime.timedelta(days=DAYS - 1)
