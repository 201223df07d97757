"""Each table from a day of three mailboxes that can be counted on fingers."""

from typing import TYPE_CHECKING, Any

import pytest
from tests.spark.rows import BEGIN, Log, Row, at

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

HOUR = 3600


def day() -> Log:
    log = Log()
    # Seven o'clock: three messages, of which one is done at once and one an hour later.
    log.send("in", 0, 10, priority="critical", headers={"from": "ada"}).worked("in", 0, 10.5, 12)
    log.send("in", 1, 20, priority="urgent", headers={"from": "ada"})
    log.send("in", 2, 30, headers={"from": "bob"})
    log.worked("in", 1, HOUR + 20, HOUR + 24)
    # Eight: one more, that is given up; the one of seven o'clock expires.
    log.send("in", 3, HOUR + 40, priority="7", headers={"from": "ada"})
    log.happen("deliver", "in", 3, HOUR + 41, group="g", member="ada", count=1)
    log.happen("redeliver", "in", 3, HOUR + 42, group="g", member="ada", count=2)
    log.happen("dead_letter", "in", 3, HOUR + 50, group="g", target="in.dead", cause="max_deliver")
    log.happen("expire", "in", 2, HOUR + 60)
    # Nine: one that stays.
    log.send("in", 4, 2 * HOUR + 1, priority="notify")
    # Another mailbox, whose group begins late and gets the last two.
    for msg_id in range(3):
        log.send("news", msg_id, msg_id, priority="urgent")
    log.worked("news", 1, 5, 6, group="late")
    log.happen("deliver", "news", 2, HOUR, group="late", member="eve", count=1)
    # And one that goes with everything.
    log.send("gone", 0, 1, priority="critical").happen("delete", "gone", None, HOUR)
    return log


@pytest.fixture(scope="module")
def lives() -> "pa.Table":
    import pyarrow as pa
    from tests.spark.rows import lives

    made = lives(day())
    hours = [int(sent.timestamp()) // HOUR for sent in made["sent"].to_pylist()]
    return made.append_column("hour_of", pa.array(hours))


@pytest.fixture(scope="module")
def parts(spark: "SparkSession", lives: "pa.Table") -> "dict[str, DataFrame]":
    from pyspark.sql import functions as F

    from mq9.lake.parts import COHORTS, DEAD_LETTERS, FLOWS

    begin = F.timestamp_seconds(F.col("hour_of") * HOUR)
    hours = {"date": F.to_date(begin), "hour": F.hour(begin)}
    return {
        table.name: spark.createDataFrame(table.of(lives)).withColumns(hours)
        for table in (COHORTS, DEAD_LETTERS, FLOWS)
    }


def rows(table: "DataFrame | pa.Table") -> list[Row]:
    import pyarrow as pa

    if isinstance(table, pa.Table):
        return [row | {"hour": row["hour_of"] % 24} for row in table.to_pylist()]
    return [row.asDict() for row in table.collect()]


def hour_of(value: Any) -> int:  # noqa: ANN401
    hours, rest = divmod((value.astimezone(BEGIN.tzinfo) - BEGIN).total_seconds(), HOUR)
    assert rest == 0
    return 7 + int(hours)


def by_hour(found: list[Row], *names: str, **only: str) -> dict[int, tuple[object, ...]]:
    return {
        hour_of(row["at"]): tuple(row[name] for name in names)
        for row in found
        if all(row[name] == value for name, value in only.items())
    }


@pytest.fixture(scope="module")
def hourly(parts: "dict[str, DataFrame]") -> list[Row]:
    from mq9.lake.mailbox_hourly import mailbox_hourly

    return rows(mailbox_hourly(parts["part_cohorts"], parts["part_flows"]))


def test_mailbox_hourly_counts_what_comes_in_and_what_is_done(hourly: list[Row]) -> None:
    counted = ("sent", "bytes", "delivered", "redelivered", "acked", "expired", "removed")
    assert by_hour(hourly, *counted, mailbox="in") == {
        7: (3, 30, 1, 0, 1, 0, 0),
        8: (1, 10, 2, 1, 1, 1, 1),
        9: (1, 10, 0, 0, 0, 0, 0),
    }


def test_mailbox_hourly_has_what_is_left_at_the_end_of_the_hour(hourly: list[Row]) -> None:
    # 7: 1 and 2 are open. 8: one done, one given up, one expired. 9: the last one is open.
    assert by_hour(hourly, "depth", mailbox="in") == {7: (2,), 8: (0,), 9: (1,)}
    assert by_hour(hourly, "depth", mailbox="gone") == {7: (1,), 8: (0,)}


def test_mailbox_hourly_has_the_mix_of_priorities(hourly: list[Row]) -> None:
    names = ("critical", "urgent", "normal", "notify", "other")
    mix = by_hour(hourly, *names, mailbox="in")
    assert mix == {7: (1, 1, 1, 0, 0), 8: (0, 0, 0, 0, 1), 9: (0, 0, 0, 1, 0)}


def test_mailbox_hourly_has_percentiles_of_the_messages_sent_in_the_hour(
    hourly: list[Row],
) -> None:
    names = ("waiting_ms_p50", "waiting_ms_p99", "processing_ms_p50", "processing_ms_p99")
    # Waited 0.5 s and an hour; processed in 1.5 s and 4 s.
    assert by_hour(hourly, *names, mailbox="in") == {
        7: (1_800_250, 3_564_005, 2750, 3975),
        8: (1000, 1000, None, None),
        9: (None, None, None, None),
    }


@pytest.fixture(scope="module")
def lag(parts: "dict[str, DataFrame]") -> list[Row]:
    from mq9.lake.group_lag import group_lag

    return rows(group_lag(parts["part_cohorts"], parts["part_flows"]))


def test_group_lag_is_what_the_group_was_not_given(lag: list[Row]) -> None:
    names = ("delivered", "acked", "in_flight", "lag")
    assert by_hour(lag, *names, mailbox="in", group="g") == {
        7: (1, 1, 0, 2),
        # Message 2 expired before the group was given it.
        8: (2, 1, 0, 0),
        9: (0, 0, 0, 1),
    }


def test_group_lag_begins_with_the_first_message_that_the_group_was_given(lag: list[Row]) -> None:
    found = by_hour(lag, "delivered", "in_flight", "lag", mailbox="news", group="late")
    assert found == {7: (1, 0, 1), 8: (1, 1, 0)}


def test_agent_graph_says_who_sends_to_whom(lives: "pa.Table") -> None:
    from mq9.lake.agent_graph import AGENT_GRAPH

    edges = {
        (row["sender"], row["mailbox"], row["hour"]): (
            row["messages"],
            row["bytes"],
            row["urgent"],
            row["delivered"],
            row["settled"],
        )
        for row in rows(AGENT_GRAPH.of(lives))
    }
    assert edges == {
        ("ada", "in", 7): (2, 20, 2, 2, 2),
        ("bob", "in", 7): (1, 10, 0, 0, 1),
        ("ada", "in", 8): (1, 10, 0, 1, 1),
    }


def test_dead_letter_report_says_what_was_given_up_and_why(
    parts: "dict[str, DataFrame]",
) -> None:
    from mq9.lake.dead_letter_report import dead_letter_report

    [row] = rows(dead_letter_report(parts["part_dead_letters"]))
    names = ("mailbox", "group", "target", "cause", "messages", "deliveries", "most_deliveries")
    assert tuple(row[name] for name in names) == ("in", "g", "in.dead", "max_deliver", 1, 2, 2)
    assert (row["mean_age_ms"], row["oldest_ms"]) == (10_000, 10_000)
    assert hour_of(row["at"]) == 8
    assert row["last"].astimezone(BEGIN.tzinfo) == at(HOUR + 50)


def test_sla_holds_important_messages_against_their_targets(lives: "pa.Table") -> None:
    from mq9.lake.sla import sla

    found = {
        (row["mailbox"], row["priority"]): (
            row["target_ms"],
            row["messages"],
            row["within"],
            row["late"],
            row["lost"],
            row["open"],
        )
        for row in rows(sla({"critical": 500, "urgent": 60_000}).of(lives))
    }
    assert found == {
        ("in", "critical"): (500, 1, 1, 0, 0, 0),
        ("in", "urgent"): (60_000, 1, 0, 1, 0, 0),
        ("news", "urgent"): (60_000, 3, 1, 1, 0, 1),
        ("gone", "critical"): (500, 1, 0, 0, 1, 0),
    }
