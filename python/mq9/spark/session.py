"""A Spark session with the settings that mq9's jobs and its data source need.

Nothing here is about messages; a session made in another way will do if it has the same settings.
"""

import os
from collections.abc import Mapping

from pyspark.sql import SparkSession

from mq9.spark import java

SETTINGS: Mapping[str, str] = {
    # The export is partitioned by UTC hours, and so are the tables.
    "spark.sql.session.timeZone": "UTC",
    # Without it Spark refuses any Python data source that takes filters.
    "spark.sql.python.filterPushdown.enabled": "true",
    # What streams remember that users write themselves: on disk, not on the heap.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
}


def session(
    name: str = "mq9",
    *,
    master: str | None = None,
    parallelism: int | None = None,
    memory: str | None = None,
    ui: bool = False,
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """The session of this process; started on `master` if there is none yet.

    Without a `master` it is the one of spark-submit, else all cores of this machine. One that is
    `sc://HOST:PORT` is a server of Spark Connect.
    """
    builder = SparkSession.builder.appName(name)
    if (master or "").startswith("sc://"):
        return _elsewhere(builder, str(master), parallelism, settings)
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    java.prepare()
    if master is not None:
        builder = builder.master(master)
    elif not submitted:
        builder = builder.master("local[*]")
    if not submitted:
        builder = builder.config("spark.ui.enabled", str(ui).lower())
        builder = builder.config("spark.ui.showConsoleProgress", str(ui).lower())
    if (master or "local").startswith("local") and not submitted:
        # Otherwise Spark listens where others on the network can reach it.
        builder = builder.config("spark.driver.bindAddress", "127.0.0.1")
        builder = builder.config("spark.driver.host", "127.0.0.1")
    if memory is not None:
        builder = builder.config("spark.driver.memory", memory)
    if parallelism is not None:
        builder = builder.config("spark.sql.shuffle.partitions", str(parallelism))
    for key, value in {**SETTINGS, **(settings or {})}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _elsewhere(
    builder: SparkSession.Builder,
    server: str,
    parallelism: int | None,
    settings: Mapping[str, str] | None,
) -> SparkSession:
    """A session of Spark Connect: its heap and its address are the server's."""
    made = builder.remote(server).getOrCreate()
    asked = {**SETTINGS, **(settings or {})}
    if parallelism is not None:
        asked["spark.sql.shuffle.partitions"] = str(parallelism)
    for key, value in asked.items():
        made.conf.set(key, value)
    return made
