"""The folder of tables: what is in it, and how a set of changes becomes visible, all or none.

Changes are first written to `_staging`. When all are there a plan is written, and only then are old
folders put aside and new ones put in their place; the old are removed when all is done. Whoever
comes after a crash finishes a plan that is there and throws away a staging folder without one. So
each change is made once, however often it is tried.
"""

import datetime
import json
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType
from pyspark.sql.utils import is_remote

from mq9.lake import owner
from mq9.lake.files import Files
from mq9.lake.output import rows_in
from mq9.lake.owner import Owner

# By hour of sending, one folder per hour. Parts are what others are made of, not for readers.
HOURLY = (
    "message_lifecycle",
    "agent_graph",
    "sla",
    "first_delivery",
    "retries",
    "spending",
    "circles",
    "waits",
    "part_cohorts",
    "part_flows",
    "part_dead_letters",
    "part_asks",
    "part_facts",
)
# By day on which something happened, one folder per day.
DAILY = (
    "mailbox_hourly",
    "group_lag",
    "dead_letter_report",
    "unread",
    "part_happened",
    "part_buried",
    "part_balance",
)
# What a stream needs besides: replaced in whole, or in the days that it names.
WHOLE = ("part_state", "part_mailboxes", "part_orphans")
OF_STREAM = ("part_ends", *WHOLE)
TABLES = (*HOURLY, *DAILY)
FOR_READERS = tuple(name for name in TABLES if not name.startswith("part_"))

_STAGING = "_staging"
_PLAN = f"{_STAGING}/plan.json"
_OLD = f"{_STAGING}/_old"

_LOOK_S = 0.1
# How often a question is asked whose files are taken away meanwhile.
TRIES = 5

Hour = tuple[str, int]
Found = TypeVar("Found")


def tasks_at_once(spark: SparkSession) -> int:
    """How many tasks Spark does at once; where it runs elsewhere, as many as a shuffle has."""
    if is_remote():
        return int(spark.conf.get("spark.sql.shuffle.partitions") or 8)
    return int(spark.sparkContext.defaultParallelism)


def hour_folder(hour: Hour) -> str:
    """`date=2026-05-02/hour=7`."""
    return f"date={hour[0]}/hour={hour[1]}"


@dataclass
class Tables:
    """Tables under one folder."""

    spark: SparkSession
    root: str
    files: Files = field(init=False, repr=False)
    patience_s: float = field(default=10.0, init=False, repr=False)
    """How long a change may take to become visible; that of a job that died may take for ever."""

    def __post_init__(self) -> None:
        self.files = Files(self.root)

    def read(self, name: str, hours: Iterable[Hour] | None = None) -> DataFrame | None:
        """A table, or just some hours of it; None where there is nothing."""
        if hours is None:
            return self._between_changes(lambda: self._read(name, every_column=True))
        return self._some(name, [hour_folder(hour) for hour in hours])

    def read_days(self, name: str, dates: Iterable[datetime.date]) -> DataFrame | None:
        """Some days of a table."""
        return self._some(name, [f"date={date}" for date in dates])

    def days(self, name: str) -> list[datetime.date]:
        """The days that a table has rows of, in order."""
        return sorted(
            datetime.date.fromisoformat(folder.removeprefix("date="))
            for folder in self.files.folders(name)
        )

    def paths(self, name: str, folders: Iterable[str] = ("",)) -> list[tuple[str, int]]:
        """The files in some folders of a table, and their sizes."""
        return [
            file for folder in folders for file in self.files.data(f"{name}/{folder}".rstrip("/"))
        ]

    def _some(self, name: str, folders: Iterable[str]) -> DataFrame | None:
        there = [
            path for path in (f"{name}/{folder}" for folder in folders) if self.files.exists(path)
        ]
        if not there:
            return None
        reader = self.spark.read.option("basePath", self.files.path(name))
        return reader.parquet(*map(self.files.path, there))

    def _read(self, name: str, *, every_column: bool = False) -> DataFrame | None:
        """A table; `every_column` that a file has, not only those of the one Spark looks at."""
        if not self.files.data(name):
            return None
        reader = self.spark.read.option("mergeSchema", every_column)
        return reader.parquet(self.files.path(name))

    def _between_changes(self, look: Callable[[], Found]) -> Found:
        """What is found while no change becomes visible: during one, a folder may be missing."""
        while True:
            under_way, _ = before = self._version()
            failed = None
            try:
                found = look()
            except PySparkException as error:
                failed = error
            if self.patience_s <= 0 or (self._version() == before and not under_way):
                break
            time.sleep(_LOOK_S)
            self.patience_s -= _LOOK_S
        if failed is not None:
            raise failed
        return found

    def _version(self) -> tuple[bool, int]:
        """Whether a change becomes visible now; and another number after each."""
        return self.files.exists(_PLAN), self.files.changed(owner.NAME)

    def answer(self, question: Callable[[], Found]) -> Found:
        """The answer to a question; asked again if a change took away the files that it read."""
        for _ in range(TRIES - 1):
            before = self._version()
            try:
                return question()
            except Exception:  # of Spark, of Java below it or of Spark Connect
                if self._version() == before:
                    raise
        return question()

    def counts(self) -> dict[str, int]:
        """How many rows each table has that is for readers."""
        return {
            name: sum(rows_in(path) for path, _ in self.files.data(name)) for name in FOR_READERS
        }

    def views(self, sql: str = "") -> list[str]:
        """Lets a query ask the tables by their names; those that have rows."""

        def find() -> dict[str, DataFrame]:
            # To know all columns Spark looks into each file: only of tables that are asked.
            named = {name: name in sql.lower() for name in FOR_READERS}
            found = {name: self._read(name, every_column=each) for name, each in named.items()}
            return {name: rows for name, rows in found.items() if rows is not None}

        found = self._between_changes(find)
        for name, rows in found.items():
            rows.createOrReplaceTempView(name)
        return list(found)

    def nothing(self) -> str:
        """Why there are no rows."""
        if self.files.exists(owner.NAME):
            return f"the tables in {self.root} have no rows: the export had no messages"
        return f"{self.root} has no tables yet: run `mq9 lake build` or `mq9 lake stream` first"

    def recover(self) -> bool:
        """Finishes, or forgets, what an earlier run left; whether there was a plan to finish."""
        planned = self.files.exists(_PLAN)
        if planned:
            self._carry_out(json.loads(self.files.read_text(_PLAN)))
        self.files.remove(_STAGING)
        return planned

    def staging(self, name: str) -> str:
        """Where the files of a new table, or of new hours of one, go."""
        return self.files.path(f"{_STAGING}/{name}".rstrip("/"))

    def stage(self, name: str, rows: DataFrame) -> DataFrame:
        """Writes a new table, or new hours or days of one, beside the old; what was written."""
        by = [column for column in ("date", "hour") if column in rows.columns]
        if name in WHOLE:
            by = []
        if by:
            # One task for each, so that an hour or a day is one file.
            rows.repartition(*by).write.partitionBy(*by).parquet(self.staging(name))
        else:
            rows.coalesce(1).write.parquet(self.staging(name))
        return self.staged(name, rows.schema)

    def staged(self, name: str, like: StructType) -> DataFrame:
        """What was written of a table; its columns are told, so that no job looks for them."""
        if not self.files.exists(f"{_STAGING}/{name}"):
            return self.spark.createDataFrame([], like)
        return self.spark.read.schema(like).parquet(self.staging(name))

    def staged_days(self, name: str) -> list[datetime.date]:
        """The days of which something was written, in order."""
        return self.days(f"{_STAGING}/{name}")

    def commit(
        self,
        hours: Iterable[Hour] | None,
        dates: Collection[datetime.date] | None = None,
        others: Iterable[str] = (),
        made_by: Owner | None = None,
    ) -> None:
        """Puts what was staged in the place of the old: in these hours and days, or altogether.

        `others` are folders of tables that are replaced besides.
        """
        names = list(others)
        if hours is None:
            names += (*HOURLY, *OF_STREAM)
        else:
            folders = [hour_folder(hour) for hour in hours]
            names += [f"{name}/{folder}" for name in HOURLY for folder in folders]
        if dates is None:
            names += DAILY
        else:
            names += [f"{name}/date={date}" for name in DAILY for date in dates]
        plan = {
            "folders": {name: self.files.inside(f"{_STAGING}/{name}") for name in names},
            "owner": None if made_by is None else made_by.text(),
        }
        self.files.write_text(_PLAN, json.dumps(plan))
        self._carry_out(plan)
        self.files.remove(_STAGING)

    def _carry_out(self, plan: dict[str, Any]) -> None:
        for name, files in plan["folders"].items():
            self.files.replace(name, f"{_STAGING}/{name}", files, f"{_OLD}/{name}")
        if plan["owner"] is not None:
            self.files.write_text(owner.NAME, plan["owner"])
