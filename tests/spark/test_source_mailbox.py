"""The data source against a real broker: mailboxes read, followed and written to."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.peers import Server

import mq9

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def ask(server: Server, what: Callable[[mq9.Client], Awaitable[Any]]) -> Any:  # noqa: ANN401
    """Does something with a client of the broker."""

    async def run() -> Any:  # noqa: ANN401
        async with mq9.Client(server.url) as client:
            return await what(client)

    return asyncio.run(run())


@pytest.fixture
def mailbox(server: Server) -> str:
    """A mailbox with seven messages, 0 to 6; the third has a key."""
    name = f"spark.{secrets.token_hex(6)}"

    async def fill(client: mq9.Client) -> None:
        await client.create_mailbox(name)
        messages = [mq9.NewMessage(f"message {n}") for n in range(7)]
        messages[2] = mq9.NewMessage(
            b"\x00\xff",
            priority="urgent",
            key="state",
            tags=["a", "b"],
            ttl=900,
            headers={"T": "1"},
        )
        await client.send_many(name, messages)

    ask(server, fill)
    return name


def read(spark: "SparkSession", server: Server, mailbox: str, **options: object) -> "DataFrame":
    reader = spark.read.format("mq9").option("url", server.url).option("mailbox", mailbox)
    return reader.options(**{name: str(value) for name, value in options.items()}).load()


def test_a_mailbox_is_read_without_being_touched(
    spark: "SparkSession", server: Server, mailbox: str
) -> None:
    rows = read(spark, server, mailbox, pageSize=2).orderBy("msg_id").collect()
    assert [row.msg_id for row in rows] == list(range(7))
    assert [bytes(row.payload) for row in rows[:2]] == [b"message 0", b"message 1"]
    special = rows[2]
    assert (bytes(special.payload), special.size) == (b"\x00\xff", 2)
    assert (special.level, special.priority, special.key) == (3, "urgent", "state")
    assert (special.tags, [tuple(h) for h in special.headers]) == (["a", "b"], [("T", "1")])
    assert (special.expires - special.visible).total_seconds() == pytest.approx(900, abs=1)
    left = ask(server, lambda client: client.fetch(mailbox, group="g", deliver="earliest"))
    assert len(left) == 7


@pytest.mark.parametrize(
    ("condition", "ids"),
    [
        ("msg_id > 4", [5, 6]),
        ("msg_id >= 1 and msg_id < 3", [1, 2]),
        ("key = 'state'", [2]),
        ("priority = 'urgent'", [2]),
        ("mailbox = 'elsewhere'", []),
        ("visible > timestamp'2020-01-01' and msg_id = 3", [3]),
        ("visible > timestamp'2100-01-01'", []),
    ],
)
def test_conditions_give_the_messages_that_they_say(
    spark: "SparkSession", server: Server, mailbox: str, condition: str, ids: list[int]
) -> None:
    rows = read(spark, server, mailbox).where(condition).select("msg_id").collect()
    assert sorted(row.msg_id for row in rows) == ids


def test_the_broker_is_asked_only_for_what_is_wanted() -> None:
    pytest.importorskip("pyspark", reason="needs Spark: pip install 'mq9[spark]'")
    from pyspark.sql.datasource import EqualTo, GreaterThan, LessThanOrEqual, StringContains

    from mq9.spark.filters import Wanted

    rest = StringContains(("priority",), "urgent")
    filters = [GreaterThan(("msg_id",), 4), LessThanOrEqual(("msg_id",), 9), rest]
    wanted, left = Wanted(("a", "b")).narrowed([*filters, EqualTo(("mailbox",), "b")])
    assert wanted == Wanted(("b",), first=5, last=9)
    assert left == [rest]


def test_ranges_of_ids_are_dealt_out_to_tasks(server: Server) -> None:
    pytest.importorskip("pyspark", reason="needs Spark: pip install 'mq9[spark]'")
    from mq9.spark.mailbox_source import Ids, Mailboxes
    from mq9.spark.options import Broker
    from mq9.spark.schema import MAILBOX

    source = Mailboxes(Broker(server.url), MAILBOX, page=100, tasks=3)
    assert source.split("a", 5, 4) == []
    assert source.split("a", 0, 99) == [Ids("a", 0, 99)]
    many = source.split("a", 7, 200_006)
    assert [many[0].first, many[-1].last, len(many)] == [7, 200_006, 3]  # type: ignore[attr-defined]


def test_a_mailbox_that_is_not_there_is_an_error(spark: "SparkSession", server: Server) -> None:
    with pytest.raises(Exception, match="mailbox nobody does not exist"):
        read(spark, server, "nobody").collect()


def test_a_stream_follows_a_mailbox_and_goes_on_where_it_was(
    spark: "SparkSession", server: Server, mailbox: str, tmp_path: Path
) -> None:
    from mq9.lake import stream

    def run() -> list[int]:
        rows = (
            spark.readStream.format("mq9")
            .option("url", server.url)
            .option("mailbox", mailbox)
            .option("maxRowsPerTrigger", 5)
            .load()
        )

        def begin() -> "StreamingQuery":
            return (
                rows.select("msg_id")
                .writeStream.format("parquet")
                .option("path", str(tmp_path / "out"))
                .option("checkpointLocation", str(tmp_path / "checkpoint"))
                .trigger(availableNow=True)
                .start()
            )

        stream.finish(begin, 120)
        return sorted(row.msg_id for row in spark.read.parquet(str(tmp_path / "out")).collect())

    assert run() == list(range(7))
    ask(server, lambda client: client.send_many(mailbox, ["more", "and more"]))
    assert run() == list(range(9))


def stored(server: Server, mailbox: str) -> list[mq9.Message]:
    found: list[mq9.Message] = ask(server, lambda client: client.query(mailbox))
    return found


def test_rows_are_sent_as_messages(spark: "SparkSession", server: Server) -> None:
    name = f"spark.{secrets.token_hex(6)}"
    rows = spark.createDataFrame(
        [
            (name, "hello", "urgent", ["a"], {"From": "spark"}, None),
            (name, "world", None, None, None, 600),
        ],
        "mailbox string, payload string, priority string, tags array<string>, "
        "headers map<string,string>, ttl int",
    )
    rows.write.format("mq9").option("url", server.url).option("create", True).mode("append").save()
    first, second = sorted(stored(server, name), key=lambda message: message.text)
    assert (first.text, first.priority, first.tags) == ("hello", "urgent", ("a",))
    assert dict(first.headers) == {"From": "spark"}
    assert (second.text, second.priority) == ("world", "normal")
    assert second.expires_at is not None


def test_rows_that_say_the_same_are_all_sent(spark: "SparkSession", server: Server) -> None:
    name = f"spark.{secrets.token_hex(6)}"
    rows = spark.createDataFrame([("same",)] * 5, "payload string").repartition(2)
    writer = rows.write.format("mq9").option("url", server.url).option("mailbox", name)
    writer.option("create", True).mode("append").save()
    assert [message.text for message in stored(server, name)] == ["same"] * 5


def test_a_task_that_is_done_again_leaves_each_message_once(
    spark: "SparkSession", server: Server
) -> None:
    """The same task twice with the same write id is what a retry is for the broker."""
    name = f"spark.{secrets.token_hex(6)}"
    rows = spark.createDataFrame([(f"row {n}",) for n in range(20)], "payload string").coalesce(1)
    writer = rows.write.format("mq9").option("url", server.url).option("mailbox", name)
    writer = writer.option("create", True).option("writeId", "job-7").mode("append")
    writer.save()
    writer.save()
    assert sorted(m.text for m in stored(server, name)) == sorted(f"row {n}" for n in range(20))


def test_an_attempt_that_comes_second_sends_only_what_is_missing(server: Server) -> None:
    pytest.importorskip("pyspark", reason="needs Spark: pip install 'mq9[spark]'")
    from mq9.spark.writer import _not_there

    name = f"spark.{secrets.token_hex(6)}"
    messages = [mq9.NewMessage(str(n), key=f"k{n}") for n in range(3)]

    async def retry(client: mq9.Client) -> list[mq9.NewMessage]:
        await client.create_mailbox(name)
        await client.send_many(name, messages[:2])
        return await _not_there(client, name, messages)

    assert ask(server, retry) == messages[2:]


def test_a_stream_writes_each_row_once_also_when_its_last_batch_is_done_again(
    spark: "SparkSession", server: Server, tmp_path: Path
) -> None:
    from mq9.lake import stream

    name = f"spark.{secrets.token_hex(6)}"
    spark.createDataFrame([("x",), ("x",), ("y",)], "payload string").coalesce(1).write.parquet(
        str(tmp_path / "in")
    )

    def run() -> None:
        rows = spark.readStream.schema("payload string").parquet(str(tmp_path / "in"))

        def begin() -> "StreamingQuery":
            return (
                rows.writeStream.format("mq9")
                .option("url", server.url)
                .option("mailbox", name)
                .option("create", "true")
                .option("checkpointLocation", str(tmp_path / "checkpoint"))
                .trigger(availableNow=True)
                .start()
            )

        stream.finish(begin, 120)

    run()
    # As if the process had died before it could note that the batch is done.
    for file in (tmp_path / "checkpoint" / "commits").iterdir():
        file.unlink()
    run()
    assert sorted(message.text for message in stored(server, name)) == ["x", "x", "y"]


def test_columns_that_mq9_does_not_know_are_refused(spark: "SparkSession", server: Server) -> None:
    rows = spark.createDataFrame([("hello", 1)], "payload string, colour int")
    writer = rows.write.format("mq9").option("url", server.url).option("mailbox", "a")
    with pytest.raises(Exception, match="columns colour: mq9 writes mailbox, payload"):
        writer.mode("append").save()
