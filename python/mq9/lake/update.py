"""From lives to all other tables: what batches and streams share, and how a batch does it.

Tables by hour of sending follow from the lives of that hour. Tables by day follow from the parts of
all hours, and from where mailboxes and groups stood the day before.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import DateType, IntegerType, StructType

from mq9.lake import fold
from mq9.lake.daily import mailbox_days, unread
from mq9.lake.dead_letter_report import dead_letter_report
from mq9.lake.group_lag import group_lag
from mq9.lake.hourly import HourTable
from mq9.lake.mailbox_hourly import mailbox_hourly
from mq9.lake.owner import Owner
from mq9.lake.summed import schema
from mq9.lake.tables import Tables
from mq9.lake.waits import waits

# So many tables are made side by side: while one is planned, another is worked on.
AT_ONCE = 4

Made = dict[str, DataFrame]
Tell = Callable[[str], None]


def lives_schema() -> StructType:
    """What files of `message_lifecycle` look like, with the folders they lie in."""
    return _by_hour(fold.schema())


def _by_hour(rows: pa.Schema) -> StructType:
    return from_arrow_schema(rows).add("date", DateType()).add("hour", IntegerType())


def written(tables: Tables, made: Sequence[HourTable]) -> Made:
    """The parts of tables, as they were written beside the lives; Spark lists files of no other."""
    lives, parts = fold.schema(), [table for table in made if table.name.startswith("part_")]
    return {part.name: tables.staged(part.name, _by_hour(schema(part, lives))) for part in parts}


def stage_all(tables: Tables, made: Made, tell: Tell) -> Made:
    """Writes some tables side by side; what was written."""

    def write(name: str) -> DataFrame:
        staged = tables.stage(name, made[name])
        tell(name)
        return staged

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return dict(zip(made, pool.map(write, made), strict=True))


def rebuild(tables: Tables, made: Sequence[HourTable], tell: Tell) -> None:
    """Makes all tables anew from lives and tables of hours that were staged."""
    lives = tables.staged("message_lifecycle", lives_schema())
    parts = written(tables, made)
    cohorts, flows = parts["part_cohorts"], parts["part_flows"]
    daily = {
        "mailbox_hourly": by_day(mailbox_hourly(cohorts, flows)),
        "group_lag": by_day(group_lag(cohorts, flows)),
        "dead_letter_report": by_day(dead_letter_report(parts["part_dead_letters"])),
        "waits": waits(parts["part_asks"], lives),
    }
    staged = stage_all(tables, daily, tell)
    hourly = staged["mailbox_hourly"]
    days = mailbox_days(hourly, tables.staged_days("mailbox_hourly"), None)
    stage_all(tables, {"unread": unread(days)}, tell)
    tables.commit(None, made_by=Owner())


def by_day(rows: DataFrame) -> DataFrame:
    """With the day of `at`, for the folder."""
    return rows.withColumn("date", F.to_date("at"))
