"""The batch job through a server of Spark Connect, which runs it in a process of its own."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.peers import until
from tests.spark.test_batch_and_stream import assert_same
from tests.spark.test_cluster import LOOPBACK, daemon

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START_S, JOB_S = 150, 300
SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"


@pytest.fixture
def connect(tmp_path: Path) -> Iterator[str]:
    """A server with a Spark of two cores; its address."""
    log = tmp_path / "connect.log"
    settings = {
        "spark.connect.grpc.binding.address": LOOPBACK,
        "spark.connect.grpc.binding.port": "0",
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        "spark.ui.enabled": "false",
        "spark.pyspark.python": sys.executable,
        "spark.sql.warehouse.dir": str(tmp_path / "warehouse"),
    }
    words = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
    submit = ("org.apache.spark.deploy.SparkSubmit", "--class", SERVER, "--master", "local[2]")
    with daemon(log, *submit, *words, "spark-internal", heap="1g"):
        found = re.compile(r"Spark Connect server started at: .*?:(\d+)")
        match = until(
            lambda: found.search(log.read_text("utf-8")), "the server", deadline_s=START_S
        )
        assert match is not None
        yield f"sc://{LOOPBACK}:{match[1]}"


def test_a_server_of_spark_connect_gives_the_same_tables(
    spark: "SparkSession", connect: str, tmp_path: Path
) -> None:
    pytest.importorskip("grpc", reason="Spark Connect needs grpcio")
    from generate import Traffic
    from mq9.lake import batch
    from mq9.lake.tables import Tables

    export, tables = tmp_path / "export", tmp_path / "tables"
    Traffic(240, hours=2, agents=4, records_per_file=400).write(export)
    command = [sys.executable, "-m", "mq9", "lake", "build", str(export), "--tables", str(tables)]
    done = subprocess.run(
        [*command, "--master", connect, "--parallelism", "2"],
        capture_output=True,
        text=True,
        timeout=JOB_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert_same(
        Tables(spark, str(tables)), batch.run(spark, str(export), str(tmp_path / "expected"))
    )
