"""`waits`: who waits for whom, from a request to its answer.

A request names where its answer goes. The answer is the first message there that has the same
correlation id; where the request has none, the first message there after it, if no other request of
the hour names the same place. An answer counts if it comes within a day.
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from mq9.lake.parts import COHORT, QUANTILES, collected, quantile

HOURS = 24
"""How many hours behind a request its answer is looked for."""
_ASK = ("waits_for", "msg_id", "position")


def asks(lives: DataFrame) -> DataFrame:
    """Requests, one row each."""
    asked = lives.where(F.col("counts") & F.col("reply_to").isNotNull())
    return asked.select(
        *COHORT,
        F.coalesce("sender", "reply_to").alias("agent"),
        F.col("mailbox").alias("waits_for"),
        "msg_id",
        "position",
        "reply_to",
        "correlation",
        "sent",
    )


def waits(asks: DataFrame, lives: DataFrame) -> DataFrame:
    """One row per hour of asking, agent and whom it asked; answers are looked for in `lives`."""
    same_place = Window.partitionBy(*COHORT, "reply_to")
    asked = asks.withColumn("alone", F.count(F.lit(1)).over(same_place) == 1)
    came = lives.where("counts").select(
        F.col("mailbox").alias("reply_to"),
        F.col("correlation").alias("of"),
        F.col("visible").alias("came"),
    )
    latest = F.col("sent") + F.expr(f"interval {HOURS} hours")
    matches = F.when(F.col("correlation").isNull(), F.col("alone")).otherwise(
        F.col("correlation") == F.col("of")
    )
    found = (
        asked.join(came, "reply_to")
        .where(matches & F.col("came").between(F.col("sent"), latest))
        .groupBy(*_ASK)
        .agg(F.min("came").alias("came"))
    )
    took = F.unix_millis("came") - F.unix_millis("sent")
    grouped = (
        asked.join(found, list(_ASK), "left")
        .withColumn("took", took)
        .groupBy(*COHORT, "agent", "waits_for")
        .agg(
            F.count(F.lit(1)).alias("requests"),
            F.count("took").alias("answered"),
            F.max("took").alias("longest_ms"),
            F.sum("took").alias("total_ms"),
            collected("took").alias("all_ms"),
        )
    )
    return grouped.select(
        *COHORT,
        *("agent", "waits_for", "requests", "answered"),
        (F.col("requests") - F.col("answered")).alias("unanswered"),
        *(quantile("all_ms", share).alias(f"{name}_ms") for name, share in QUANTILES.items()),
        *("longest_ms", "total_ms"),
    )
