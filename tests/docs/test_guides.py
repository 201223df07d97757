"""The guides: their files saved, their commands run, their output compared."""

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.docs.test_files_page import command, comparable
from tests.pages import ROOT, blocks, run_steps, steps
from tests.peers import Serve

# This one speaks to the broker with `nats`: test_push_page.py.
RUN_ELSEWHERE = {"push.md"}
GUIDES = sorted(
    f"docs/guides/{page.name}"
    for page in (ROOT / "docs" / "guides").glob("*.md")
    if "```console" in page.read_text("utf-8") and page.name not in RUN_ELSEWHERE
)


def tools(folder: Path) -> None:
    """`mq9` and `python` as the page calls them."""
    command(folder, "mq9", "mq9")
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)


def as_printed(step: str) -> str:
    return step


def run_as_printed(
    page: str, url: str, folder: Path, run: Callable[[str], str] = as_printed
) -> None:
    """Does what the page says, each command as `run` gives it."""
    tools(folder / "bin")
    for block in blocks(page, "python"):
        name, _, _ = block.removeprefix("# ").partition("\n")
        (folder / name).write_text(block, "utf-8")
    environment = {
        **os.environ,
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "TZ": "UTC",
        "MQ9_URL": url,
    }
    page_steps = [step for block in blocks(page, "console") for step in steps(block)]
    assert page_steps
    printed = run_steps([run(step.command) for step in page_steps], folder, environment)
    for step, output in zip(page_steps, printed, strict=True):
        # What the shell says of a job that was killed names the process.
        said = re.sub(r"^bash: line .*\n", "", output, flags=re.MULTILINE)
        assert comparable(said) == comparable(step.output), f"{step.command}\n{''.join(printed)}"


@pytest.mark.parametrize("page", GUIDES)
def test_a_guide_works_as_printed(page: str, serve: Serve, tmp_path: Path) -> None:
    config = "".join(blocks(page, "hocon"))
    # Side by side with other tests, each broker has a port of its own.
    server = serve(re.sub(r"^listen:.*$", "", config, flags=re.MULTILINE))
    run_as_printed(page, server.url, tmp_path)
