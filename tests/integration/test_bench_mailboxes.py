"""The comparison of servers runs from start to end; what it measures is not looked at."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "benches/mailboxes.py"
# Not in pytest's own folder, which may be in memory: nothing is durable there.
OUT = ROOT / ".build/bench-mailboxes-test"
REDIS = shutil.which("redis-server") or (ROOT / ".build/peers/bin/redis-server").exists()
KINDS = ["send", "tls", "drain", "latency", "create", "backlog", "wait"]


def compare(*words: str, out: Path = OUT) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), "--out", str(out), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture(scope="module")
def quick() -> tuple[dict[str, Any], subprocess.CompletedProcess[str]]:
    shutil.rmtree(OUT, ignore_errors=True)
    run = compare("--quick")
    assert run.returncode == 0, run.stderr
    return json.loads((OUT / "result.json").read_text("utf-8")), run


def test_quick_comparison_measures_each_kind_of_row_on_every_server(
    quick: tuple[dict[str, Any], subprocess.CompletedProcess[str]],
) -> None:
    result, run = quick
    servers = {"mq9", "JetStream"} | ({"Redis"} if REDIS else set())
    assert "Redis" in servers or "Redis is left out: no redis-server" in run.stderr
    assert set(result["versions"]) == servers
    assert list(dict.fromkeys(row["kind"] for row in result["rows"])) == KINDS
    for row in result["rows"]:
        assert row["row"] in run.stdout
        # Over TLS there is nats-server alone to compare with.
        assert set(row["best"]) == servers - ({"Redis"} if row["kind"] == "tls" else set())
        for peer, compared in row["peers"].items():
            assert peer in servers - {"mq9"}
            assert len(compared["ratios_by_round"]) == row["settings"]["rounds"]
            goal = compared["goal"]
            assert compared["met"] == (None if goal is None else compared["ratio"] >= goal >= 1)
        for measured in row["contenders"].values():
            for name, value in measured["median"].items():
                # Hardly anything may be used where little is measured.
                at_least = 0 if any(word in name for word in ("cpu", "cores", "idle")) else 1e-9
                assert value >= at_least or name == "bytes_each", (row["row"], name)
                assert measured["min"][name] <= value <= measured["max"][name]
    assert not list(OUT.glob("data-*"))


def test_report_is_written_from_what_was_measured_before(
    quick: tuple[dict[str, Any], subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    result, _ = quick
    page = tmp_path / "benchmarks.md"
    shutil.copy(ROOT / "docs/benchmarks.md", page)
    run = compare("--stored", "--report", "--docs", str(tmp_path))
    assert run.returncode == 0, run.stderr
    text = page.read_text("utf-8")
    for row in result["rows"]:
        assert row["row"] in text
    before = (ROOT / "docs/benchmarks.md").read_text("utf-8")
    for by_people in ("### What is measured", "## Core store"):
        assert before[before.index(by_people) :][:500] in text
    pictures = {path.name for path in (tmp_path / "img").iterdir()}
    assert pictures == {f"benchmarks-{name}.png" for name in ("send", "latency", "wait")}
    assert all(f"img/{picture}" in text for picture in pictures)

    page.write_text("no place")
    run = compare("--stored", "--report", "--docs", str(tmp_path))
    assert run.returncode == 1
    assert "no place for the block" in run.stderr


def copied(name: str) -> Path:
    """A folder beside the results with a copy of them."""
    folder = OUT.with_name(f"{OUT.name}-{name}")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    shutil.copy(OUT / "result.json", folder)
    return folder


def test_rows_that_are_measured_again_replace_only_themselves(
    quick: tuple[dict[str, Any], subprocess.CompletedProcess[str]],
) -> None:
    result, _ = quick
    kept = copied("again")
    run = compare("--quick", "--only", "WAIT", "--servers", "mq9", out=kept)
    assert run.returncode == 0, run.stderr
    rows = json.loads((kept / "result.json").read_text("utf-8"))["rows"]
    assert rows[:-1] == result["rows"][:-1]
    assert rows[-1]["row"] == "WAIT interval"
    assert list(rows[-1]["contenders"]) == ["mq9"]


def test_a_server_that_fails_costs_its_row_and_the_success_but_not_the_others(
    quick: tuple[dict[str, Any], subprocess.CompletedProcess[str]],
) -> None:
    result, _ = quick
    kept = copied("failed")
    words = ["--quick", "--only", "CREATE interval", "--servers", "Redis", "--redis-cmd", "false"]
    run = compare(*words, out=kept)
    assert run.returncode == 1
    assert "FAILED: CREATE interval: Redis: " in run.stderr
    rows = json.loads((kept / "result.json").read_text("utf-8"))["rows"]
    assert rows == result["rows"]


def test_every_row_of_the_issue_is_there_and_an_unknown_one_is_named() -> None:
    run = compare("--only", "no such row")
    assert run.returncode == 1
    assert "no such row" in run.stderr
    for sync in ("interval", "always"):
        for size in ("128 B", "1 KiB"):
            for connections in (1, 8, 64):
                for window in (1, 64, 1024):
                    assert f"SEND {sync}, {size}, {connections} x {window}\n" in run.stderr
        for batch in (1, 10, 100):
            assert f"FETCH+ACK {sync}, batches of {batch}\n" in run.stderr
        assert f"SEND {sync}, 64 KiB, 8 x 64\n" in run.stderr
        assert f"SEND {sync}, 128 B, 8 x 64, mixed priorities\n" in run.stderr
        assert f"LATENCY {sync}, 128 B, 8 connections\n" in run.stderr
        assert f"CREATE {sync}\n" in run.stderr
        for load in ("1 x 1", "64 x 1", "1 x 64", "8 x 64", "1 x 1024"):
            assert f"SEND {sync}, 128 B, {load}, TLS\n" in run.stderr
    assert "BACKLOG interval, 128 B\n" in run.stderr
    assert "WAIT interval\n" in run.stderr
