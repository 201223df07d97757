"""The benchmark of a cluster runs from start to end, and marks a failover that took too long."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Not in pytest's own folder, which may be in memory: nothing is durable there.
OUT = ROOT / ".build/bench-cluster-test"


def cluster(*words: str) -> str:
    command = [sys.executable, str(ROOT / "benches/cluster.py"), "--quick", "--out", str(OUT)]
    run = subprocess.run(
        [*command, *words], capture_output=True, text=True, timeout=500, check=False
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_a_quick_run_measures_all_ways_and_a_failover() -> None:
    said, file = cluster(), OUT / "result.json"
    assert "kill -9 of the node that leads, 1 times" in said
    result = json.loads(file.read_text("utf-8"))
    assert [row["outstanding"] for row in result["rows"]] == [1, 200, 1_000, 4_000]
    for row in result["rows"]:
        assert all(way["rate"] > 0 and way["p50_us"] > 0 for way in row["ways"].values())
    assert len(result["failover_s"]) == 1
    assert not list(OUT.glob("data-*"))
    for gaps, is_missed in ([3.1, 3.9], False), ([3.1, 4.5], True):
        file.write_text(json.dumps({**result, "failover_s": gaps}), "utf-8")
        assert ("goal 4 s **missed**" in cluster("--stored")) == is_missed
