"""The hours that a micro-batch touches: those in which its messages were sent.

New messages say so themselves. The hour of an older message is found by its id: ids of a mailbox
count up, so the messages of an hour are a range of ids. The state of a stream is these ranges, for
hours that are recent, or in which something is open or will expire; older ones are looked up in the
tables. So are all hours of a mailbox that ends; the state has on which day its first message came.
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
    """`mailbox`, `msg_id`, `position`, `date`, `hour`"""
    happened: DataFrame
    """`mailbox`, `msg_id`, `position` of the last event"""
    ends: DataFrame
    """Facts of whole mailboxes."""
    highest: int
    """The highest place in the log."""

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
        places = messages.select(position.alias("at")).union(events.select(position))
        [row] = places.agg(F.max("at").alias("highest")).collect()
        relevant = events.where(F.col("kind").isin(*_HAPPENED) & F.col("msg_id").isNotNull())
        outcome = F.when(F.col("kind") == "expire", "expired").otherwise("deleted")
        ended = events.where(F.col("kind").isin(*_ENDS) & F.col("msg_id").isNull())
        return cls(
            messages.select(
                *("mailbox", "msg_id", position.alias("position")),
                F.to_date("sent").alias("date"),
                F.hour("sent").alias("hour"),
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
            )
            .distinct()
            .localCheckpoint(),
            -1 if row["highest"] is None else row["highest"],
        )


def touched(tables: Tables, news: News, highest: int) -> set[Hour]:
    """The hours that must be made again, on top of facts up to a place in the log."""
    sent = news.messages.select("date", "hour").distinct()
    found = _hours(sent)
    state = tables.read("part_state")
    keys = news.happened
    if state is not None:
        # Ids of a mailbox that came again may be those of an earlier one.
        ids = news.messages.groupBy("mailbox", "date", "hour").agg(
            F.min("msg_id").alias("low"), F.max("msg_id").alias("high")
        )
        again = ids.select("mailbox", "low", "high").join(state, "mailbox")
        overlaps = (F.col("low") <= F.col("highest_id")) & (F.col("high") >= F.col("lowest_id"))
        found |= _hours(again.where(overlaps).select("date", "hour").distinct())
        places = keys.join(state, "mailbox").where(
            _inside() & (F.col("position") >= F.col("first_position"))
        )
        found |= _hours(places.select("date", "hour").distinct())
        keys = keys.join(places.select("mailbox", "msg_id"), ["mailbox", "msg_id"], "left_anti")
    keys = keys.join(
        news.messages.select("mailbox", "msg_id"), ["mailbox", "msg_id"], "left_anti"
    ).where(F.col("msg_id").isNotNull())
    late = keys.unionByName(news.ends.select("mailbox", "msg_id", "position"))
    return found | _hours_of_late(tables, late.distinct().localCheckpoint(), highest)


def _hours_of_late(tables: Tables, late: DataFrame, highest: int) -> set[Hour]:
    """The hours of facts, also of whole mailboxes, that neither state nor news know the hour of.

    What is behind all that was seen is of a mailbox that there is, so of no day before its first
    message, and of none of its messages before the first that was seen.
    """
    in_order = late.where(F.col("position") > highest)
    begun = tables.read("part_mailboxes")
    first = datetime.date.max
    if begun is not None:
        known = in_order.join(begun, "mailbox").where(
            F.col("msg_id").isNull() | (F.col("msg_id") >= F.col("lowest_id"))
        )
        [row] = known.agg(F.min("since").alias("first")).collect()
        first = row["first"] or first
    anywhere = not late.where(F.col("position") <= highest).isEmpty()
    if anywhere:
        first = datetime.date.min
    days = [day for day in tables.days("part_cohorts") if day >= first]
    cohorts = tables.read_days("part_cohorts", days)
    if cohorts is None:
        return set()
    inside = F.col("msg_id").isNull() | _inside()
    places = cohorts.select(*RANGE).join(late.select("mailbox", "msg_id"), "mailbox").where(inside)
    return _hours(places.select("date", "hour").distinct())


def _inside() -> Column:
    return F.col("msg_id").between(F.col("lowest_id"), F.col("highest_id"))


def _hours(rows: DataFrame) -> set[Hour]:
    found = rows.select(F.col("date").cast("string"), "hour").collect()
    return {(row["date"], row["hour"]) for row in found}


def state(old: DataFrame | None, cohorts: DataFrame, hours: set[Hour], newest: Hour) -> DataFrame:
    """The ranges to remember, after hours were made again."""
    new = cohorts.select(*RANGE, "open", "expires")
    if old is not None:
        new = without(old, hours).unionByName(new)
    since = datetime.datetime.fromisoformat(newest[0]) + datetime.timedelta(hours=newest[1])
    since -= datetime.timedelta(hours=RECENT_HOURS)
    recent = F.struct("date", "hour") >= F.struct(
        F.lit(since.date()).alias("date"), F.lit(since.hour).alias("hour")
    )
    expires = F.col("expires") >= F.lit(since.replace(tzinfo=datetime.UTC))
    return new.where((F.col("open") > 0) | recent | F.coalesce(expires, F.lit(False)))


def mailboxes(old: DataFrame | None, news: News) -> DataFrame:
    """The mailboxes that there are and had mail: since which day, and from which id on."""
    came = news.messages.groupBy("mailbox").agg(
        F.min("date").alias("since"),
        F.min("msg_id").alias("lowest_id"),
        F.max("position").alias("last"),
    )
    if old is not None:
        came = came.unionByName(old)
    ended = news.ends.groupBy("mailbox").agg(F.max("position").alias("ended"))
    left = came.join(ended, "mailbox", "left").where(
        F.col("ended").isNull() | (F.col("last") > F.col("ended"))
    )
    return left.groupBy("mailbox").agg(
        F.min("since").alias("since"),
        F.min("lowest_id").alias("lowest_id"),
        F.max("last").alias("last"),
    )


def without(rows: DataFrame, hours: set[Hour]) -> DataFrame:
    """Rows of other hours than these."""
    made_again = rows.sparkSession.createDataFrame(sorted(hours), "date string, hour int")
    made_again = made_again.withColumn("date", F.to_date("date"))
    return rows.join(F.broadcast(made_again), ["date", "hour"], "left_anti")
