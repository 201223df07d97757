"""The sessions of docs/cli.md and the README print what is shown; the page names every command."""

import argparse
import re
from pathlib import Path

import pytest
from tests.pages import ROOT, blocks, environment_in, run_as_printed
from tests.peers import Serve

from mq9.cli import exits
from mq9.cli.parser import parser

OPERATOR = (
    'authorization { users = [ { user: guest, password: guest, permissions: { publish: ">" } }, '
    '{ user: operator, password: secret, permissions: { publish: ["$mq9.AI.>", '
    '"$mq9.AI.ADMIN.>"] } } ] }\nno_auth_user: guest\n'
)


@pytest.mark.parametrize(("name", "commands"), [("docs/cli.md", 27), ("README.md", 5)])
def test_sessions_print_what_the_page_shows(
    serve: Serve, tmp_path: Path, name: str, commands: int
) -> None:
    server = serve(OPERATOR)
    environment = environment_in(tmp_path, server.url) | {"DATA": "data"}
    (tmp_path / "data").symlink_to(server.log_file.parent / "data")
    ran = 0
    for block in blocks(name, "console"):
        if "doctor" in block:
            server.stop()
        ran += run_as_printed(name, tmp_path, environment, sessions=[block])
    assert ran >= commands


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
