"""`mq9 local`: the commands of the file queue with tables for people."""

import json
from pathlib import Path

import pytest

from mq9.cli import main
from mq9.local import Queue


class Mq9:
    """Runs `mq9 local` in this process."""

    def __init__(self, root: Path, capture: pytest.CaptureFixture[str]) -> None:
        self.root, self.capture = root, capture

    def __call__(self, *arguments: str, code: int = 0) -> str:
        assert main(["local", "--root", str(self.root), *arguments]) == code
        self.errors = self.capture.readouterr()
        return self.errors.out


@pytest.fixture
def mq9(root: Path, capsys: pytest.CaptureFixture[str]) -> Mq9:
    return Mq9(root, capsys)


def test_messages_as_a_table(mq9: Mq9) -> None:
    msg_id = mq9("send", "--topic", "ask", "--body", "two\nlines", "--to", "b").strip()
    mq9("send", "--topic", "status", "--body", "x", "--priority", "1", "--durable")
    head, first, second = mq9("tail").splitlines()
    assert head.split() == ["ID", "SENT", "FROM", "TO", "TOPIC", "BODY"]
    assert first.split()[0] == msg_id
    assert first.split()[3:] == ["anonymous", "b", "ask", "two\\nlines"]
    assert second.split()[3:] == ["anonymous", "all", "status", "x"]
    assert [line.split()[-1] for line in mq9("poll", "--agent", "b").splitlines()] == [
        *("BODY", "two\\nlines", "x")
    ]
    by_priority = mq9("poll", "--agent", "c", "--by-priority", "--json").splitlines()
    assert [json.loads(line)["body"] for line in by_priority] == ["x"]
    assert mq9("poll", "--agent", "b", code=5) == ""
    assert mq9("poll", "--agent", "b", "--wait", "0.01", code=5) == ""


def test_by_priority(mq9: Mq9) -> None:
    for body, level in (("low", "notify"), ("high", "critical"), ("mid", "5")):
        mq9("send", "--topic", "ask", "--body", body, "--priority", level)
    lines = mq9("poll", "--agent", "b", "--by-priority", "--json").splitlines()
    assert [json.loads(line)["body"] for line in lines] == ["high", "mid", "low"]


def test_status_and_expire(mq9: Mq9, queue: Queue) -> None:
    assert mq9("status", code=5) == ""
    queue.send("ask", "x")
    queue.poll("a")
    queue.send("ask", "over", ttl_s=0)
    queue.poll("b")
    rows = [line.split() for line in mq9("status").splitlines()]
    assert rows[0] == ["SESSION", "MESSAGES", "EXPIRED", "SIZE", "TOPICS", "READ", "BY"]
    assert rows[1][:3] == ["default", "2", "1"]
    assert rows[1][5:] == ["ask", "2", "a", "50", "%,", "b", "all"]
    assert json.loads(mq9("status", "--json")) == queue.status()
    assert mq9("expire") == "removed 1\n"
    assert mq9("expire", "--json") == '{"dropped":0}\n'
    assert "msg_id" in json.loads(mq9("send", "--topic", "ask", "--body", "x", "--json"))


@pytest.mark.parametrize(
    "arguments",
    [
        ("send", "--topic", "gossip", "--body", "x"),
        ("send", "--topic", "ask", "--body", "x", "--priority", "11"),
        ("poll", "--agent", "a", "--wait", "-1"),
        ("poll", "--agent", "a", "--wait", "nan"),
        ("tail", "-n", "-1"),
        ("status", "--session", "a/b"),
        (),
    ],
)
def test_a_wrong_command_line(mq9: Mq9, root: Path, arguments: tuple[str, ...]) -> None:
    assert mq9(*arguments, code=2) == ""
    assert mq9.errors.err.startswith(("mq9 local", "usage: mq9 local"))
    assert not root.exists()


def test_what_cannot_be_done(mq9: Mq9, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root.write_text("a file")
    assert mq9("tail", code=1) == ""
    assert "Not a directory" in mq9.errors.err
    monkeypatch.setenv("ZOS_MQ_DISABLED", "1")
    mq9("send", "--topic", "ask", "--body", "x", code=1)
    assert mq9.errors.err.startswith("mq9 local send: nothing is sent")
