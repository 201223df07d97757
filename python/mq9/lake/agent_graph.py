"""`agent_graph`: who sends to whom, as far as messages say who sent them."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def agent_graph(lives: DataFrame) -> DataFrame:
    """One row per hour of sending, sender and mailbox."""
    messages = lives.where(F.col("counts") & F.col("sender").isNotNull())
    important = F.when(F.col("priority").isin("critical", "urgent"), 1).otherwise(0)
    settled = F.least("settled", "mailbox_gone")
    return messages.groupBy("date", "hour", "sender", "mailbox").agg(
        F.count(F.lit(1)).alias("messages"),
        F.sum("size").alias("bytes"),
        F.sum(important).alias("urgent"),
        F.sum(F.when(F.col("reached").isNotNull(), 1).otherwise(0)).alias("delivered"),
        F.sum(F.when(settled.isNotNull(), 1).otherwise(0)).alias("settled"),
    )
