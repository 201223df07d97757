"""The examples of docs/files.md do what the page shows."""

import os
import re
import sys
from pathlib import Path

import pytest
from tests.pages import ROOT, Session, blocks, run_steps, steps

PAGE = "docs/files.md"


def command(folder: Path, name: str, module: str) -> None:
    """A command that runs a module with the interpreter of the tests."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" -m {module} "$@"\n')
    (folder / name).chmod(0o755)


def comparable(text: str) -> str:
    """Without ids and instants, which are never the same."""
    text = re.sub(r"[0-9a-f]{12}-[0-9a-f]{16}", "ID", text)
    return re.sub(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d", "TIME", text)


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.chdir(tmp_path)
    command(tmp_path / "bin", "zos-mq", "zos_agent_mq")
    command(tmp_path / "bin", "mq9", "mq9")
    mine = {name: value for name, value in os.environ.items() if not name.startswith("ZOS_")}
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    return {**mine, "PATH": path, "TZ": "UTC"}


async def test_the_example_in_python(
    environment: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert environment
    [example] = blocks(PAGE, "python")
    await Session({}).run(example)
    printed = capsys.readouterr().out.splitlines()
    assert printed == ["boss ask What is the build status?", "Build green."]
    page = (ROOT / PAGE).read_text("utf-8")
    assert all(f"`{line}`" in page for line in printed)


def test_sessions_print_what_the_page_shows(environment: dict[str, str], tmp_path: Path) -> None:
    page = [step for block in blocks(PAGE, "console") for step in steps(block)]
    assert len(page) >= 17
    printed = run_steps([step.command for step in page], tmp_path, environment)
    for step, output in zip(page, printed, strict=True):
        assert comparable(output) == comparable(step.output), step.command


def test_every_call_and_variable_is_on_the_page() -> None:
    import mq9.local
    from mq9.local import Queue

    page = (ROOT / PAGE).read_text("utf-8")
    names = {name for name in vars(Queue) if not name.startswith("_")} - {
        "audit_path",
        "append_record",
    }
    for name in names | (set(mq9.local.__all__) - {"TOPICS", "DEFAULT_BODY_THRESHOLD"}):
        assert f"`{name}" in page, name
    source = "".join(f.read_text("utf-8") for f in (ROOT / "python/mq9/local").glob("*.py"))
    for variable in set(re.findall(r"\bZOS_[A-Z_]*[A-Z]\b", source)):
        assert variable in page, variable
