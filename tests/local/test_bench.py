"""The benchmark of the file queue runs, and prints what its page shows."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_benchmark_runs(tmp_path: Path) -> None:
    few = ["--rounds", "1", "--count", "64", "--lengths", "10", "20", "--folder", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "benches/local_queue.py", *few],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    page = (ROOT / "docs/files.md").read_text("utf-8")
    rows = re.findall(r"^\| (send.*?|take.*?) \|", done.stdout, re.MULTILINE)
    assert len(rows) == 5
    assert all(f"| {row} |" in page for row in rows)
    assert list(tmp_path.iterdir()) == []
