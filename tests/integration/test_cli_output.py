"""Nothing that somebody else has written acts on the terminal of who looks at it."""

import asyncio
import json
import os
import pty
import re
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest
from tests.peers import Server

import mq9
from mq9.cli import main
from mq9.cli.output import pairs
from mq9.local import Queue

# Colours, a bell, another title, C1's escape, directions of writing, and rows of its own.
HOSTILE = "\x1b[31mred\x07\x1b]0;title\x07\x9b2J\u202egnp.exe\u2066\u200f\ufeff"
ROWS = "x\r\n9  critical  forged"


def acting(text: str) -> set[str]:
    """What is neither a glyph nor the end of a line."""
    return {c for c in text if c != "\n" and unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp")}


def texts(value: object) -> str:
    """All texts of a JSON document."""
    if isinstance(value, dict):
        value = [*value.keys(), *value.values()]
    return " ".join(map(texts, value)) if isinstance(value, list) else str(value)


def run(server: Server, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "mq9", *arguments],
        env={**os.environ, "MQ9_URL": server.url, "TZ": "UTC"},
        capture_output=True,
        check=False,
        timeout=120,
    )
    return (done.stdout + done.stderr).decode()


@pytest.fixture(scope="module")
def hostile(server: Server) -> str:
    return asyncio.run(_fill(server))


async def _fill(server: Server) -> str:
    async with mq9.Client(server.url) as client:
        address = await client.create_mailbox(public=True, desc=HOSTILE + ROWS)
        for number in range(2):
            await client.nats.request(
                f"$mq9.AI.MSG.SEND.{address}",
                (HOSTILE + ROWS).encode(),
                headers={"mq9-key": f"{HOSTILE}{number}", "mq9-tags": f"a,{HOSTILE}"},
            )
        await client.register(
            {"mailbox": address, "name": HOSTILE + ROWS, "tags": [HOSTILE], "description": ROWS}
        )
        await client.fetch(address, group=HOSTILE, deliver="earliest")
        await client.create_mailbox(f"{address}.dead")
        dying = await client.create_mailbox(dead_letter=f"{address}.dead")
        await client.send(dying, HOSTILE + ROWS)
        await client.term(*await client.fetch(dying, group=HOSTILE, deliver="earliest"))
    return address


COMMANDS = [
    ("query", "{}"),
    ("tail", "{}"),
    ("fetch", "{}", "--deliver", "earliest"),
    ("mailbox", "list", "--public"),
    ("mailbox", "list"),
    ("mailbox", "show", "{}"),
    ("group", "list", "{}"),
    ("agent", "list"),
    ("agent", "find", "forged"),
    ("sub", "-m", "{}", "-n", "2"),
    # Each gives a message once.
    ("inbox", "{}", "-n", "1"),
    ("dead", "list", "{}.dead"),
]


@pytest.mark.parametrize("json_too", [False, True], ids=["table", "json"])
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_what_others_wrote_is_only_shown(
    server: Server, hostile: str, command: tuple[str, ...], json_too: bool
) -> None:
    arguments = [part.format(hostile) for part in command]
    text = run(server, *arguments, *(["--json"] if json_too else []))
    assert "red" in text
    assert acting(text) == set()
    if json_too:
        # To a program what is escaped is the same text.
        assert HOSTILE in texts(json.loads(text.splitlines()[0]))
    else:
        assert not re.search(r"^9 +critical +forged", text, re.MULTILINE)


def test_payloads_are_raw_in_a_pipe(server: Server, hostile: str) -> None:
    assert run(server, "query", hostile, "--payload", "-n", "1") == HOSTILE + ROWS + "\n"


@pytest.mark.parametrize(
    "arguments",
    [("query", "{}", "--payload", "-n", "1"), ("dead", "show", "{}.dead", "0")],
    ids=["query", "dead_show"],
)
def test_payloads_are_harmless_on_a_terminal(
    server: Server, hostile: str, arguments: tuple[str, ...]
) -> None:
    arguments = tuple(part.format(hostile) for part in arguments)
    shown, end = pty.openpty()
    environment = {**os.environ, "MQ9_URL": server.url}
    command = [sys.executable, "-m", "mq9", *arguments]
    with subprocess.Popen(command, env=environment, stdout=end) as process:
        os.close(end)
        text = b""
        while True:
            try:
                read = os.read(shown, 65536)
            except OSError:
                break
            if not read:
                break
            text += read
        assert process.wait(120) == 0
    os.close(shown)
    assert "red" in text.decode()
    # The terminal itself ends lines with CR and LF.
    assert acting(text.decode().replace("\r\n", "\n")) == set()


def test_names_of_headers_and_mail_in_files_are_only_shown(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs({f"header x{HOSTILE}": HOSTILE})
    monkeypatch.setenv("ZOS_MQ_ROOT", str(tmp_path))
    Queue(tmp_path).send("ask", HOSTILE, to="me", sender="you")
    for arguments in (
        ["tail", "-n", "1"],
        ["tail", "-n", "1", "--json"],
        ["poll", "--agent", "me"],
    ):
        assert main(["local", *arguments]) == 0
    text = capsys.readouterr().out
    assert text.count("red") == 5
    assert acting(text) == set()


def test_what_a_failure_quotes_is_only_shown(server: Server) -> None:
    text = run(server, "send", f"no{HOSTILE}", "x")
    assert "no" in text
    assert acting(text) == set()
