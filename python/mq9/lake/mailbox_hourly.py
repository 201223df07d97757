"""`mailbox_hourly`: per mailbox and hour, what came in, what was done, and how much was left."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

_HAPPENED = ("entered", "settled", "expired", "gone", "delivered", "acked")
_SENT = ("sent", "bytes", "critical", "urgent", "normal", "notify", "other", "redelivered")


def mailbox_hourly(
    cohorts: DataFrame, flows: DataFrame, before: DataFrame | None = None
) -> DataFrame:
    """One row for each hour in which something happened in a mailbox.

    `depth` is what nobody had finished at the end of the hour. Percentiles are of the messages
    sent in the hour, whenever they were delivered. `before` is how deep mailboxes were when the
    first of the hours began.
    """
    happened = flows.groupBy("mailbox", "at").agg(
        *(
            F.sum(name).alias(name)
            for name in ("entered", "settled", "expired", "delivered", "acked")
        ),
        F.sum(F.when(F.col("group").isNull(), F.col("removed")).otherwise(0)).alias("gone"),
    )
    begin = F.make_timestamp(
        F.year("date"), F.month("date"), F.day("date"), F.col("hour"), F.lit(0), F.lit(0)
    )
    sent = cohorts.withColumn("at", begin)
    joined = sent.join(happened, ["mailbox", "at"], "full")
    so_far = Window.partitionBy("mailbox").orderBy("at")
    zero = {name: F.coalesce(F.col(name), F.lit(0)) for name in (*_HAPPENED, *_SENT)}
    filled = joined.withColumns(zero)
    spread = [
        f"{what}_ms_{quantile}"
        for what in ("waiting", "processing")
        for quantile in ("p50", "p95", "p99")
    ]
    depth = F.sum(F.col("entered") - F.col("settled")).over(so_far)
    if before is not None:
        carried = before.where(F.col("group").isNull())
        carried = carried.select("mailbox", F.col("depth").alias("carried"))
        filled = filled.join(carried, "mailbox", "left")
        depth += F.coalesce("carried", F.lit(0))
    return filled.select(
        "mailbox",
        "at",
        "sent",
        "bytes",
        "critical",
        "urgent",
        "normal",
        "notify",
        "other",
        "delivered",
        "redelivered",
        "acked",
        "expired",
        F.col("gone").alias("removed"),
        depth.alias("depth"),
        *spread,
    )
