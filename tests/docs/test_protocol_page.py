"""The page about the protocol is right: each of its commands prints what the page shows."""

import os
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.peers import MQ9, Server, start

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "protocol.md").read_text("utf-8")
TOOLS = ROOT / ".build" / "go" / "bin"
DEADLINE_S = 30
READ_DEADLINE_S = 90

needs_nats = pytest.mark.skipif(
    not (TOOLS / "nats").exists(),
    reason="needs the nats command line: make nats-cli (builds it with Go)",
)

# The placeholders of the page, and what may stand in their place.
PLACEHOLDERS = {
    "<seconds>": r"[1-9]\d{9}",
    "<address>": r"[a-z0-9]{25,128}",
    "<token>": r"tok-[0-9a-f]{32}",
}

# Examples that the documents of the protocol have, as far as these commands go.
COVERED = (
    r"""MAILBOX.CREATE' '{"name": "agent.translator.inbox", "ttl": 0}'""",
    r"""MAILBOX.CREATE' '{"name": "agent.translator.inbox"}'""",
    r"""MSG.SEND.agent.translator.inbox' '{"text":"hello"}'""",
    r"""-H "mq9-key:status" '{"status":"running"}'""",
    r"""-H "mq9-tags:billing,vip" '{"order_id":"o-001"}'""",
    r"""-H "mq9-delay:60" '{"text":"delayed task"}'""",
    r"""-H "mq9-ttl:300" '{"text":"short-lived message"}'""",
    r"""-H "mq9-priority:urgent" '{"alert":"please expedite"}'""",
    r"""MSG.FETCH.task.001.callback' '{}'""",
    r"""MSG.FETCH.task.001.callback' '{"deliver": "earliest"}'""",
    r"""MSG.FETCH.task.001.callback' '{"group_name": "worker-group-1"}'""",
    r"""'{"group_name": "worker-group-1", "deliver": "earliest"}'""",
    r"""'{"group_name": "worker-group-1", "deliver": "earliest", "force_deliver": true}'""",
    r"""'{"group_name": "worker-group-1", "config": {"num_msgs": 50}}'""",
    r"""'{"group_name": "worker-group-1", "mail_address": "task.001.callback", "msg_id": """,
    r"""MSG.QUERY.task.001.callback' '{}'""",
    r"""MSG.QUERY.task.001.callback' '{"key": "status"}'""",
    r"""MSG.QUERY.task.001.callback' '{"limit": 10}'""",
    r"""MSG.QUERY.task.001.callback' '{"since": 1234567890}'""",
    r"""MSG.DELETE.task.001.callback.2' ''""",
    r"""AGENT.REGISTER' '{""",
    r"""AGENT.UNREGISTER' '{"mailbox": "mq9://broker/agent.translator.inbox"}""",
    r"""AGENT.REPORT' '{"mailbox": "mq9://broker/""",
    r"""AGENT.DISCOVER' '{"text": "payment invoice"}'""",
    r"""AGENT.DISCOVER' '{"semantic": "process a payment and generate invoice""",
    r"""AGENT.DISCOVER' '{"text": "payment", "limit": 10, "page": 2}'""",
    r"""AGENT.DISCOVER' '{}'""",
)


@dataclass(frozen=True)
class Example:
    """A command of the page, and what the page says that it prints."""

    command: str
    shown: str
    config: str

    def matches(self, printed: str) -> bool:
        pattern = re.escape(self.shown)
        for placeholder, allowed in PLACEHOLDERS.items():
            pattern = pattern.replace(re.escape(placeholder), allowed)
        return re.fullmatch(pattern, printed) is not None


def examples(page: str) -> list[Example]:
    """All examples in order; each with the configuration that stands last before it."""
    found = []
    config = ""
    for kind, block in re.findall(
        r"^```(console|conf)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL
    ):
        if kind == "conf":
            config = block
            continue
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            lines = part.splitlines()
            size = next(at for at, line in enumerate(lines, 1) if not line.endswith("\\"))
            found.append(Example("\n".join(lines[:size]), "\n".join(lines[size:]), config))
    return found


EXAMPLES = examples(PAGE)


def run(command: str, server: Server, folder: Path) -> str:
    """What a command prints, without what `nats` says about it on standard error."""
    # Nothing of the user's own contexts.
    kept = {key: value for key, value in os.environ.items() if not key.startswith("NATS_")}
    home = {"HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
    path = {"PATH": f"{TOOLS}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        ["/bin/sh", "-c", command],
        env=kept | home | path | {"NATS_URL": server.url},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return "\n".join(line for line in done.stdout.splitlines() if line)


def settled(command: str, server: Server, folder: Path) -> str:
    """The same, once the broker has read all cards: on a busy machine that takes a while."""
    end = time.monotonic() + READ_DEADLINE_S
    while unread(command, output := run(command, server, folder)) and time.monotonic() < end:
        pass
    return output


def unread(command: str, output: str) -> bool:
    """Whether a search could not look at all cards; a group of a mailbox has `pending` too."""
    return "AGENT.DISCOVER" in command and '"pending":' in output


@contextmanager
def fresh_broker(folder: Path, config: str) -> Iterator[Server]:
    server = start(folder, config, peer=MQ9)
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What all examples print, run in order on a fresh broker for each configuration."""
    found = []
    for config in dict.fromkeys(example.config for example in EXAMPLES):
        folder = tmp_path_factory.mktemp("page")
        with fresh_broker(folder, config) as server:
            of_this = [example for example in EXAMPLES if example.config == config]
            found += [settled(example.command, server, folder) for example in of_this]
    return found


@needs_nats
@pytest.mark.parametrize("number", range(len(EXAMPLES)), ids=[each.command for each in EXAMPLES])
def test_a_command_prints_what_the_page_shows(printed: list[str], number: int) -> None:
    example = EXAMPLES[number]
    assert example.matches(printed[number]), f"{printed[number]}\n  is not\n{example.shown}"


def test_placeholders_match_by_pattern_and_all_else_exactly() -> None:
    example = Example("", '{"create_time":<seconds>,"n":1}', "")
    assert example.matches('{"create_time":1794803553,"n":1}')
    for other in ('{"create_time":"x","n":1}', '{"create_time":1794803553,"n":10}', ""):
        assert not example.matches(other)


def test_every_placeholder_is_explained_and_every_example_shows_a_reply() -> None:
    used = {name for example in EXAMPLES for name in re.findall(r"<\w+>", example.shown)}
    assert used == PLACEHOLDERS.keys()
    opening = PAGE[: PAGE.index("| command |")]
    assert [name for name in PLACEHOLDERS if f"`{name}`" not in opening] == []
    assert [example.command for example in EXAMPLES if not example.shown] == []


def test_the_examples_of_the_documents_are_covered() -> None:
    commands = [re.sub(r"\s*\\\n\s*", " ", example.command) for example in EXAMPLES]
    missing = [part for part in COVERED if not any(part in command for command in commands)]
    assert missing == []
