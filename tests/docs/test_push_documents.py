"""Every example of the two documents that describe push, run by the real `nats` as written there.

Addresses and tokens are those that the broker gives; an ellipsis of theirs is left out. The Java
of the first document runs in test_push_page.py.
"""

import json
import os
import shlex
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.docs.test_push_page import TOOLS, needs_nats
from tests.peers import MQ9, Server, start, until

pytestmark = needs_nats
DEADLINE_S = 60

RESULT = """{
  "from": "m-uuid-002",
  "type": "task_result",
  "correlation_id": "req-uuid-001",
  "reply_to": "$mq9.AI.INBOX.m-uuid-002.normal",
  "payload": {},
  "ts": 1234567890
}"""
STOP = """{
  "from": "m-uuid-003",
  "type": "emergency_stop",
  "payload": {},
  "ts": 1234567890
}"""
ANOMALY = """{
  "from": "m-uuid-004",
  "type": "event_type",
  "severity": "high",
  "reply_to": "$mq9.AI.INBOX.m-uuid-004.normal",
  "payload": {},
  "ts": 1234567890
}"""
SUGGESTED = """{
  "from": "m-uuid-001",
  "type": "task_result",
  "correlation_id": "req-uuid-001",
  "reply_to": "$mq9.AI.INBOX.m-uuid-001.normal",
  "deadline": 1234567890,
  "payload": {},
  "ts": 1234567890
}"""


class Documents:
    """Runs what the documents show. `known` says what stands for the addresses in them."""

    def __init__(self, server: Server, folder: Path) -> None:
        kept = {key: value for key, value in os.environ.items() if not key.startswith("NATS_")}
        home = {"HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
        path = {"PATH": f"{TOOLS}{os.pathsep}{os.environ['PATH']}"}
        self.environment = kept | home | path | {"NATS_URL": server.url}
        self.server = server
        self.folder = folder
        self.known: dict[str, str] = {}
        self.listening: list[tuple[subprocess.Popen[bytes], Path]] = []

    def line(self, text: str) -> str:
        for name, value in self.known.items():
            text = text.replace(name, value)
        return text

    def run(self, text: str) -> str:
        """What a line prints."""
        done = subprocess.run(
            ["/bin/sh", "-c", self.line(text)],
            env=self.environment,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        assert done.returncode == 0, f"{text}: {done.stderr}"
        return done.stdout

    def ask(self, text: str) -> Any:  # noqa: ANN401
        """The JSON among what a request prints."""
        printed = self.run(text)
        return json.loads(printed[printed.index("{") : printed.rindex("}") + 1])

    def listen(self, text: str) -> Callable[[], str]:
        """Starts `nats sub`, and returns when the broker knows it; what it has printed so far."""
        before = self.server.listeners()
        output = self.folder / f"printed-{len(self.listening)}"
        with output.open("wb") as file:
            process = subprocess.Popen(
                shlex.split(self.line(text)),
                env=self.environment,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
            )
        self.listening.append((process, output))
        until(lambda: self.server.listeners() - before, f"{text} listens", DEADLINE_S)
        return lambda: output.read_text("utf-8")

    def stop(self) -> None:
        for process, _ in self.listening:
            process.kill()
            process.wait()
        self.listening.clear()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = start(tmp_path_factory.mktemp("documents"), "http: 127.0.0.1:-1", peer=MQ9)
    yield server
    server.stop()


@pytest.fixture
def documents(server: Server, tmp_path: Path) -> Iterator[Documents]:
    documents = Documents(server, tmp_path)
    yield documents
    documents.stop()


@pytest.fixture
def box(documents: Documents) -> Any:  # noqa: ANN401
    """The reply to the first example: a mailbox."""
    made = documents.ask("""nats req '$mq9.AI.MAILBOX.CREATE' '{
  "type": "standard",
  "ttl": 3600
}'""")
    documents.known = {"m-uuid-001": made["mail_id"], "tok-xxx": made["token"]}
    return made


def came(printed: Callable[[], str], text: str, times: int = 1) -> None:
    until(lambda: printed().count(text) >= times, f"{text} came", DEADLINE_S)
    assert printed().count(text) == times


# The first document.


def test_create(box: Any) -> None:  # noqa: ANN401
    assert box["inbox"] == f"$mq9.AI.INBOX.{box['mail_id']}"
    assert box["token"].startswith("tok-")


def test_send_and_receive(documents: Documents, box: Any) -> None:  # noqa: ANN401
    documents.run(f"nats pub '$mq9.AI.INBOX.m-uuid-001.normal' '{RESULT}'")
    documents.run(f"nats pub '$mq9.AI.INBOX.m-uuid-001.urgent' '{STOP}'")
    inbox = f'Received on "{box["inbox"]}'
    urgent = documents.listen("nats sub '$mq9.AI.INBOX.m-uuid-001.urgent'")
    came(urgent, f'{inbox}.urgent"')
    assert "emergency_stop" in urgent()
    documents.stop()
    everything = documents.listen("nats sub '$mq9.AI.INBOX.m-uuid-001.*'")
    came(everything, f'{inbox}.normal"')
    documents.run(f"nats pub '$mq9.AI.INBOX.m-uuid-001.normal' '{SUGGESTED}'")
    came(everything, f'{inbox}.normal"', 2)
    assert '"deadline": 1234567890' in everything()
    # What was pushed as urgent did not come again.
    assert "emergency_stop" not in everything()


def test_query(documents: Documents, box: Any) -> None:  # noqa: ANN401
    for _ in range(5):
        documents.run(f"nats pub '$mq9.AI.INBOX.m-uuid-001.normal' '{RESULT}'")
    query = """nats req '$mq9.AI.MAILBOX.QUERY.m-uuid-001' '{
  "token": "tok-xxx"
}'"""
    found = documents.ask(query)
    assert (found["mail_id"], found["unread"]) == (box["mail_id"], 5)
    assert [json.loads(each["payload"])["type"] for each in found["messages"]] == [
        "task_result"
    ] * 5
    assert documents.ask(query)["unread"] == 0


def test_broadcast(documents: Documents) -> None:
    heard = [
        documents.listen(f"nats sub '{subject}'")
        for subject in (
            "$mq9.AI.BROADCAST.system.*",
            "$mq9.AI.BROADCAST.*.anomaly",
            "$mq9.AI.BROADCAST.#",
        )
    ]
    documents.run(f"nats pub '$mq9.AI.BROADCAST.system.anomaly' '{ANOMALY}'")
    for printed in heard:
        came(printed, 'Received on "$mq9.AI.BROADCAST.system.anomaly"')


def test_competing_consumers(documents: Documents) -> None:
    command = "nats sub '$mq9.AI.BROADCAST.task.available' --queue task.workers"
    workers = [documents.listen(command) for _ in range(3)]
    for number in range(6):
        documents.run(f"nats pub '$mq9.AI.BROADCAST.task.available' 'task {number}.'")
    texts = [f"task {number}." for number in range(6)]
    each_once(
        workers, texts, lambda: documents.run("nats pub '$mq9.AI.BROADCAST.task.available' end")
    )


def each_once(
    workers: list[Callable[[], str]], texts: list[str], end: Callable[[], object]
) -> list[int]:
    """Each text is printed by one of them; how many each has printed. `end` sends one that word."""

    def counts() -> list[int]:
        return [sum(printed().count(text) for printed in workers) for text in texts]

    until(lambda: min(counts()) > 0, "all have come", DEADLINE_S)
    # What came twice was printed before the word that was sent after it.
    deadline = time.monotonic() + DEADLINE_S
    while not all("\nend\n" in printed() for printed in workers):
        assert time.monotonic() < deadline, [printed() for printed in workers]
        end()
    assert counts() == [1] * len(texts)
    return [sum(text in printed() for text in texts) for printed in workers]


def test_persist(documents: Documents) -> None:
    """Set persist=true explicitly: there it is a header."""
    documents.run(f"nats pub '$mq9.AI.BROADCAST.data.changed' '{ANOMALY}' -H mq9-persist:true")
    printed = documents.listen("nats sub '$mq9.AI.BROADCAST.data.*'")
    came(printed, 'Received on "$mq9.AI.BROADCAST.data.changed"')


# The second document.


def test_private_and_public(documents: Documents) -> None:
    made = documents.ask("""nats req '$mq9.AI.MAILBOX.CREATE' '{"ttl": 3600, "public": false}'""")
    for expected in (None, False):
        again = documents.ask(
            """nats req '$mq9.AI.MAILBOX.CREATE' """
            """'{"name": "vision.results", "ttl": 3600, "public": true}'"""
        )
        assert (again["mail_id"], again.get("created")) == ("vision.results", expected)
    listed = documents.ask("nats req '$mq9.AI.PUBLIC.LIST' ''")["mailboxes"]
    names = [entry["mail_id"] for entry in listed]
    assert "vision.results" in names
    assert made["mail_id"] not in names


@pytest.mark.usefixtures("box")
def test_priorities(documents: Documents) -> None:
    subject = "$mq9.AI.MAILBOX.MSG.m-uuid-001"
    for suffix, text in (("", "normal"), (".urgent", "urgent"), (".critical", "critical")):
        documents.run(f"nats pub '{subject}{suffix}' 'it is {text}.'")
    for _ in range(2):
        printed = documents.listen(f"nats sub '{subject}.*'")
        came(printed, "it is normal.")
        order = [printed().index(f"it is {text}.") for text in ("critical", "urgent", "normal")]
        assert order == sorted(order)


def test_two_workers(documents: Documents) -> None:
    documents.run("""nats req '$mq9.AI.MAILBOX.CREATE' '{"name": "task.queue", "public": true}'""")
    command = "nats sub '$mq9.AI.MAILBOX.MSG.task.queue.*' --queue workers"
    workers = [documents.listen(command) for _ in range(2)]
    for number in range(6):
        documents.run(f"nats pub '$mq9.AI.MAILBOX.MSG.task.queue' 'page {number}.'")
    texts = [f"page {number}." for number in range(6)]
    end = "nats pub '$mq9.AI.MAILBOX.MSG.task.queue' end"
    shares = each_once(workers, texts, lambda: documents.run(end))
    assert shares == [3, 3]
    deleted = documents.ask("nats req '$mq9.AI.MAILBOX.DELETE.task.queue.0' ''")
    assert deleted["deleted"] is True
    # A worker that crashes leaves the rest to the other.
    process, _ = documents.listening[0]
    lost = [number for number in range(1, 6) if f"page {number}." in workers[0]()]
    process.kill()
    process.wait()
    for number in lost:
        came(workers[1], f"page {number}.")
    assert "page 0." not in workers[1]()
