"""The report: one page that needs nothing else, and pictures."""

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_report_shows_what_the_tables_say(spark: "SparkSession", tmp_path: Path) -> None:
    from generate import Traffic
    from mq9_report.figures import figures
    from mq9_report.page import write
    from mq9_tables import batch

    truth = Traffic(600, hours=3, agents=6).write(tmp_path / "export")
    tables = batch.run(spark, str(tmp_path / "export"), str(tmp_path / "tables"))
    numbers = figures(tables)
    assert numbers.totals == dict(truth.outcomes)
    assert int(numbers.rates["sent"].sum()) == truth.messages
    assert (
        int(numbers.depth.iloc[-1].sum()) == truth.outcomes["waiting"] + truth.outcomes["pending"]
    )
    page, *pictures = write(numbers, tmp_path / "report")
    assert {path.stem for path in pictures} == {"depth", "rates", "latency", "flow", "dead_letters"}
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in pictures)
    text = page.read_text("utf-8")
    assert text.count("data:image/png;base64,") == len(pictures)
    assert not re.search(r"(src|href)=\"?https?:", text), "the page must not load anything"
    assert f"<b>{truth.messages:,}</b><span>messages</span>" in text


def test_without_tables_there_is_a_clear_error(spark: "SparkSession", tmp_path: Path) -> None:
    from mq9_report.figures import NoTables, figures
    from mq9_tables.tables import Tables

    with pytest.raises(NoTables, match=r"run batch_job\.py or stream_job\.py first"):
        figures(Tables(spark, str(tmp_path)))
