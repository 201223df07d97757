"""The comparison of mailboxes runs from start to end; what it measures is not looked at."""

import json
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "benches/mailboxes.py"


def test_quick_comparison_measures_each_kind_of_row_on_every_server() -> None:
    # Not in pytest's own folder, which may be in memory: nothing is durable there.
    out = ROOT / ".build/bench-mailboxes-test"
    command = [sys.executable, str(SCRIPT), "--quick", "--out", str(out)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode == 0, run.stderr

    result = json.loads((out / "result.json").read_text("utf-8"))
    servers = {"mq9", "JetStream"} | ({"Redis"} if shutil.which("redis-server") else set())
    assert set(result["servers"]) == servers
    assert "Redis" in servers or "no redis-server" in run.stderr
    for row in result["rows"]:
        assert row["row"] in run.stdout
        assert set(row["peers"]) == servers - {"mq9"}
        for compared in row["peers"].values():
            assert compared["met"] == (compared["ratio"] >= compared["goal"] >= 1)
            assert len(compared["ratios_by_round"]) == result["settings"]["rounds"]
        for measured in row["contenders"].values():
            assert measured["rate"] > 0
            assert 0 < measured["latency_us"]["p50"] <= measured["latency_us"]["p99"]
            assert len(measured["rounds"]) == result["settings"]["rounds"]
    names = [set(row["contenders"]) for row in result["rows"]]
    assert names[0] == servers
    assert names[-1] - {"Redis"} == {"mq9 raw", "mq9 json", "JetStream all", "JetStream each"}
    for sync in ("interval", "always"):
        ET.parse(out / f"ratio-{sync}.svg")
    assert not list(out.glob("data-*"))


def test_every_row_of_the_issue_is_there_and_an_unknown_one_is_named() -> None:
    command = [sys.executable, str(SCRIPT), "--only", "no such row"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 1
    assert "no such row" in run.stderr
    for sync in ("interval", "always"):
        for size in ("128 B", "1 KiB"):
            for connections in (1, 8, 64):
                for window in (1, 64, 1024):
                    assert f"SEND {sync}, {size}, {connections} x {window}\n" in run.stderr
        for batch in (1, 10, 100):
            assert f"FETCH+ACK {sync}, batches of {batch}\n" in run.stderr
