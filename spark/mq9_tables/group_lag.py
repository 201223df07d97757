"""`group_lag`: per group and hour, how far it was behind its mailbox."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F


def group_lag(cohorts: DataFrame, flows: DataFrame) -> DataFrame:
    """One row for each hour in which something happened in a mailbox of the group.

    `lag` is what was there for the group at the end of the hour and had not been given to it;
    `in_flight` what it had been given and had not finished. A group begins with the first message
    that it was given: what came before is no lag.
    """
    by_group = flows.where(F.col("group").isNotNull())
    starts = (
        by_group.where(F.col("first_given").isNotNull())
        .groupBy("mailbox", "group")
        .agg(F.min(F.struct("first_given", "date", "hour")).alias("start"))
    )
    # Ids of a mailbox count up, so those of the first hour that were not for the group are known.
    first = F.struct(F.col("start.date").alias("date"), F.col("start.hour").alias("hour"))
    begun = starts.select(
        "mailbox", "group", first.alias("first"), F.col("start.first_given.msg_id").alias("id")
    )
    lowest = cohorts.select(
        "mailbox", F.struct("date", "hour").alias("first"), "lowest_id", F.col("sent").alias("all")
    )
    groups = begun.join(lowest, ["mailbox", "first"], "left").select(
        "mailbox",
        "group",
        "first",
        F.least(
            F.greatest(F.col("id") - F.col("lowest_id"), F.lit(0)),
            F.greatest(F.col("all") - 1, F.lit(0)),
        ).alias("skipped"),
    )
    arrived = (
        flows.where(F.col("group").isNull())
        .drop("group")
        .join(groups, "mailbox")
        .where(F.struct("date", "hour") >= F.col("first"))
        .groupBy("mailbox", "group", "at")
        .agg(F.sum("entered").alias("entered"), F.sum("removed").alias("removed"))
    )
    done = by_group.groupBy("mailbox", "group", "at").agg(
        F.sum("delivered").alias("delivered"),
        F.sum("acked").alias("acked"),
        F.sum("finished").alias("finished"),
        F.sum("removed").alias("removed_seen"),
    )
    numbers = ("entered", "removed", "delivered", "acked", "finished", "removed_seen")
    hours = arrived.join(done, ["mailbox", "group", "at"], "full").withColumns(
        {name: F.coalesce(F.col(name), F.lit(0)) for name in numbers}
    )
    so_far = Window.partitionBy("mailbox", "group").orderBy("at")
    unseen = F.col("removed") - F.col("removed_seen")
    behind = F.sum(F.col("entered") - unseen - F.col("delivered")).over(so_far)
    return hours.join(groups.select("mailbox", "group", "skipped"), ["mailbox", "group"]).select(
        "mailbox",
        "group",
        "at",
        "delivered",
        "acked",
        F.sum(F.col("delivered") - F.col("finished")).over(so_far).alias("in_flight"),
        F.greatest(behind - F.col("skipped"), F.lit(0)).alias("lag"),
    )
