"""The state of mailboxes and groups at the end of each day, from which the next days go on.

Running sums, such as the depth of a mailbox, need all that was before. With a balance for each day
only the days from the first change on are made again. A balance has what is open or recent, so it
does not grow with the mailboxes and groups that there ever were.
"""

import datetime
from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

QUIET_DAYS = 14
"""How long an empty mailbox is known after its last delivery, and any group after its own."""

BALANCE = {
    "date": "date",
    "mailbox": "string",
    "group": "string",
    "depth": "long",
    "last_delivered": "timestamp",
    "first": "struct<date: date, hour: int>",
    "skipped": "long",
    "behind": "long",
    "in_flight": "long",
    "last_given": "timestamp",
}
_OF_MAILBOX = ("depth", "last_delivered")
_OF_GROUP = ("first", "skipped", "behind", "in_flight", "last_given")


def mailbox_days(
    hourly: DataFrame, dates: Sequence[datetime.date], before: DataFrame | None
) -> DataFrame:
    """How deep mailboxes were, and when somebody was last given something there.

    One row per mailbox and day on which something happened, or which found it not empty or read.
    """
    delivered_at = F.when(F.col("delivered") > 0, F.col("at"))
    ends = hourly.groupBy("mailbox", F.to_date("at").alias("date")).agg(
        F.max_by("depth", "at").alias("depth"),
        F.max(delivered_at).alias("last_delivered"),
        F.sum("sent").alias("sent"),
        F.sum("delivered").alias("delivered"),
    )
    if before is not None:
        carried = before.where(F.col("group").isNull()).select("date", "mailbox", *_OF_MAILBOX)
        ends = ends.unionByName(carried, allowMissingColumns=True)
    so_far = Window.partitionBy("mailbox").orderBy("date")
    ends = ends.withColumn("last_delivered", F.max("last_delivered").over(so_far))
    stays = F.when(F.col("depth") != 0, F.lit(max(dates, default=datetime.date.min)))
    known = _filled(ends, ("mailbox",), dates, F.coalesce(stays, _read_until()))
    return known.withColumns(
        {name: F.when(F.col("date") == F.col("of"), F.col(name)) for name in ("sent", "delivered")}
    ).drop("of")


def group_days(
    lag: DataFrame, dates: Sequence[datetime.date], before: DataFrame | None
) -> DataFrame:
    """One row per group and day on which it is known: how far it was."""
    ends = lag.groupBy("mailbox", "group", F.to_date("at").alias("date")).agg(
        *(F.max_by(name, "at").alias(name) for name in _OF_GROUP)
    )
    if before is not None:
        carried = before.where(F.col("group").isNotNull())
        ends = ends.unionByName(carried.select("date", "mailbox", "group", *_OF_GROUP))
    return _filled(ends, ("mailbox", "group"), dates, _given_until()).drop("of")


def balances(mailboxes: DataFrame, groups: DataFrame) -> DataFrame:
    """Both in one table: what the days behind need to know."""
    deep = mailboxes.where((F.col("depth") != 0) | (_read_until() >= F.col("date")))
    heard = groups.where(_given_until() >= F.col("date"))
    joined = deep.select("date", "mailbox", *_OF_MAILBOX).unionByName(
        heard.select("date", "mailbox", "group", *_OF_GROUP), allowMissingColumns=True
    )
    return joined.select(*(F.col(name).cast(kind) for name, kind in BALANCE.items()))


def unread(days: DataFrame) -> DataFrame:
    """`unread`: mailboxes that held something at the end of a day on which nobody read there."""
    nobody = F.coalesce("delivered", F.lit(0)) == 0
    return days.where((F.col("depth") > 0) & nobody).select(
        "date",
        "mailbox",
        F.col("depth").alias("unread"),
        F.coalesce("sent", F.lit(0)).alias("sent"),
        F.when(_read_until() >= F.col("date"), F.col("last_delivered")).alias("last_delivered"),
    )


def _read_until() -> Column:
    """The last day on which it is known when somebody was last given something in a mailbox."""
    return F.date_add(F.to_date("last_delivered"), QUIET_DAYS)


def _given_until() -> Column:
    """The last day at whose end a group still is one: a later delivery begins a new one."""
    return F.date_add(F.to_date("last_given"), QUIET_DAYS - 1)


def _filled(
    ends: DataFrame, key: tuple[str, ...], dates: Sequence[datetime.date], until: Column
) -> DataFrame:
    """Ends of days, repeated for the days behind up to the next end; `of` is whose it is."""
    days = ends.sparkSession.createDataFrame([(date,) for date in sorted(dates)], "date date")
    following = F.lead("date").over(Window.partitionBy(*key).orderBy("date"))
    last = F.coalesce(F.date_sub(following, 1), F.lit(max(dates, default=datetime.date.min)))
    last = F.greatest(F.least(last, until), F.col("date"))
    filled = ends.withColumn("last", last).withColumnRenamed("date", "of")
    filled = filled.withColumn("date", F.explode(F.sequence("of", "last"))).drop("last")
    return filled.join(F.broadcast(days), "date", "left_semi")
