"""`waits`: who waits for whom, from a request to its answer.

A request names where its answer goes. Of the messages that were sent there after it, the answer is
the first to come that has the same correlation id; where the request has none, the first to come,
if no other request of the hour names the same place. An answer counts if it comes within a day.
"""

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from mq9.lake.hourly import MAIN, QUANTILES, HourTable, Summaries, Summary
from mq9.lake.parts import COHORT

HOURS = 24
"""How many hours behind a request its answer may come, and so is looked for by time of sending."""


_ASK = Summary(
    ("hour_of", "agent", "waits_for", "msg_id", "position", "reply_to", "correlation", "sent")
)


def _asks(lives: pa.Table) -> Summaries:
    asked = lives.filter(pc.and_(lives["counts"], pc.is_valid(lives["reply_to"])))
    columns = {
        "hour_of": asked["hour_of"],
        "agent": pc.coalesce(asked["sender"], asked["reply_to"]),
        "waits_for": asked["mailbox"],
    }
    columns |= {name: asked[name] for name in _ASK.keys if name not in columns}
    return {MAIN: pa.table(columns)}


ASKS = HourTable("part_asks", {MAIN: _ASK}, _asks, lambda summaries: summaries[MAIN])
"""Requests, one row each."""


def waits(asks: DataFrame, lives: DataFrame) -> DataFrame:
    """One row per hour of asking, agent and whom it asked; answers are looked for in `lives`."""
    found = _answered(asks, lives)
    took = F.unix_millis("came") - F.unix_millis("sent")
    grouped = (
        found.withColumn("took", took)
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


def _answered(asks: DataFrame, lives: DataFrame) -> DataFrame:
    """Requests with `came`, when their answers did: one pass over both, sorted by time of sending.

    A join of requests with all that came to the same place would grow with the square of both.
    """
    same_place = Window.partitionBy(*COHORT, "reply_to")
    asked = asks.withColumn("alone", F.count(F.lit(1)).over(same_place) == 1)
    # What asks for answers to its own place is no answer there.
    came = lives.where(F.col("counts") & ~F.col("reply_to").eqNullSafe(F.col("mailbox"))).select(
        F.col("mailbox").alias("reply_to"),
        "correlation",
        F.col("sent").alias("time"),
        F.col("visible").alias("came"),
    )
    places = asked.where(F.col("correlation").isNull() & F.col("alone")).select("reply_to")
    anything = came.join(places.distinct(), "reply_to", "left_semi")
    rows = (
        asked.withColumn("time", F.col("sent"))
        .unionByName(came.where(F.col("correlation").isNotNull()), allowMissingColumns=True)
        .unionByName(
            anything.withColumn("correlation", F.lit(None).cast("string")), allowMissingColumns=True
        )
    )
    # From the last to the first: what came soonest of all that was sent since. A delayed message
    # may come later than one that was sent after it.
    behind = Window.partitionBy("reply_to", "correlation").orderBy(F.desc("time"))
    following = F.min("came").over(behind)
    answered = rows.withColumn("next", following).where(F.col("sent").isNotNull())
    in_time = F.col("next") <= F.col("sent") + F.expr(f"interval {HOURS} hours")
    told = F.col("correlation").isNotNull() | F.col("alone")
    return answered.withColumn("came", F.when(told & in_time, F.col("next")))


def collected(column: str) -> Column:
    """All numbers of a group, sorted: what exact quantiles are read from.

    Approximate ones would depend on how the rows were cut.
    """
    return F.sort_array(F.collect_list(column))


def quantile(numbers: str, share: float) -> Column:
    """The quantile of sorted numbers, between its two neighbours; null if there are none."""
    place = (F.size(numbers) - 1) * F.lit(share)
    low, high = F.floor(place).cast("int"), F.ceil(place).cast("int")
    below, above = F.get(numbers, low), F.get(numbers, high)
    return F.round(below + (above - below) * (place - low)).cast("long")
