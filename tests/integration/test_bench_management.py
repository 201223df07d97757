"""What watching costs is measured; the numbers are not looked at, the watching is."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.manage.conftest import needed

ROOT = Path(__file__).parents[2]
# Not in pytest's own folder, which may be in memory: nothing is durable there.
OUT = ROOT / ".build/bench-management-test"


def bench(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "benches/management.py"), "--quick", "--out", str(OUT)]
    return subprocess.run(
        [*command, *words], capture_output=True, text=True, timeout=300, check=False
    )


@pytest.fixture(scope="module")
def result() -> dict[str, Any]:
    needed("chromium", os.environ.get("MQ9_CHROMIUM"))
    shutil.rmtree(OUT, ignore_errors=True)
    run = bench("--seconds", "3")
    assert run.returncode == 0, run.stderr
    assert not list(OUT.glob("data-*"))
    assert not [each for each in psutil.process_iter() if str(OUT) in "".join(words_of(each))]
    found: dict[str, Any] = json.loads((OUT / "result.json").read_text("utf-8"))
    for row in found["rows"]:
        assert row["title"] in run.stdout
    return found


def words_of(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return []


def test_each_load_is_measured_in_each_state(result: dict[str, Any]) -> None:
    assert [row["row"] for row in result["rows"]] == ["one", "all", "even"]
    for row in result["rows"]:
        assert list(row["medians"]) == ["without", "stopped", "with"]
        for found in row["medians"].values():
            assert 0 < found["p50"] <= found["p99"]
            assert found["server_cpu_us"] > 0
        assert row["ratios"]["rate"] == [
            row["rounds"]["with"][0]["rate"] / row["rounds"]["without"][0]["rate"]
        ]


def test_the_broker_is_watched_in_the_one_state_alone(result: dict[str, Any]) -> None:
    for row in result["rows"]:
        meanwhile = row["meanwhile"]
        assert meanwhile["scrapes"] > 0.5, "metrics are asked for each second"
        # Three pages, each with two requests and a pause of 2 s.
        assert meanwhile["requests"] > 1.5, "the pages ask"
        for state in ("without", "stopped"):
            assert row["rounds"][state][0]["watching_cores"] == 0


def test_the_page_is_made_of_what_was_measured(result: dict[str, Any], tmp_path: Path) -> None:
    page = tmp_path / "benchmarks-management.md"
    before = (ROOT / "docs" / page.name).read_text("utf-8")
    page.write_text(before, "utf-8")
    run = bench("--stored", "--report", "--docs", str(tmp_path))
    assert run.returncode == 0, run.stderr
    text = page.read_text("utf-8")
    assert all(row["title"] in text for row in result["rows"])
    assert "by the second" in text
    assert text.endswith(before[before.index("## How") :])
