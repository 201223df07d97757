"""The life of messages, from small logs whose outcome can be told by looking at them."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.spark.rows import Log, Row, at

Lives = dict[tuple[str, int, str | None], Row]


def story() -> Log:
    """One log with many short stories, each in a mailbox of its own."""
    log = Log()
    log.send("done", 0, 1, headers={"From": " planner "}).worked("done", 0, 3, 7)
    log.send("idle", 0, 1, payload=json.dumps({"from": "coder"}).encode())
    log.send("held", 0, 1, headers={"reply-to": "agent.replies"})
    log.happen("deliver", "held", 0, 2, group="g", member="ada", count=1)
    log.send("again", 0, 1)
    log.happen("deliver", "again", 0, 2, group="g", member="ada", count=1)
    log.happen("nak", "again", 0, 4, group="g")
    log.happen("redeliver", "again", 0, 5, group="g", member="bob", count=2)
    log.happen("ack", "again", 0, 9, group="g")
    log.send("poison", 0, 1)
    log.happen("deliver", "poison", 0, 2, group="g", member="ada", count=1)
    log.happen("dead_letter", "poison", 0, 3, group="g", target="poison.dead", cause="terminated")
    moved = {"From": "planner", "mq9-dead-mailbox": "poison"}
    log.send("poison.dead", 0, 3, headers=moved)
    log.send("short", 0, 1).happen("expire", "short", 0, 61)
    log.send("unwanted", 0, 1).happen("delete", "unwanted", 0, 5, cause="replaced")
    log.send("two", 0, 1).worked("two", 0, 2, 3, group="a").worked("two", 0, 5, 8, group="b")
    log.send("later", 0, 1, visible_s=10).worked("later", 0, 12, 13)
    # A mailbox that goes with what it holds, and comes again with ids from 0.
    log.send("reborn", 0, 1).worked("reborn", 0, 2, 3).send("reborn", 1, 4)
    log.happen("expire", "reborn", None, 100)
    log.send("reborn", 0, 200).worked("reborn", 0, 201, 203).send("reborn", 1, 204)
    log.happen("delete", "reborn", None, 300)
    # Its message is not exported yet.
    log.happen("ack", "unknown", 7, 5, group="g")
    return log


@pytest.fixture(scope="module")
def lives_of() -> Callable[[Log], list[Row]]:
    from tests.spark.rows import lives

    return lambda log: with_hours(lives(log).to_pylist())


def with_hours(rows: list[Row]) -> list[Row]:
    """As the folders say: the day and the hour of sending."""
    return [row | {"date": row["sent"].date(), "hour": row["sent"].hour} for row in rows]


@pytest.fixture(scope="module")
def rows(lives_of: Callable[[Log], list[Row]]) -> list[Row]:
    return lives_of(story())


@pytest.fixture(scope="module")
def lives(rows: list[Row]) -> Lives:
    return {(r["mailbox"], r["msg_id"], r["group"]): r for r in rows if r["mailbox"] != "reborn"}


def instant(value: Any) -> Any:  # noqa: ANN401
    """What Spark hands out in the zone of this process, to compare with."""
    return None if value is None else value.astimezone(at(0).tzinfo)


def some(life: Row, *names: str) -> tuple[object, ...]:
    return tuple(life[name] for name in names)


TIMES = ("waiting_ms", "processing_ms", "total_ms")


def test_a_message_that_was_worked_on(lives: Lives) -> None:
    life = lives["done", 0, "g"]
    assert some(life, "outcome", "deliveries", "returns", "member") == ("acked", 1, 0, "ada")
    assert some(life, *TIMES) == (2000, 4000, 6000)
    assert instant(life["first_delivered"]) == at(3)
    assert instant(life["ended"]) == instant(life["acked"]) == at(7)
    assert (str(life["date"]), life["hour"]) == ("2026-05-02", 7)


def test_a_message_that_nobody_was_given(lives: Lives) -> None:
    life = lives["idle", 0, None]
    assert some(life, "outcome", "deliveries", "first_delivered", "ended") == (
        "waiting",
        0,
        None,
        None,
    )
    assert some(life, *TIMES) == (None, None, None)


def test_a_message_in_somebodys_hands(lives: Lives) -> None:
    assert some(lives["held", 0, "g"], "outcome", "waiting_ms", "ended") == ("pending", 1000, None)


def test_a_message_that_was_given_back(lives: Lives) -> None:
    life = lives["again", 0, "g"]
    assert some(life, "outcome", "deliveries", "returns", "member") == ("acked", 2, 1, "bob")
    # It waited for the first delivery, and was processed by the last.
    assert some(life, *TIMES) == (1000, 4000, 8000)


def test_a_message_that_was_given_up(lives: Lives) -> None:
    life = lives["poison", 0, "g"]
    assert some(life, "outcome", "dead_letter_to", "dead_letter_cause") == (
        "dead_letter",
        "poison.dead",
        "terminated",
    )
    assert instant(life["ended"]) == at(3)


def test_messages_that_were_removed(lives: Lives) -> None:
    assert lives["short", 0, None]["outcome"] == "expired"
    assert instant(lives["short", 0, None]["ended"]) == at(61)
    assert lives["unwanted", 0, None]["outcome"] == "replaced"


def test_each_group_has_a_row_and_the_message_counts_once(lives: Lives) -> None:
    first, second = lives["two", 0, "a"], lives["two", 0, "b"]
    assert (first["waiting_ms"], second["waiting_ms"]) == (1000, 4000)
    assert (first["counts"], second["counts"]) == (True, False)
    assert instant(second["settled"]) == at(3)
    assert ("two", 0, None) not in lives


def test_waiting_begins_when_a_delayed_message_is_due(lives: Lives) -> None:
    assert some(lives["later", 0, "g"], *TIMES) == (2000, 1000, 3000)


@pytest.mark.parametrize(
    ("mailbox", "group", "sender"),
    [
        ("done", "g", "planner"),
        ("idle", None, "coder"),
        ("held", "g", "agent.replies"),
        ("poison", "g", None),
        ("poison.dead", None, None),
    ],
)
def test_the_sender_is_who_the_message_says(
    lives: Lives, mailbox: str, group: str | None, sender: str | None
) -> None:
    assert lives[mailbox, 0, group]["sender"] == sender


def test_mailboxes_of_the_same_name_are_told_apart(rows: list[Row]) -> None:
    reborn = sorted(
        (instant(r["sent"]), r["outcome"], instant(r["ended"]))
        for r in rows
        if r["mailbox"] == "reborn"
    )
    assert reborn == [
        (at(1), "acked", at(3)),
        (at(4), "expired", at(100)),
        (at(200), "acked", at(203)),
        (at(204), "deleted", at(300)),
    ]


def test_what_is_not_exported_yet_has_no_row(lives: Lives) -> None:
    assert not [key for key in lives if key[0] == "unknown"]


def test_rows_may_come_twice_and_in_any_order(
    lives_of: Callable[[Log], list[Row]], rows: list[Row]
) -> None:
    log = story()
    # Compaction copies a message to another place of the log; it is still one message.
    moved = log.messages[0] | {"segment": 9, "offset": 80}
    mixed = Log([moved, *log.messages[::-1], *log.messages], [*log.events[::-1], *log.events])

    def ordered(found: list[Row]) -> list[str]:
        return sorted(map(repr, found))

    assert ordered(lives_of(mixed)) == ordered(rows)
