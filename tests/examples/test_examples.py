"""Each system in examples/ runs with its one command and does what it says."""

import os
import subprocess
import sys

from tests.pages import ROOT


def run(*command: str, **environment: str) -> str:
    """What a command prints; it must end well."""
    known = {name: value for name, value in os.environ.items() if name != "MQ9_URL"}
    path = f"{os.path.dirname(sys.executable)}:{known['PATH']}"  # noqa: PTH120
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**known, "PATH": path, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_langgraph() -> None:
    printed = run(sys.executable, "examples/langgraph/main.py")
    assert printed.rstrip().endswith("The translator says: bonjour")
