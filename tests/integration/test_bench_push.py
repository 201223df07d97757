"""What is pushed is measured on all servers that are there; the numbers are not looked at."""

import copy
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
            if row["row"].startswith("LIVE"):
                assert 0 < found["p50"] <= found["p99"]
        expected = ["p50", "p99"] if row["row"].startswith("LIVE") else ["rate"]
        assert row["numbers"] == expected
        for mine in ("mailbox", "inbox"):
            if mine not in ways:
                assert row["subscribers"] > 1, "those of an inbox share it"
                continue
            # Everybody else is beside both.
            assert row["ratios"][mine].keys() == ways.keys() - {"mailbox", "inbox"}
            for name in expected:
                ours, theirs = (ways[way][name] for way in (mine, "jetstream-ordered"))
                ratio = ours / theirs if name == "rate" else theirs / ours
                assert row["ratios"][mine]["jetstream-ordered"][name] == pytest.approx(ratio)
        assert {row["goals"][way] for way in ways if way.startswith("jetstream")} <= {1.0, 4.0}


def test_a_ratio_that_misses_its_goal_is_told_in_whichever_number(
    result: dict[str, Any],
) -> None:
    found = copy.deepcopy(result)
    [row] = [row for row in found["rows"] if row["row"] == "LIVE, 1 subscriber"]
    for p50, p99, is_missed in ((2.0, 0.5, True), (0.5, 2.0, True), (1.0, 1.0, False)):
        row["ratios"] = {"inbox": {"jetstream-push": {"p50": p50, "p99": p99}}}
        out = OUT / "told"
        out.mkdir(exist_ok=True)
        (out / "result.json").write_text(json.dumps(found), "utf-8")
        run = pushes("--stored", "--out", str(out))
        [line] = [line for line in run.stdout.splitlines() if f"{p50:.2f} / {p99:.2f}" in line]
        assert ("**missed**" in line) == is_missed


def test_page_and_picture_are_made_of_what_was_measured(
    result: dict[str, Any], tmp_path: Path
) -> None:
    page = tmp_path / "benchmarks-push.md"
    page.write_text((ROOT / "docs" / page.name).read_text("utf-8"), "utf-8")
    run = pushes("--stored", "--report", "--docs", str(tmp_path))
    assert run.returncode == 0, run.stderr
    text = page.read_text("utf-8")
    assert all(row["row"] in text for row in result["rows"])
    begin = "<!-- {}: written by make bench-push -->"
    for name in ("about", "ratios", "picture", "table"):
        block = text.split(begin.format(name))[1].split(f"<!-- end of {name} -->")[0]
        assert block.strip(), name
    assert result["machine"]["processor"] in text
    assert result["commit"]
    assert f"commit {result['commit']}." in text
    assert (tmp_path / "img/benchmarks-push.png").stat().st_size > 10_000
