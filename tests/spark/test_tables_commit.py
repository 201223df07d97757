"""Changes of tables become visible all or none, also if the process dies in between."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mq9.lake.tables import Tables

HOUR_7, HOUR_8 = ("2026-05-02", 7), ("2026-05-02", 8)


@pytest.fixture
def tables(spark: "SparkSession", tmp_path: Path) -> "Tables":
    """Two hours of `sla`, and one row in `group_lag`."""
    from mq9.lake.tables import Tables

    made = Tables(spark, str(tmp_path))
    stage(made, 1, HOUR_7, HOUR_8)
    made.commit(None)
    return made


def stage(tables: "Tables", value: int, *hours: tuple[str, int]) -> None:
    rows = tables.spark.createDataFrame(
        [(value, *hour) for hour in hours], "value int, date string, hour int"
    )
    tables.stage("sla", rows)
    tables.stage("group_lag", rows.select("value").limit(1))


def values(tables: "Tables", name: str = "sla") -> list[tuple[int, ...]]:
    rows = tables.read(name)
    if rows is None:
        return []
    columns = ["value", "hour"] if name == "sla" else ["value"]
    return sorted(tuple(row) for row in rows.select(*columns).collect())


def test_hours_are_replaced_and_others_stay(tables: "Tables") -> None:
    stage(tables, 2, HOUR_8)
    tables.commit([HOUR_8])
    assert values(tables) == [(1, 7), (2, 8)]
    assert values(tables, "group_lag") == [(2,)]


def test_an_hour_that_has_no_rows_any_more_is_gone(tables: "Tables") -> None:
    stage(tables, 2, HOUR_8)
    tables.commit([HOUR_7, HOUR_8])
    assert values(tables) == [(2, 8)]


def test_what_was_not_finished_is_forgotten(tables: "Tables") -> None:
    stage(tables, 2, HOUR_8)
    assert not tables.recover()
    assert values(tables) == [(1, 7), (1, 8)]
    assert not tables.files.exists("_staging")


@pytest.mark.parametrize("moves", [1, 2])
def test_what_was_planned_is_finished(
    tables: "Tables", monkeypatch: pytest.MonkeyPatch, moves: int
) -> None:
    from mq9.lake.files import Files

    stage(tables, 2, HOUR_7, HOUR_8)
    left, rename = moves, Files._rename

    def failing(files: Files, name: str, to: str) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError("the power went")
        rename(files, name, to)

    monkeypatch.setattr(Files, "_rename", failing)
    with pytest.raises(OSError, match="the power went"):
        tables.commit([HOUR_7, HOUR_8])
    monkeypatch.undo()
    assert tables.recover()
    assert values(tables) == [(2, 7), (2, 8)]
    assert values(tables, "group_lag") == [(2,)]
    assert not tables.recover(), "there is nothing left to do"
