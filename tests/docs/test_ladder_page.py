"""The small system of docs/ladder.md, on files and then on a broker, prints what the page shows."""

import os
import re
from pathlib import Path

from tests.docs.test_files_page import command, comparable
from tests.pages import ROOT, blocks, run_steps, steps
from tests.peers import Serve

PAGE = "docs/ladder.md"


def test_the_system_climbs_the_ladder(serve: Serve, tmp_path: Path) -> None:
    command(tmp_path / "bin", "zos-mq", "zos_agent_mq")
    command(tmp_path / "bin", "mq9", "mq9")
    mine = {name: value for name, value in os.environ.items() if not name.startswith("ZOS_")}
    environment = {
        **mine,
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        "TZ": "UTC",
        "MQ9_URL": serve().url,
    }
    page = [step for block in blocks(PAGE, "console") for step in steps(block)]
    assert len(page) >= 15
    printed = run_steps([step.command for step in page], tmp_path, environment)
    for step, output in zip(page, printed, strict=True):
        assert comparable(output) == comparable(step.output), step.command


def test_every_header_is_on_the_page() -> None:
    source = (ROOT / "python/mq9/local/forwarding.py").read_text("utf-8")
    page = (ROOT / PAGE).read_text("utf-8")
    headers = set(re.findall(r'"(agent-[a-z-]+)"', source))
    assert len(headers) == 7
    assert {header for header in headers if f"`{header}`" not in page} == set()
