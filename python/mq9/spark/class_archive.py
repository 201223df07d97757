"""An archive of the classes of Spark, which a Java opens in half the time that loading them takes.

The first job on a machine writes it when it ends, to the folder for caches; later ones use it.
Everything works without: a Java that cannot use the archive does not.
"""

import os
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

from mq9.spark.java import Java

_END_S = 120.0


def _place(java: Java) -> Path:
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(caches, "mq9", f"spark-{pyspark.__version__}-java-{java.version}.jsa")


def options(java: Java) -> str:
    """What to tell a Java so that it uses the archive, or writes one when it ends."""
    place = _place(java)
    quiet = "-Xshare:auto -Xlog:disable -Xlog:all=off"
    if place.is_file():
        return f"{quiet} -XX:SharedArchiveFile={place}"
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
    except OSError:
        return quiet
    return f"{quiet} -XX:ArchiveClassesAtExit={_unfinished(place)}"


def _unfinished(place: Path) -> Path:
    return place.with_name(f"{place.name}.{os.getpid()}")


def finish(spark: SparkSession, java: Java | None) -> None:
    """Stops Spark and the Java that it runs on; an archive that it wrote is there for the next."""
    gateway = getattr(spark.sparkContext, "_gateway", None)
    process = getattr(gateway, "proc", None)
    spark.stop()
    if java is None or process is None or gateway is None:
        return
    gateway.shutdown()
    process.stdin.close()
    process.wait(_END_S)
    place = _place(java)
    unfinished = _unfinished(place)
    if unfinished.is_file():
        unfinished.rename(place)
