"""Which hours a micro-batch touches: those in which the messages were sent that it tells about.

New messages say so themselves. The hour of an older message is found by its id: ids of a mailbox
count up, so the messages of an hour are a range of ids. The state of a stream is these ranges, for
hours that are recent or in which something is open; older ones are looked up in the tables.
"""

import datetime
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from mq9.lake.facts import END
from mq9.lake.tables import Hour, Tables
from mq9.spark.schema import EVENTS, MESSAGES

RECENT_HOURS = 24
RANGE = ("mailbox", "date", "hour", "lowest_id", "highest_id", "first_position")
_ENDS = ("delete", "expire", "purge")
_HAPPENED = ("deliver", "redeliver", "ack", "nak", "dead_letter", *_ENDS)


@dataclass(frozen=True)
class News:
    """What a micro-batch brings, seen from afar: keys and places, no contents."""

    messages: DataFrame
    """`mailbox`, `msg_id`, `date`, `hour`"""
    happened: DataFrame
    """`mailbox`, `msg_id`, `position` of the last event"""
    ends: DataFrame
    """Facts of whole mailboxes."""

    @classmethod
    def of(cls, spark: SparkSession, paths: Sequence[str]) -> "News":
        """From the files of an export."""
        of_messages = [path for path in paths if "/messages/date=" in path]
        of_events = [path for path in paths if "/events/date=" in path]
        messages = (
            spark.read.schema(MESSAGES).parquet(*of_messages)
            if of_messages
            else spark.createDataFrame([], MESSAGES)
        )
        events = (
            spark.read.schema(EVENTS).parquet(*of_events)
            if of_events
            else spark.createDataFrame([], EVENTS)
        )
        position = F.shiftleft(F.col("segment"), 32) + F.col("offset")
        relevant = events.where(F.col("kind").isin(*_HAPPENED) & F.col("msg_id").isNotNull())
        outcome = F.when(F.col("kind") == "expire", "expired").otherwise("deleted")
        ended = events.where(F.col("kind").isin(*_ENDS) & F.col("msg_id").isNull())
        return cls(
            messages.select(
                "mailbox", "msg_id", F.to_date("sent").alias("date"), F.hour("sent").alias("hour")
            ),
            relevant.groupBy("mailbox", "msg_id").agg(F.max(position).alias("position")),
            ended.select(
                "mailbox",
                F.lit(None).cast("long").alias("msg_id"),
                F.lit(END).cast("tinyint").alias("kind"),
                position.alias("position"),
                "seq",
                "time",
                outcome.alias("cause"),
            ).distinct(),
        )


def touched(tables: Tables, news: News, ended: Sequence[str]) -> set[Hour]:
    """The hours that must be made again."""
    sent = news.messages.select("date", "hour").distinct()
    found = _hours(sent)
    state = tables.read("part_state")
    keys = news.happened
    if state is not None:
        ranges = F.broadcast(state)
        # Ids of a mailbox that came again may be those of an earlier one.
        ids = news.messages.groupBy("mailbox", "date", "hour").agg(
            F.min("msg_id").alias("low"), F.max("msg_id").alias("high")
        )
        again = ids.select("mailbox", "low", "high").join(ranges, "mailbox")
        overlaps = (F.col("low") <= F.col("highest_id")) & (F.col("high") >= F.col("lowest_id"))
        found |= _hours(again.where(overlaps).select("date", "hour").distinct())
        places = keys.join(ranges, "mailbox").where(
            _inside() & (F.col("position") >= F.col("first_position"))
        )
        found |= _hours(places.select("date", "hour").distinct())
        keys = keys.join(places.select("mailbox", "msg_id"), ["mailbox", "msg_id"], "left_anti")
    keys = keys.join(news.messages, ["mailbox", "msg_id"], "left_anti")
    known = tables.read("part_cohorts")
    if known is not None and not keys.isEmpty():
        # Late: found in the tables.
        late = known.select(*RANGE).join(F.broadcast(keys), "mailbox").where(_inside())
        found |= _hours(late.select("date", "hour").distinct())
    return found | _hours_of_mailboxes(tables, ended)


def _inside() -> Column:
    return F.col("msg_id").between(F.col("lowest_id"), F.col("highest_id"))


def _hours(rows: DataFrame) -> set[Hour]:
    found = rows.select(F.col("date").cast("string"), "hour").collect()
    return {(row["date"], row["hour"]) for row in found}


def _hours_of_mailboxes(tables: Tables, ended: Sequence[str]) -> set[Hour]:
    """The hours in which messages were sent that mailboxes took with them."""
    if not ended:
        return set()
    days = tables.days("part_cohorts")
    begun = tables.read("part_mailboxes")
    if begun is not None:
        since = begun.where(F.col("mailbox").isin(*ended)).collect()
        if len(since) == len(ended):
            days = [day for day in days if day >= min(row["since"] for row in since)]
    known = tables.read_days("part_cohorts", days)
    if known is None:
        return set()
    return _hours(known.where(F.col("mailbox").isin(*ended)).select("date", "hour").distinct())


def state(old: DataFrame | None, cohorts: DataFrame, hours: set[Hour], newest: Hour) -> DataFrame:
    """The ranges to remember, after hours were made again."""
    new = cohorts.select(*RANGE, "open")
    if old is not None:
        new = without(old, hours).unionByName(new)
    since = datetime.datetime.fromisoformat(newest[0]) + datetime.timedelta(hours=newest[1])
    since -= datetime.timedelta(hours=RECENT_HOURS)
    recent = F.struct("date", "hour") >= F.struct(
        F.lit(since.date()).alias("date"), F.lit(since.hour).alias("hour")
    )
    return new.where((F.col("open") > 0) | recent)


def without(rows: DataFrame, hours: set[Hour]) -> DataFrame:
    """Rows of other hours than these."""
    made_again = rows.sparkSession.createDataFrame(sorted(hours), "date string, hour int")
    made_again = made_again.withColumn("date", F.to_date("date"))
    return rows.join(F.broadcast(made_again), ["date", "hour"], "left_anti")
