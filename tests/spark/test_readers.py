"""Those who ask tables while a job changes them: nothing is missing, and nothing fails."""

from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from mq9.lake.tables import Tables

HOUR_7, HOUR_8 = ("2026-05-02", 7), ("2026-05-02", 8)
SQL = "select hour, value from sla order by hour"
PATIENCE_S = 60


@pytest.fixture
def tables(spark: "SparkSession", tmp_path: Path) -> "Tables":
    """Two hours of `sla`."""
    from mq9.lake.tables import Tables

    made = Tables(spark, str(tmp_path))
    change(made, 1, HOUR_7, HOUR_8)
    return made


def change(tables: "Tables", value: int, *hours: tuple[str, int], more: str | None = None) -> None:
    """A job puts other rows in the place of some hours."""
    from pyspark.sql import functions as F

    from mq9.lake.owner import Owner

    rows: DataFrame = tables.spark.createDataFrame(
        [(value, *hour) for hour in hours], "value int, date string, hour int"
    )
    if more is not None:
        rows = rows.withColumn(more, F.lit("new"))
    tables.stage("sla", rows)
    tables.commit(hours, [], made_by=Owner())


def asked(tables: "Tables", sql: str = SQL) -> list[list[object]]:
    from mq9.cli.lake import _asked

    return _asked(tables.spark, tables.root, sql, 100)[1]


def test_a_query_whose_files_are_taken_away_is_asked_again(
    tables: "Tables", monkeypatch: pytest.MonkeyPatch
) -> None:
    from mq9.lake.tables import Tables

    views, changes = Tables.views, 0

    def found(reader: Tables, *words: str) -> list[str]:
        nonlocal changes
        names = views(reader, *words)
        if not changes:
            changes += 1
            # After the files were listed, and before they are read.
            change(tables, 2, HOUR_7, HOUR_8)
        return names

    monkeypatch.setattr(Tables, "views", found)
    assert asked(tables) == [[7, 2], [8, 2]]
    assert changes == 1


def test_no_hour_is_missing_while_it_is_replaced(
    tables: "Tables", monkeypatch: pytest.MonkeyPatch
) -> None:
    from mq9.lake.files import Files

    rename, begun, over = Files._rename, Event(), Event()

    def slow(files: Files, name: str, to: str) -> None:
        rename(files, name, to)
        if "_old/" in to:
            begun.set()
            assert over.wait(PATIENCE_S)

    monkeypatch.setattr(Files, "_rename", slow)
    with ThreadPoolExecutor(2) as pool:
        changing = pool.submit(change, tables, 2, HOUR_8)
        try:
            assert begun.wait(PATIENCE_S)
            asking = pool.submit(asked, tables)
            # It has looked by now, if it did not wait.
            wait([asking], timeout=4)
        finally:
            over.set()
        changing.result(PATIENCE_S)
        assert asking.result(PATIENCE_S) == [[7, 1], [8, 2]]


def test_a_column_that_only_newer_hours_have_is_there(tables: "Tables") -> None:
    change(tables, 2, HOUR_8, more="added")
    assert asked(tables, "select hour, added from SLA order by hour") == [[7, None], [8, "new"]]
    rows = tables.read("sla")
    assert rows is not None
    assert "added" in rows.columns


def test_a_change_that_nobody_finishes_is_not_waited_for_again_and_again(
    tables: "Tables",
) -> None:
    tables.files.write_text("_staging/plan.json", "{}")
    tables.patience_s = 0.3
    for _ in range(2):
        rows = tables.read("sla")
        assert rows is not None
        assert rows.count() == 2
    assert tables.patience_s <= 0


def test_tables_of_an_export_without_messages_say_so(spark: "SparkSession", tmp_path: Path) -> None:
    from mq9.cli.exits import Failure
    from mq9.lake.owner import Owner
    from mq9.lake.report.figures import NoTables, figures
    from mq9.lake.tables import Tables

    tables = Tables(spark, str(tmp_path))
    with pytest.raises(Failure, match="run `mq9 lake build` or `mq9 lake stream` first"):
        asked(tables)
    tables.commit(None, made_by=Owner())
    with pytest.raises(Failure, match="have no rows: the export had no messages"):
        asked(tables)
    with pytest.raises(NoTables, match="have no rows: the export had no messages"):
        figures(tables)
