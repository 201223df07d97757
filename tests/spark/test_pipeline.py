"""What `make pipeline` does, with less traffic: the tables say what the agents know they did."""

import shutil
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, astuple, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import Row as SparkRow

    from live_traffic import Life
    from pipeline import Done

Row = dict[str, Any]


@pytest.fixture(scope="module")
def known(done: "Done") -> list[Row]:
    """A row for each message, with what it adds to the columns of the tables."""
    return [asdict(life) | added(life) for life in done.lives]


def added(life: "Life") -> Row:
    return {
        "messages": 1,
        "sent": 1,
        "bytes": life.size,
        life.priority: 1,
        "delivered": life.deliveries > 0,
        "redelivered": max(life.deliveries - 1, 0),
        "acked": life.outcome == "acked",
        "settled": life.outcome in {"acked", "dead_letter"},
        "depth": life.outcome in {"waiting", "pending"},
        "in_flight": life.outcome == "pending",
        "open": life.deliveries == 0,
        "target": life.dead_letter_to,
        "cause": "terminated",
    }


def rows(done: "Done", table: str) -> list[Row]:
    """The rows of a table; without mailboxes for dead letters, to which nobody sends."""
    from live_traffic import DEAD

    found = done.tables.read(table)
    assert found is not None
    return [row.asDict() for row in found.collect() if not row["mailbox"].endswith(DEAD)]


def read(done: "Done", table: str) -> "list[SparkRow]":
    """All rows of a table."""
    found = done.tables.read(table)
    assert found is not None
    return found.collect()


def sums(found: Iterable[Row], by: str, of: str) -> dict[tuple[Any, ...], Counter[str]]:
    """The sums of some columns by others; where nothing is, is 0."""
    summed: dict[tuple[Any, ...], Counter[str]] = {}
    for row in found:
        numbers = {name: row.get(name, 0) for name in of.split()}
        summed.setdefault(tuple(row[name] for name in by.split()), Counter()).update(numbers)
    return summed


def test_the_traffic_has_something_of_everything(done: "Done") -> None:
    assert len(done.lives) == 400
    assert {life.outcome for life in done.lives} == {"acked", "pending", "dead_letter", "waiting"}
    assert any(life.deliveries > 1 for life in done.lives), "nothing was given out again"
    assert any(life.returns for life in done.lives), "nothing was given back"


def test_each_message_has_the_life_that_the_agents_know(done: "Done") -> None:
    from live_traffic import Life

    names = [field.name for field in fields(Life)]
    lives = Counter(tuple(row[name] for name in names) for row in rows(done, "message_lifecycle"))
    assert lives == Counter(map(astuple, done.lives))


def test_what_was_given_up_lies_in_the_mailboxes_for_it(done: "Done") -> None:
    from live_traffic import DEAD

    found = done.tables.read("message_lifecycle")
    assert found is not None
    buried = found.where(f"mailbox like '%{DEAD}'").select("mailbox", "size", "outcome").collect()
    assert Counter(map(tuple, buried)) == Counter(
        (life.dead_letter_to, life.size, "waiting")
        for life in done.lives
        if life.outcome == "dead_letter"
    )


@pytest.mark.parametrize(
    ("table", "by", "of"),
    [
        (
            "mailbox_hourly",
            "mailbox",
            "sent bytes critical urgent normal notify delivered redelivered acked",
        ),
        ("agent_graph", "sender mailbox", "messages bytes delivered settled"),
    ],
)
def test_a_table_adds_up_to_what_the_agents_know(
    done: "Done", known: list[Row], table: str, by: str, of: str
) -> None:
    assert sums(rows(done, table), by, of) == sums(known, by, of)


def test_groups_were_given_what_the_agents_know(done: "Done", known: list[Row]) -> None:
    given = [row for row in known if row["delivered"]]
    by, of = "mailbox group", "delivered acked"
    assert sums(rows(done, "group_lag"), by, of) == sums(given, by, of)


def test_dead_letters_are_those_that_the_agents_gave_up(done: "Done", known: list[Row]) -> None:
    dead = [row for row in known if row["outcome"] == "dead_letter"]
    by, of = "mailbox group target cause", "messages deliveries"
    assert sums(rows(done, "dead_letter_report"), by, of) == sums(dead, by, of)


def test_targets_are_for_what_the_agents_called_important(done: "Done", known: list[Row]) -> None:
    important = [row for row in known if row["priority"] in {"critical", "urgent"}]
    by, of = "mailbox priority", "messages open lost"
    found = rows(done, "sla")
    assert sums(found, by, of) == sums(important, by, of)
    assert all(row["within"] + row["late"] + row["open"] == row["messages"] for row in found)


def test_first_deliveries_are_those_of_messages_that_the_agents_were_given(
    done: "Done", known: list[Row]
) -> None:
    from live_traffic import DEAD

    # Nobody reads the mailboxes for dead letters, which come with the priority they had.
    copies = [row | {"delivered": 0, "open": 1} for row in known if row["dead_letter_to"]]
    assert all(row["dead_letter_to"].endswith(DEAD) for row in copies)
    found = [row.asDict() for row in read(done, "first_delivery")]
    by, of = "priority", "messages delivered open lost"
    assert sums(found, by, of) == sums([*known, *copies], by, of)
    for row in found:
        has_target = row["priority"] in {"critical", "urgent"}
        assert (row["target_ms"] is not None) == has_target
        if has_target:
            assert row["within"] + row["late"] == row["delivered"]
        if row["delivered"]:
            assert 0 <= row["p50_ms"] <= row["p95_ms"] <= row["p99_ms"] <= row["longest_ms"]


def test_unread_is_what_nobody_was_ever_given_there(done: "Done", known: list[Row]) -> None:
    expected = Counter(row["dead_letter_to"] for row in known if row["dead_letter_to"])
    assert expected
    given = {row["mailbox"] for row in known if row["delivered"]}
    expected.update(row["mailbox"] for row in known if row["mailbox"] not in given)
    found = read(done, "unread")
    last = max(row["date"] for row in found)
    assert expected == {
        row["mailbox"]: row["unread"]
        for row in found
        if row["date"] == last and row["last_delivered"] is None
    }


@pytest.mark.parametrize(
    ("table", "column"), [("mailbox_hourly", "depth"), ("group_lag", "in_flight")]
)
def test_what_is_left_in_the_last_hour_is_what_nobody_finished(
    done: "Done", known: list[Row], table: str, column: str
) -> None:
    in_order = sorted(rows(done, table), key=lambda row: row["at"])
    last = {row["mailbox"]: row for row in in_order}
    assert sums(last.values(), "mailbox", column) == sums(known, "mailbox", column)


def test_who_waits_for_whom_is_what_the_agents_asked_and_answered(
    done: "Done", known: list[Row]
) -> None:
    answers = {
        (row["mailbox"], row["correlation"])
        for row in known
        if row["correlation"] and not row["reply_to"]
    }
    asked = []
    for row in known:
        if row["reply_to"]:
            answered = (row["reply_to"], row["correlation"]) in answers
            sides = {"agent": row["sender"], "waits_for": row["mailbox"]}
            asked.append(sides | {"requests": 1, "answered": answered, "unanswered": not answered})
    assert any(row["answered"] for row in asked)
    assert any(row["unanswered"] for row in asked)
    found = [row.asDict() for row in read(done, "waits")]
    by, of = "agent waits_for", "requests answered unanswered"
    assert sums(found, by, of) == sums(asked, by, of)


def test_spending_is_what_the_agents_said(done: "Done", known: list[Row]) -> None:
    spent = [
        {"agent": row["sender"], "conversation": row["conversation"], "messages": 1}
        | {"tokens": row["tokens"] or 0, "millionths": row["cost"] or 0}
        for row in known
        if row["tokens"] is not None or row["cost"] is not None
    ]
    found = [
        row.asDict()
        | {"tokens": row["tokens"] or 0, "millionths": int((row["cost"] or 0) * 1_000_000)}
        for row in read(done, "spending")
    ]
    by, of = "agent conversation", "messages tokens millionths"
    assert sums(found, by, of) == sums(spent, by, of)


def test_circles_are_those_that_the_agents_sent_round(done: "Done", known: list[Row]) -> None:
    # In which hour each message was sent is all that the agents do not know.
    lives = rows(done, "message_lifecycle")
    hours = {(row["mailbox"], row["msg_id"]): (row["date"], row["hour"]) for row in lives}
    sent: Counter[tuple[Any, ...]] = Counter()
    for row in known:
        if row["conversation"] and row["sender"] != row["mailbox"]:
            talk = (*hours[row["mailbox"], row["msg_id"]], row["conversation"])
            sent[talk, row["sender"], row["mailbox"]] += 1
    expected: Counter[tuple[Any, ...]] = Counter()
    ways = {way for way, count in sent.items() if count >= 2}
    for talk, first, second in ways:
        for chain in ((first, second), *((first, second, third) for _, _, third in ways)):
            steps = [(talk, *pair) for pair in zip(chain, (*chain[1:], first), strict=True)]
            if first == min(chain) and len(set(chain)) == len(chain) and ways.issuperset(steps):
                counts = [sent[step] for step in steps]
                expected[*talk, chain, min(counts), sum(counts)] = 1
    assert {len(circle[3]) for circle in expected} == {2, 3}
    found = Counter(
        (row["date"], row["hour"], row["conversation"], tuple(row["agents"]), *of_circle(row))
        for row in read(done, "circles")
    )
    assert found == expected


def of_circle(circle: "SparkRow") -> tuple[int, int]:
    return circle["rounds"], circle["messages"]


def test_retries_are_the_deliveries_that_the_agents_saw_again(
    done: "Done", known: list[Row]
) -> None:
    again = [
        # What came back last, and was given to nobody since, is no reason for a delivery yet.
        row
        | {"redeliveries": row["deliveries"] - 1}
        | {"returned": min(row["returns"], row["deliveries"] - 1)}
        for row in known
        if row["deliveries"] > 1
    ]
    assert any(row["returned"] for row in again)
    found = rows(done, "retries")
    by, of = "sender mailbox", "messages redeliveries returned"
    assert sums(found, by, of) == sums(again, by, of)


def test_the_exporter_says_which_hours_have_news(done: "Done") -> None:
    from mq9.spark.export_source import BEGIN, Export
    from mq9.spark.schema import DATASETS

    export = Export(str(Path(done.tables.root).with_name("export")), "files", DATASETS["files"])
    manifest = export.manifest()
    assert manifest.since
    assert manifest.forgotten is None
    files = export.files(BEGIN, manifest.end)
    for position in {file.position for file in files}:
        rest = [file for file in files if file.position >= position]
        assert export.files(position, manifest.end, manifest.oldest_hour(position)) == rest


def test_a_return_that_the_agents_know_otherwise_is_noticed(done: "Done") -> None:
    from pipeline import Differs, compare

    told = list(done.lives)
    told[7] = replace(told[7], returns=told[7].returns + 1)
    with pytest.raises(Differs, match="the tables and what the agents know differ") as error:
        compare(done.tables, done.streamed, told)
    assert f"'msg_id': {told[7].msg_id}, " in str(error.value)


def test_a_row_that_the_stream_does_not_have_is_noticed(done: "Done", tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    from mq9.lake.tables import Tables
    from pipeline import Differs, compare

    shutil.copytree(done.streamed.root, tmp_path / "streamed")
    file = next((tmp_path / "streamed" / "dead_letter_report").rglob("*.parquet"))
    rows = pq.ParquetFile(file).read()[1:]
    pq.write_table(rows, file, use_deprecated_int96_timestamps=True)
    # Hadoop's checksum of the file as it was.
    file.with_name(f".{file.name}.crc").unlink()
    with pytest.raises(Differs, match="dead_letter_report: batch and stream differ"):
        compare(done.tables, Tables(done.tables.spark, str(tmp_path / "streamed")), done.lives)


def test_a_byte_that_turned_in_an_exported_file_is_noticed(done: "Done", tmp_path: Path) -> None:
    import pyarrow.fs as pafs

    from mq9.lake import facts

    export = Path(done.tables.root).with_name("export")
    file = max((export / "messages").rglob("*.parquet"), key=lambda file: file.stat().st_size)
    whole = bytearray(file.read_bytes())
    assert sum(table.num_rows for table in facts.read(pafs.LocalFileSystem(), str(file))) > 0
    # In the middle of the pages: payloads are what most of a file is.
    whole[len(whole) // 3] ^= 1
    (tmp_path / "turned.parquet").write_bytes(whole)
    with pytest.raises(facts.Damaged, match=r"turned\.parquet is damaged"):
        list(facts.read(pafs.LocalFileSystem(), str(tmp_path / "turned.parquet")))
