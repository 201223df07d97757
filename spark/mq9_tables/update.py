"""From gathered facts to all tables: the one piece of work that batches and streams share.

A batch brings everything and replaces the tables. A micro-batch brings, in full, the messages and
mailboxes that something new is known of, and replaces the hours in which they were sent.
"""

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from mq9_tables.agent_graph import agent_graph
from mq9_tables.dead_letter_report import dead_letter_report
from mq9_tables.group_lag import group_lag
from mq9_tables.lifecycle import KEY, lives, mailbox_ends, settle
from mq9_tables.mailbox_hourly import mailbox_hourly
from mq9_tables.parts import cohorts, dead_letters, flows
from mq9_tables.sla import TARGETS_MS, sla
from mq9_tables.tables import Hour, Tables

# Up to so many ended mailboxes are sent to every task, rather than all messages to the mailboxes.
_BROADCAST_ENDS = 100_000


def rebuild(
    tables: Tables, gathered: DataFrame, targets_ms: Mapping[str, int] = TARGETS_MS
) -> None:
    """Makes all tables anew from everything."""
    tables.recover()
    ends = tables.stage("part_mailbox_ends", mailbox_ends(gathered))
    life = tables.stage("message_lifecycle", _laid_out(settle(lives(gathered), _small(ends))))
    parts = _stage_parts(tables, life, targets_ms)
    _stage_whole(tables, parts)
    tables.commit(None)


def update(tables: Tables, gathered: DataFrame, targets_ms: Mapping[str, int] = TARGETS_MS) -> None:
    """Brings the tables up to date with what changed; harmless if it was done before."""
    tables.recover()
    gathered.persist()
    try:
        _update(tables, gathered, targets_ms)
    finally:
        gathered.unpersist()


def _update(tables: Tables, gathered: DataFrame, targets_ms: Mapping[str, int]) -> None:
    changed = lives(gathered)
    new_ends = mailbox_ends(gathered)
    hours = _hours(changed) | _hours_of_mailboxes(tables, new_ends)
    old_ends = tables.read("part_mailbox_ends")
    if old_ends is not None:
        kept = old_ends.join(new_ends.select("mailbox"), "mailbox", "left_anti")
        new_ends = kept.unionByName(new_ends)
    ends = tables.stage("part_mailbox_ends", new_ends)
    if not hours:
        # Facts of messages that are not there yet: the stream's state has them.
        tables.commit(hours)
        return
    old_life = tables.read("message_lifecycle", hours)
    if old_life is not None:
        keys = gathered.select(*KEY).where(F.col("msg_id").isNotNull())
        changed = old_life.join(keys, list(KEY), "left_anti").unionByName(changed)
    life = tables.stage("message_lifecycle", _laid_out(settle(changed, _small(ends))))
    parts = _stage_parts(tables, life, targets_ms)
    spark = tables.spark
    replaced = spark.createDataFrame(sorted(hours), "date string, hour int")
    replaced = replaced.withColumn("date", F.to_date("date"))
    for name, staged in parts.items():
        old = tables.read(name)
        if old is not None:
            others = old.join(F.broadcast(replaced), ["date", "hour"], "left_anti")
            parts[name] = others.unionByName(staged)
    _stage_whole(tables, parts)
    tables.commit(hours)


def _stage_parts(
    tables: Tables, life: DataFrame, targets_ms: Mapping[str, int]
) -> dict[str, DataFrame]:
    """Everything that follows from the rows of single hours; the parts for what does not."""
    for name, rows in {"agent_graph": agent_graph(life), "sla": sla(life, targets_ms)}.items():
        tables.stage(name, _one_file(rows))
    parts = {
        "part_cohorts": cohorts(life),
        "part_flows": flows(life),
        "part_dead_letters": dead_letters(life),
    }
    return {name: tables.stage(name, _one_file(rows)) for name, rows in parts.items()}


def _stage_whole(tables: Tables, parts: Mapping[str, DataFrame]) -> None:
    tables.stage("mailbox_hourly", mailbox_hourly(parts["part_cohorts"], parts["part_flows"]))
    tables.stage("group_lag", group_lag(parts["part_cohorts"], parts["part_flows"]))
    tables.stage("dead_letter_report", dead_letter_report(parts["part_dead_letters"]))


def _hours(life: DataFrame) -> set[Hour]:
    found = life.select(F.col("date").cast("string"), "hour").distinct().collect()
    return {(row["date"], row["hour"]) for row in found}


def _hours_of_mailboxes(tables: Tables, ends: DataFrame) -> set[Hour]:
    """The hours in which messages were sent that mailboxes took with them."""
    known = tables.read("part_cohorts")
    if known is None or ends.isEmpty():
        return set()
    return _hours(known.join(ends.select("mailbox"), "mailbox", "left_semi"))


def _small(ends: DataFrame) -> DataFrame:
    return F.broadcast(ends) if ends.count() <= _BROADCAST_ENDS else ends


def _laid_out(life: DataFrame) -> DataFrame:
    """Few files per hour, and rows of a mailbox side by side in them."""
    return life.hint("rebalance", "date", "hour").sortWithinPartitions(
        "date", "hour", "mailbox", "msg_id"
    )


def _one_file(rows: DataFrame) -> DataFrame:
    return rows.repartition("date", "hour")
