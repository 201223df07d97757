"""`dead_letter_report`: what was given up, where, by whom, why and when."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def dead_letter_report(dead_letters: DataFrame) -> DataFrame:
    """One row per mailbox, group, target, cause and hour in which messages were given up."""
    return (
        dead_letters.groupBy("mailbox", "group", "target", "cause", "at")
        .agg(
            F.sum("messages").alias("messages"),
            F.sum("deliveries").alias("deliveries"),
            F.max("most_deliveries").alias("most_deliveries"),
            F.sum("age_ms").alias("age_ms"),
            F.max("oldest_ms").alias("oldest_ms"),
            F.min("first").alias("first"),
            F.max("last").alias("last"),
        )
        .withColumn("mean_age_ms", F.expr("age_ms div messages"))
        .drop("age_ms")
    )
