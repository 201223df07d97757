"""The report: one page that needs nothing else, and pictures."""

import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.spark.rows import Log
from tests.spark.test_stream_for_months import piece

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipeline import Done


def test_the_report_shows_what_the_agents_know(done: "Done") -> None:
    outcomes = Counter(life.outcome for life in done.lives)
    # What was given up is a message of another mailbox, too.
    outcomes["waiting"] += outcomes["dead_letter"]
    messages = outcomes.total()
    numbers = done.numbers
    assert numbers.totals == outcomes
    assert int(numbers.rates["sent"].sum()) == messages
    assert int(numbers.rates["acked"].sum()) == outcomes["acked"]
    assert int(numbers.depth.iloc[-1].sum()) == outcomes["waiting"] + outcomes["pending"]
    page, *pictures = done.report
    assert {path.stem for path in pictures} == {"depth", "rates", "latency", "flow", "dead_letters"}
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in pictures)
    text = page.read_text("utf-8")
    assert text.count("data:image/png;base64,") == len(pictures)
    assert not re.search(r"(src|href)=\"?https?:", text), "the page must not load anything"
    assert f"<b>{messages:,}</b><span>messages</span>" in text


def test_without_tables_there_is_a_clear_error(spark: "SparkSession", tmp_path: Path) -> None:
    from mq9.lake.report.figures import NoTables, figures
    from mq9.lake.tables import Tables

    with pytest.raises(NoTables, match="run `mq9 lake build` or `mq9 lake stream` first"):
        figures(Tables(spark, str(tmp_path)))


def test_what_was_unread_on_an_earlier_day_is_not_told_as_if_it_still_were(
    spark: "SparkSession", tmp_path: Path
) -> None:
    from mq9.lake import batch
    from mq9.lake.report.figures import figures

    log, export, day_s = Log(), tmp_path / "export", 24 * 3600
    log.send("late", 0, 0).send("never", 0, 10)
    log.worked("late", 0, day_s, day_s + 1)
    piece(export, log, 1)
    built = batch.run(spark, str(export), str(tmp_path / "built"))
    table = built.read("unread")
    assert table is not None
    assert sorted((row["date"].day, row["mailbox"]) for row in table.collect()) == [
        (2, "late"),
        (2, "never"),
        (3, "never"),
    ]
    assert figures(built).unread.to_dict("records") == [
        {"mailbox": "never", "unread": 1, "days": 2}
    ]
    # Now that is read, too.
    log.worked("never", 0, 2 * day_s, 2 * day_s + 1)
    piece(export, log, 2)
    built = batch.run(spark, str(export), str(tmp_path / "built"))
    assert figures(built).unread.empty
