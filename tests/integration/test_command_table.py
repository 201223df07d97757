"""The table of commands in the core, and the commands that Python answers, are the same."""

import re
from pathlib import Path

import pytest
from tests.faults import fuzzed
from tests.mail import Mail
from tests.peers import Server

from mq9._core import Broker, Limits

TABLE = Path(__file__).parents[2] / "rust_core/src/commands.rs"
ROW = re.compile(r'^ +command\("([A-Z.]+)", By::(\w+), Shape::(\w+)\),$', re.MULTILINE)
# What later commands of these families fall under.
FAMILIES = {"AGENT.", "ADMIN."}


def rows() -> list[str]:
    """What Python is to answer."""
    found = ROW.findall(TABLE.read_text())
    return [name for name, by, _ in found if by != "Partition" and name not in FAMILIES]


def test_each_command_of_the_table_is_fuzzed() -> None:
    named = {name.removesuffix(".") for name, _, _ in ROW.findall(TABLE.read_text())}
    families = {name.removesuffix(".") for name in FAMILIES}
    assert named - families - fuzzed.COMMANDS.keys() == set()


def is_unknown(mail: Mail, command: str) -> bool:
    message = mail.reply(mail.begin(command, b"["))
    return b"mq9-error: unknown_command" in message.headers


def test_each_command_of_the_table_is_answered(server: Server) -> None:
    names = rows()
    assert len(names) > 15
    with Mail(server.url) as mail:
        unknown = [name for name in names if is_unknown(mail, name + "a.1" * name.endswith("."))]
        assert unknown == []
        # Control: what nobody answers is noticed.
        assert is_unknown(mail, "MAILBOX.FOLD")
        assert is_unknown(mail, "ADMIN.FOLD")


@pytest.mark.parametrize(
    "subject", ["MAILBOX.FOLD", "MAILBOX.CREATE.>", "MSG.SEND.>", "AGENT.FOLD"]
)
def test_what_is_not_in_the_table_cannot_be_answered(subject: str) -> None:
    broker = Broker(Limits(), 1)
    try:
        with pytest.raises(ValueError, match="not in the table of commands"):
            broker.serve(f"$mq9.AI.{subject}", print)
        broker.serve("$mq9.AI.MAILBOX.CREATE", print)
        broker.serve("$SYS.REQ.FOLD", print)
    finally:
        broker.stop()
