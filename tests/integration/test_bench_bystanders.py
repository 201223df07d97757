"""SENDs are measured beside each kind of trouble; the numbers are not looked at, the trouble is."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
# Not in pytest's own folder, which may be in memory: nothing is durable there.
OUT = ROOT / ".build/bench-bystanders-test"
ROWS = ["connz", "list", "discover", "create", "collect", "block", "spin"]


def bystanders(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "benches/bystanders.py"), "--quick", "--out", str(OUT)]
    return subprocess.run(
        [*command, *words], capture_output=True, text=True, timeout=300, check=False
    )


@pytest.fixture(scope="module")
def result() -> dict[str, Any]:
    shutil.rmtree(OUT, ignore_errors=True)
    # The same installation twice: that one could be another.
    run = bystanders("--python", sys.executable, "--called", "again")
    assert run.returncode == 0, run.stderr
    assert not list(OUT.glob("data-*"))
    found: dict[str, Any] = json.loads((OUT / "result.json").read_text("utf-8"))
    for row in found["rows"]:
        assert row["title"] in run.stdout
    return found


def test_each_row_has_latencies_and_trouble(result: dict[str, Any]) -> None:
    assert [row["row"] for row in result["rows"]] == ROWS
    for row in result["rows"]:
        assert list(row["sites"]) == ["again", "now"]
        for site in row["sites"].values():
            for state in ("quiet", "beside"):
                found = site["medians_us"][state]
                assert 0 < found["p50"] <= found["p99"] <= found["max"], row["row"]
            ratio = site["medians_us"]["beside"]["p99"] / site["medians_us"]["quiet"]["p99"]
            assert site["ratio"]["p99"] == pytest.approx(ratio)
            [beside] = site["rounds"]["beside"]
            assert beside["noise"]["count"] > 0, row["row"]
            assert beside["messages"] == 150
    [block] = [row for row in result["rows"] if row["row"] == "block"]
    assert all(site["noise_longest_s"] >= 0.1 for site in block["sites"].values())


def test_page_and_picture_are_made_of_what_was_measured(
    result: dict[str, Any], tmp_path: Path
) -> None:
    page = tmp_path / "benchmarks-bystanders.md"
    before = (ROOT / "docs" / page.name).read_text("utf-8")
    page.write_text(before, "utf-8")
    run = bystanders("--stored", "--report", "--docs", str(tmp_path))
    assert run.returncode == 0, run.stderr
    text = page.read_text("utf-8")
    assert all(row["title"] in text for row in result["rows"])
    assert text.endswith(before[before.index("## How") :])
    picture = tmp_path / "img/benchmarks-bystanders.png"
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert f"img/{picture.name}" in text
