"""The page about the configuration says what the code does."""

import argparse
import re
from pathlib import Path

from mq9.config import add_flags, loads
from mq9.config.file import IGNORED, MQ9_SETTINGS, SETTINGS
from mq9.config.parser import parse_text
from mq9.config.reloading import NEEDS_RESTART

PAGE = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text("utf-8")
EXAMPLE, SYNTAX = re.findall(r"```conf\n(.*?)```", PAGE, re.DOTALL)
NAMES = re.compile(r"`([^`]+)`")


def rows(heading: str) -> dict[str, list[str]]:
    """The rows of the first table below a text, by every name of their first column."""
    table = re.search(r"(?:^\|.*\|\n)+", PAGE[PAGE.index(heading) :], re.MULTILINE)
    assert table
    cells = [line.strip("| ").split(" | ") for line in table[0].splitlines()[2:]]
    return {name: row[1:] for row in cells for name in NAMES.findall(row[0])}


def test_example_loads_without_a_warning() -> None:
    options = loads(EXAMPLE, {})
    assert options.warnings == ()
    assert (options.port, options.http_port, options.max_connections) == (4222, 8222, 10_000)
    admin, worker, agent = options.authorization.users
    assert (admin.name, admin.permissions, options.authorization.no_auth_user) == (
        "admin",
        None,
        "agent",
    )
    assert worker.permissions
    assert worker.permissions.subscribe_allow == ("tasks.> workers",)
    assert agent.permissions
    assert agent.permissions.publish_allow == ("agents.>", "_INBOX.>")
    assert (options.data_dir, options.drain_ms) == (Path("/var/lib/mq9"), 10_000)


def test_example_of_the_syntax_is_read() -> None:
    entries = parse_text(SYNTAX, {"HOME": "/home"}).root.entries
    assert entries["size"].value.data == 65_536
    assert entries["home"].value.data == "/home"
    assert entries["hash"].value.data == "$2a$11$abc"


def test_every_setting_is_in_the_table_with_its_reload() -> None:
    table = rows("## Settings")
    hidden = {name for name, setting in SETTINGS.items() if setting.option == "operator"}
    hidden |= {"system", "system_account"}
    assert table.keys() == SETTINGS.keys() - hidden
    table |= rows("In the block `mq9 { }`")
    for name, setting in {**SETTINGS, **MQ9_SETTINGS}.items():
        if setting.option and name not in hidden:
            option = {"store_dir": "data_dir"}.get(setting.option, setting.option)
            expected = "no" if option in NEEDS_RESTART else "yes"
            assert table[name][-1] == expected, name


def test_every_setting_of_mq9_is_in_the_table() -> None:
    assert rows("In the block `mq9 { }`").keys() == MQ9_SETTINGS.keys()


def test_every_setting_that_does_not_apply_is_named() -> None:
    section = PAGE[PAGE.index("### What does not apply") : PAGE.index("## Syntax")]
    named = set(NAMES.findall(section))
    assert not IGNORED.keys() - named
    assert not {name for name, setting in SETTINGS.items() if setting.option == "operator"} - named


def test_every_flag_is_in_the_table() -> None:
    parser = argparse.ArgumentParser(add_help=False)
    add_flags(parser)
    visible = {
        name
        for action in parser._actions
        if action.help != argparse.SUPPRESS
        for name in action.option_strings
    }
    assert rows("## Flags").keys() == visible
