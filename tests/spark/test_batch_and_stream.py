"""Batch and stream give the same tables, however the input is ordered, cut, repeated or cut off."""

import random
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.pages import Session, blocks
from tests.peers import Server
from tests.spark.rows import reveal

import mq9

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from generate import Truth
    from mq9.lake.tables import Tables

MESSAGES = 240


@pytest.fixture(scope="module")
def made(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> "tuple[Path, Truth]":
    """A generated export and what is in it."""
    assert spark is not None
    from generate import Traffic

    folder = tmp_path_factory.mktemp("made")
    return folder, Traffic(MESSAGES, hours=2, agents=4, records_per_file=400).write(folder)


@pytest.fixture(scope="module")
def expected(
    spark: "SparkSession", made: "tuple[Path, Truth]", tmp_path_factory: pytest.TempPathFactory
) -> "Tables":
    """The tables of one batch over the export as it is."""
    from mq9.lake import batch

    return batch.run(spark, str(made[0]), str(tmp_path_factory.mktemp("expected")))


def shuffled(export: Path, into: Path, pieces: int, seed: int) -> None:
    """The same rows in other files: any row may be in any piece, and a third of them in two."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    chance = random.Random(seed)
    for dataset in ("messages", "events"):
        files = sorted((export / dataset).rglob("*.parquet"))
        table = pa.concat_tables(pq.ParquetFile(file).read() for file in files)
        dealt: list[list[int]] = [[] for _ in range(pieces)]
        for row in range(table.num_rows):
            for piece in chance.sample(range(pieces), 2 if chance.random() < 0.33 else 1):
                dealt[piece].append(row)
        for piece, rows in enumerate(dealt):
            chance.shuffle(rows)
            # Rows of other hours than the folder's, too: late ones.
            folder = into / dataset / "date=2026-05-02" / f"hour={chance.randrange(24):02d}"
            folder.mkdir(parents=True, exist_ok=True)
            pq.write_table(table.take(rows), folder / f"part-{1:010d}-{piece + 1:010d}.parquet")
    reveal(into, 1, pieces + 1)


def contents(tables: "Tables", name: str) -> Counter[Any]:
    rows = tables.read(name)
    # Where a row is in the log is not what it says.
    return (
        Counter()
        if rows is None
        else Counter(map(repr, rows.select(*sorted(rows.columns)).collect()))
    )


def assert_same(found: "Tables", expected: "Tables") -> None:
    from mq9.lake.tables import FOR_READERS

    for name in FOR_READERS:
        ours, theirs = contents(found, name), contents(expected, name)
        assert ours, name
        assert (name, ours - theirs, theirs - ours) == (name, Counter(), Counter())


def test_the_batch_says_what_the_traffic_was(
    made: "tuple[Path, Truth]", expected: "Tables"
) -> None:
    from pyspark.sql import functions as F

    truth = made[1]
    lives = expected.read("message_lifecycle")
    assert lives is not None
    [sums] = lives.agg(F.sum("size"), F.sum("deliveries"), F.count("*")).collect()
    assert tuple(sums) == (truth.size, truth.deliveries, truth.messages)
    assert dict(lives.groupBy("outcome").count().collect()) == dict(truth.outcomes)
    hourly = expected.read("mailbox_hourly")
    assert hourly is not None
    by_mailbox = hourly.groupBy("mailbox").agg(F.sum("sent")).collect()
    assert dict(by_mailbox) == dict(truth.mailboxes)
    left = truth.outcomes["waiting"] + truth.outcomes["pending"]
    [depth] = (
        hourly.groupBy("mailbox").agg(F.max_by("depth", "at").alias("d")).agg(F.sum("d")).collect()
    )
    assert depth[0] == left


def test_a_stream_that_is_cut_off_gives_the_tables_of_a_batch(
    spark: "SparkSession",
    made: "tuple[Path, Truth]",
    expected: "Tables",
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from mq9.lake import stream
    from mq9.lake.tables import Tables

    export, tables = tmp_path / "export", tmp_path / "tables"
    shuffled(made[0], export, pieces=3, seed=2)

    def run() -> "StreamingQuery":
        folders = [str(folder) for folder in (export, tables, tmp_path / "checkpoint")]
        return stream.start(spark, *folders, files_per_batch=1)

    # The last micro-batch dies while old folders make room for new ones.
    fail_moving(monkeypatch, plan=3, moves=1)
    with pytest.raises(Exception, match="the power went"):
        stream.finish(run, 300)
    assert (tables / "_staging" / "plan.json").exists()
    monkeypatch.undo()
    query = stream.finish(run, 300)
    assert not (tables / "_staging").exists()
    assert [progress["batchId"] for progress in query.recentProgress] == [2]
    assert_same(Tables(spark, str(tables)), expected)


def test_hours_of_several_files_give_the_same_tables(
    spark: "SparkSession",
    made: "tuple[Path, Truth]",
    expected: "Tables",
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from mq9.lake import batch, lifecycle

    monkeypatch.setattr(lifecycle, "BYTES_PER_FILE", 4096)
    found = batch.run(spark, str(made[0]), str(tmp_path))
    lives = list((tmp_path / "message_lifecycle").rglob("*.parquet"))
    assert len(lives) > len({file.parent for file in lives}), "each hour was one file"
    assert_same(found, expected)


async def test_the_examples_of_the_page_work(
    spark: "SparkSession",
    made: "tuple[Path, Truth]",
    expected: "Tables",
    server: Server,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "export").symlink_to(made[0])
    (tmp_path / "tables").symlink_to(expected.root)
    async with mq9.Client(server.url) as client:
        await client.create_mailbox("agent.inbox")
        session = Session({"spark": spark})
        # Paths are relative to where Spark was started, which is not here.
        for block in blocks("docs/spark.md", "python"):
            for name in ("export", "tables"):
                block = block.replace(f'"{name}', f'"{tmp_path}/{name}')
            await session.run(block.replace("nats://127.0.0.1:4222", server.url))
        [sent] = await client.query("agent.inbox")
    assert (sent.text, sent.priority) == ("hello", "urgent")
    assert "sum(within)" in capsys.readouterr().out


def test_the_queries_of_the_page_have_rows(expected: "Tables") -> None:
    assert "waits" in expected.views()
    for query in blocks("docs/spark.md", "sql"):
        rows = expected.spark.sql(query).collect()
        assert rows, query
        assert any(value is not None for value in rows[0]), query


def fail_moving(monkeypatch: pytest.MonkeyPatch, plan: int, moves: int) -> None:
    """Has the power go after so many moves of a plan, when the next folder has just made room."""
    from mq9.lake.files import Files

    rename, write, plans, left = Files._rename, Files.write_text, 0, moves

    def planning(files: Files, name: str, text: str) -> None:
        nonlocal plans
        plans += name.endswith("plan.json")
        write(files, name, text)

    def failing(files: Files, name: str, to: str) -> None:
        nonlocal left
        if plans == plan and not to.startswith("_staging/"):
            left -= 1
            if left < 0:
                raise OSError("the power went")
        rename(files, name, to)

    monkeypatch.setattr(Files, "write_text", planning)
    monkeypatch.setattr(Files, "_rename", failing)
