"""`waits` with messages that were delayed: what was sent before a request does not answer it."""

from pathlib import Path
from typing import TYPE_CHECKING

from tests.spark.rows import Log
from tests.spark.test_batch_and_stream import contents
from tests.spark.test_stream_for_months import piece

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mq9.lake.tables import Tables

HOUR_S = 3600


def asked(tables: "Tables") -> list[tuple[int, ...]]:
    rows = tables.read("waits")
    assert rows is not None
    names = ("hour", "requests", "answered", "total_ms")
    return sorted(tuple(row[name] for name in names) for row in rows.collect())


def micro_batch(tables: "Tables", export: Path, number: int) -> None:
    """What a stream does with a piece of an export."""
    from mq9.lake.batch import silent
    from mq9.lake.changes import apply
    from mq9.lake.lifecycle import File
    from mq9.lake.owner import Owner, owner
    from mq9.lake.sla import TARGETS_MS

    found = sorted(export.rglob(f"part-*-{number:010d}.parquet"))
    files = [File(str(file), file.stat().st_size) for file in found]
    assert files
    apply(tables, files, TARGETS_MS, silent, owner(tables.files) or Owner("a stream"))


def test_a_delayed_message_answers_only_what_was_asked_before_it_was_sent(
    spark: "SparkSession", tmp_path: Path
) -> None:
    from mq9.lake import batch
    from mq9.lake.tables import Tables

    export, log = tmp_path / "export", Log()
    streamed = Tables(spark, str(tmp_path / "streamed"))
    said = {"mq9-correlation-id": "q"}
    asks = said | {"mq9-reply-to": "ada", "from": "ada"}
    # At seven, when nobody asks: it comes after requests of later hours that it knows nothing of.
    log.send("ada", 0, 10, headers=said, visible_s=3 * HOUR_S)
    piece(export, log, 1)
    micro_batch(streamed, export, 1)
    log.send("bob", 0, HOUR_S + 20, headers=asks)
    log.send("bob", 1, 2 * HOUR_S + 10, headers=asks)
    # The answer to both, which is delayed; one that is sent behind it comes sooner.
    log.send("ada", 1, 2 * HOUR_S + 30, headers=said, visible_s=5 * HOUR_S)
    log.send("ada", 2, 2 * HOUR_S + 40, headers=said, visible_s=4 * HOUR_S)
    piece(export, log, 2)
    micro_batch(streamed, export, 2)
    built = batch.run(spark, str(export), str(tmp_path / "built"))
    assert contents(streamed, "waits") == contents(built, "waits")
    assert asked(built) == [
        (8, 1, 1, (3 * HOUR_S - 20) * 1000),
        (9, 1, 1, (2 * HOUR_S - 10) * 1000),
    ]


def test_an_answer_that_comes_after_a_day_is_none(spark: "SparkSession", tmp_path: Path) -> None:
    from mq9.lake import batch

    log, export = Log(), tmp_path / "export"
    said = {"mq9-correlation-id": "q"}
    log.send("bob", 0, 0, headers=said | {"mq9-reply-to": "ada"})
    log.send("bob", 1, 10, headers=said | {"mq9-reply-to": "ada"})
    log.send("ada", 0, HOUR_S, headers=said, visible_s=24 * HOUR_S + 5)
    piece(export, log, 1)
    built = batch.run(spark, str(export), str(tmp_path / "built"))
    assert asked(built) == [(7, 2, 1, (24 * HOUR_S - 5) * 1000)]
