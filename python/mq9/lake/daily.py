"""Where mailboxes and groups stood at the end of each day: what the next days go on from.

Running sums, such as the depth of a mailbox, need all that was before. With a balance for each day
only the days from the first change on are made again.
"""

import datetime
from collections.abc import Sequence

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

_OF_MAILBOX = ("depth", "last_delivered")
_OF_GROUP = ("first", "skipped", "behind", "in_flight")
BALANCE = (
    "date date, mailbox string, group string, depth long, last_delivered timestamp, "
    "first struct<date: date, hour: int>, skipped long, behind long, in_flight long"
)


def mailbox_days(
    hourly: DataFrame, dates: Sequence[datetime.date], before: DataFrame | None
) -> DataFrame:
    """One row per mailbox and day: how deep it was, and when somebody was last given something."""
    delivered_at = F.when(F.col("delivered") > 0, F.col("at"))
    ends = hourly.groupBy("mailbox", F.to_date("at").alias("date")).agg(
        F.max_by("depth", "at").alias("depth"),
        F.max(delivered_at).alias("last_delivered"),
        F.sum("sent").alias("sent"),
        F.sum("delivered").alias("delivered"),
    )
    carried = None if before is None else before.where(F.col("group").isNull())
    return _filled(ends, ("mailbox",), _OF_MAILBOX, dates, carried)


def group_days(
    lag: DataFrame, dates: Sequence[datetime.date], before: DataFrame | None
) -> DataFrame:
    """One row per group and day: how far it was."""
    ends = lag.groupBy("mailbox", "group", F.to_date("at").alias("date")).agg(
        *(F.max_by(name, "at").alias(name) for name in _OF_GROUP)
    )
    carried = None if before is None else before.where(F.col("group").isNotNull())
    return _filled(ends, ("mailbox", "group"), _OF_GROUP, dates, carried)


def balances(mailboxes: DataFrame, groups: DataFrame) -> DataFrame:
    """Both in one table; a mailbox in which nothing is left is known by its groups, or not."""
    deep = mailboxes.where((F.col("depth") != 0) | F.col("last_delivered").isNotNull())
    joined = deep.select("date", "mailbox", *_OF_MAILBOX).unionByName(
        groups.select("date", "mailbox", "group", *_OF_GROUP), allowMissingColumns=True
    )
    names = [
        part.split()[0]
        for part in BALANCE.replace("struct<date: date, hour: int>", "x").split(", ")
    ]
    return joined.select(*names)


def unread(days: DataFrame) -> DataFrame:
    """`unread`: mailboxes that held something at the end of a day on which nobody read there."""
    nobody = F.coalesce("delivered", F.lit(0)) == 0
    return days.where((F.col("depth") > 0) & nobody).select(
        "date",
        "mailbox",
        F.col("depth").alias("unread"),
        F.coalesce("sent", F.lit(0)).alias("sent"),
        "last_delivered",
    )


def _filled(
    ends: DataFrame,
    key: tuple[str, ...],
    names: tuple[str, ...],
    dates: Sequence[datetime.date],
    before: DataFrame | None,
) -> DataFrame:
    """Ends of days with a row for each day; where nothing happened, the day before's."""
    spark = ends.sparkSession
    days = spark.createDataFrame([(date,) for date in sorted(dates)], "date date")
    known = ends.select(*key)
    if before is not None:
        known = known.unionByName(before.select(*key))
        carried = before.select(*key, *(F.col(name).alias(f"was_{name}") for name in names))
    grid = known.distinct().crossJoin(F.broadcast(days))
    rows = grid.join(ends, [*key, "date"], "left")
    so_far = Window.partitionBy(*key).orderBy("date")
    latest = {name: F.last(name, ignorenulls=True).over(so_far) for name in names}
    rows = rows.withColumns(latest)
    if before is not None:
        rows = rows.join(carried, list(key), "left").withColumns(
            {name: F.coalesce(name, f"was_{name}") for name in names}
        )
    # Before the first sign of it there was nothing.
    return rows.where(F.coalesce(*(F.col(name).isNotNull() for name in names[:1])))
