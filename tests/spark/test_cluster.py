"""The jobs on a Spark of several processes: a master, two workers and a driver."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.peers import until
from tests.spark.test_batch_and_stream import assert_same

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOPBACK = "127.0.0.1"
START_S, JOB_S = 60, 170
ENDED_S = 20


@contextmanager
def daemon(log: Path, *words: str, heap: str = "256m") -> Iterator[None]:
    """A process of Spark, which is ended at the end."""
    import pyspark

    from mq9.spark import java

    java.prepare()
    spark_class = Path(pyspark.__file__).parent / "bin" / "spark-class"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [spark_class, *words],
            env=surroundings() | {"SPARK_DAEMON_MEMORY": heap},
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        yield
    finally:
        process.terminate()
        process.wait(ENDED_S)


def surroundings() -> dict[str, str]:
    """Nothing listens but on this machine; executors are small."""
    quick = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    return os.environ | {
        "SPARK_LOCAL_IP": LOOPBACK,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": quick,
        "PYSPARK_SUBMIT_ARGS": (
            "--conf spark.executor.memory=512m --conf spark.driver.host=127.0.0.1 "
            f"--conf 'spark.executor.extraJavaOptions={quick}' pyspark-shell"
        ),
    }


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """A master with two workers of one core each."""
    package = "org.apache.spark.deploy"
    log = tmp_path / "master.log"
    listen = ("--host", LOOPBACK, "--webui-port", "0")
    with daemon(log, f"{package}.master.Master", *listen, "--port", "0"):
        found = re.compile(r"Starting Spark master at (spark://\S+)")
        match = until(
            lambda: found.search(log.read_text("utf-8")), "the master", deadline_s=START_S
        )
        assert match is not None
        worker = (f"{package}.worker.Worker", *listen, "--cores", "1", "--memory", "1g", match[1])
        folders = [tmp_path / name for name in ("one", "two")]
        with (
            daemon(tmp_path / "one.log", *worker, "--work-dir", str(folders[0])),
            daemon(tmp_path / "two.log", *worker, "--work-dir", str(folders[1])),
        ):
            registered = "Registering worker"
            until(
                lambda: log.read_text("utf-8").count(registered) == len(folders),
                "both workers",
                deadline_s=START_S,
            )
            yield match[1]


def test_a_standalone_cluster_gives_the_same_tables(
    spark: "SparkSession", master: str, tmp_path: Path
) -> None:
    from generate import Traffic
    from mq9.lake import batch
    from mq9.lake.tables import Tables

    export, tables = tmp_path / "export", tmp_path / "tables"
    # Half of all messages go to one mailbox.
    Traffic(400, hours=3, agents=4, records_per_file=300, hot_share=0.5).write(export)
    command = [sys.executable, "-m", "mq9", "lake", "build", str(export), "--tables", str(tables)]
    done = subprocess.run(
        [*command, "--master", master, "--parallelism", "2", "--memory", "1g"],
        env=surroundings(),
        capture_output=True,
        text=True,
        timeout=JOB_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    # Each worker ran an executor, and each of those ran tasks.
    for worker in ("one", "two"):
        [said] = (tmp_path / worker).glob("app-*/*/stderr")
        assert "Finished task" in said.read_text("utf-8"), worker
    expected = batch.run(spark, str(export), str(tmp_path / "expected"))
    assert_same(Tables(spark, str(tables)), expected)
