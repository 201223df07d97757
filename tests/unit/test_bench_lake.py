"""The benchmark of the Spark jobs keeps what it measured, whatever a later run does."""

import argparse
import importlib
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
# Programs in the place of those that take minutes: the benchmark starts them as it does the real.
GENERATE = "import pathlib, sys; pathlib.Path(sys.argv[1]).mkdir(parents=True)"
DUCKDB = "raise SystemExit('duckdb is not here')"
JOB = "print('done')"
OLD_JOB = "print('half'); raise MemoryError('Java heap space')"
DAYS = """
import json, sys
steps = [{"seconds": 1.0, "processor_s": 1.0, "state_rows": 9, "state_bytes": 9,
          "checkpoint_bytes": 9}]
worse = {"times": 1.26, "flat": False}
print(json.dumps({"days": 90, "messages": 7, "steps": steps, "verdict": {
    "state_rows": worse, "processor_s": worse, "seconds": worse}}))
sys.exit("it grows")
"""


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """`benches/lake.py` among programs that are quick."""
    monkeypatch.syspath_prepend(ROOT / "benches")
    found = importlib.import_module("lake")
    monkeypatch.setattr(found, "ROOT", tmp_path)
    monkeypatch.setattr(found, "FOLDER", tmp_path / ".build/bench-lake")
    programs = {
        "spark/generate.py": GENERATE,
        "spark/batch_job.py": OLD_JOB,
        "benches/lake_duckdb.py": DUCKDB,
        "benches/lake_days.py": DAYS,
    }
    for name, text in programs.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, "utf-8")
    git = ("git", "-c", "user.name=a", "-c", "user.email=a@example.org")
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "before"]):
        subprocess.run([*git, *words], cwd=tmp_path, check=True)
    (tmp_path / "spark/batch_job.py").write_text(JOB, "utf-8")
    return found


def asked(**more: object) -> argparse.Namespace:
    plain = {"millions": [1.0], "memory": "1g", "days": 90, "a_day": 9, "before": "HEAD"}
    return argparse.Namespace(**{**plain, "before_most": 4.0, **more})


def test_a_missed_goal_and_a_failed_job_are_results(bench: ModuleType, tmp_path: Path) -> None:
    file = tmp_path / ".build/bench-lake/results.json"
    bench.kept(asked(), file)
    result = json.loads(file.read_text("utf-8"))
    [size] = result["sizes"]
    assert size["before"]["failed"] == "MemoryError: Java heap space"
    assert size["duckdb"]["failed"] == "duckdb is not here"
    assert "failed" not in size["after"]
    assert result["days"]["verdict"]["processor_s"]["times"] == 1.26
    assert result["days"]["run"]["failed"] == "it grows"
    told = sys.modules["lake_report"].tables(result)
    assert "| 1,000,000 | 0 | failed after " in told
    assert "| processor time of a micro-batch | 1.26 times | <= 1.25 times: missed |" in told
    assert "before / after" not in told


def test_what_was_measured_before_a_part_breaks_off_is_kept(
    bench: ModuleType, tmp_path: Path
) -> None:
    file = tmp_path / ".build/bench-lake/results.json"
    # An export can be made once, and not again for the mailboxes that are not even.
    once = f"{GENERATE}; pathlib.Path(sys.argv[0] + '.once').touch(exist_ok=False)"
    (tmp_path / "spark/generate.py").write_text(once, "utf-8")
    with pytest.raises(subprocess.CalledProcessError):
        bench.kept(asked(before=""), file)
    result = json.loads(file.read_text("utf-8"))
    assert [sorted(size) for size in result["sizes"]] == [
        ["after", "duckdb", "export_bytes", "messages"]
    ]
    assert "| 1,000,000 |" in sys.modules["lake_report"].tables(result)
