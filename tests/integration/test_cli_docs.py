"""The sessions of docs/cli.md and the README print what is shown; the page names every command."""

import argparse
import os
import re
import sys
from pathlib import Path

import pytest
from tests.pages import ROOT, blocks, run_steps, steps
from tests.peers import Serve

from mq9.cli import exits
from mq9.cli.parser import parser

OPERATOR = (
    'authorization { users = [ { user: guest, password: guest, permissions: { publish: ">" } }, '
    '{ user: operator, password: secret, permissions: { publish: ["$mq9.AI.>", '
    '"$mq9.AI.ADMIN.>"] } } ] }\nno_auth_user: guest\n'
)


def comparable(text: str) -> str:
    """Without instants and sizes of files, which are never the same."""
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\+00:00", "TIME", text)
    text = re.sub(r"[\d.]+ ms", "SPAN", text)
    text = re.sub(r"^(server|url|NATS version|mq9 version)  .*", r"\1", text, flags=re.MULTILINE)
    text = re.sub(r'"create_time":\d{10}', '"create_time":TIME', text)
    text = re.sub(r"^(segments|checkpoints|reclaimable)  .*", r"\1", text, flags=re.MULTILINE)
    return re.sub(r"[\d.]+ (B|KiB|MiB)\b", "SIZE", text)


@pytest.mark.parametrize(("name", "commands"), [("docs/cli.md", 27), ("README.md", 5)])
def test_sessions_print_what_the_page_shows(
    serve: Serve, tmp_path: Path, name: str, commands: int
) -> None:
    server = serve(OPERATOR)
    command = tmp_path / "bin" / "mq9"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m mq9 "$@"\n')
    command.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{command.parent}:{os.environ['PATH']}",
        "MQ9_URL": server.url,
        "DATA": "data",
        "TZ": "UTC",
    }
    (tmp_path / "data").symlink_to(server.log_file.parent / "data")
    pages = [list(steps(block)) for block in blocks(name, "console")]
    assert sum(map(len, pages)) >= commands
    for page in pages:
        if any("doctor" in step.command for step in page):
            server.stop()
        printed = run_steps([step.command for step in page], tmp_path, environment)
        for step, output in zip(page, printed, strict=True):
            assert comparable(output) == comparable(step.output), step.command


def test_every_command_and_exit_code_is_on_the_page() -> None:
    page = (ROOT / "docs/cli.md").read_text("utf-8")
    assert set(commands(parser())) <= set(re.findall(r"[a-z]+", page))
    codes = {value for name, value in vars(exits).items() if name.isupper()}
    assert codes == {int(code) for code in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)}


def commands(tree: argparse.ArgumentParser) -> list[str]:
    found = []
    for action in tree._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, below in action.choices.items():
                found += [name, *commands(below)]
    return found
