"""The benchmark of the registry runs from start to end; what it measures is not looked at."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_small_run_measures_searches_and_what_they_cost() -> None:
    # Not in pytest's own folder, which may be in memory: nothing is durable there.
    out = ROOT / ".build/bench-registry-test"
    command = [sys.executable, str(ROOT / "benches/registry.py"), "--out", str(out)]
    command += ["--agents", "300", "--rounds", "1", "--seconds", "0.5", "--embedder", "light"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode == 0, run.stderr
    result = json.loads((out / "result.json").read_text("utf-8"))
    assert "300 agents" in run.stdout
    for kind in ("text", "semantic"):
        assert f"| {kind} |" in run.stdout
        measured = result["searches"][kind]
        assert 0 < measured["p50_ms"] <= measured["p99_ms"] <= measured["max_ms"]
        assert measured["count"] > 0
    assert all(rate > 0 for rates in result["rates"].values() for rate in rates)
    assert not list(out.glob("data-*"))
