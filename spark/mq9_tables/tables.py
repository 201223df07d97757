"""The folder of tables: what is in it, and how a set of changes becomes visible, all or none.

Changes are first written to `_staging`. When all are there a plan is written, and only then are old
folders replaced by new ones. Whoever comes after a crash finishes a plan that is there and throws
away a staging folder without one. So each change is made once, however often it is tried.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from mq9_tables.files import Files

# By hour of sending, one folder per hour. Parts are what others are made of, not for readers.
PARTITIONED = (
    "message_lifecycle",
    "agent_graph",
    "sla",
    "part_cohorts",
    "part_flows",
    "part_dead_letters",
)
WHOLE = ("mailbox_hourly", "group_lag", "dead_letter_report", "part_mailbox_ends")
FOR_READERS = tuple(name for name in (*PARTITIONED, *WHOLE) if not name.startswith("part_"))

_STAGING = "_staging"
_PLAN = f"{_STAGING}/plan.json"

Hour = tuple[str, int]


def hour_folder(hour: Hour) -> str:
    """`date=2026-05-02/hour=7`."""
    return f"date={hour[0]}/hour={hour[1]}"


@dataclass
class Tables:
    """Tables under one folder."""

    spark: SparkSession
    root: str
    files: Files = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.files = Files(self.spark, self.root)

    def read(self, name: str, hours: Iterable[Hour] | None = None) -> DataFrame | None:
        """A table, or just some hours of it; None where there is nothing."""
        if not self.files.exists(name):
            return None
        reader = self.spark.read
        if hours is None:
            if name in PARTITIONED and not self.files.folders(name):
                return None
            return reader.parquet(self.files.path(name))
        paths = [f"{name}/{hour_folder(hour)}" for hour in hours]
        there = [self.files.path(path) for path in paths if self.files.exists(path)]
        if not there:
            return None
        return reader.option("basePath", self.files.path(name)).parquet(*there)

    def recover(self) -> bool:
        """Finishes, or forgets, what an earlier run left; whether there was a plan to finish."""
        planned = self.files.exists(_PLAN)
        if planned:
            self._carry_out(json.loads(self.files.read_text(_PLAN)))
        self.files.remove(_STAGING)
        return planned

    def stage(self, name: str, rows: DataFrame) -> DataFrame:
        """Writes a new table, or new hours of one, beside the old ones; what was written."""
        path = self.files.path(f"{_STAGING}/{name}")
        if name in PARTITIONED:
            rows.write.partitionBy("date", "hour").parquet(path)
        else:
            # A table that is always replaced in whole is small.
            rows.coalesce(1).write.parquet(path)
        if name in PARTITIONED and not self.files.folders(f"{_STAGING}/{name}"):
            return rows.where(F.lit(False))
        return self.spark.read.parquet(path)

    def commit(self, hours: Iterable[Hour] | None) -> None:
        """Puts what was staged in the place of the old: in these hours, or altogether."""
        if hours is None:
            names = [*PARTITIONED, *WHOLE]
        else:
            folders = [hour_folder(hour) for hour in hours]
            names = [f"{name}/{folder}" for name in PARTITIONED for folder in folders]
            names += WHOLE
        plan = {name: self.files.exists(f"{_STAGING}/{name}") for name in names}
        self.files.write_text(_PLAN, json.dumps(plan))
        self._carry_out(plan)
        self.files.remove(_STAGING)

    def _carry_out(self, plan: dict[str, bool]) -> None:
        for name, replaced in plan.items():
            staged = f"{_STAGING}/{name}"
            if not replaced:
                self.files.remove(name)
            elif self.files.exists(staged):
                # Not there any more: moved before the crash, after which this is done again.
                self.files.move(staged, name)
