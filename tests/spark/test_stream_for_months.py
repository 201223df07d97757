"""What a stream remembers and reads does not grow: a short form of `benches/lake_days.py`."""

import datetime
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.spark.rows import Log, at, reveal
from tests.spark.test_batch_and_stream import contents

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAYS = 4
DAY_S = 24 * 3600
A_DAY = 4
WEEKS = 7
WEEK_S = 7 * DAY_S


def piece(
    export: Path, log: Log, number: int, hour: str = "date=2026-05-02/hour=07", **more: object
) -> None:
    """Adds what a log says to an export, as one more piece, and empties the log."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from generate import EVENTS, MESSAGES

    datasets = {"messages": (log.messages, MESSAGES), "events": (log.events, EVENTS)}
    for dataset, (rows, schema) in datasets.items():
        if rows:
            folder = export / dataset / hour
            folder.mkdir(parents=True, exist_ok=True)
            name = f"part-{1:010d}-{number:010d}.parquet"
            pq.write_table(pa.Table.from_pylist(rows, schema=schema), folder / name)
    log.messages, log.events = [], []
    reveal(export, 1, number + 1, **more)


def listed_since(export: Path, number: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many names a stream is told that has read all pieces before one."""
    import pyarrow.fs as pafs

    from mq9.spark import export_source
    from mq9.spark.schema import DATASETS

    class Counting:
        def __init__(self) -> None:
            self.true, self.listed = pafs.LocalFileSystem(), 0

        def get_file_info(self, asked: Any) -> Any:  # noqa: ANN401
            found = self.true.get_file_info(asked)
            self.listed += len(found)
            return found

        def open_input_stream(self, path: str) -> Any:  # noqa: ANN401
            return self.true.open_input_stream(path)

    counting = Counting()
    dataset = export_source.Export(str(export), "files", DATASETS["files"])
    reader = export_source.ExportStreamReader(dataset, 8, None)
    begin = {"segment": 1, "offset": number}
    with monkeypatch.context() as patched:
        patched.setattr(export_source, "opened", lambda folder: (counting, folder))
        end = reader.latestOffset(begin, reader.getDefaultReadLimit())
        [bundle] = [reader.partitions(begin, end)]
    assert bundle, "there is nothing new"
    return counting.listed


def remembered(tables: Path) -> int:
    """Rows of the state of a stream: what is open or recent, and the balance of the last day."""
    last = sorted((tables / "part_balance").glob("date=*"))[-1:]
    parts = [tables / part for part in ("part_state", "part_mailboxes", "part_orphans")]
    return rows_in(file for part in [*parts, *last] for file in part.rglob("*.parquet"))


def rows_in(files: Iterable[Path | str]) -> int:
    import pyarrow.parquet as pq

    return sum(pq.ParquetFile(file).metadata.num_rows for file in files)


def test_settled_messages_leave_and_late_facts_find_their_hour(
    spark: "SparkSession", tmp_path: Path
) -> None:
    from mq9.lake import batch, stream
    from mq9.lake.tables import FOR_READERS, Tables

    export, tables = tmp_path / "export", tmp_path / "tables"

    def follow() -> int:
        folders = [str(folder) for folder in (export, tables, tmp_path / "checkpoint")]
        stream.finish(lambda: stream.start(spark, *folders), 300)
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


def a_week(log: Log, week: int) -> None:
    """Three mailboxes: one that stays, whose mail expires, one for this week, one without mail."""
    begin = week * WEEK_S
    own = f"of-week-{week}"
    log.happen("create", f"empty-{week}", None, begin)
    for number in range(3):
        msg_id = week * 3 + number
        at = begin + number * DAY_S
        log.send("a", msg_id, at, expires_s=at + 2 * DAY_S).worked("a", msg_id, at + 1, at + 2)
        log.send(own, number, at).worked(own, number, at + 5, at + 6, group=own)
        # Acknowledged, so it stays until its time is over.
        log.happen("expire", "a", msg_id, at + 2 * DAY_S)
    log.send(own, 3, begin + 4 * DAY_S)
    log.happen("delete", own, None, begin + 5 * DAY_S)
    log.happen("delete", f"empty-{week}", None, begin + 5 * DAY_S)


def test_nothing_that_a_stream_remembers_or_reads_grows_over_weeks(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mq9.lake import batch, daily, group_lag, stream
    from mq9.lake.tables import FOR_READERS, Tables

    # So that groups and mailboxes are forgotten within the weeks of this test.
    for module in (daily, group_lag):
        monkeypatch.setattr(module, "QUIET_DAYS", 5)
    read: Counter[str] = Counter()

    def counting(what: str) -> None:
        true: Any = getattr(Tables, what)

        def counted(tables: Tables, name: str, *folders: Iterable[str], **how: bool) -> Any:  # noqa: ANN401
            inside = [list(each) for each in folders]
            if not name.startswith("_staging"):
                for folder in inside[0] if inside else [""]:
                    found = tables.files.data(f"{name}/{folder}".rstrip("/"))
                    read["files"] += len(found)
                    read["rows"] += rows_in(path for path, _ in found)
            return true(tables, name, *inside, **how)

        monkeypatch.setattr(Tables, what, counted)

    for what in ("_some", "_read", "paths"):
        counting(what)
    export, tables, log = tmp_path / "export", tmp_path / "tables", Log()
    folders = [str(folder) for folder in (export, tables, tmp_path / "checkpoint")]
    sizes, since, listed = [], [], []
    for week in range(WEEKS):
        a_week(log, week)
        # As the exporter tells from which hour on there is something new.
        hour = f"date={at(week * WEEK_S):%Y-%m-%d}/hour=07"
        since.append({"segment": 1, "offset": week + 1, "hour": hour})
        piece(export, log, week + 1, hour, since=since[-3:])
        listed.append(listed_since(export, week + 1, monkeypatch) - (week + 1) * 2)
        read.clear()
        stream.finish(lambda: stream.start(spark, *folders), 300)
        sizes.append((remembered(tables), read["files"], read["rows"]))
    assert all(size > 0 for size in sizes[-1]), sizes
    # From the third week on a week is like the one before.
    assert set(sizes[2:]) == {sizes[2]}, sizes
    # The days are looked through, of both datasets, but not what is in them.
    assert set(listed[2:]) == {listed[2]}, listed
    found = Tables(spark, str(tables))
    expected = batch.run(spark, str(export), str(tmp_path / "expected"))
    for name in FOR_READERS:
        assert (name, contents(found, name)) == (name, contents(expected, name))
    assert contents(found, "group_lag")
