"""What jobs do grows with what they are given, and no faster: counts, not times."""

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import pyarrow as pa

BUCKETS = 64


@pytest.fixture(autouse=True)
def _needs_spark() -> None:
    pytest.importorskip("pyspark", reason="needs Spark: pip install 'mq9[spark]'")


def facts_of(mailboxes: int, busy: int) -> "pa.Table":
    """Mailboxes with one message each that end, and one that is busy and ends."""
    import pyarrow as pa
    from tests.spark.rows import Log

    from generate import EVENTS, MESSAGES
    from mq9.lake import facts

    log = Log()
    names = [(f"temporary-{number}", 1) for number in range(mailboxes)] + [("busy", busy)]
    for name, messages in names:
        for msg_id in range(messages):
            log.send(name, msg_id, msg_id)
        log.happen("delete", name, None, messages)
    messages = pa.Table.from_pylist(log.messages, schema=MESSAGES)
    events = pa.Table.from_pylist(log.events, schema=EVENTS)
    return pa.concat_tables([facts.of_messages(messages), facts.of_events(events)])


def test_ends_of_mailboxes_are_not_copied_to_every_task() -> None:
    import pyarrow as pa
    import pyarrow.compute as pc

    from mq9.lake import deal, fold, lifecycle

    mailboxes, busy = 500, 400
    facts = facts_of(mailboxes, busy)
    blobs: dict[int, list[pa.RecordBatch]] = {}
    for blob in lifecycle.deal_facts(facts, BUCKETS, frozenset({"busy"})):
        blobs.setdefault(blob.column("bucket")[0].as_py(), []).append(blob)
    assert len(blobs) == BUCKETS
    tables = [deal.unpacked(iter(each)) for each in blobs.values()]
    assert sum(table.num_rows for table in tables if table is not None) == (
        2 * mailboxes + busy + BUCKETS
    )
    # And each message is where the end of its mailbox is.
    lives = pa.concat_tables([fold.lives(table) for table in tables if table is not None])
    assert lives.num_rows == mailboxes + busy
    assert pc.unique(lives["outcome"]).to_pylist() == ["deleted"]


def test_a_conversation_of_everybody_is_not_searched_for_circles_of_three() -> None:
    import pyarrow as pa

    from mq9.lake.circles import CIRCLES, MOST_WAYS

    # All write to one, who answers all: of two ways there is one for each pair of agents.
    agents = [f"agent-{number}" for number in range(MOST_WAYS)]
    edges = [(agent, "hub") for agent in agents] + [("hub", agent) for agent in agents]
    ring = [("a", "b"), ("b", "c"), ("c", "a")]
    rows = [("all", *edge) for edge in edges] + [("few", *edge) for edge in ring]
    table = pa.table(
        {
            "hour_of": pa.array([0] * len(rows), pa.int64()),
            **{
                name: [row[place] for row in rows]
                for place, name in enumerate(("conversation", "sender", "mailbox"))
            },
            "sent": pa.array([2] * len(rows), pa.int64()),
        }
    )
    found = CIRCLES.finish({"rows": table})
    assert found.num_rows == len(agents) + 1
    three = [row for row in found.to_pylist() if len(row["agents"]) > 2]
    assert [(row["conversation"], row["agents"]) for row in three] == [("few", ["a", "b", "c"])]
