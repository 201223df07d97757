"""`retries`: which messages had to be delivered again, and where that comes from."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from mq9.lake.parts import COHORT, count


def retries(lives: DataFrame) -> DataFrame:
    """One row per hour of sending, sender, mailbox, group and the member that had it last.

    A delivery is repeated because the message was `returned`, or because the lease of a member
    `ran_out` that did not say anything.
    """
    again = F.col("deliveries") - 1
    returned = F.least(F.col("returns"), again)
    messages = lives.where(F.col("deliveries") > 1)
    return messages.groupBy(*COHORT, "sender", "mailbox", "group", "member").agg(
        F.count(F.lit(1)).alias("messages"),
        F.sum(again).alias("redeliveries"),
        F.sum(returned).alias("returned"),
        F.sum(again - returned).alias("ran_out"),
        F.max("deliveries").alias("most_deliveries"),
        count(F.col("outcome") == "acked").alias("acked"),
        count(F.col("outcome") == "dead_letter").alias("dead_letters"),
    )
