"""From lives to all other tables: what batches and streams share, and how a batch does it.

Tables by hour of sending follow from the lives of that hour. Tables by day follow from the parts of
all hours, and from where mailboxes and groups stood the day before.
"""

import datetime
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from mq9.lake.agent_graph import agent_graph
from mq9.lake.circles import circles
from mq9.lake.daily import mailbox_days, unread
from mq9.lake.dead_letter_report import dead_letter_report
from mq9.lake.first_delivery import first_delivery
from mq9.lake.group_lag import group_lag
from mq9.lake.mailbox_hourly import mailbox_hourly
from mq9.lake.parts import cohorts, dead_letters, flows
from mq9.lake.retries import retries
from mq9.lake.sla import sla
from mq9.lake.spending import spending
from mq9.lake.tables import Tables
from mq9.lake.waits import asks, waits

# So many tables are made side by side: while one is planned, another is worked on.
AT_ONCE = 4

Made = dict[str, DataFrame]
Tell = Callable[[str], None]


def hourly_tables(lives: DataFrame, targets_ms: Mapping[str, int]) -> Made:
    """Everything that follows from the rows of single hours."""
    return {
        "part_flows": flows(lives),
        "part_cohorts": cohorts(lives),
        "part_dead_letters": dead_letters(lives),
        "part_asks": asks(lives),
        "first_delivery": first_delivery(lives, targets_ms),
        "agent_graph": agent_graph(lives),
        "sla": sla(lives, targets_ms),
        "retries": retries(lives),
        "spending": spending(lives),
        "circles": circles(lives),
    }


def stage_all(tables: Tables, made: Made, tell: Tell) -> Made:
    """Writes some tables side by side; what was written."""

    def write(name: str) -> DataFrame:
        staged = tables.stage(name, made[name])
        tell(name)
        return staged

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return dict(zip(made, pool.map(write, made), strict=True))


def rebuild(tables: Tables, targets_ms: Mapping[str, int], tell: Tell) -> None:
    """Makes all tables anew from lives that were staged."""
    lives = tables.staged("message_lifecycle")
    parts = stage_all(tables, hourly_tables(lives, targets_ms), tell)
    cohorts, flows = parts["part_cohorts"], parts["part_flows"]
    daily = {
        "mailbox_hourly": by_day(mailbox_hourly(cohorts, flows)),
        "group_lag": by_day(group_lag(cohorts, flows)),
        "dead_letter_report": by_day(dead_letter_report(parts["part_dead_letters"])),
        "waits": waits(parts["part_asks"], lives),
    }
    staged = stage_all(tables, daily, tell)
    hourly = staged["mailbox_hourly"]
    days = mailbox_days(hourly, dates_of(hourly), None)
    stage_all(tables, {"unread": unread(days)}, tell)
    tables.commit(None)


def by_day(rows: DataFrame) -> DataFrame:
    """With the day of `at`, for the folder."""
    return rows.withColumn("date", F.to_date("at"))


def dates_of(rows: DataFrame) -> list[datetime.date]:
    """The days that rows are of."""
    return sorted(row["date"] for row in rows.select("date").distinct().collect())
