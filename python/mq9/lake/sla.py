"""`sla`: whether important messages were picked up in time."""

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

TARGETS_MS: Mapping[str, int] = {"critical": 1_000, "urgent": 5_000}
"""How long a message of a priority may wait for its first delivery."""


def sla(lives: DataFrame, targets_ms: Mapping[str, int] = TARGETS_MS) -> DataFrame:
    """One row per hour of sending, mailbox and priority that has a target.

    `within`, `late` and `lost` (removed before anybody was given it) are what is known; `open` has
    not been delivered yet.
    """
    waited = F.unix_millis("reached") - F.unix_millis("visible")
    reached = F.col("reached").isNotNull()
    lost = ~reached & F.least("settled", "mailbox_gone").isNotNull()
    messages = lives.where(F.col("counts")).withColumn("target_ms", target_ms(targets_ms))
    return (
        messages.where(F.col("target_ms").isNotNull())
        .groupBy("date", "hour", "mailbox", "priority", "target_ms")
        .agg(
            F.count(F.lit(1)).alias("messages"),
            F.sum(F.when(reached & (waited <= F.col("target_ms")), 1).otherwise(0)).alias("within"),
            F.sum(F.when(reached & (waited > F.col("target_ms")), 1).otherwise(0)).alias("late"),
            F.sum(F.when(lost, 1).otherwise(0)).alias("lost"),
            F.sum(F.when(~reached & ~lost, 1).otherwise(0)).alias("open"),
            F.max(waited).alias("longest_ms"),
        )
    )


def target_ms(targets_ms: Mapping[str, int]) -> Column:
    """The target of a message's priority; null if it has none."""
    named = (
        F.when(F.col("priority") == name, F.lit(ms)) for name, ms in sorted(targets_ms.items())
    )
    return F.coalesce(*named, F.lit(None)).cast("long")
