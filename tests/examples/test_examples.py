"""Each system in examples/ runs with its one command and does what it says."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.pages import ROOT
from tests.peers import skip_without_npm_tools

import mq9.sync


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


def test_python_agents() -> None:
    printed = run(sys.executable, "examples/python_agents/main.py").splitlines()
    assert printed[0].endswith("is for counter")
    assert printed[1].endswith("is for shouter")
    assert sorted(printed[2:4]) == ["counter: 5 words", "shouter: EVERY AGENT HAS A MAILBOX"]
    assert printed[4] == "the clock: close the edition"


def test_worker_pool() -> None:
    printed = run(sys.executable, "examples/worker_pool/main.py").splitlines()
    assert printed[0] == "worker-0 was killed with jobs in its hands"
    assert printed[-1] == "20 jobs done, none lost"
    results = {line.partition(": ")[2] for line in printed[1:-1]}
    assert results == {f"{n} squared is {n * n}" for n in range(20)}


@pytest.mark.parametrize(
    ("system", "expected"),
    [
        ("python_agents", "counter: 5 words"),
        ("worker_pool", "20 jobs done, none lost"),
        ("langgraph", "The translator says: bonjour"),
        ("typescript_and_go", "typescript: proverb has 5 words"),
    ],
)
def test_it_runs_again_on_a_broker_that_has_agents_of_its_own(
    system: str, expected: str, mq9_url: str, mq9_client: mq9.sync.Client
) -> None:
    if system == "langgraph":
        pytest.importorskip("langgraph")
    if system == "typescript_and_go":
        skip_without_go_and_npm()
    # They would be the best for every question, and answer none.
    for number, task in enumerate(
        ["How long is this text", "Convert to upper case", "Translate English into French"]
    ):
        mq9_client.create_mailbox(f"stranger{number}")
        card = {"name": task, "mailbox": f"stranger{number}", "description": task}
        mq9_client.register(card)
    for _ in range(2):
        assert expected in run(sys.executable, f"examples/{system}/main.py", MQ9_URL=mq9_url)


def skip_without_go_and_npm() -> None:
    if shutil.which("go") is None or shutil.which("npm") is None:
        pytest.skip("needs go and npm")
    if not (ROOT / "examples/typescript_and_go/node_modules").exists():
        skip_without_npm_tools()


def test_typescript_and_go() -> None:
    skip_without_go_and_npm()
    printed = run(sys.executable, "examples/typescript_and_go/main.py").splitlines()
    for line in ("haiku has 13 words", "proverb has 5 words", "alarm has 1 words"):
        assert f"typescript: {line}" in printed


def test_notebook(tmp_path: Path) -> None:
    pytest.importorskip("nbclient")
    output = tmp_path / "executed.ipynb"
    notebook = "examples/notebook/export.ipynb"
    run(str(Path(sys.executable).with_name("jupyter-execute")), notebook, f"--output={output}")
    assert "70 sent, 70 acknowledged" in output.read_text("utf-8")
    # It is stored without what a run leaves in it.
    assert '"output_type"' not in (ROOT / notebook).read_text("utf-8")


def test_every_example_is_in_the_list_and_tested() -> None:
    listed = (ROOT / "examples/README.md").read_text("utf-8")
    for folder in (path for path in (ROOT / "examples").iterdir() if path.is_dir()):
        assert f"({folder.name}/)" in listed
        assert f"test_{folder.name}" in globals()


def test_langgraph() -> None:
    pytest.importorskip("langgraph")
    printed = run(sys.executable, "examples/langgraph/main.py")
    assert printed.rstrip().endswith("The translator says: bonjour")
