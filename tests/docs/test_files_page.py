"""The examples of docs/files.md do what the page shows."""

import re
from pathlib import Path

import pytest
from tests.pages import ROOT, Session, blocks, environment_in, run_as_printed

PAGE = "docs/files.md"


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.chdir(tmp_path)
    return environment_in(tmp_path)


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
    assert run_as_printed(PAGE, tmp_path, environment) >= 17


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
