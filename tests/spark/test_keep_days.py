"""Files that `keep_days` removed: a stream that has not read them says so, and a new one begins."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.spark.rows import Log, reveal
from tests.spark.test_stream_for_months import piece
from tests.spark.test_tables_owner import follow, messages

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mq9.spark.export_source import ExportStreamReader

LOST = "has lost files that this stream has not read.*Remove the checkpoint"


@pytest.fixture(autouse=True)
def _needs_spark() -> None:
    pytest.importorskip("pyspark", reason="needs Spark: pip install 'mq9[spark]'")


def sent(export: Path, *numbers: int) -> None:
    for number in numbers:
        piece(export, Log().send("a", number, number), number)


def forget(export: Path, upto: int, *, end: int) -> None:
    """Removes the files of pieces up to one, as the exporter does: first it says so."""
    reveal(export, 1, end, forgotten={"segment": 1, "offset": upto})
    for file in export.rglob("part-*.parquet"):
        if int(file.stem[-10:]) <= upto:
            file.unlink()


def reader(export: Path, most: int | None = None) -> "ExportStreamReader":
    from mq9.spark.export_source import Export, ExportStreamReader
    from mq9.spark.schema import DATASETS

    return ExportStreamReader(Export(str(export), "files", DATASETS["files"]), 8, most)


def place(number: int) -> dict[str, int]:
    return {"segment": 1, "offset": number}


def test_a_stream_that_has_not_read_what_was_removed_does_not_go_on(
    spark: "SparkSession", tmp_path: Path
) -> None:
    export, tables = tmp_path / "export", tmp_path / "tables"
    sent(export, 1)
    follow(spark, export, tables, tables / "_checkpoint")
    sent(export, 2, 3)
    forget(export, 2, end=4)
    with pytest.raises(Exception, match=LOST):
        follow(spark, export, tables, tables / "_checkpoint")
    # Begun anew, as it was told, it has what is left.
    again = tmp_path / "again"
    follow(spark, export, again, again / "_checkpoint")
    assert messages(spark, again) == 1


def test_only_what_a_stream_has_not_read_is_missed(tmp_path: Path) -> None:
    from mq9.errors import InvalidField

    sent(tmp_path, 1, 2, 3, 4)
    forget(tmp_path, 2, end=5)
    followed = reader(tmp_path)
    limit = followed.getDefaultReadLimit()
    assert followed.latestOffset(place(3), limit) == place(5)
    assert len(followed.partitions(place(3), place(5))) == 4
    for asking in (
        lambda: followed.latestOffset(place(2), limit),
        lambda: followed.partitions(place(2), place(5)),
    ):
        with pytest.raises(InvalidField, match=LOST):
            asking()


def test_files_that_go_while_a_micro_batch_lists_them_are_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mq9.errors import InvalidField
    from mq9.spark import export_source
    from mq9.spark.places import opened

    sent(tmp_path, 1, 2, 3)
    looks: list[str] = []

    def forgotten(folder: str) -> object:
        looks.append(folder)
        if len(looks) == 2:
            forget(tmp_path, 2, end=4)
        return opened(folder)

    followed = reader(tmp_path)
    monkeypatch.setattr(export_source, "opened", forgotten)
    with pytest.raises(InvalidField, match=LOST):
        followed.partitions(place(2), place(4))
    assert len(looks) == 3, "before the list was made, while, and after"


def test_a_new_stream_of_few_files_at_a_time_gets_past_what_is_gone(tmp_path: Path) -> None:
    sent(tmp_path, 1, 2, 3, 4)
    # Of messages that were delayed for long, rows are old when they are new.
    reveal(tmp_path, 1, 5, forgotten=place(3))
    followed = reader(tmp_path, most=1)
    first = followed.latestOffset(followed.initialOffset(), followed.getDefaultReadLimit())
    assert first == place(4)
    assert followed.latestOffset(first, followed.getDefaultReadLimit()) == place(5)
