"""A micro-batch: the hours that new files touch are made again, and the days that follow from them.

All that a later micro-batch needs is in tables, replaced together with those for readers: facts by
hour of sending, ranges of ids (`touched`), ends of mailboxes, balances of days. So a micro-batch
that was cut off is done again with the same result, and nothing is kept elsewhere.
"""

import datetime
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from mq9.lake import lifecycle
from mq9.lake.daily import balances, group_days, mailbox_days, unread
from mq9.lake.dead_letter_report import dead_letter_report
from mq9.lake.group_lag import counted, for_readers
from mq9.lake.hourly import HourTable
from mq9.lake.lifecycle import File, Into, Layout
from mq9.lake.mailbox_hourly import mailbox_hourly
from mq9.lake.owner import Owner
from mq9.lake.summed import hour_tables
from mq9.lake.tables import Hour, Tables, hour_folder, tasks_at_once
from mq9.lake.touched import News, mailboxes, state, touched, without
from mq9.lake.update import Made, Tell, by_day, lives_schema, stage_all, written
from mq9.lake.waits import HOURS, waits

ORPHAN_DAYS = 7
"""How long facts are kept whose message is not known yet."""
# Columns of cohorts that no table by day has.
_OF_STATE = ("open", "expires")


def apply(
    tables: Tables,
    files: Sequence[File],
    targets_ms: Mapping[str, int],
    tell: Tell,
    made_by: Owner,
) -> set[Hour]:
    """Brings the tables up to date with new files; harmless if it was done before.

    `made_by` is whose tables they are then, and how far they were before.
    """
    if not files:
        tables.commit((), (), made_by=made_by)
        return set()
    news = News.of(tables.spark, [file.path for file in files])
    hours = touched(tables, news, made_by.highest)
    made_by = replace(made_by, highest=max(made_by.highest, news.highest))
    others = _stage_ends(tables, news.ends)
    tables.stage("part_mailboxes", mailboxes(tables.read("part_mailboxes"), news))
    others += ["part_mailboxes", "part_orphans"]
    made = hour_tables(targets_ms)
    _stage_lives(tables, files, hours, made)
    tell("message_lifecycle and the tables of hours")
    if not hours:
        tables.commit(hours, (), others, made_by)
        return hours
    lives = tables.staged("message_lifecycle", lives_schema())
    parts = written(tables, made)
    dates = _stage_days(tables, parts, hours, tell)
    others += _stage_waits(tables, parts["part_asks"], lives, hours)
    _stage_state(tables, parts["part_cohorts"], hours)
    tables.commit(hours, dates, [*others, "part_state"], made_by)
    return hours


def _stage_ends(tables: Tables, ends: DataFrame) -> list[str]:
    """Ends of mailboxes by day; the folders that are replaced."""
    by_date = ends.withColumn("date", F.to_date("time"))
    dates = [row["date"] for row in by_date.select("date").distinct().collect()]
    old = tables.read_days("part_ends", dates)
    if old is not None:
        by_date = by_date.unionByName(old).distinct()
    if dates:
        tables.stage("part_ends", by_date)
    return [f"part_ends/date={date}" for date in dates]


def _stage_lives(
    tables: Tables, files: Sequence[File], hours: set[Hour], made: tuple[HourTable, ...]
) -> None:
    """The lives of the hours, from the facts that are kept and those that are new."""
    kept = tables.paths("part_facts", map(hour_folder, sorted(hours)))
    kept += tables.paths("part_orphans")
    known = set(tables.days("part_ends"))
    since = min((hour[0] for hour in hours), default=None)
    if since is not None:
        # A clock may be set back, but not by days.
        first = datetime.date.fromisoformat(since) - datetime.timedelta(days=1)
        inside = [f"date={day}" for day in sorted(known) if day >= first]
        new = tables.files.folders("_staging/part_ends")
        kept += tables.paths("part_ends", [folder for folder in inside if folder not in new])
        kept += tables.paths("_staging/part_ends")
    everything = [*files, *(File(path, size) for path, size in kept)]
    tasks = tasks_at_once(tables.spark)
    layout = Layout.of(everything, tasks, len(hours))
    newest = max((_epoch(hour) for hour in hours), default=0)
    into = Into(
        tables.staging("message_lifecycle"),
        tables.staging("part_facts"),
        tables.staging("part_orphans"),
        orphans_since_ms=(newest - 24 * ORPHAN_DAYS) * lifecycle.HOUR_MS,
        hours=frozenset(map(_epoch, hours)),
        folder=tables.staging(""),
        tables=made,
    )
    lifecycle.write(tables.spark, everything, into, layout)


def _stage_days(tables: Tables, parts: Made, hours: set[Hour], tell: Tell) -> list[datetime.date]:
    """The tables by day, from the first day on which something changed; those days."""
    flows, cohorts = parts["part_flows"], parts["part_cohorts"]
    first = min(
        _first_change(tables, "part_flows", flows, hours, F.to_date("at")),
        _first_change(tables, "part_cohorts", cohorts, hours, F.col("date")),
    )
    if first == datetime.date.max:
        return []
    known = {day for name in ("part_happened", "part_cohorts") for day in tables.days(name)}
    new = flows.select(F.to_date("at").alias("date")).union(cohorts.select("date")).distinct()
    dates = sorted(day for day in known | {row["date"] for row in new.collect()} if day >= first)
    before = _balance(tables, {day for day in known if day < first})
    happened = _copied(tables, "part_happened", flows, hours, dates)
    buried = _copied(tables, "part_buried", parts["part_dead_letters"], hours, dates)
    old = tables.read_days("part_cohorts", dates)
    since = cohorts.where(F.col("date") >= F.lit(first))
    sent = since if old is None else without(old, hours).unionByName(since)
    copies = stage_all(tables, {"part_happened": happened, "part_buried": buried}, tell)
    happened, buried = (_as_part(rows) for rows in copies.values())
    lag = counted(sent, happened, before)
    staged = stage_all(
        tables,
        {
            "mailbox_hourly": by_day(mailbox_hourly(sent, happened, before)),
            "group_lag": by_day(for_readers(lag)),
            "dead_letter_report": by_day(dead_letter_report(buried)),
        },
        tell,
    )
    days = mailbox_days(staged["mailbox_hourly"], dates, before)
    balance = balances(days, group_days(lag, dates, before))
    stage_all(tables, {"unread": unread(days), "part_balance": balance}, tell)
    return dates


def _first_change(
    tables: Tables, name: str, new: DataFrame, hours: set[Hour], day: Column
) -> datetime.date:
    """The first day of which rows of a part are not as they were."""
    new = new.drop(*_OF_STATE)
    old = tables.read(name, hours)
    if old is not None:
        old = old.drop(*_OF_STATE)
        new = new.exceptAll(old.select(*new.columns)).unionByName(
            old.exceptAll(new.select(*old.columns))
        )
    [row] = new.agg(F.min(day).alias("day")).collect()
    return row["day"] or datetime.date.max


def _balance(tables: Tables, known: Collection[datetime.date]) -> DataFrame | None:
    """Where mailboxes and groups stood at the end of the last of some days."""
    # No folder: nothing was open then, whatever an earlier day says.
    return tables.read_days("part_balance", sorted(known)[-1:])


def _copied(
    tables: Tables, name: str, part: DataFrame, hours: set[Hour], dates: Sequence[datetime.date]
) -> DataFrame:
    """A part laid out by the day on which things happened, with changed hours replaced."""
    old = tables.read_days(name, dates)
    new = part.where(F.to_date("at") >= F.lit(dates[0]))
    if old is not None:
        new = without(_as_part(old), hours).unionByName(new)
    renamed = new.withColumnsRenamed({"date": "sent_date", "hour": "sent_hour"})
    return by_day(renamed)


def _as_part(copied: DataFrame) -> DataFrame:
    return copied.drop("date").withColumnsRenamed({"sent_date": "date", "sent_hour": "hour"})


def _stage_waits(tables: Tables, asks: DataFrame, lives: DataFrame, hours: set[Hour]) -> list[str]:
    """Who waits for whom, also in earlier hours whose answers came now; the folders replaced."""
    earlier = {_hour(_epoch(hour) - back) for hour in hours for back in range(HOURS + 1)} - hours
    earlier = {hour for hour in earlier if tables.files.exists(f"part_asks/{hour_folder(hour)}")}
    old = tables.read("part_asks", sorted(earlier))
    asked = asks if old is None else asks.unionByName(old.select(*asks.columns))
    if asked.isEmpty():
        return []
    asking = set(map(_epoch, earlier | hours))
    around = {_hour(epoch + on) for epoch in asking for on in range(HOURS + 1)} - hours
    there = tables.read("message_lifecycle", sorted(around))
    if there is not None:
        lives = lives.unionByName(there.select(*lives.columns))
    tables.stage("waits", waits(asked, lives))
    return [f"waits/{hour_folder(hour)}" for hour in sorted(earlier)]


def _stage_state(tables: Tables, cohorts: DataFrame, hours: set[Hour]) -> None:
    """What the next micro-batch needs to find hours."""
    old = tables.read("part_state")
    newest = max(hours)
    if old is not None:
        [row] = old.agg(F.max(F.struct("date", "hour")).alias("last")).collect()
        if row["last"] is not None:
            newest = max(newest, (str(row["last"]["date"]), row["last"]["hour"]))
    tables.stage("part_state", state(old, cohorts, hours, newest))


def _epoch(hour: Hour) -> int:
    """An hour, counted from 1970."""
    day = datetime.date.fromisoformat(hour[0]) - datetime.date(1970, 1, 1)
    return day.days * 24 + hour[1]


def _hour(epoch: int) -> Hour:
    day = datetime.date(1970, 1, 1) + datetime.timedelta(days=epoch // 24)
    return str(day), epoch % 24
