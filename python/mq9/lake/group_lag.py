"""`group_lag`: per group and hour, how far it was behind its mailbox."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F


def group_lag(cohorts: DataFrame, flows: DataFrame, before: DataFrame | None = None) -> DataFrame:
    """One row for each hour in which something happened in a mailbox of the group.

    `lag` is what was there for the group at the end of the hour and had not been given to it;
    `in_flight` what it had been given and had not finished. A group begins with the first message
    that it was given: what came before is no lag. `before` is how far groups were when the first
    of the hours began.
    """
    return for_readers(counted(cohorts, flows, before))


def for_readers(rows: DataFrame) -> DataFrame:
    """What readers see of rows that were counted."""
    return rows.select(
        "mailbox",
        "group",
        "at",
        "delivered",
        "acked",
        "in_flight",
        F.greatest(F.col("behind") - F.col("skipped"), F.lit(0)).alias("lag"),
    )


def counted(cohorts: DataFrame, flows: DataFrame, before: DataFrame | None) -> DataFrame:
    """The same with all that the next hours need: `first`, `skipped` and `behind`."""
    by_group = flows.where(F.col("group").isNotNull())
    groups = _begun(cohorts, by_group)
    if before is not None:
        known = before.where(F.col("group").isNotNull())
        groups = (
            groups.join(known.select("mailbox", "group"), ["mailbox", "group"], "left_anti")
            .withColumns({"was_behind": F.lit(0), "was_in_flight": F.lit(0)})
            .unionByName(
                known.select(
                    "mailbox",
                    "group",
                    "first",
                    "skipped",
                    F.col("behind").alias("was_behind"),
                    F.col("in_flight").alias("was_in_flight"),
                )
            )
        )
    else:
        groups = groups.withColumns({"was_behind": F.lit(0), "was_in_flight": F.lit(0)})
    arrived = (
        flows.where(F.col("group").isNull())
        .drop("group")
        .join(groups.select("mailbox", "group", "first"), "mailbox")
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
    in_flight = F.sum(F.col("delivered") - F.col("finished")).over(so_far)
    return hours.join(groups, ["mailbox", "group"]).select(
        *("mailbox", "group", "at", "delivered", "acked", "first", "skipped"),
        (in_flight + F.col("was_in_flight")).alias("in_flight"),
        (behind + F.col("was_behind")).alias("behind"),
    )


def _begun(cohorts: DataFrame, by_group: DataFrame) -> DataFrame:
    """The hour of the first message that each group was given, and how many before it were not."""
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
    skipped = F.least(
        F.greatest(F.col("id") - F.col("lowest_id"), F.lit(0)),
        F.greatest(F.col("all") - 1, F.lit(0)),
    )
    joined = begun.join(lowest, ["mailbox", "first"], "left")
    return joined.select("mailbox", "group", "first", skipped.alias("skipped"))
