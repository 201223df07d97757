"""Work queues are measured on both servers; the numbers are not looked at."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
# Not in pytest's own folder, which may be in memory: nothing is durable there.
OUT = ROOT / ".build/bench-queues-test"


def queues(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "benches/queues.py"), "--quick", "--out", str(OUT)]
    return subprocess.run(
        [*command, *words], capture_output=True, text=True, timeout=300, check=False
    )


@pytest.fixture(scope="module")
def result() -> dict[str, Any]:
    shutil.rmtree(OUT, ignore_errors=True)
    # One of each kind.
    run = queues(
        *("--only", "PUBLISH interval, 8 x 64", "--only", "PUBLISH always, 1 x 64"),
        *("--only", "FETCH+ACK, batches of 10,", "--only", "FILTER, batches of 100"),
    )
    assert run.returncode == 0, run.stderr
    assert not list(OUT.glob("data-*"))
    found: dict[str, Any] = json.loads((OUT / "result.json").read_text("utf-8"))
    return found


def test_each_row_has_numbers_and_a_ratio(result: dict[str, Any]) -> None:
    assert {row["row"]: row["goal"] for row in result["rows"]} == {
        "PUBLISH interval, 8 x 64": 8.0,
        "PUBLISH always, 1 x 64": 30.0,
        "FETCH+ACK, batches of 10, 1 worker": 1.0,
        "FETCH+ACK, batches of 10, 8 workers": 1.0,
        "FILTER, batches of 100, 1 worker": 1.0,
        "FILTER, batches of 100, 8 workers": 1.0,
    }
    for row in result["rows"]:
        ours, theirs = (row["servers"][server]["rate"] for server in ("mq9", "nats-server"))
        assert row["ratio"] == pytest.approx(ours / theirs)
        assert all(0 < found["p50"] <= found["p99"] for found in row["servers"].values())


def test_page_and_picture_are_made_of_what_was_measured(
    result: dict[str, Any], tmp_path: Path
) -> None:
    page = tmp_path / "benchmarks-queues.md"
    page.write_text((ROOT / "docs" / page.name).read_text("utf-8"), "utf-8")
    run = queues("--stored", "--report", "--docs", str(tmp_path))
    assert run.returncode == 0, run.stderr
    text = page.read_text("utf-8")
    assert all(row["row"] in text for row in result["rows"])
    assert (tmp_path / "img/benchmarks-queues.png").stat().st_size > 10_000
