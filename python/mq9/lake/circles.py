"""`circles`: agents that send a conversation round and round.

An agent is who messages say they are from, and the mailbox of the same name.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from mq9.lake.parts import COHORT

LEAST_ROUNDS = 2
_IN = (*COHORT, "conversation")


def circles(lives: DataFrame) -> DataFrame:
    """One row per hour of sending, conversation and circle of two or three agents.

    `rounds` is how often it went all the way round: the least that any of them sent on.
    """
    named = F.col("conversation").isNotNull() & F.col("sender").isNotNull()
    edges = (
        lives.where(F.col("counts") & named & (F.col("sender") != F.col("mailbox")))
        .groupBy(*_IN, "sender", "mailbox")
        .agg(F.count(F.lit(1)).alias("sent"))
        .where(F.col("sent") >= LEAST_ROUNDS)
    )
    first = edges.select(*_IN, F.col("sender").alias("a"), F.col("mailbox").alias("b"), "sent")
    second = edges.select(
        *_IN, F.col("sender").alias("b"), F.col("mailbox").alias("c"), F.col("sent").alias("on")
    )
    third = edges.select(
        *_IN, F.col("sender").alias("c"), F.col("mailbox").alias("a"), F.col("sent").alias("back")
    )
    # Each circle once: it begins with the agent whose name comes first.
    paths = first.join(second, [*_IN, "b"]).where(
        (F.col("a") < F.col("b")) & (F.col("a") <= F.col("c"))
    )
    two = paths.where(F.col("a") == F.col("c")).select(
        *_IN,
        F.array("a", "b").alias("agents"),
        F.least("sent", "on").alias("rounds"),
        (F.col("sent") + F.col("on")).alias("messages"),
    )
    three = (
        paths.where(F.col("a") < F.col("c"))
        .join(third, [*_IN, "c", "a"])
        .select(
            *_IN,
            F.array("a", "b", "c").alias("agents"),
            F.least("sent", "on", "back").alias("rounds"),
            (F.col("sent") + F.col("on") + F.col("back")).alias("messages"),
        )
    )
    return two.unionByName(three)
