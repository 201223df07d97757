"""What a user has after installing mq9: the command, the native module and its types.

Runs against the interpreter in MQ9_TEST_PYTHON, which need not have pytest; without the variable,
against the one that runs the tests. Everything happens in other processes, in an empty folder, so
that nothing of the source tree is importable by accident.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PYTHON = Path(os.environ.get("MQ9_TEST_PYTHON", sys.executable))
COMMAND = PYTHON.with_name("mq9")


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False
    )


def evaluate(expression: str) -> str:
    done = run(PYTHON, "-W", "error", "-c", f"import mq9, mq9._core; print({expression})")
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_native_module_is_built_for_the_stable_abi() -> None:
    assert evaluate("mq9._core.__file__").endswith("_core.abi3.so")


def test_version_is_the_same_everywhere() -> None:
    version = evaluate("mq9.__version__")
    assert version[0].isdigit()
    assert evaluate("mq9._core.__version__") == version
    assert evaluate("__import__('importlib.metadata').metadata.version('mq9')") == version
    for command in ([COMMAND], [PYTHON, "-m", "mq9"]):
        done = run(*command, "version")
        assert (done.returncode, done.stdout, done.stderr) == (0, f"mq9 {version}\n", "")


@pytest.mark.parametrize("name", ["py.typed", "_core.pyi"])
def test_types_are_installed(name: str) -> None:
    assert (Path(evaluate("mq9.__path__[0]")) / name).is_file()


def test_help_lists_the_commands() -> None:
    done = run(COMMAND, "--help")
    assert done.returncode == 0
    assert {"serve", "version"} <= set(done.stdout.split())


def test_serve_says_that_there_is_no_server_yet() -> None:
    done = run(COMMAND, "serve")
    assert (done.returncode, done.stdout) == (2, "")
    assert "not part of version" in done.stderr
    assert "Traceback" not in done.stderr
