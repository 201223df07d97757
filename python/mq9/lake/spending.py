"""`spending`: tokens and money per agent and conversation, as far as messages say."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from mq9.lake.parts import COHORT


def spending(lives: DataFrame) -> DataFrame:
    """One row per hour of sending, sender and conversation with tokens or a cost.

    `cost` is in whatever unit the agents name, with six digits behind the point.
    """
    spent = F.col("tokens").isNotNull() | F.col("cost").isNotNull()
    messages = lives.where(F.col("counts") & spent)
    grouped = messages.groupBy(*COHORT, F.col("sender").alias("agent"), "conversation").agg(
        F.count(F.lit(1)).alias("messages"),
        F.sum("tokens").alias("tokens"),
        F.sum("cost").alias("millionths"),
    )
    cost = (F.col("millionths").cast("decimal(20,0)") / 1_000_000).cast("decimal(20,6)")
    return grouped.withColumn("cost", cost).drop("millionths")
