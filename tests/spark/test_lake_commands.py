"""`mq9 lake` as people run it: a process for each command."""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import pytest
from tests.pages import blocks, environment_in
from tests.spark.rows import Log
from tests.spark.test_stream_for_months import piece

from mq9.sync import Client
from mq9.testing import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

END_S = 300
# Far from UTC: times must not be those of the machine.
AWAY = {"TZ": "Asia/Tokyo"}
SMALL = ("--parallelism", "2", "--memory", "1g", "--master", "local[2]")
USAGE = 2


def lake(
    *words: str | Path, env: Mapping[str, str] = MappingProxyType({})
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "mq9", "lake", *map(str, words), *SMALL],
        capture_output=True,
        text=True,
        timeout=END_S,
        check=False,
        env={**os.environ, **AWAY, **env},
    )


@pytest.mark.usefixtures("spark")
def test_the_page_begins_with_commands_that_work(tmp_path: Path) -> None:
    with Broker(folder=tmp_path) as broker, Client(broker.url) as client:
        client.create_mailbox("in")
        client.send("in", "one", priority="urgent")
        client.ack(*client.fetch("in", group="g", deliver="earliest"))
    (tmp_path / "data").rename(tmp_path / "mq9-data")
    install, *commands = blocks("docs/spark.md", "sh")[0].splitlines()
    assert install.startswith("pip install '.[spark]'")
    assert len(commands) == 4
    printed = ""
    for line in commands:
        command = shlex.split(line, comments=True)
        small = SMALL if "lake" in command else ()
        done = subprocess.run(
            [*command, *small],
            cwd=tmp_path,
            env=environment_in(tmp_path),
            capture_output=True,
            text=True,
            timeout=END_S,
            check=False,
        )
        assert done.returncode == 0, (line, done.stderr)
        if "query" in command:
            printed = done.stdout
    assert [line.split() for line in printed.splitlines()] == [
        ["priority", "sum(late)"],
        ["urgent", "0"],
    ]
    assert (tmp_path / "export-tables/sla").is_dir()
    assert (tmp_path / "report/report.html").is_file()


@pytest.fixture(scope="module")
def export(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An export of three urgent messages, of which one was acknowledged, streamed into tables."""
    assert spark is not None
    folder = tmp_path_factory.mktemp("lake") / "export"
    log = Log()
    for msg_id in range(3):
        log.send("agent.a", msg_id, msg_id * 10, priority="urgent", headers={"From": "agent.b"})
    piece(folder, log.worked("agent.a", 0, 1, 2), 1)
    return folder


@pytest.fixture(scope="module")
def streamed(export: Path) -> "subprocess.CompletedProcess[str]":
    """What `mq9 lake stream` said, whose first Python took longer than Spark waits for it."""
    slow, was = export.with_name("slow"), export.with_name("was")
    slow.write_text(
        f"""#!/bin/sh
case "$*" in *streaming_source*) mkdir {shlex.quote(str(was))} 2>/dev/null && sleep 12 ;; esac
exec {shlex.quote(sys.executable)} "$@"
"""
    )
    slow.chmod(0o755)
    python = dict.fromkeys(("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"), str(slow))
    said = lake("stream", export, "--json", env=python)
    assert was.exists(), "Spark started no Python for its stream"
    return said


def test_a_stream_tells_what_it_made(
    export: Path, streamed: "subprocess.CompletedProcess[str]"
) -> None:
    assert streamed.returncode == 0, streamed.stderr
    told = json.loads(streamed.stdout)
    assert told["tables"] == f"{export}-tables"
    assert (told["rows"]["message_lifecycle"], told["rows"]["sla"]) == (3, 1)
    assert "too slow to start for Spark: beginning the stream again" in streamed.stderr
    assert "micro-batch 0: 2 files" in streamed.stderr
    refused = lake("build", export)
    assert refused.returncode == USAGE
    assert "is kept up to date by `mq9 lake stream`" in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.usefixtures("streamed")
def test_a_query_prints_days_times_and_numbers_as_json(export: Path) -> None:
    sql = (
        "select date, hour, sent, mailbox, 1.5 as exact, array(1, 2) as list, "
        "cast('nan' as double) as unknown, named_struct('a', x'00ff') as inside "
        "from message_lifecycle order by msg_id"
    )
    done = lake("query", export, sql, "--json", "--limit", "2")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [
        {
            "date": "2026-05-02",
            "hour": 7,
            "sent": f"2026-05-02T07:00:{second}+00:00",
            "mailbox": "agent.a",
            "exact": 1.5,
            "list": [1, 2],
            "unknown": None,
            "inside": {"a": "AP8="},
        }
        for second in ("00", "10")
    ]
    assert "There are more than 2 rows: see --limit" in done.stderr


@pytest.mark.usefixtures("streamed")
def test_a_query_prints_a_table_and_says_what_is_wrong(export: Path) -> None:
    sql = "select mailbox, sum(within) as within, max(date) as day from sla group by mailbox"
    done = lake("query", export, sql, "--limit", "1")
    assert done.returncode == 0, done.stderr
    assert [line.split() for line in done.stdout.splitlines()] == [
        ["mailbox", "within", "day"],
        ["agent.a", "1", "2026-05-02"],
    ]
    assert "more than" not in done.stderr
    wrong = lake("query", export, "select * from nothing")
    assert wrong.returncode == USAGE
    assert "The tables are message_lifecycle, " in wrong.stderr
    assert "Traceback" not in wrong.stderr


@pytest.mark.usefixtures("streamed")
def test_a_report_is_one_page(export: Path, tmp_path: Path) -> None:
    done = lake("report", export, "--out", tmp_path, "--json", "--broker", "north")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["page"] == str(tmp_path / "report.html")
    assert f"What went through north, as exported to {export}" in Path(told["page"]).read_text(
        "utf-8"
    )
    assert all(Path(picture).read_bytes()[:4] == b"\x89PNG" for picture in told["pictures"])
