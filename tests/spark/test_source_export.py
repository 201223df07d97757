"""The data source over an export folder: what counts, filters, missing columns."""

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.spark.rows import Log, Row, at, reveal

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def arrow_schema(dataset: str) -> "pa.Schema":
    from generate import EVENTS, MESSAGES

    return {"messages": MESSAGES, "events": EVENTS}[dataset]


def write(folder: Path, dataset: str, hour: str, offset: int, rows: list[Row]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = set().union(*rows)
    schema = pa.schema([field for field in arrow_schema(dataset) if field.name in names])
    path = (
        folder
        / dataset
        / "date=2026-05-02"
        / f"hour={hour}"
        / f"part-{1:010d}-{offset:010d}.parquet"
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), path)


@pytest.fixture(scope="module")
def export(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> Path:
    assert spark is not None
    folder = tmp_path_factory.mktemp("export")
    log = Log()
    log.send("a", 0, 1, priority="urgent", payload=b"\x00\xff", headers={"from": "ada"})
    log.send("b", 0, 2).send("a", 1, 3).send("a", 2, 3700)
    first = [row for row in log.messages if row["sent"] < at(3600)]
    write(folder, "messages", "07", 80, first)
    write(folder, "messages", "08", 80, log.messages[len(first) :])
    # Not part of the export yet: the manifest ends before it.
    write(folder, "messages", "07", 5000, [log.messages[0] | {"msg_id": 99}])
    # Of a version that had no column `cause`.
    old = [{name: value for name, value in row.items() if name != "cause"} for row in log.events]
    write(folder, "events", "07", 80, old)
    reveal(folder, 1, 5000)
    return folder


def test_an_export_is_read_without_registering_anything(
    spark: "SparkSession", export: Path
) -> None:
    rows = spark.read.format("mq9").load(str(export)).collect()
    assert sorted((r.mailbox, r.msg_id) for r in rows) == [("a", 0), ("a", 1), ("a", 2), ("b", 0)]
    [first] = [r for r in rows if (r.mailbox, r.msg_id) == ("a", 0)]
    assert bytes(first.payload) == b"\x00\xff"
    assert [tuple(header) for header in first.headers] == [("from", "ada")]
    assert first.sent.astimezone(at(0).tzinfo) == at(1)
    assert (first.level, first.priority, first.key, first.tags) == (3, "urgent", None, [])


def test_the_jobs_see_the_same_rows(spark: "SparkSession", export: Path) -> None:
    from mq9.lake.folder import dataset

    ours = spark.read.format("mq9").load(str(export)).select("mailbox", "msg_id", "sent")
    theirs = dataset(spark, str(export), "messages").select("mailbox", "msg_id", "sent")
    assert sorted(ours.collect()) == sorted(theirs.collect())


def test_columns_that_a_file_does_not_have_are_null(spark: "SparkSession", export: Path) -> None:
    events = spark.read.format("mq9").option("dataset", "events").load(str(export))
    rows = events.select("kind", "cause").distinct().collect()
    assert [tuple(row) for row in rows] == [("send", None)]


def test_filters_are_handed_down(spark: "SparkSession", export: Path) -> None:
    rows = spark.read.format("mq9").load(str(export))
    wanted = rows.where("mailbox = 'a' and sent >= timestamp'2026-05-02 08:00:00' and level <> 3")
    assert [(r.mailbox, r.msg_id) for r in wanted.collect()] == [("a", 2)]
    assert not filtered_by_spark(wanted)
    assert filtered_by_spark(rows.where("length(payload) > 7"))


def filtered_by_spark(rows: "DataFrame") -> bool:
    plan = rows._jdf.queryExecution().executedPlan().toString()
    return re.search(r"\bFilter \(", plan) is not None


def test_hours_that_cannot_have_rows_are_not_opened(export: Path) -> None:
    from pyspark.sql.datasource import GreaterThanOrEqual

    from mq9.spark.export_source import Export, ExportFiles, ExportReader
    from mq9.spark.schema import MESSAGES

    reader = ExportReader(Export(str(export), "messages", MESSAGES), tasks=8)
    assert list(reader.pushFilters([GreaterThanOrEqual(("sent",), at(3600))])) == []
    [files] = reader.partitions()
    assert isinstance(files, ExportFiles)
    assert ["hour=08" in path for path in files.paths] == [True]


@pytest.mark.parametrize(
    ("folder", "opened", "uri"),
    [
        ("s3a://bucket/export", "bucket/export/f", "s3a://bucket/export/f"),
        ("hdfs://host:8020/export", "/export/f", "hdfs://host:8020/export/f"),
        ("file:///export", "/export/f", "/export/f"),
        ("/export", "/export/f", "/export/f"),
    ],
)
def test_files_have_names_by_which_spark_opens_them(folder: str, opened: str, uri: str) -> None:
    pytest.importorskip("pyspark", reason="needs Spark: pip install 'mq9[spark]'")
    from mq9.spark.export_source import Export
    from mq9.spark.schema import DATASETS

    assert Export(folder, "files", DATASETS["files"]).uri(opened) == uri


def test_a_stream_reads_what_is_new(spark: "SparkSession", export: Path, tmp_path: Path) -> None:
    from mq9.lake import stream

    def run() -> None:
        rows = (
            spark.readStream.format("mq9").schema("mailbox string, msg_id bigint").load(str(export))
        )

        def begin() -> "StreamingQuery":
            return (
                rows.writeStream.format("parquet")
                .option("path", str(tmp_path / "out"))
                .option("checkpointLocation", str(tmp_path / "checkpoint"))
                .trigger(availableNow=True)
                .start()
            )

        stream.finish(begin, 120)

    def ids() -> list[int]:
        return sorted(row.msg_id for row in spark.read.parquet(str(tmp_path / "out")).collect())

    run()
    assert ids() == [0, 0, 1, 2]
    reveal(export, 1, 5001)
    try:
        run()
    finally:
        reveal(export, 1, 5000)
    assert ids() == [0, 0, 1, 2, 99]


def test_a_folder_that_is_no_export_is_refused(spark: "SparkSession", tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"has no manifest\.json: it is not a folder"):
        spark.read.format("mq9").load(str(tmp_path)).collect()


def test_an_export_of_a_newer_version_is_refused(spark: "SparkSession", tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"version": 2}', "utf-8")
    with pytest.raises(Exception, match="install a newer one"):
        spark.read.format("mq9").load(str(tmp_path)).collect()


def test_a_bit_that_turned_in_the_manifest_is_noticed(
    spark: "SparkSession", export: Path, tmp_path: Path
) -> None:
    from mq9.lake.folder import dataset

    text = (export / "manifest.json").read_text("utf-8")
    (tmp_path / "manifest.json").write_text(text.replace("5000", "5001"), "utf-8")
    with pytest.raises(Exception, match="checksum does not match"):
        dataset(spark, str(tmp_path), "messages")
    with pytest.raises(Exception, match="checksum does not match"):
        spark.read.format("mq9").load(str(tmp_path)).collect()
