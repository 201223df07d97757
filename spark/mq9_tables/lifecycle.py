"""The life of each message: one row per message, and per group that was given it.

All that is known of a `(mailbox, msg_id)` is gathered into one row, as sets; what became of the
message is then a function of that row. Sets do not mind order, repetition and how the input was
cut, so a stream that adds to them ends with the same rows as a batch that reads everything.

Addresses may be used again after a mailbox is gone, with ids from 0: a row of sets may hold
several messages. Each owns the events from its own place in the log up to the next one's.
"""

from collections.abc import Callable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from mq9_tables.senders import sender

DELIVERIES = ("deliver", "redeliver")
MAILBOX_ENDS = ("delete", "expire", "purge")
OPEN = ("waiting", "pending")
KEY = ("mailbox", "msg_id")

_KINDS = (*DELIVERIES, "ack", "nak", "dead_letter", *MAILBOX_ENDS)

_MESSAGE = (
    "struct<sent: timestamp, position: bigint, visible: timestamp, expires: timestamp, level: int, "
    "priority: string, size: bigint, sender: string>"
)
_EVENT = (
    "struct<position: bigint, seq: int, kind: string, group: string, member: string, "
    "time: timestamp, target: string, cause: string>"
)


def facts(messages: DataFrame, events: DataFrame) -> DataFrame:
    """Rows of both datasets in one shape: of a message, or of what happened to it.

    A row without `msg_id` is about a whole mailbox.
    """
    position = F.shiftleft(F.col("segment"), 32) + F.col("offset")
    message = F.struct(
        "sent",
        position.alias("position"),
        "visible",
        "expires",
        "level",
        "priority",
        "size",
        sender().alias("sender"),
    )
    event = F.struct(
        position.alias("position"), "seq", "kind", "group", "member", "time", "target", "cause"
    )
    no_message, no_event = F.lit(None).cast(_MESSAGE), F.lit(None).cast(_EVENT)
    about_messages = messages.select(*KEY, message.alias("message"), no_event.alias("event"))
    about_events = events.where(
        F.col("kind").isin(*_KINDS)
        & (F.col("msg_id").isNotNull() | F.col("kind").isin(*MAILBOX_ENDS))
    ).select(*KEY, no_message.alias("message"), event.alias("event"))
    return about_messages.unionByName(about_events)


def gather(facts: DataFrame) -> DataFrame:
    """All facts of a `(mailbox, msg_id)` as two sets; the one step that brings rows together."""
    return facts.groupBy(*KEY).agg(
        F.collect_set("message").alias("messages"), F.collect_set("event").alias("events")
    )


def lives(gathered: DataFrame) -> DataFrame:
    """One row per message and group, from the sets; none where the message is not known yet."""
    sent = gathered.where(F.col("msg_id").isNotNull() & (F.size("messages") > 0))
    # A message that was exported twice, from two places of the log, is the one of the first place.
    ordered = F.sort_array("messages")
    known = sent.withColumn("messages", ordered).withColumn(
        "messages",
        F.filter(
            "messages",
            lambda message, index: (
                (index == 0) | (message["sent"] != F.get(F.col("messages"), index - 1)["sent"])
            ),
        ),
    )
    each = known.select(*KEY, "messages", "events", F.posexplode("messages").alias("nth", "m"))
    begins = F.when(F.col("nth") > 0, F.col("m.position")).otherwise(F.lit(-1))
    ends = F.coalesce(
        F.get("messages", F.col("nth") + 1)["position"], F.lit(2**63 - 1).cast("long")
    )
    owned = each.select(
        *KEY,
        "m",
        F.filter(
            "events",
            lambda event: (event["position"] >= begins) & (event["position"] < ends),
        ).alias("events"),
    )
    return _by_group(_of_message(owned))


def _of_message(owned: DataFrame) -> DataFrame:
    """Adds what concerns the message as a whole, whoever was given it."""
    gone = F.array_min(
        F.transform(
            F.filter("events", lambda event: event["kind"].isin(*MAILBOX_ENDS)),
            lambda event: F.struct(
                event["time"].alias("time"),
                F.when(event["kind"] == "expire", F.lit("expired"))
                .otherwise(F.coalesce(event["cause"], F.lit("deleted")))
                .alias("outcome"),
            ),
        )
    )
    settled = F.array_min(_times("events", lambda event: ~event["kind"].isin(*DELIVERIES, "nak")))
    groups = F.array_sort(
        F.array_distinct(
            F.transform(
                F.filter("events", lambda event: event["group"].isNotNull()),
                lambda event: event["group"],
            )
        )
    )
    return owned.select(
        *KEY,
        "m.*",
        "events",
        gone.alias("gone"),
        settled.alias("settled"),
        F.array_min(_times("events", _is_delivery)).alias("reached"),
        groups.alias("groups"),
    )


def _by_group(messages: DataFrame) -> DataFrame:
    """One row for each group of a message, or one without a group."""
    each = messages.select(
        "*", F.posexplode_outer("groups").alias("nth_group", "group")
    ).withColumn("mine", F.filter("events", lambda event: event["group"] == F.col("group")))
    dead = F.array_min(
        F.transform(
            F.filter("mine", lambda event: event["kind"] == "dead_letter"),
            lambda event: F.struct(event["time"], event["target"], event["cause"]),
        )
    )
    last = F.array_max(
        F.transform(
            F.filter(
                "mine",
                lambda event: (
                    _is_delivery(event)
                    & (F.col("acked").isNull() | (event["time"] <= F.col("acked")))
                ),
            ),
            lambda event: F.struct(event["time"], event["position"], event["seq"], event["member"]),
        )
    )
    detailed = (
        each.withColumn("acked", F.array_min(_times("mine", lambda event: event["kind"] == "ack")))
        .withColumn("dead", dead)
        .withColumn("last", last)
    )
    first_delivered = F.array_min(_times("mine", _is_delivery))
    outcome = (
        F.when(F.col("acked").isNotNull(), "acked")
        .when(F.col("dead").isNotNull(), "dead_letter")
        .when(F.col("gone").isNotNull(), F.col("gone.outcome"))
        .when(F.col("last").isNotNull(), "pending")
        .otherwise("waiting")
    )
    return detailed.select(
        *KEY,
        F.col("group"),
        "level",
        "priority",
        "size",
        "sender",
        "sent",
        "visible",
        "expires",
        first_delivered.alias("first_delivered"),
        F.col("last.time").alias("last_delivered"),
        F.col("last.member").alias("member"),
        _count("mine", _is_delivery).alias("deliveries"),
        _count("mine", lambda event: event["kind"] == "nak").alias("returns"),
        "acked",
        outcome.alias("outcome"),
        F.coalesce("acked", "dead.time", "gone.time").alias("ended"),
        F.col("dead.target").alias("dead_letter_to"),
        F.col("dead.cause").alias("dead_letter_cause"),
        _ms(F.col("visible"), first_delivered).alias("waiting_ms"),
        _ms(F.col("last.time"), F.col("acked")).alias("processing_ms"),
        _ms(F.col("visible"), F.col("acked")).alias("total_ms"),
        F.col("gone.time").alias("gone"),
        "reached",
        "settled",
        F.coalesce(F.col("nth_group") == 0, F.lit(True)).alias("counts"),
        F.lit(False).alias("with_mailbox"),
        F.lit(None).cast("timestamp").alias("mailbox_gone"),
        "position",
        F.to_date("sent").alias("date"),
        F.hour("sent").alias("hour"),
    )


def mailbox_ends(gathered: DataFrame) -> DataFrame:
    """When whole mailboxes went or were purged: a list of places, times and outcomes each."""
    of_mailboxes = gathered.where(F.col("msg_id").isNull())
    ends = F.sort_array(
        F.transform(
            "events",
            lambda event: F.struct(
                event["position"].alias("position"),
                event["time"].alias("time"),
                F.when(event["kind"] == "expire", F.lit("expired"))
                .otherwise(F.lit("deleted"))
                .alias("outcome"),
            ),
        )
    )
    return of_mailboxes.select("mailbox", ends.alias("ends"))


def settle(lives: DataFrame, ends: DataFrame) -> DataFrame:
    """Ends the messages that were open when their mailbox went; may be done again with more."""
    columns = lives.columns
    joined = lives.join(ends, "mailbox", "left")
    # With the rows sorted by place, the first behind the message is that of its own mailbox.
    end = F.get(F.filter("ends", lambda end: end["position"] > F.col("position")), F.lit(0))
    with_end = joined.withColumn("end", end)
    is_open = F.col("outcome").isin(*OPEN) | F.col("with_mailbox")
    goes = is_open & F.col("end").isNotNull()
    changed: dict[str, Column] = {
        "outcome": F.when(goes, F.col("end.outcome")).otherwise(F.col("outcome")),
        "ended": F.when(goes, F.col("end.time")).otherwise(F.col("ended")),
        "with_mailbox": F.coalesce(goes, F.lit(False)),
        "mailbox_gone": F.col("end.time"),
    }
    return with_end.select(*(changed.get(name, F.col(name)).alias(name) for name in columns))


def _is_delivery(event: Column) -> Column:
    return event["kind"].isin(*DELIVERIES)


def _times(events: str, wanted: Callable[[Column], Column]) -> Column:
    return F.transform(F.filter(events, wanted), lambda event: event["time"])


def _count(events: str, wanted: Callable[[Column], Column]) -> Column:
    return F.coalesce(F.size(F.filter(events, wanted)), F.lit(0))


def _ms(start: Column, end: Column) -> Column:
    """How long it took; 0 rather than less where the clock was set back."""
    took = F.unix_millis(end) - F.unix_millis(start)
    return F.when(took < 0, F.lit(0).cast("long")).otherwise(took)
