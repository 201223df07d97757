"""`group_lag`: per group and hour, how far it was behind its mailbox.

A group begins with the first message that it was given, and is forgotten when it was given nothing
for `QUIET_DAYS`; it may begin again. So what must be known of groups does not grow for ever.
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from mq9.lake.daily import BALANCE, QUIET_DAYS

_KEY = ("mailbox", "group", "since")
_COUNTED = ("entered", "removed", "delivered", "acked", "finished", "removed_seen")


def group_lag(cohorts: DataFrame, flows: DataFrame, before: DataFrame | None = None) -> DataFrame:
    """One row for each hour in which something happened in a mailbox of the group.

    `lag` is what was there for the group at the end of the hour and had not been given to it;
    `in_flight` what it had been given and had not finished. What came before the first message that
    it was given is no lag. `before` is how far groups were when the first of the hours began.
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
    """The same with all that the next hours need: `first`, `skipped`, `behind`, `last_given`."""
    by_group = flows.where(F.col("group").isNotNull())
    spans = _spans(cohorts, by_group, before)
    places = spans.select(*_KEY, "until", "first")
    sent = F.struct("date", "hour")
    # What was there when it began is told in the hour in which it did.
    of_span = F.greatest("at", "since").alias("at")
    arrived = (
        flows.where(F.col("group").isNull())
        .drop("group")
        .join(places, "mailbox")
        .where((sent >= F.col("first")) & (F.col("at") <= F.col("until")))
        .groupBy(*_KEY, of_span)
        .agg(F.sum("entered").alias("entered"), F.sum("removed").alias("removed"))
    )
    # A clock may be set back, but not by days.
    set_back = (sent >= F.col("first")) & (F.col("at") >= F.col("since") - F.expr("interval 1 day"))
    done = (
        by_group.join(places, ["mailbox", "group"])
        .where((F.col("at") <= F.col("until")) & ((F.col("at") >= F.col("since")) | set_back))
        .groupBy(*_KEY, of_span)
        .agg(
            F.sum("delivered").alias("delivered"),
            F.sum("acked").alias("acked"),
            F.sum("finished").alias("finished"),
            F.sum("removed").alias("removed_seen"),
        )
    )
    hours = arrived.join(done, [*_KEY, "at"], "full").withColumns(
        {name: F.coalesce(F.col(name), F.lit(0)) for name in _COUNTED}
    )
    so_far = Window.partitionBy(*_KEY).orderBy("at")
    unseen = F.col("removed") - F.col("removed_seen")
    behind = F.sum(F.col("entered") - unseen - F.col("delivered")).over(so_far)
    in_flight = F.sum(F.col("delivered") - F.col("finished")).over(so_far)
    given = F.max(F.when(F.col("delivered") > 0, F.col("at"))).over(so_far)
    return hours.join(spans, list(_KEY)).select(
        *("mailbox", "group", "at", "delivered", "acked", "first", "skipped"),
        (in_flight + F.col("was_in_flight")).alias("in_flight"),
        (behind + F.col("was_behind")).alias("behind"),
        F.coalesce(given, "since").alias("last_given"),
    )


def _spans(cohorts: DataFrame, by_group: DataFrame, before: DataFrame | None) -> DataFrame:
    """From when to when each group is one, from which message on, and what it did not get before.

    Of a group that is known already `since` is when it was last given something before.
    """
    given = by_group.where(F.col("delivered") > 0)
    given = given.select(
        "mailbox", "group", "at", F.struct("first_given", "date", "hour").alias("start")
    )
    if before is None:
        kinds = ", ".join(f"`{name}` {kind}" for name, kind in BALANCE.items())
        before = given.sparkSession.createDataFrame([], kinds)
    known = before.where(F.col("group").isNotNull()).select(
        *("mailbox", "group", "first", "skipped"),
        F.col("last_given").alias("at"),
        F.col("behind").alias("was_behind"),
        F.col("in_flight").alias("was_in_flight"),
    )
    of_group = Window.partitionBy("mailbox", "group").orderBy("at")
    quiet = F.expr(f"interval {QUIET_DAYS} days")
    again = F.col("at") > F.lag("at").over(of_group) + quiet
    spans = (
        given.unionByName(known, allowMissingColumns=True)
        .withColumn("again", F.coalesce(again, F.lit(False)).cast("int"))
        .withColumn("span", F.sum("again").over(of_group))
        .groupBy("mailbox", "group", "span")
        .agg(
            F.min("at").alias("since"),
            (F.max("at") + quiet).alias("until"),
            F.min("start").alias("start"),
            F.max("first").alias("known"),
            F.max("skipped").alias("known_skipped"),
            *(F.max(name).alias(name) for name in ("was_behind", "was_in_flight")),
        )
    )
    begun = F.struct(F.col("start.date").alias("date"), F.col("start.hour").alias("hour"))
    lowest = cohorts.select(
        "mailbox", F.struct("date", "hour").alias("first"), "lowest_id", F.col("sent").alias("all")
    )
    # Ids of a mailbox count up, so those of the first hour that were not for the group are known.
    skipped = F.least(
        F.greatest(F.col("start.first_given.msg_id") - F.col("lowest_id"), F.lit(0)),
        F.greatest(F.col("all") - 1, F.lit(0)),
    )
    joined = spans.withColumn("first", F.coalesce("known", begun))
    joined = joined.join(lowest, ["mailbox", "first"], "left")
    return joined.select(
        *(*_KEY, "until", "first"),
        F.coalesce("known_skipped", skipped, F.lit(0)).alias("skipped"),
        *(F.coalesce(name, F.lit(0)).alias(name) for name in ("was_behind", "was_in_flight")),
    )
