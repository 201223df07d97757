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
HOUR_MS = 3_600_000


def cohorts(lives: DataFrame) -> DataFrame:
    """Per hour of sending and mailbox: how many, how large, how important, how long it took."""
    counts = F.col("counts")
    named = [count(counts & (F.col("priority") == name)).alias(name) for name in PRIORITIES]
    other = count(counts & ~F.col("priority").isin(*PRIORITIES)).alias("other")
    grouped = lives.groupBy(*COHORT, "mailbox").agg(
        count(counts).alias("sent"),
        F.sum(F.when(counts, F.col("size")).otherwise(0)).alias("bytes"),
        *named,
        other,
        F.sum(F.greatest(F.col("deliveries") - 1, F.lit(0))).alias("redelivered"),
        F.min("msg_id").alias("lowest_id"),
        F.max("msg_id").alias("highest_id"),
        F.min("position").alias("first_position"),
        count(F.col("outcome").isin("waiting", "pending")).alias("open"),
        collected("waiting_ms").alias("waiting"),
        collected("processing_ms").alias("processing"),
    )
    spread = [
        quantile(name, share).alias(f"{name}_ms_{called}")
        for name in ("waiting", "processing")
        for called, share in QUANTILES.items()
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
    # By name: whether the group is the one that it happened to, and when it did.
    happened: dict[str, tuple[bool, Column]] = {
        "entered": (False, F.when(counts, F.col("visible"))),
        "settled": (False, F.when(counts, F.least("settled", "mailbox_gone"))),
        "removed": (False, F.when(counts, gone)),
        "expired": (False, F.when(counts & (F.col("outcome") == "expired"), F.col("ended"))),
        "delivered": (True, F.col("first_delivered")),
        "acked": (True, F.col("acked")),
        "finished": (True, F.when(seen, F.col("ended"))),
        # Gone for the group too, though it had been given it: not counted as unseen again.
        "removed_seen": (True, F.when(seen & (gone >= F.col("first_delivered")), gone)),
    }
    hours = {
        name: (F.unix_millis(at) - F.unix_millis(at) % HOUR_MS)
        for name, (_, at) in happened.items()
    }
    # Most messages do all of it within an hour or two: few rows are left to be taken apart.
    similar = (
        lives.select(
            *COHORT,
            "mailbox",
            "group",
            "visible",
            "msg_id",
            *(hour.alias(name) for name, hour in hours.items()),
        )
        .groupBy(*COHORT, "mailbox", "group", *happened)
        .agg(
            F.count(F.lit(1)).alias("messages"),
            F.min("visible").alias("visible"),
            F.min("msg_id").alias("msg_id"),
        )
    )
    steps = F.array(
        *(
            F.struct(
                F.lit(name.removesuffix("_seen")).alias("kind"),
                F.lit(of_group).alias("of_group"),
                F.col(name).alias("at"),
            )
            for name, (of_group, _) in happened.items()
        )
    )
    taken_apart = similar.select(
        *COHORT,
        "mailbox",
        "messages",
        "visible",
        "msg_id",
        F.col("group").alias("of"),
        F.explode(F.filter(steps, lambda step: step["at"].isNotNull())).alias("step"),
    )
    kinds = ("entered", "settled", "removed", "expired", "delivered", "acked", "finished")
    given = F.col("step.kind") == "delivered"
    summed = {
        kind: F.sum(F.when(F.col("step.kind") == kind, F.col("messages")).otherwise(0))
        for kind in kinds
    }
    return (
        taken_apart.withColumn("group", F.when(F.col("step.of_group"), F.col("of")))
        .withColumn("at", F.timestamp_millis("step.at"))
        .where(~F.col("step.of_group") | F.col("group").isNotNull())
        .groupBy(*COHORT, "mailbox", "group", "at")
        .agg(
            *(column.alias(kind) for kind, column in summed.items()),
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


def count(condition: Column) -> Column:
    """How many rows are so."""
    return F.sum(F.when(condition, 1).otherwise(0))


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
