"""The comparison with nats-server runs from start to end; what it measures is not looked at."""

import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

ROOT = Path(__file__).parents[2]
ISSUED_ROWS = {
    "publish 128 B",
    "publish 1 KiB",
    "fan-out 1 to 10",
    "fan-out 1 to 100",
    "request/reply, 1 connection",
    "request/reply, 8 connections",
    "request/reply, 64 connections",
}


def test_quick_comparison_measures_every_row_on_both_servers(tmp_path: Path) -> None:
    command = [
        sys.executable,
        str(ROOT / "benches/nats_core.py"),
        "--quick",
        "--out",
        str(tmp_path),
    ]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode == 0, run.stderr

    result = json.loads((tmp_path / "result.json").read_text("utf-8"))
    assert {row["row"] for row in result["rows"]} >= ISSUED_ROWS
    for row in result["rows"]:
        assert row["ratio"] > 0
        for server in ("nats-server", "mq9"):
            measured = row[server]
            assert measured["rate"] > 0
            assert measured["server_cpu_us"] >= 0
            assert 0 < measured["generator_cores"] < 1.1
            assert len(measured["rounds"]) == result["settings"]["rounds"]
            if row["unit"] == "replies":
                assert 0 < measured["latency_us"]["p50"] <= measured["latency_us"]["p99"]
        assert row["row"] in run.stdout
    ET.parse(tmp_path / "ratio.svg")


def test_unknown_row_is_named(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "benches/nats_core.py"), "--only", "no such row"]
    run = subprocess.run(
        [*command, "--out", str(tmp_path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert run.returncode == 1
    assert "no such row" in run.stderr
    assert "publish 1 KiB" in run.stderr
