"""What is pushed is measured on all servers that are there; the numbers are not looked at."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
# Not in pytest's own folder, which may be in memory: nothing is durable there.
OUT = ROOT / ".build/bench-push-test"


def pushes(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "benches/pushes.py"), "--quick", "--out", str(OUT)]
    return subprocess.run(
        [*command, *words], capture_output=True, text=True, timeout=300, check=False
    )


@pytest.fixture(scope="module")
def result() -> dict[str, Any]:
    shutil.rmtree(OUT, ignore_errors=True)
    run = pushes()
    assert run.returncode == 0, run.stderr
    assert not list(OUT.glob("data-*"))
    found: dict[str, Any] = json.loads((OUT / "result.json").read_text("utf-8"))
    return found


def test_each_row_has_numbers_and_ratios(result: dict[str, Any]) -> None:
    assert [row["row"] for row in result["rows"]] == [
        "LIVE, 1 subscriber",
        "LIVE, 100 subscribers",
        "REPLAY of 5 k messages",
        "FAN-OUT to 1",
        "FAN-OUT to 10",
        "FAN-OUT to 100",
    ]
    for row in result["rows"]:
        ways = row["ways"]
        assert {"mailbox", "jetstream-ordered"} <= ways.keys()
        for found in ways.values():
            assert found["rate"] > 0
            if row["number"] == "p99":
                assert 0 < found["p50"] <= found["p99"]
        ours, theirs = (ways[way][row["number"]] for way in ("mailbox", "jetstream-ordered"))
        ratio = theirs / ours if row["number"] == "p99" else ours / theirs
        assert row["ratios"]["mailbox"]["jetstream-ordered"] == pytest.approx(ratio)


def test_page_and_picture_are_made_of_what_was_measured(
    result: dict[str, Any], tmp_path: Path
) -> None:
    page = tmp_path / "benchmarks-push.md"
    page.write_text((ROOT / "docs" / page.name).read_text("utf-8"), "utf-8")
    run = pushes("--stored", "--report", "--docs", str(tmp_path))
    assert run.returncode == 0, run.stderr
    text = page.read_text("utf-8")
    assert all(row["row"] in text for row in result["rows"])
    assert (tmp_path / "img/benchmarks-push.png").stat().st_size > 10_000
