"""The tutorial, done as it is written: its files saved, its commands run, its output compared."""

import re
from pathlib import Path

from tests.docs.test_guides import run_as_printed
from tests.peers import Serve


def patient(step: str) -> str:
    """Readers take a while between two commands: here the writer that was started is waited for."""
    if not (started := re.match(r"python writer.py (\w+) .*&$", step)):
        return step
    return f"{step}\nuntil mq9 agent list | grep -q {started[1]}; do sleep 0.1; done"


def test_the_tutorial_works_as_printed(serve: Serve, tmp_path: Path) -> None:
    run_as_printed("docs/tutorial.md", serve().url, tmp_path, patient)
