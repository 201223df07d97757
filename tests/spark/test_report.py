"""The report: one page that needs nothing else, and pictures."""

import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

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

    with pytest.raises(NoTables, match=r"run batch_job\.py or stream_job\.py first"):
        figures(Tables(spark, str(tmp_path)))
