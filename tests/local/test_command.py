"""The `zos-mq` command: what it prints, and how it ends."""

import io
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from tests.local.conftest import Folder

from mq9.local import Queue, command


class Ran:
    """What a command printed and how it ended."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err


class Command:
    """Runs the command in this process."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch, capture: Any) -> None:  # noqa: ANN401
        self.root, self.patch, self.capture = root, patch, capture

    def __call__(self, *arguments: str, stdin: bytes = b"") -> Ran:
        self.patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), "ascii"))
        code = command.main(["--root", str(self.root), *arguments])
        out, err = self.capture.readouterr()
        return Ran(code, out.decode(), err.decode())


@pytest.fixture
def zos_mq(
    root: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> Command:
    return Command(root, monkeypatch, capfdbinary)


def test_the_command_comes_with_the_package() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))
    assert project["project"]["scripts"]["zos-mq"] == "mq9.local.command:main"
    assert "zos_agent_mq" in project["tool"]["maturin"]["python-packages"]


def test_send_prints_the_id(zos_mq: Command, folder: Folder) -> None:
    asked = zos_mq("send", "--topic", "ask", "--body", "hello", "--to", "b")
    assert (asked.code, asked.err) == (0, "")
    flags = ("--to", "b", "--ttl", "600", "--session", "s", "--sender", "me", "--reply-to", "id-1")
    sent = zos_mq("send", "--topic", "answer", "--body", "x", *flags)
    assert folder.lines()[0]["msg_id"] == asked.out.strip()
    [record] = Folder(folder.root, "s").lines()
    assert record.pop("ts")
    assert record == {
        "msg_id": sent.out.strip(),
        "from": "me",
        "to": "b",
        "topic": "answer",
        "body": "x",
        "in_reply_to": "id-1",
        "ttl_s": 600,
    }


def test_a_body_comes_from_the_input(zos_mq: Command, queue: Queue) -> None:
    zos_mq("send", "--topic", "ask", "--body", "-", stdin="ü one\n".encode())
    zos_mq("send", "--topic", "ask", stdin=b"two")
    zos_mq("send", "--topic", "ask", stdin=b"")
    assert [m["body"] for m in queue.poll("a")] == ["ü one\n", "two", ""]


def test_poll_prints_one_object_on_a_line(zos_mq: Command, queue: Queue) -> None:
    queue.send("ask", "one\ntwo é\u2028")
    queue.send("status", "x")
    queue.send("answer", "y")
    polled = zos_mq("poll", "--agent", "a", "--topic", "ask", "--topic", "answer")
    assert polled.code == 0
    assert [json.loads(line)["body"] for line in polled.out.split("\n")[:-1]] == [
        "one\ntwo é\u2028",
        "y",
    ]
    assert zos_mq("poll", "--agent", "a").out == ""
    queue.send("ask", "z", session="s")
    assert json.loads(zos_mq("poll", "--agent", "a", "--session", "s").out)["body"] == "z"


def test_tail_expire_and_status(zos_mq: Command, queue: Queue) -> None:
    for number in range(12):
        queue.send("ask", f"{number}")
    queue.send("ask", "over", ttl_s=0)
    assert len(zos_mq("tail").out.splitlines()) == 10
    assert json.loads(zos_mq("tail", "-n", "1").out)["body"] == "11"
    assert json.loads(zos_mq("tail", "-n", "1", "--include-expired").out)["body"] == "over"
    assert zos_mq("tail", "--session", "nowhere").out == ""
    printed = zos_mq("status")
    assert json.loads(printed.out) == queue.status()
    assert printed.out.count("\n") > 5
    assert list(json.loads(zos_mq("status", "--session", "s").out)) == ["s"]
    assert zos_mq("expire").out == "1\n"
    assert zos_mq("expire", "--session", "default").out == "0\n"


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("shout",),
        ("send",),
        ("send", "--topic", "gossip", "--body", "x"),
        ("send", "--topic", "ask", "--body", "x", "--ttl", "-1"),
        ("send", "--topic", "ask", "--body", "x", "--ttl", "soon"),
        ("send", "--topic", "ask", "--body", "x", "--ttl", "nan"),
        ("send", "--topic", "ask", "--body", "x", "--to", "a/b"),
        ("send", "--topic", "ask", "--body", "\udcff"),
        ("poll",),
        ("poll", "--agent", "../x"),
        ("poll", "--agent", "a", "--topic", "gossip"),
        ("tail", "-n", "-1"),
        ("tail", "-n", "x"),
        ("expire", "--session", ""),
    ],
)
def test_a_wrong_command_line_ends_with_2(
    zos_mq: Command, root: Path, arguments: tuple[str, ...]
) -> None:
    ran = zos_mq(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert "zos-mq" in ran.err
    assert not root.exists()


def test_what_cannot_be_done_ends_with_1(
    zos_mq: Command, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    not_text = zos_mq("send", "--topic", "ask", stdin=b"\xff")
    assert (not_text.code, not_text.out) == (1, "")
    assert "standard input" in not_text.err
    monkeypatch.setenv("ZOS_MQ_DISABLED", "1")
    frozen = zos_mq("send", "--topic", "ask", "--body", "x")
    assert (frozen.code, frozen.out) == (1, "")
    assert frozen.err.startswith("zos-mq send: ")
    assert zos_mq("poll", "--agent", "a").code == 0
    assert zos_mq("expire").out == "0\n"
    monkeypatch.delenv("ZOS_MQ_DISABLED")
    root.write_text("a file")
    broken = zos_mq("status")
    assert (broken.code, broken.err.count("\n")) == (1, 1)


def test_help_ends_with_0(zos_mq: Command) -> None:
    assert zos_mq("--help").code == 0
    assert zos_mq("send", "--help").code == 0


def test_as_a_process(root: Path) -> None:
    """`python -m zos_agent_mq`, in a locale without a single special character."""
    environment = {**os.environ, "ZOS_MQ_ROOT": str(root), "PYTHONIOENCODING": "ascii"}

    def run(*arguments: str) -> str:
        return subprocess.run(
            [sys.executable, "-m", "zos_agent_mq", *arguments],
            env=environment,
            stdout=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            encoding="utf-8",
            timeout=60,
            check=True,
        ).stdout

    msg_id = run("send", "--topic", "ask", "--body", "né😀", "--to", "b").strip()
    [message] = map(json.loads, run("poll", "--agent", "b").splitlines())
    assert (message["msg_id"], message["body"]) == (msg_id, "né😀")


def test_a_reader_that_has_enough(queue: Queue, root: Path) -> None:
    for _ in range(2000):
        queue.send("ask", "x" * 1000)
    script = f'"{sys.executable}" -m zos_agent_mq --root "{root}" tail -n 2000 | head -n 1'
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert json.loads(done.stdout)["body"] == "x" * 1000
    assert done.stderr == ""
