"""The tutorial, done as it is written: its files saved, its commands run, its output compared."""

import os
import re
import sys
from pathlib import Path

from tests.docs.test_files_page import command, comparable
from tests.pages import blocks, run_steps, steps
from tests.peers import Serve

PAGE = "docs/tutorial.md"


def patient(step: str) -> str:
    """Readers take a while between two commands: here the writer that was started is waited for."""
    if not (started := re.match(r"python writer.py (\w+) .*&$", step)):
        return step
    return f"{step}\nuntil mq9 agent list | grep -q {started[1]}; do sleep 0.1; done"


def test_the_tutorial_works_as_printed(serve: Serve, tmp_path: Path) -> None:
    command(tmp_path / "bin", "mq9", "mq9")
    python = tmp_path / "bin" / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    for block in blocks(PAGE, "python"):
        name, _, _ = block.removeprefix("# ").partition("\n")
        (tmp_path / name).write_text(block, "utf-8")
    environment = {
        **os.environ,
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        "TZ": "UTC",
        "MQ9_URL": serve().url,
    }
    page = [step for block in blocks(PAGE, "console") for step in steps(block)]
    assert len(page) >= 25
    printed = run_steps([patient(step.command) for step in page], tmp_path, environment)
    for step, output in zip(page, printed, strict=True):
        # What the shell says of a job that was killed names the process.
        said = re.sub(r"^bash: line .*\n", "", output, flags=re.MULTILINE)
        assert comparable(said) == comparable(step.output), f"{step.command}\n{''.join(printed)}"
