"""One Spark session for all tests of this folder; without the extra they are skipped."""

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from pipeline import Done

JOBS = Path(__file__).parents[2] / "spark"

# The jobs are no part of the package: they are run from their folder, or sent to a cluster.
sys.path.insert(0, str(JOBS))


# Frames of a few rows: compiling a query takes far longer than running it uncompiled. And a Java
# that lives for minutes need not begin small, nor check the classes of Spark.
QUICK = {
    "spark.default.parallelism": "2",
    "spark.log.level": "ERROR",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.driver.extraJavaOptions": (
        "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xms1g -XX:MetaspaceSize=256m "
        "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
    ),
}


def _compile_workers() -> None:
    """Has Python compile, and the machine read, what the workers of a data source import.

    Spark gives them ten seconds from their start to the first word, which on a busy machine is
    too little for both, and cannot be told to wait longer.
    """
    workers = ("plan_data_source_read", "create_data_source", "python_streaming_sink_runner")
    imports = ", ".join(f"pyspark.sql.worker.{name}" for name in workers)
    subprocess.run([sys.executable, "-c", f"import {imports}, mq9.spark.source"], check=True)


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    """A small session; starting one takes seconds, so all tests share it."""
    pytest.importorskip("pyspark", reason="needs Spark: pip install 'mq9[spark]'")
    from mq9.spark import session

    _compile_workers()

    made = session(
        "mq9-tests",
        master="local[2]",
        parallelism=2,
        memory="2g",
        settings=QUICK,
    )
    yield made
    made.stop()


@pytest.fixture(scope="session")
def done(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> "Done":
    """What `make pipeline` does, with less traffic; tests leave it as it is."""
    import pipeline

    # So few in each round that what is given back is soon given out again.
    return pipeline.run(spark, tmp_path_factory.mktemp("pipeline"), 400, at_once=16)
