"""The tables that answer questions, from conversations that can be counted on fingers."""

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from tests.spark.rows import Log, Row

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

HOUR = 3600


def talk() -> Log:
    """Ada asks bob twice, over two hours; bob asks eve, who never answers."""
    log = Log()

    def say(who: str, to: str, msg_id: int, time_s: float, **headers: str) -> None:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        log.send(to, msg_id, time_s, headers={"from": who} | named)

    say("ada", "bob", 0, 10, mq9_reply_to="ada", mq9_correlation_id="q1", mq9_tokens="100")
    log.worked("bob", 0, 11, 12)
    say("bob", "ada", 0, 14, mq9_correlation_id="q1", mq9_tokens="50", mq9_cost="0.25")
    say("ada", "bob", 1, 20, mq9_reply_to="ada", mq9_correlation_id="q1", mq9_cost="1.5")
    say("bob", "ada", 1, 26, mq9_correlation_id="q1")
    # An answer of the next hour, to a request without a correlation id.
    say("bob", "eve", 0, 30, mq9_reply_to="bob.private")
    say("eve", "bob.private", 0, HOUR + 30)
    # And a request that nobody answers.
    say("bob", "eve", 1, HOUR + 40, mq9_reply_to="bob.other", mq9_correlation_id="q2")
    # What eve has to be given three times: once it came back, once its lease ran out.
    log.happen("deliver", "eve", 0, 31, group="g", member="one", count=1)
    log.happen("nak", "eve", 0, 32, group="g")
    log.happen("redeliver", "eve", 0, 33, group="g", member="one", count=2)
    log.happen("redeliver", "eve", 0, 63, group="g", member="two", count=3)
    log.happen("ack", "eve", 0, 64, group="g")
    return log


@pytest.fixture(scope="module")
def lives() -> "pa.Table":
    import pyarrow as pa
    from tests.spark.rows import lives

    made = lives(talk())
    hours = [int(sent.timestamp()) // HOUR for sent in made["sent"].to_pylist()]
    return made.append_column("hour_of", pa.array(hours))


def picked(rows: "list[Row]", keys: str, *names: str) -> dict[Any, tuple[Any, ...]]:
    found = {
        tuple(row[key] for key in keys.split()): tuple(row[name] for name in names) for row in rows
    }
    assert len(found) == len(rows)
    return found


def on_spark(spark: "SparkSession", rows: "pa.Table") -> "DataFrame":
    from pyspark.sql import functions as F

    begin = F.timestamp_seconds(F.col("hour_of") * HOUR)
    return spark.createDataFrame(rows).withColumns(
        {"date": F.to_date(begin), "hour": F.hour(begin)}
    )


def test_waits_goes_from_a_request_to_its_answer(spark: "SparkSession", lives: "pa.Table") -> None:
    from mq9.lake.waits import ASKS, waits

    found = waits(on_spark(spark, ASKS.of(lives)), on_spark(spark, lives)).collect()
    names = ("requests", "answered", "unanswered", "p50_ms", "longest_ms", "total_ms")
    rows = [row.asDict() for row in found]
    assert picked(rows, "hour agent waits_for", *names) == {
        # Four and six seconds.
        (7, "ada", "bob"): (2, 2, 0, 5000, 6000, 10_000),
        (7, "bob", "eve"): (1, 1, 0, HOUR * 1000, HOUR * 1000, HOUR * 1000),
        (8, "bob", "eve"): (1, 0, 1, None, None, None),
    }


def test_first_delivery_holds_each_priority_against_its_target(lives: "pa.Table") -> None:
    from mq9.lake.first_delivery import first_delivery

    rows = first_delivery({"normal": 500}).of(lives).to_pylist()
    names = ("target_ms", "messages", "delivered", "open", "lost", "within", "late")
    # In the first hour bob's first waited for one second, and eve's too; nobody took the others.
    assert picked([row | {"hour": row["hour_of"] % 24} for row in rows], "hour", *names) == {
        (7,): (500, 5, 2, 3, 0, 0, 2),
        (8,): (500, 2, 0, 2, 0, 0, 0),
    }
    [seven] = [row for row in rows if row["hour_of"] % 24 == 7]
    assert (seven["p50_ms"], seven["p99_ms"], seven["longest_ms"]) == (1000, 1000, 1000)


def test_priorities_without_a_target_are_neither_in_time_nor_late(lives: "pa.Table") -> None:
    from mq9.lake.first_delivery import first_delivery

    for row in first_delivery({"critical": 500}).of(lives).to_pylist():
        assert (row["target_ms"], row["within"], row["late"]) == (None, None, None)


def test_retries_says_what_came_back_and_what_ran_out(lives: "pa.Table") -> None:
    from mq9.lake.retries import RETRIES

    names = ("messages", "redeliveries", "returned", "ran_out", "most_deliveries", "acked")
    assert picked(RETRIES.of(lives).to_pylist(), "sender mailbox group member", *names) == {
        ("bob", "eve", "g", "two"): (1, 2, 1, 1, 3, 1)
    }


def test_spending_adds_up_tokens_and_costs(lives: "pa.Table") -> None:
    from mq9.lake.spending import SPENDING

    rows = SPENDING.of(lives).to_pylist()
    assert picked(rows, "agent conversation", "messages", "tokens", "cost") == {
        ("ada", "q1"): (2, 100, Decimal("1.500000")),
        ("bob", "q1"): (1, 50, Decimal("0.250000")),
    }


def test_circles_are_conversations_that_went_round_twice(lives: "pa.Table") -> None:
    from mq9.lake.circles import CIRCLES

    [row] = CIRCLES.of(lives).to_pylist()
    found = (row["conversation"], row["agents"], row["rounds"], row["messages"])
    assert found == ("q1", ["ada", "bob"], 2, 4)


def test_a_circle_of_three_is_found_once() -> None:
    import pyarrow as pa
    from tests.spark.rows import lives

    from mq9.lake.circles import CIRCLES

    log = Log()
    for turn in range(3):
        for who, to in (("c", "a"), ("a", "b"), ("b", "c")):
            headers = {"from": who, "mq9-conversation-id": "talk"}
            log.send(to, turn, 10 * turn, headers=headers)
    made = lives(log)
    made = made.append_column("hour_of", pa.array([7] * made.num_rows))
    [row] = CIRCLES.of(made).to_pylist()
    assert (row["agents"], row["rounds"], row["messages"]) == (["a", "b", "c"], 3, 9)


def test_an_hour_in_pieces_has_the_same_tables(lives: "pa.Table") -> None:
    from mq9.lake.summed import hour_tables

    pieces = [lives.slice(0, 1), lives.slice(1, 4), lives.slice(5)]
    for table in hour_tables({"normal": 500}):
        whole = table.of(lives).to_pylist()
        assert whole or table.name == "part_dead_letters", table.name
        together = table.made([table.summed(piece) for piece in pieces]).to_pylist()
        assert sorted(map(repr, together)) == sorted(map(repr, whole)), table.name


def test_unread_is_what_lay_there_on_a_day_without_a_reader(spark: "SparkSession") -> None:
    import datetime

    from mq9.lake.daily import mailbox_days, unread

    first, second = datetime.date(2026, 5, 2), datetime.date(2026, 5, 3)
    at = datetime.datetime(2026, 5, 2, 9, tzinfo=datetime.UTC)
    columns = "mailbox string, at timestamp, depth long, delivered long, sent long"
    hourly = spark.createDataFrame(
        [("read", at, 2, 1, 3), ("log", at, 5, 0, 5), ("empty", at, 0, 0, 0)], columns
    )
    found = unread(mailbox_days(hourly, [first, second], None)).collect()
    assert picked([row.asDict() for row in found], "date mailbox", "unread", "sent") == {
        (first, "log"): (5, 5),
        (second, "log"): (5, 0),
        # Somebody read there the day before.
        (second, "read"): (2, 0),
    }
