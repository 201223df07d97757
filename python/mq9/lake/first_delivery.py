"""`first_delivery`: how long messages of each priority waited for anybody, against targets."""

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from mq9.lake.parts import COHORT, QUANTILES, collected, count, quantile
from mq9.lake.sla import TARGETS_MS, target_ms


def first_delivery(lives: DataFrame, targets_ms: Mapping[str, int] = TARGETS_MS) -> DataFrame:
    """One row per hour of sending and priority, whatever the mailbox.

    `target_ms`, `within` and `late` are null where the priority has no target.
    """
    reached = F.col("reached").isNotNull()
    waited = F.unix_millis("reached") - F.unix_millis("visible")
    messages = lives.where("counts").select(
        *COHORT,
        "priority",
        target_ms(targets_ms).alias("target_ms"),
        F.when(reached, F.greatest(waited, F.lit(0))).alias("waited_ms"),
        (~reached & F.least("settled", "mailbox_gone").isNotNull()).alias("lost"),
    )
    waited_ms, target = F.col("waited_ms"), F.col("target_ms")
    grouped = messages.groupBy(*COHORT, "priority", "target_ms").agg(
        F.count(F.lit(1)).alias("messages"),
        F.count("waited_ms").alias("delivered"),
        count(F.col("lost")).alias("lost"),
        F.when(target.isNotNull(), count(waited_ms <= target)).alias("within"),
        F.when(target.isNotNull(), count(waited_ms > target)).alias("late"),
        F.max("waited_ms").alias("longest_ms"),
        collected("waited_ms").alias("all_ms"),
    )
    return grouped.select(
        *COHORT,
        *("priority", "target_ms", "messages", "delivered"),
        (F.col("messages") - F.col("delivered") - F.col("lost")).alias("open"),
        *("lost", "within", "late"),
        *(quantile("all_ms", share).alias(f"{name}_ms") for name, share in QUANTILES.items()),
        "longest_ms",
    )
