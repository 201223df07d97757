"""The examples in the documentation run and do what the page says."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run_example(page: str, folder: Path) -> str:
    found = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text("utf-8"), re.DOTALL)
    (example,) = (code for code in found if "from mq9.store" in code)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", example],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stderr, done.returncode) == ("", 0)
    return done.stdout


def test_the_example_of_the_store_runs_and_runs_again(tmp_path: Path) -> None:
    expected = "1 the kitchen is on fire\n5 water the plants\n9 read the paper\n"
    for _ in range(2):
        assert run_example("docs/store.md", tmp_path) == expected


def test_the_example_of_the_readme_runs(tmp_path: Path) -> None:
    assert run_example("README.md", tmp_path) == ""
