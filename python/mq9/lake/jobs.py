"""The jobs as commands start them: a session that begins quickly, and word of how far it is."""

import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

from mq9.spark import java, session
from mq9.spark.class_archive import finish, options

# Each query is compiled anew. Where the cache of compiled code fills up, Java compiles no more: its
# own size for `TieredStopAtLevel=1`, 48 MB, was full after some micro-batches.
LASTING = "-XX:+UseParallelGC -XX:ReservedCodeCacheSize=256m"
# Rows are worked on in Arrow; what Java does is planning, which lasts too short to be optimised.
QUICK = f"-XX:TieredStopAtLevel=1 {LASTING}"


@contextmanager
def running(
    name: str,
    *,
    master: str | None = None,
    parallelism: int | None = None,
    memory: str | None = None,
    settings: Mapping[str, str] | None = None,
    lasting: bool = False,
) -> Iterator[SparkSession]:
    """A session for one job, which is stopped after it; `lasting` if it goes on for hours."""
    local = master is None or master.startswith("local")
    found = None
    asked = dict(settings or {})
    if local and "PYSPARK_GATEWAY_PORT" not in os.environ:
        found = java.prepare()
        if found is not None:
            flags = LASTING if lasting else QUICK
            asked.setdefault("spark.driver.extraJavaOptions", f"{flags} {options(found)}")
            asked.setdefault("spark.log.level", "ERROR")
    spark = session(name, master=master, parallelism=parallelism, memory=memory, settings=asked)
    try:
        yield spark
    finally:
        if is_remote():
            spark.stop()
        else:
            finish(spark, found)


class Progress:
    """Tells on standard error what is done, and how long it took from the start."""

    def __init__(self) -> None:
        self.begun = time.monotonic()

    def __call__(self, what: str) -> None:
        sys.stderr.write(f"{time.monotonic() - self.begun:7.1f} s  {what}\n")
        sys.stderr.flush()
