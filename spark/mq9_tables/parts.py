"""What the messages of one hour add to the tables: small rows that later hours never change.

A cohort is the messages sent in one hour. Everything about it follows from its own rows of
`message_lifecycle`, so when rows of a cohort change only its parts are made again. Sums are of
whole numbers: they do not depend on the order in which rows are added.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

COHORT = ("date", "hour")
PRIORITIES = ("critical", "urgent", "normal", "notify")
QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


def cohorts(lives: DataFrame) -> DataFrame:
    """Per hour of sending and mailbox: how many, how large, how important, how long it took."""
    counts = F.col("counts")
    named = [_count(counts & (F.col("priority") == name)).alias(name) for name in PRIORITIES]
    other = _count(counts & ~F.col("priority").isin(*PRIORITIES)).alias("other")
    grouped = lives.groupBy(*COHORT, "mailbox").agg(
        _count(counts).alias("sent"),
        F.sum(F.when(counts, F.col("size")).otherwise(0)).alias("bytes"),
        *named,
        other,
        F.sum(F.greatest(F.col("deliveries") - 1, F.lit(0))).alias("redelivered"),
        F.min("msg_id").alias("lowest_id"),
        quantiles("waiting_ms").alias("waiting"),
        quantiles("processing_ms").alias("processing"),
    )
    spread = [
        F.round(F.get(F.col(name), F.lit(index))).cast("long").alias(f"{name}_ms_{quantile}")
        for name in ("waiting", "processing")
        for index, quantile in enumerate(QUANTILES)
    ]
    kept = [F.col(name) for name in grouped.columns if name not in {"waiting", "processing"}]
    return grouped.select(*kept, *spread)


def flows(lives: DataFrame) -> DataFrame:
    """Per cohort, mailbox and group: what happened to it in which hour.

    Rows without a group count messages, each once; rows with one count what the group did.
    """
    counts = F.col("counts")
    seen = F.col("first_delivered").isNotNull()
    gone = F.least("gone", "mailbox_gone")
    happened = F.array(
        _step("entered", counts, F.col("visible"), of_group=False),
        _step("settled", counts, F.least("settled", "mailbox_gone"), of_group=False),
        _step("removed", counts, gone, of_group=False),
        _step("expired", counts & (F.col("outcome") == "expired"), F.col("ended"), of_group=False),
        _step("delivered", seen, F.col("first_delivered")),
        _step("acked", F.col("acked").isNotNull(), F.col("acked")),
        _step("finished", seen, F.col("ended")),
        # Gone for the group too, though it had been given it: not counted as unseen again.
        _step("removed", seen & (gone >= F.col("first_delivered")), gone),
    )
    steps = lives.select(
        *COHORT,
        "mailbox",
        "msg_id",
        "visible",
        F.col("group").alias("of"),
        F.explode(F.filter(happened, lambda step: step["at"].isNotNull())).alias("step"),
    )
    group = F.when(F.col("step.of_group"), F.col("of"))
    kinds = ("entered", "settled", "removed", "expired", "delivered", "acked", "finished")
    given = F.col("step.kind") == "delivered"
    return (
        steps.withColumn("group", group)
        .withColumn("at", F.date_trunc("hour", F.col("step.at")))
        .where(~F.col("step.of_group") | F.col("group").isNotNull())
        .groupBy(*COHORT, "mailbox", "group", "at")
        .agg(
            *(_count(F.col("step.kind") == kind).alias(kind) for kind in kinds),
            F.min(F.when(given, F.struct("visible", "msg_id"))).alias("first_given"),
        )
    )


def dead_letters(lives: DataFrame) -> DataFrame:
    """Per cohort: messages that were given up, by mailbox, group, cause and hour."""
    dead = lives.where(F.col("outcome") == "dead_letter")
    age_ms = F.unix_millis("ended") - F.unix_millis("visible")
    return dead.groupBy(
        *COHORT,
        "mailbox",
        "group",
        F.col("dead_letter_to").alias("target"),
        F.col("dead_letter_cause").alias("cause"),
        F.date_trunc("hour", F.col("ended")).alias("at"),
    ).agg(
        F.count(F.lit(1)).alias("messages"),
        F.sum("deliveries").alias("deliveries"),
        F.max("deliveries").alias("most_deliveries"),
        F.sum(age_ms).alias("age_ms"),
        F.max(age_ms).alias("oldest_ms"),
        F.min("ended").alias("first"),
        F.max("ended").alias("last"),
    )


def quantiles(column: str) -> Column:
    """Exact ones: an approximation would depend on how the rows were cut."""
    return F.percentile(column, list(QUANTILES.values()))


def _count(condition: Column) -> Column:
    return F.sum(F.when(condition, 1).otherwise(0))


def _step(kind: str, condition: Column, at: Column, *, of_group: bool = True) -> Column:
    return F.struct(
        F.lit(kind).alias("kind"),
        F.lit(of_group).alias("of_group"),
        F.when(condition, at).alias("at"),
    )
