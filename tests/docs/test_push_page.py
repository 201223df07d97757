"""The page about push is right: the real `nats` prints what each line shows, and its Java runs."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.pages import blocks
from tests.peers import MQ9, Server, start, until

ROOT = Path(__file__).parents[2]
TOOLS = ROOT / ".build" / "go" / "bin"
PAGE = "docs/guides/push.md"
DEADLINE_S = 60

needs_nats = pytest.mark.skipif(
    not (TOOLS / "nats").exists(),
    reason="needs the nats command line: make nats-cli (builds it with Go)",
)
needs_java = pytest.mark.skipif(
    not all(shutil.which(tool) for tool in ("java", "javac", "mvn")),
    reason="needs Java with javac, and Maven",
)

PLACEHOLDERS = {
    "<seconds>": r"[1-9]\d{9}",
    "<address>": r"[a-z0-9]{25,128}",
    "<token>": r"tok-[0-9a-f]{32}",
}
JNATS = "io.nats:jnats:2.20.5"

# What the two documents that describe push show; the page has addresses that can be written down.
COVERED = (
    """nats req '$mq9.AI.MAILBOX.CREATE' '{"type": "standard", "ttl": 3600}'""",
    "nats req '$mq9.AI.MAILBOX.QUERY.m.uuid.001' ",
    """nats pub '$mq9.AI.INBOX.m.uuid.001.normal' '{"from": "m.uuid.002", "type": "task_result", """
    """"correlation_id": "req-uuid-001", "reply_to": "$mq9.AI.INBOX.m.uuid.002.normal", """,
    """nats pub '$mq9.AI.INBOX.m.uuid.001.urgent' '{"from": "m.uuid.003", "type": "emergency""",
    "nats sub '$mq9.AI.INBOX.m.uuid.001.*'",
    "nats sub '$mq9.AI.INBOX.m.uuid.001.urgent'",
    "nats pub '$mq9.AI.BROADCAST.system.anomaly' '{",
    "nats sub '$mq9.AI.BROADCAST.system.*'",
    "nats sub '$mq9.AI.BROADCAST.*.anomaly'",
    "nats sub '$mq9.AI.BROADCAST.#'",
    "nats sub '$mq9.AI.BROADCAST.task.available' --queue task.workers",
    "nats pub '$mq9.AI.MAILBOX.MSG.task.queue.critical'",
    "nats pub '$mq9.AI.MAILBOX.MSG.task.queue.urgent'",
    "nats pub '$mq9.AI.MAILBOX.MSG.task.queue' ",
    """{"name": "task.queue", "ttl": 3600, "public": true}""",
    """{"ttl": 3600, "public": false}""",
    "nats sub '$mq9.AI.MAILBOX.MSG.task.queue.*' --queue workers --raw --count 1 &\n"
    "nats sub '$mq9.AI.MAILBOX.MSG.task.queue.*' --queue workers",
    "-H mq9-persist:true",
    "nats req '$mq9.AI.MAILBOX.DELETE.task.queue.2'",
    "nats req '$mq9.AI.PUBLIC.LIST'",
)


def steps() -> list[tuple[str, str]]:
    """All lines of the page with what they print."""
    parts = [re.split(r"^\$ ", block, flags=re.MULTILINE)[1:] for block in blocks(PAGE, "console")]
    pairs = [part.partition("\n") for block in parts for part in block]
    return [(command, shown.rstrip("\n")) for command, _, shown in pairs]


STEPS = steps()


class Shell:
    """One shell that runs line after line, with commands in the background."""

    def __init__(self, server: Server, folder: Path) -> None:
        kept = {key: value for key, value in os.environ.items() if not key.startswith("NATS_")}
        path = {"PATH": f"{TOOLS}{os.pathsep}{os.environ['PATH']}"}
        home = {"HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
        self.environment = kept | path | home | {"NATS_URL": server.url}
        self.server = server
        self.folder = folder
        self.background: list[subprocess.Popen[str]] = []

    def run(self, command: str) -> str:
        """What the line prints."""
        if command.endswith(" &"):
            self._start(command.removesuffix(" &"))
            return ""
        if command == "wait":
            waited, self.background = self.background, []
            return "\n".join(each.communicate(timeout=DEADLINE_S)[0] for each in waited)
        if re.match(r"\w+=", command):
            done = self._shell(f'{command}; printf %s "${command.partition("=")[0]}"')
            self.environment[command.partition("=")[0]] = done
            return ""
        return self._shell(command)

    def close(self) -> None:
        for each in self.background:
            each.kill()
            each.communicate()

    def _shell(self, command: str) -> str:
        done = subprocess.run(
            ["/bin/sh", "-c", command],
            env=self.environment,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout

    def _start(self, command: str) -> None:
        before = self.server.listeners()
        process = subprocess.Popen(
            ["/bin/sh", "-c", f"exec {command}"],
            env=self.environment,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.background.append(process)

        def listens() -> bool:
            # One that was given what it waits for may have ended already.
            return bool(self.server.listeners() - before) or process.poll() is not None

        until(listens, f"{command} listens", DEADLINE_S)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = start(tmp_path_factory.mktemp("page"), "http: 127.0.0.1:-1", peer=MQ9)
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="module")
def printed(broker: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    shell = Shell(broker, tmp_path_factory.mktemp("shell"))
    try:
        yield [shell.run(command) for command, _ in STEPS]
    finally:
        shell.close()


@needs_nats
@pytest.mark.parametrize("number", range(len(STEPS)), ids=[command for command, _ in STEPS])
def test_a_line_prints_what_the_page_shows(printed: list[str], number: int) -> None:
    pattern = re.escape(STEPS[number][1])
    for placeholder, allowed in PLACEHOLDERS.items():
        pattern = pattern.replace(re.escape(placeholder), allowed)
    output = "\n".join(line for line in printed[number].splitlines() if line)
    assert re.fullmatch(pattern, output), f"{output}\n  is not\n{STEPS[number][1]}"


def test_the_examples_of_the_documents_are_covered() -> None:
    page = "\n".join(command for command, _ in STEPS)
    assert [part for part in COVERED if part not in page] == []


@needs_java
def test_the_java_of_the_page_runs(broker: Server, tmp_path: Path) -> None:
    [source] = blocks(PAGE, "java")
    jars = tmp_path / "jars"
    (tmp_path / "Push.java").write_text(source, "utf-8")
    group, name, version = JNATS.split(":")
    (tmp_path / "pom.xml").write_text(
        f"""<project><modelVersion>4.0.0</modelVersion>
        <groupId>page</groupId><artifactId>page</artifactId><version>1</version><dependencies>
        <dependency><groupId>{group}</groupId><artifactId>{name}</artifactId>
        <version>{version}</version></dependency></dependencies></project>""",
        "utf-8",
    )
    copy = "dependency:copy-dependencies"
    got = subprocess.run(
        ["mvn", "-q", "-B", copy, f"-DoutputDirectory={jars}", "-DincludeScope=runtime"],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if got.returncode:
        pytest.skip(f"Maven does not get {JNATS}: {got.stdout.splitlines()[:1]}")
    ran = subprocess.run(
        ["java", "-cp", f"{jars}/*", str(tmp_path / "Push.java")],
        env={**os.environ, "NATS_URL": broker.url},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    sent = '{"from":"m.uuid.002","type":"task_result","payload":"done","ts":1234567890}'
    first, second, *others = ran.stdout.splitlines()
    assert [first, second] == [f"Received: {sent}", "Messages: []}"]
    # Each in a thread of its own.
    assert sorted(others) == [
        'Alert received: {"severity":"high"}',
        'Claimed task: {"task_id":"t-001","type":"data_analysis"}',
    ]
