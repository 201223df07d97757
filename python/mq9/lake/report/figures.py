"""Numbers for the pictures: sums of small tables, never single messages."""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from mq9.lake.parts import PRIORITIES
from mq9.lake.tables import Tables

SHOWN = 12
"""How many rows a table of the page has at most."""
TOP = 8
"""How many mailboxes a picture shows one by one; the others are summed up."""
AGENTS = 10
"""Between how many senders and how many mailboxes the flow graph shows ways."""

STEPS = 96
"""How many steps of time a picture has at most."""
_SECOND, _HOUR, _DAY = 1000, 3_600_000, 86_400_000
STEPS_MS = (
    *(100, 250, _SECOND, 5 * _SECOND, 15 * _SECOND, 60 * _SECOND, 300 * _SECOND, 900 * _SECOND),
    *(_HOUR, 6 * _HOUR, _DAY, 7 * _DAY),
)

OTHERS = "others"


@dataclass(frozen=True)
class Figures:
    """The numbers of a report; all of them are small."""

    title: str
    """What the report is about: a broker, or an export of one."""
    step_ms: int
    """How far apart the rows of `depth` and `rates` are, which have a row for each step."""
    totals: dict[str, int]
    depth: pd.DataFrame
    rates: pd.DataFrame
    latency: pd.DataFrame
    edges: pd.DataFrame
    dead: pd.DataFrame
    sla: pd.DataFrame
    mailboxes: pd.DataFrame
    lag: pd.DataFrame
    waits: pd.DataFrame
    unread: pd.DataFrame
    retries: pd.DataFrame
    spending: pd.DataFrame
    circles: pd.DataFrame


class NoTables(Exception):  # noqa: N818
    """There is nothing to report on."""


def figures(tables: Tables, title: str = "") -> Figures:
    """Fetches the numbers; without a title they are about the folder of the tables."""
    lives, hourly = tables.read("message_lifecycle"), tables.read("mailbox_hourly")
    if lives is None or hourly is None:
        raise NoTables(tables.nothing())
    first_ms, last_ms = _span(lives)
    step_ms = _step(first_ms, last_ms)
    steps = range(first_ms - first_ms % step_ms, last_ms + 1, step_ms)
    line = pd.to_datetime(list(steps), unit="ms")
    return Figures(
        title=title or tables.root,
        step_ms=step_ms,
        totals=_totals(lives),
        depth=_depth(lives, hourly, line, step_ms),
        rates=_rates(lives, line, step_ms),
        latency=_latency(lives),
        edges=_edges(tables.read("agent_graph")),
        dead=_dead(tables.read("dead_letter_report")),
        sla=_sla(tables.read("sla")),
        mailboxes=_busiest(hourly),
        lag=_lag(tables.read("group_lag")),
        waits=_waits(tables.read("waits")),
        unread=_unread(tables.read("unread"), hourly),
        retries=_retries(tables.read("retries")),
        spending=_spending(tables.read("spending")),
        circles=_circles(tables.read("circles")),
    )


def _totals(lives: DataFrame) -> dict[str, int]:
    messages = lives.where("counts")
    counted = {
        row["outcome"]: row["count"] for row in messages.groupBy("outcome").count().collect()
    }
    return dict(sorted(counted.items(), key=lambda item: -item[1]))


def _busiest(hourly: DataFrame) -> pd.DataFrame:
    last = F.max_by("depth", "at").alias("depth")
    sums = [F.sum(name).alias(name) for name in ("sent", "bytes", "acked", "redelivered")]
    found = hourly.groupBy("mailbox").agg(*sums, F.max("depth").alias("deepest"), last)
    return _fetched(found.orderBy(F.desc("sent"), "mailbox").limit(20))


def _span(lives: DataFrame) -> tuple[int, int]:
    """From when to when something happened."""
    last = F.greatest("visible", "last_delivered", "settled", "acked")
    [(first_ms, last_ms)] = lives.agg(
        F.min(F.unix_millis("sent")), F.max(F.unix_millis(last))
    ).collect()
    return first_ms, last_ms


def _step(first_ms: int, last_ms: int) -> int:
    """Steps of time such that a picture has enough of them, and not too many to see."""
    fitting = (step for step in STEPS_MS if (last_ms - first_ms) / step <= STEPS)
    return next(fitting, STEPS_MS[-1])


def _binned(rows: DataFrame, step_ms: int) -> DataFrame:
    """With `at`, a time, made the beginning of its step, in milliseconds."""
    in_ms = F.unix_millis("at")
    return rows.where(F.col("at").isNotNull()).withColumn("at", in_ms - in_ms % step_ms)


def _wide(rows: pd.DataFrame, names: Sequence[str], line: pd.DatetimeIndex) -> pd.DataFrame:
    """One row for each step of the line and a column for each name; 0 where there is nothing."""
    wide = rows.pivot_table(index="at", columns="name", values="value", aggfunc="sum")
    wide.index = pd.to_datetime(wide.index, unit="ms")
    return wide.reindex(index=line, columns=list(names)).fillna(0)


def _depth(
    lives: DataFrame, hourly: DataFrame, line: pd.DatetimeIndex, step_ms: int
) -> pd.DataFrame:
    """Depth by step and mailbox; the deepest by name and the others together."""
    deepest = hourly.groupBy("mailbox").agg(F.max("depth").alias("depth"))
    ordered = deepest.orderBy(F.desc("depth"), "mailbox").limit(TOP).collect()
    named = [row["mailbox"] for row in ordered]
    name = F.when(F.col("mailbox").isin(named), F.col("mailbox")).otherwise(OTHERS)
    settled = F.least("settled", "mailbox_gone")
    changes = F.array(
        F.struct(F.col("visible").alias("at"), F.lit(1).alias("change")),
        F.struct(settled.alias("at"), F.lit(-1).alias("change")),
    )
    changed = lives.where("counts").select(name.alias("name"), F.inline(changes))
    sums = _binned(changed, step_ms).groupBy("name", "at").agg(F.sum("change").alias("value"))
    wide = _wide(_fetched(sums), [*named, OTHERS], line).cumsum()
    return wide if wide[OTHERS].any() else wide.drop(columns=OTHERS)


def _rates(lives: DataFrame, line: pd.DatetimeIndex, step_ms: int) -> pd.DataFrame:
    """What was sent by step and priority, and what was acknowledged."""
    known = F.when(F.col("priority").isin(*PRIORITIES), F.col("priority")).otherwise("other")
    happened = F.array(
        F.struct(F.when(F.col("counts"), F.col("sent")).alias("at"), known.alias("name")),
        F.struct(F.col("acked").alias("at"), F.lit("acked").alias("name")),
    )
    rows = _binned(lives.select(F.inline(happened)), step_ms)
    sums = rows.groupBy("name", "at").agg(F.count(F.lit(1)).alias("value"))
    wide = _wide(_fetched(sums), [*PRIORITIES, "other", "acked"], line)
    return wide.assign(sent=wide.drop(columns="acked").sum(axis=1))


def _latency(lives: DataFrame) -> pd.DataFrame:
    """Percentiles of waiting and processing by priority."""
    quantiles = [0.05, 0.25, 0.5, 0.75, 0.95, 0.99]
    found = (
        lives.where(F.col("first_delivered").isNotNull())
        .groupBy("priority", "level")
        .agg(
            F.count(F.lit(1)).alias("messages"),
            F.percentile_approx("waiting_ms", quantiles, 1000).alias("waiting"),
            F.percentile_approx("processing_ms", quantiles, 1000).alias("processing"),
        )
    )
    return _fetched(found.orderBy("level"))


def _edges(graph: DataFrame | None) -> pd.DataFrame:
    if graph is None:
        return pd.DataFrame(columns=["sender", "mailbox", "messages", "urgent"])
    found = graph.groupBy("sender", "mailbox").agg(
        F.sum("messages").alias("messages"), F.sum("urgent").alias("urgent")
    )
    busy = found
    for side in ("sender", "mailbox"):
        totals = found.groupBy(side).agg(F.sum("messages").alias("total"))
        most = totals.orderBy(F.desc("total"), side).limit(AGENTS).select(side)
        busy = busy.join(F.broadcast(most), side, "left_semi")
    return _fetched(busy.orderBy(F.desc("messages"), "sender", "mailbox"))


def _dead(report: DataFrame | None) -> pd.DataFrame:
    if report is None:
        return pd.DataFrame(columns=["mailbox", "cause", "at", "messages"])
    found = report.groupBy("mailbox", F.coalesce("cause", F.lit("unknown")).alias("cause")).agg(
        F.sum("messages").alias("messages"),
        F.sum("deliveries").alias("deliveries"),
        F.max("oldest_ms").alias("oldest_ms"),
    )
    return _fetched(found.orderBy(F.desc("messages"), "mailbox").limit(15))


def _sla(table: DataFrame | None) -> pd.DataFrame:
    if table is None:
        return pd.DataFrame(columns=["priority", "target_ms", "messages", "within", "late"])
    sums = [F.sum(n).alias(n) for n in ("messages", "within", "late", "lost", "open")]
    found = table.groupBy("priority", "target_ms").agg(*sums)
    return _fetched(found.orderBy("target_ms"))


def _lag(table: DataFrame | None) -> pd.DataFrame:
    if table is None:
        return pd.DataFrame(columns=["mailbox", "group", "lag", "in_flight", "most"])
    found = table.groupBy("mailbox", "group").agg(
        F.max_by("lag", "at").alias("lag"),
        F.max_by("in_flight", "at").alias("in_flight"),
        F.max("lag").alias("most"),
        F.sum("acked").alias("acked"),
    )
    return _fetched(found.orderBy(F.desc("lag"), F.desc("most"), "mailbox").limit(15))


def _waits(table: DataFrame | None) -> pd.DataFrame:
    if table is None:
        return pd.DataFrame()
    sums = [F.sum(name).alias(name) for name in ("requests", "answered", "unanswered", "total_ms")]
    found = table.groupBy("agent", "waits_for").agg(*sums, F.max("longest_ms").alias("longest_ms"))
    mean = F.when(F.col("answered") > 0, F.expr("total_ms div answered"))
    ordered = found.withColumn("mean_ms", mean).orderBy(F.desc("total_ms"), "agent", "waits_for")
    return _fetched(ordered.limit(SHOWN))


def _unread(table: DataFrame | None, hourly: DataFrame) -> pd.DataFrame:
    """As it was at the end of the last day on which anything happened."""
    if table is None:
        return pd.DataFrame()
    [row] = hourly.agg(F.max("date").alias("last")).collect()
    days = table.groupBy("mailbox").agg(F.count(F.lit(1)).alias("days"))
    found = table.where(F.col("date") == F.lit(row["last"])).join(days, "mailbox")
    ordered = found.select("mailbox", "unread", "days").orderBy(F.desc("unread"), "mailbox")
    return _fetched(ordered.limit(SHOWN))


def _retries(table: DataFrame | None) -> pd.DataFrame:
    if table is None:
        return pd.DataFrame()
    names = ("messages", "redeliveries", "returned", "ran_out", "dead_letters")
    found = table.groupBy("mailbox", F.coalesce("sender", F.lit("unknown")).alias("sender")).agg(
        *(F.sum(name).alias(name) for name in names)
    )
    return _fetched(found.orderBy(F.desc("redeliveries"), "mailbox", "sender").limit(SHOWN))


def _spending(table: DataFrame | None) -> pd.DataFrame:
    if table is None:
        return pd.DataFrame()
    found = table.groupBy(F.coalesce("agent", F.lit("unknown")).alias("agent")).agg(
        F.count_distinct("conversation").alias("conversations"),
        F.sum("messages").alias("messages"),
        F.coalesce(F.sum("tokens"), F.lit(0)).alias("tokens"),
        F.coalesce(F.sum("cost"), F.lit(0)).cast("double").alias("cost"),
    )
    return _fetched(found.orderBy(F.desc("cost"), F.desc("tokens"), "agent").limit(SHOWN))


def _circles(table: DataFrame | None) -> pd.DataFrame:
    if table is None:
        return pd.DataFrame()
    found = table.groupBy(F.array_join("agents", ", ").alias("agents")).agg(
        F.count_distinct("conversation").alias("conversations"),
        F.max("rounds").alias("rounds"),
        F.sum("messages").alias("messages"),
    )
    return _fetched(found.orderBy(F.desc("messages"), "agents").limit(SHOWN))


def _fetched(rows: DataFrame) -> pd.DataFrame:
    """Rows of a sum, which are few."""
    found: pd.DataFrame = rows.toPandas()
    return found
