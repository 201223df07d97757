"""The command line against a running broker: what it prints, and how it ends."""

import http.server
import io
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.peers import NATS_SERVER, Serve, Server, until

from mq9.cli import main
from mq9.store import Store

DEADLINE_S = 60
Mq9 = Callable[..., subprocess.CompletedProcess[str]]


def run(url: str, *arguments: str, **options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mq9", *arguments],
        env={**os.environ, "MQ9_URL": url, "TZ": "UTC"},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
        input=options.get("input", ""),
    )


@pytest.fixture
def mq9(server: Server) -> Mq9:
    def mq9(*arguments: str, **options: str) -> subprocess.CompletedProcess[str]:
        return run(server.url, *arguments, **options)

    return mq9


@pytest.fixture
def inbox(mq9: Mq9) -> str:
    created = mq9("mailbox", "create")
    assert created.returncode == 0, created.stderr
    return created.stdout.strip()


@pytest.fixture(scope="module")
def shared_inbox(server: Server) -> str:
    return printed(run(server.url, "mailbox", "create")).strip()


def printed(done: subprocess.CompletedProcess[str], status: int = 0) -> str:
    assert (done.stderr, done.returncode) == ("", status)
    return done.stdout


def columns(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_a_message_goes_in_and_comes_out(mq9: Mq9, inbox: str) -> None:
    sent = mq9(
        *("send", inbox, "hello world", "--priority", "urgent", "--key", "k"),
        *("--tag", "a", "--tag", "b", "-H", "Trace: 1:2", "--ttl", "500"),
    )
    assert printed(sent) == "0\n"
    assert printed(mq9("send", inbox, "two\nlines")) == "1\n"
    rows = columns(printed(mq9("fetch", inbox, "--deliver", "earliest")))
    assert rows[0] == ["ID", "PRIORITY", "SENT", "KEY", "TAGS", "PAYLOAD"]
    assert [rows[1][:2], rows[1][4:]] == [["0", "urgent"], ["k", "a,b", "hello", "world"]]
    assert [rows[2][:2], rows[2][4:]] == [["1", "normal"], ["two\\nlines"]]
    first, second = json.loads(printed(mq9("query", inbox, "--json")))
    assert 0 < first.pop("expires_at") - first.pop("create_time") <= 501
    assert first == {
        "msg_id": 0,
        "payload": "hello world",
        "priority": "urgent",
        "key": "k",
        "tags": ["a", "b"],
        "headers": {"Trace": "1:2"},
    }
    assert second["payload"] == "two\nlines"
    assert printed(mq9("query", inbox, "--key", "k", "--payload")) == "hello world\n"
    assert printed(mq9("query", inbox, "--tag", "b", "--tag", "z", "--payload")) == "hello world\n"
    assert printed(mq9("query", inbox, "--after", "0", "--payload")) == "two\nlines\n"


def test_payloads_come_from_arguments_files_and_the_input(
    mq9: Mq9, inbox: str, tmp_path: Path
) -> None:
    file = tmp_path / "payload"
    file.write_bytes(b"\x00\xff")
    assert printed(mq9("send", inbox, "--file", str(file))) == "0\n"
    assert printed(mq9("send", inbox, "-", input="from the input\n")) == "1\n"
    assert printed(mq9("send", inbox, "-", "--lines", input="a\nb\n")) == "2\n3\n"
    assert json.loads(printed(mq9("send", inbox, "x", "--count", "3", "--json"))) == {
        "msg_ids": [4, 5, 6]
    }
    assert printed(mq9("send", inbox, "later", "--delay", "60")) == "1 delayed by 60 s\n"
    assert json.loads(printed(mq9("send", inbox, "x", "--delay", "60", "--json"))) == {
        "msg_id": None
    }
    entries = json.loads(printed(mq9("query", inbox, "--json")))
    assert (entries[0]["payload"], entries[0]["encoding"]) == ("AP8=", "base64")
    assert [entry["payload"] for entry in entries[1:]] == ["from the input\n", "a", "b", *"xxx"]
    assert "<2 bytes: 00 ff>" in printed(mq9("query", inbox))


def test_a_group_goes_on_behind_what_was_acknowledged(mq9: Mq9, inbox: str) -> None:
    mq9("send", inbox, "-", "--lines", input="a\nb\nc\nd\n")
    take = ("fetch", inbox, "--group", "g", "--deliver", "earliest", "--payload")
    assert printed(mq9(*take, "-n", "2")) == "a\nb\n"
    assert printed(mq9("ack", inbox, "1", "--group", "g")) == "acknowledged 1\n"
    assert printed(mq9(*take, "-n", "1", "--ack")) == "c\n"
    assert printed(mq9(*take)) == "d\n"
    nak = mq9("ack", inbox, "3", "-g", "g", "--kind", "nak", "--delay", "60", "--json")
    assert json.loads(printed(nak)) == {"kind": "nak", "msg_ids": [3]}
    nothing = mq9(*take, "--wait", "0")
    assert (nothing.stdout, nothing.returncode) == ("", 5)


def test_what_is_deleted_is_gone(mq9: Mq9, inbox: str) -> None:
    mq9("send", inbox, "x", "--count", "2")
    assert printed(mq9("delete", inbox, "0")) == "deleted 0\n"
    again = mq9("delete", inbox, "0", "1")
    assert (again.stdout, again.returncode) == ("deleted 1\n", 1)
    assert "message not found: 0" in again.stderr
    empty = mq9("query", inbox)
    assert (empty.stdout, empty.stderr, empty.returncode) == ("", "no messages\n", 5)
    assert (mq9("query", inbox, "--json").stdout) == "[]\n"


def test_tail_follows_and_stops(server: Server, mq9: Mq9, inbox: str) -> None:
    mq9("send", inbox, "-", "--lines", input="a\nb\nc\n")
    rows = columns(printed(mq9("tail", inbox, "-n", "2")))
    assert rows[0] == ["ID", "SENT", "PRIORITY", "PAYLOAD"]
    assert [row[-1] for row in rows[1:]] == ["b", "c"]
    assert printed(mq9("tail", inbox, "-n", "0")) == ""
    following = subprocess.Popen(
        [sys.executable, "-m", "mq9", "tail", "-f", "-n", "1", "--json", inbox, "-s", server.url],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert following.stdout is not None
    try:
        seen = [json.loads(following.stdout.readline())["payload"]]
        mq9("send", inbox, "low", "--priority", "notify")
        mq9("send", inbox, "high", "--priority", "critical")
        seen += [json.loads(following.stdout.readline())["payload"] for _ in range(2)]
        assert seen == ["c", "low", "high"]
        following.send_signal(signal.SIGINT)
        rest, errors = following.communicate(timeout=DEADLINE_S)
        assert (rest, errors, following.returncode) == ("", "", 130)
    finally:
        following.kill()
        following.communicate()


OPERATORS = (
    "authorization { users = [ { user: me, password: secret }, { user: op, password: secret, "
    'permissions: { publish: ["$mq9.AI.>", "$mq9.AI.ADMIN.>"] } } ] }'
)


def test_operators_list_and_show_mailboxes(serve: Serve) -> None:
    url = serve(OPERATORS).url
    op = ("--user", "op", "--password", "secret")
    assert run(url, "mailbox", "list", *op).returncode == 5
    options = ("--ttl", "1000", "--desc", "what to do", "--max-msgs", "10", "--discard", "new")
    assert printed(run(url, "mailbox", "create", "a", *options, *op)) == "a\n"
    run(url, "mailbox", "create", "b", "--public", "--latest", *op)
    run(url, "send", "a", "x", "--count", "3", *op)
    run(url, "fetch", "a", "-g", "g", "-n", "1", "--deliver", "earliest", *op)
    listed = columns(printed(run(url, "mailbox", "list", *op)))
    assert [row[:2] for row in listed] == [["ADDRESS", "MESSAGES"], ["a", "3"], ["b", "0"]]
    assert listed[1][-3:] == ["what", "to", "do"]
    shown = printed(run(url, "mailbox", "show", "a", *op))
    for line in ("description  what to do", "max msgs     10", "discard      new"):
        assert line in shown
    assert columns(shown)[-1] == ["g", "1", "2"]
    details = json.loads(printed(run(url, "mailbox", "show", "a", "--json", *op)))
    assert (details["mail_address"], details["next_id"]) == ("a", 3)
    assert details["groups"] == [{"name": "g", "pending": 1, "lag": 2}]
    lives = ("--message-ttl", "urgent=60", "--message-ttl", "10=5")
    printed(run(url, "mailbox", "update", "a", *lives, *op))
    shown = printed(run(url, "mailbox", "show", "a", *op))
    assert "message ttls urgent 60 s, 10 5 s" in " ".join(shown.split())
    wrong = run(url, "mailbox", "update", "a", "--message-ttl", "urgent", *op)
    assert "expected a priority and seconds" in wrong.stderr
    refused = run(url, "mailbox", "update", "a", "--message-ttl", "none=5", *op)
    assert 'message_ttls has a life for "none"' in refused.stderr
    me = ("--user", "me", "--password", "secret")
    denied = run(url, "mailbox", "list", *me)
    assert denied.returncode == 1
    assert "permission denied" in denied.stderr
    public = json.loads(printed(run(url, "mailbox", "list", "--public", "--json", *me)))
    assert [mailbox["mail_address"] for mailbox in public] == ["b"]
    stranger = run(url, "mailbox", "list")
    assert stranger.returncode == 3
    assert "refused the connection" in stranger.stderr
    assert "--user" in stranger.stderr


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (("send", "no.such", "x"), 1, "mailbox no.such does not exist\n`mq9 mailbox create`"),
        (("send", "Upper", "x"), 1, "invalid mail_address"),
        (("send", "a b", "x"), 1, "invalid mail_address"),
        (("ack", "{inbox}", "7", "-g", "g"), 1, "group g has not been given msg_id 7"),
        (("fetch", "{inbox}", "--min-priority", "soon"), 1, "it must be critical, urgent"),
        (("fetch", "{inbox}", "-n", "0"), 2, "max_msgs must be at least 1"),
        (("mailbox", "create", "{inbox}"), 1, "already exists\nChoose another name"),
        (("mailbox", "create", "task-001"), 1, "invalid mail_address"),
        (("send", "{inbox}"), 2, "give the message as an argument"),
        (("send", "{inbox}", "x", "--file", "y"), 2, "give the message as an argument"),
        (("send", "{inbox}", "--file", "no/such/file"), 2, "cannot read no/such/file"),
        (("send", "{inbox}", "x", "--lines"), 2, "--lines goes with"),
        (("send", "{inbox}", "-", "--lines"), 2, "no lines"),
        (("send", "{inbox}", "x", "-H", "nonsense"), 2, "expected NAME:VALUE"),
        (("send", "{inbox}", "x", "--count", "0"), 2, "--count is 0"),
        (("fetch", "{inbox}", "--ack"), 2, "--ack needs --group"),
        (("ack", "{inbox}", "1", "-g", "g", "--delay", "5"), 2, "--delay goes with --kind nak"),
        (("tail", "{inbox}", "-n", "-1"), 2, "must not be negative"),
        (("agent", "register", "[]"), 2, 'a JSON object with "mailbox"'),
        (("agent", "register", "{{"), 2, "this is no JSON"),
        (("agent", "report"), 2, "give the JSON as an argument"),
        (("fetch", "{inbox}", "--timeout", "soon"), 2, "expected a number of seconds"),
        (("fetch",), 2, "required: address"),
        (("nonsense",), 2, "there is no command"),
    ],
)
def test_failures_say_what_and_end_with_their_code(
    server: Server,
    shared_inbox: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    status: int,
    words: str,
) -> None:
    monkeypatch.setenv("MQ9_URL", server.url)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO()))
    ended = main([argument.replace("{inbox}", shared_inbox) for argument in arguments])
    out, err = capsys.readouterr()
    assert words in err
    assert (out, ended) == ("", status)


def test_a_mailbox_may_be_there_already(mq9: Mq9, inbox: str) -> None:
    done = mq9("mailbox", "create", inbox, "--if-missing", "--json")
    assert json.loads(printed(done)) == {"mail_address": inbox}


def test_no_broker_and_one_that_does_not_answer(serve: Serve) -> None:
    nobody = run("nats://127.0.0.1:1", "send", "a", "x")
    assert nobody.returncode == 3
    assert "cannot connect to nats://127.0.0.1:1" in nobody.stderr
    assert "Is the broker running there?" in nobody.stderr
    plain = run(serve(peer=NATS_SERVER).url, "send", "a", "x")
    assert plain.returncode == 3
    assert "it is no mq9 broker" in plain.stderr
    deaf = serve()
    # Connected, and then no answer.
    waiting = subprocess.Popen(
        [sys.executable, "-m", "mq9", "send", "a", "-", "-s", deaf.url, "--timeout", "1"],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deaf.signal(signal.SIGSTOP)
    try:
        _, said = waiting.communicate("x", timeout=DEADLINE_S)
    finally:
        deaf.signal(signal.SIGCONT)
    assert waiting.returncode in {3, 4}
    assert "no answer" in said


def test_agents_are_registered_found_and_removed(mq9: Mq9, tmp_path: Path) -> None:
    tag = secrets.token_hex(8)
    first, second = f"agent.{tag}.one", f"agent.{tag}.two"
    card = {"mailbox": first, "name": f"Scribe {tag}", "tags": [tag, "pen\x1b[31m"]}
    assert printed(mq9("agent", "register", json.dumps(card))) == f"registered {first}\n"
    file = tmp_path / "card.json"
    file.write_text(json.dumps({"mailbox": second, "name": "Other", "tags": [tag]}))
    assert printed(mq9("agent", "register", "--file", str(file))) == f"registered {second}\n"
    report = json.dumps({"mailbox": second, "load": 1})
    assert printed(mq9("agent", "report", report)) == f"reported {second}\n"
    lines = printed(mq9("agent", "list", "--tag", tag, "--alive")).splitlines()
    assert lines[0].split() == ["NAME", "MAILBOX", "LAST", "SEEN", "ALIVE", "TAGS"]
    assert lines[1].startswith(f"Scribe {tag}  {first}  20")
    assert lines[1].endswith(f"yes    {tag},pen\\x1b[31m")
    assert lines[2].startswith("Other ")
    listed = printed(mq9("agent", "list", "--tag", tag, "-n", "1"))
    assert listed.endswith("1 of 2 agents; --page and --limit show others\n")
    found = json.loads(printed(mq9("agent", "find", tag, "--json")))
    assert [each["mailbox"] for each in found] == [first, second]
    assert printed(mq9("agent", "remove", first)) == f"removed {first}\n"
    gone = mq9("agent", "unregister", first)
    assert (gone.returncode, gone.stdout) == (1, "")
    assert "is not registered" in gone.stderr
    nobody = mq9("agent", "discover", f"Scribe{tag}")
    assert (nobody.returncode, nobody.stderr) == (5, "no agents\n")


class A2aAgent(http.server.BaseHTTPRequestHandler):
    """Publishes its card where older versions of A2A did."""

    def do_GET(self) -> None:
        if self.path != "/.well-known/agent.json":
            self.send_error(404)
            return
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"name": "Far Away", "skills": []}).encode())

    def log_message(self, *_: object) -> None:
        pass


def test_a_card_is_imported_from_an_a2a_agent_or_a_file(mq9: Mq9, tmp_path: Path) -> None:
    mailbox = f"agent.{secrets.token_hex(8)}"
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), A2aAgent) as site:
        threading.Thread(target=site.serve_forever).start()
        url = f"http://127.0.0.1:{site.server_port}"
        try:
            done = mq9("agent", "import", url, "--mailbox", mailbox, "--ttl", "60")
            missing = mq9("agent", "import", f"{url}/nothing")
        finally:
            site.shutdown()
    assert printed(done) == f"registered {mailbox}\n"
    assert missing.returncode == 1
    assert "404" in missing.stderr
    [found] = json.loads(printed(mq9("agent", "find", mailbox, "--json")))
    assert found == {"name": "Far Away", "skills": [], "mailbox": mailbox, "ttl": 60}
    file = tmp_path / "agent-card.json"
    file.write_text(json.dumps({"name": "Here", "mailbox": mailbox}))
    assert printed(mq9("agent", "import", str(file))) == f"registered {mailbox}\n"
    file.write_text(json.dumps({"name": "Here"}))
    for arguments, status, text in (
        ((str(file),), 2, "--mailbox"),
        ((str(tmp_path / "none"),), 2, "cannot read"),
        (("http://127.0.0.1:1/card",), 3, "cannot fetch"),
    ):
        refused = mq9("agent", "import", *arguments)
        assert refused.returncode == status
        assert text in refused.stderr


def test_version_in_both_forms() -> None:
    text = printed(run("", "version"))
    assert printed(run("", "--version")) == text
    assert text.startswith("mq9 ")
    assert json.loads(printed(run("", "version", "--json"))) == {"version": text.split()[1]}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    with Store(folder, maintain_every_ms=0) as store:
        for address in ("a", "b"):
            store.create_mailbox(address)
            for number in range(100):
                store.send(address, f"{address} message {number}".encode())
        for number in range(50):
            store.delete("b", number)
    return folder


def test_doctor_says_what_is_there(data: Path) -> None:
    done = run("", "doctor", str(data))
    told = dict(line.split(maxsplit=1) for line in printed(done).splitlines())
    assert (told["mailboxes"], told["damage"]) == ("2", "none")
    assert told["messages"].startswith("150 (")
    report = json.loads(printed(run("", "doctor", str(data), "--json")))
    assert (report["mailboxes"], report["messages"], report["damage"]) == (2, 150, [])
    assert 0 < report["reclaimable_bytes"] < report["log_bytes"]
    lengths = [len(f"a message {n}") for n in range(100)]
    assert report["payload_bytes"] == sum(lengths) + sum(lengths[50:])


def test_doctor_finds_a_message_that_was_damaged_on_the_disk(data: Path) -> None:
    [segment] = data.glob("segment-*.log")
    content = bytearray(segment.read_bytes())
    at = content.index(b"a message 42")
    content[at] ^= 0xFF
    segment.write_bytes(content)
    done = run("", "doctor", str(data))
    assert (done.stderr, done.returncode) == ("", 1)
    assert "damage       1 place" in done.stdout
    assert segment.name in done.stdout
    assert "set aside" not in done.stdout
    # Nothing was changed: it is found again, and by the broker.
    again = json.loads(printed(run("", "doctor", str(data), "--json"), 1))
    [damage] = again["damage"]
    assert (again["messages"], damage["mailbox"], damage["messages"]) == (149, "a", 1)
    assert again["files"]["set_aside"]["count"] == 0


def test_doctor_shows_on_a_terminal_how_far_it_is(data: Path) -> None:
    reading, terminal = os.openpty()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "mq9", "doctor", str(data)],
            stdout=subprocess.PIPE,
            stderr=terminal,
            timeout=DEADLINE_S,
            check=True,
        )
        shown = os.read(reading, 65536).decode()
    finally:
        os.close(reading)
        os.close(terminal)
    assert re.match(r"\r\[#+-*\] +\d+%  100 of 150 messages", shown)
    assert shown.endswith("\r\x1b[K")
    assert b"damage       none" in done.stdout


def test_doctor_leaves_a_directory_in_use_alone(data: Path) -> None:
    with Store(data, maintain_every_ms=0):
        before = {file.name: file.stat().st_mtime_ns for file in data.iterdir()}
        done = run("", "doctor", str(data))
        assert done.returncode == 3
        assert "A broker has it open" in done.stdout
        assert json.loads(run("", "doctor", str(data), "--json").stdout)["in_use"] is True
        assert {file.name: file.stat().st_mtime_ns for file in data.iterdir()} == before


def test_doctor_makes_no_directory(tmp_path: Path) -> None:
    for folder, words in ((tmp_path / "no", "no directory"), (tmp_path, "no data of mq9")):
        done = run("", "doctor", str(folder))
        assert (done.stdout, done.returncode) == ("", 2)
        assert words in done.stderr
    assert list(tmp_path.iterdir()) == []


def complete(script: str, line: str) -> set[str]:
    """What bash offers at the end of a line."""
    words = line.split(" ")
    script = (
        f"{script}\nCOMP_WORDS=({' '.join(map(repr, words))})\nCOMP_CWORD={len(words) - 1}\n"
        '_mq9\nprintf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    bash = shutil.which("bash")
    assert bash
    done = subprocess.run(
        [bash, "-c", script],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    return set(printed(done).split())


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("mq9 mailbox cr", {"create"}),
        ("mq9 send inbox --pri", {"--priority"}),
        ("mq9 ack inbox --kind ", {"ack", "nak", "progress", "term"}),
        ("mq9 completion z", {"zsh"}),
        ("mq9 serve --da", {"--data"}),
        ("mq9 send --priority ", set()),
        ("mq9 do", {"doctor"}),
    ],
)
def test_bash_completes_commands_options_and_values(
    capsys: pytest.CaptureFixture[str], line: str, offered: set[str]
) -> None:
    assert main(["completion", "bash"]) == 0
    assert complete(capsys.readouterr().out, line) == offered


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_have_a_script_with_every_command(shell: str, tmp_path: Path) -> None:
    script = printed(run("", "completion", shell))
    for word in ("mailbox", "create", "doctor", "priority", "nak", "progress"):
        assert word in script
    if found := shutil.which(shell):
        (tmp_path / "script").write_text(script)
        done = subprocess.run([found, "-n", str(tmp_path / "script")], check=False, timeout=60)
        assert done.returncode == 0


def test_a_reader_that_has_enough_is_no_error(server: Server, mq9: Mq9, inbox: str) -> None:
    mq9("send", inbox, "-", "--lines", input="x" * 1000 + "\n")
    mq9("send", inbox, "x" * 1000, "--count", "500")
    reading = subprocess.Popen(
        [sys.executable, "-m", "mq9", "query", inbox, "--payload", "-s", server.url],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert reading.stdout is not None
    assert reading.stderr is not None
    reading.stdout.readline()
    reading.stdout.close()
    until(lambda: reading.poll() is not None, "the command ended", DEADLINE_S)
    assert reading.stderr.read() == b""
    reading.stderr.close()


def test_commands_load_only_what_they_need() -> None:
    code = (
        "import sys, mq9.cli; mq9.cli.main(['version']); "
        "assert not {'nats', 'pydantic', 'uvloop'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, stdout=subprocess.DEVNULL)
