"""Commands that look at a broker and change what it holds."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable

import pytest
from tests.mail import Mail
from tests.peers import Serve, Server

import mq9

DEADLINE_S = 120
Mq9 = Callable[..., subprocess.CompletedProcess[str]]


def run(url: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mq9", *arguments],
        env={**os.environ, "MQ9_URL": url, **environment},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
        stdin=subprocess.DEVNULL,
    )


@pytest.fixture
def cli(server: Server) -> Mq9:
    def cli(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return run(server.url, *arguments, **environment)

    return cli


def told(done: subprocess.CompletedProcess[str], status: int = 0) -> str:
    assert done.returncode == status, done.stderr
    return done.stdout


def test_options_of_the_broker_stand_before_or_behind_the_command(server: Server) -> None:
    nowhere = "nats://127.0.0.1:1"
    for arguments in (
        ("-s", server.url, "--json", "mailbox", "list", "--public"),
        ("mailbox", "list", "--public", "--json", "-s", server.url),
        # What stands behind it counts.
        ("-s", nowhere, "--json", "mailbox", "list", "--public", "-s", server.url),
    ):
        assert isinstance(json.loads(run(nowhere, *arguments).stdout), list)


@pytest.mark.parametrize(
    ("wrong", "guess"),
    [
        (("maibox", "list"), "'mailbox'"),
        (("mailbox", "craete"), "'create'"),
        (("send", "a", "b", "--prioritty", "1"), "'--priority'"),
        (("fetch", "a", "--deliver", "earlyest"), "'earliest'"),
    ],
)
def test_a_wrong_word_is_answered_with_a_guess(
    cli: Mq9, wrong: tuple[str, ...], guess: str
) -> None:
    done = cli(*wrong)
    assert done.returncode == 2
    assert f"did you mean {guess}" in done.stderr


def test_without_a_command_the_commands_are_listed(cli: Mq9) -> None:
    done = cli()
    assert (done.returncode, done.stdout) == (2, "")
    assert "start the broker" in done.stderr


def every_help(*path: str) -> list[tuple[str, ...]]:
    text = told(run("nats://127.0.0.1:1", *path, "--help"))
    listed = text.partition("positional arguments:")[2].partition("options:")[0]
    if not re.search(r"^  command$", listed, re.MULTILINE):
        return [path]
    names = re.findall(r"^    ([a-z]+)", listed, re.MULTILINE)
    return [path, *(deep for name in names for deep in every_help(*path, name))]


def test_every_help_has_an_example() -> None:
    screens = every_help()
    assert len(screens) > 25
    for path in screens:
        text = told(run("nats://127.0.0.1:1", *path, "--help"))
        assert f"example:\n  {' '.join(('mq9', *path))}" in text or "example:\n" in text, path
        # Said once, in the help of mq9 itself.
        assert ("--tls-ca" in text) == (path == ()), path


def test_an_empty_fetch_of_a_full_mailbox_says_why(cli: Mq9) -> None:
    address = told(cli("mailbox", "create")).strip()
    assert cli("fetch", address, "--wait", "0").stderr == "no messages\n"
    told(cli("send", address, "hello"))
    assert "--deliver earliest" in cli("fetch", address, "--wait", "0").stderr
    assert "--force" in cli("fetch", address, "--group", "g", "--wait", "0").stderr
    assert "holds messages" not in cli("fetch", address, "--wait", "0", "--json").stderr


def test_status_and_ping(server: Server, cli: Mq9) -> None:
    shown = json.loads(told(cli("status", "--json")))
    assert shown["operator"] is True
    assert (shown["version"], shown["writes_stopped"]) == (mq9.__version__, "")
    assert shown["mailboxes"] >= 0
    assert server.url.removeprefix("nats://") in told(cli("status"))
    assert len(told(cli("ping", "-n", "2", "--interval", "0.01")).splitlines()) == 3


def test_status_of_who_is_no_operator(serve: Serve) -> None:
    server = serve("authorization { user: u, password: p }")
    url = server.url.replace("nats://", "nats://u:p@")
    shown = json.loads(told(run(url, "status", "--json")))
    assert shown["operator"] is False
    assert "mailboxes" not in shown
    assert "is for operators" in told(run(url, "status"))


def test_published_and_listened_to(server: Server, cli: Mq9) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "mq9", "sub", "plain.>", "--count", "2"],
        env={**os.environ, "MQ9_URL": server.url},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as listening:
        assert listening.stderr is not None
        assert listening.stdout is not None
        assert "listening to plain.>" in listening.stderr.readline()
        assert told(cli("pub", "plain.a", "one")) == "published 3 bytes to plain.a\n"
        told(cli("pub", "plain.b", "two", "-H", "Trace: 1"))
        assert listening.wait(DEADLINE_S) == 0
        assert listening.stdout.read() == "plain.a  one\nplain.b  two\n"
    listed = cli("request", "$mq9.AI.PUBLIC.LIST", "{}")
    assert json.loads(told(listed))["error"] == ""
    assert "nobody answers" in cli("request", "no.body", "x").stderr
    denied = cli("sub", "$mq9.AI.MSG.>", "--count", "1")
    assert denied.returncode == 1
    assert "permissions violation" in denied.stderr.lower()


def test_mailboxes_are_updated_purged_and_deleted(cli: Mq9) -> None:
    address = told(cli("mailbox", "create", "--desc", "old")).strip()
    told(cli("send", address, "-", "--lines", "--file", os.devnull), 2)
    for number in range(3):
        told(cli("send", address, str(number)))
    assert told(cli("mailbox", "update", address, "--desc", "new")) == f"updated {address}\n"
    assert json.loads(told(cli("mailbox", "show", address, "--json")))["desc"] == "new"
    assert "nothing to change" in cli("mailbox", "update", address).stderr
    unasked = cli("mailbox", "purge", address)
    assert (unasked.returncode, "--yes" in unasked.stderr) == (2, True)
    assert told(cli("mailbox", "purge", address, "--yes")) == f"purged 3 messages of {address}\n"
    assert told(cli("mailbox", "delete", address, "--yes")) == f"deleted {address}\n"
    assert cli("query", address).returncode == 1


def test_delayed_messages_are_listed_and_cancelled(cli: Mq9) -> None:
    address = told(cli("mailbox", "create")).strip()
    assert cli("query", address, "--delayed").returncode == 5
    told(cli("send", address, "later", "--delay", "3600"))
    [listed] = json.loads(told(cli("query", address, "--delayed", "--json")))
    assert listed["payload"] == "later"
    # Both are whole seconds.
    assert listed["due_time"] - listed["create_time"] in (3600, 3601)
    rows = told(cli("query", address, "--delayed")).splitlines()
    assert rows[1].split()[0] == f"d{listed['delay_id']}"
    told(cli("delete", address, rows[1].split()[0]))
    assert cli("query", address, "--delayed").returncode == 5
    assert cli("delete", address, "x7").returncode == 2


def test_the_token_stands_for_the_owner(serve: Serve) -> None:
    server = serve("authorization { user: u, password: p }")
    url = server.url.replace("nats://", "nats://u:p@")
    made = json.loads(told(run(url, "mailbox", "create", "mine", "--show-token", "--json")))
    assert made["mail_address"] == "mine"
    assert run(url, "mailbox", "delete", "mine", "--yes").returncode == 1
    told(run(url, "fetch", "mine", "--group", "g", "--wait", "0"), 5)
    assert run(url, "group", "list", "mine").returncode == 1
    rows = told(run(url, "group", "list", "mine", "--mailbox-token", made["token"]))
    assert [row.split() for row in rows.splitlines()] == [["GROUP", "UNACKNOWLEDGED"], ["g", "0"]]
    told(run(url, "group", "remove", "mine", "g", "--mailbox-token", made["token"]))
    none = run(url, "group", "list", "mine", "--json", "--mailbox-token", made["token"])
    assert (none.returncode, json.loads(none.stdout)) == (5, [])
    told(run(url, "mailbox", "delete", "mine", "--yes", MQ9_MAILBOX_TOKEN=made["token"]))


def test_dead_letters_are_listed_shown_and_replayed(cli: Mq9) -> None:
    dead = told(cli("mailbox", "create")).strip()
    work = told(cli("mailbox", "create", "--max-deliver", "1", "--dead-letter", dead)).strip()
    for text in ("first", "second"):
        told(cli("send", work, text, "-p", "urgent", "-H", "Trace: 7", "-t", "a", "--id", text))
    told(cli("fetch", work, "--group", "g", "--deliver", "earliest"))
    told(cli("ack", work, "0", "1", "--group", "g", "--kind", "term"))
    rows = told(cli("dead", "list", dead)).splitlines()
    assert rows[0].split()[:3] == ["ID", "REASON", "FROM"]
    assert rows[1].split()[:6] == ["0", "terminated", work, "0", "g", "1"]
    shown = told(cli("dead", "show", dead, "1"))
    assert re.search(r"^reason +terminated$", shown, re.MULTILINE)
    assert re.search(r"^header Trace +7$", shown, re.MULTILINE)
    assert shown.endswith("\n\nsecond\n")
    assert told(cli("dead", "replay", dead, "0")) == "replayed 1\n"
    assert json.loads(told(cli("dead", "replay", dead, "--all", "--json")))["failed"] == []
    assert cli("dead", "list", dead).returncode == 5
    again = json.loads(told(cli("query", work, "--after", "1", "--json")))
    assert [(one["payload"], one["priority"], one["tags"]) for one in again] == [
        ("first", "urgent", ["a"]),
        ("second", "urgent", ["a"]),
    ]
    assert [one["headers"]["Trace"] for one in again] == ["7", "7"]
    # The id of the first sending is not that of the next.
    assert [one["headers"].get("mq9-id") for one in again] == [None, None]
    assert cli("dead", "replay", dead).returncode == 2
    assert "no dead letter" in cli("dead", "show", work, "2").stderr


USERS = """
authorization {
  users = [
    { user: boss, password: boss-pw, permissions: { publish: [">", "$mq9.AI.ADMIN.>"] } }
    { user: agent, password: agent-pw }
  ]
}
"""


@pytest.mark.parametrize("user", ["boss", "agent"])
def test_letters_of_a_mailbox_made_again_are_sent_though_their_numbers_are_known(
    serve: Serve, user: str
) -> None:
    """Operators replay in one step; who is none sends, then deletes, and no letter is lost."""
    url = serve(USERS).url

    def cli(*arguments: str) -> str:
        # Who is no operator may not remove a mailbox, so another one does.
        who = "boss" if arguments[0] == "mailbox" else user
        return told(run(url, *arguments, "--user", who, "--password", f"{who}-pw"))

    cli("mailbox", "create", "jobs", "--dead-letter", "jobs.dead")
    for number, text in enumerate(("first", "second")):
        cli("send", "jobs", text)
        cli("fetch", "jobs", "--group", "g", "--deliver", "earliest")
        cli("ack", "jobs", str(2 * number), "--group", "g", "--kind", "term")
        assert cli("dead", "replay", "jobs.dead", "0") == "replayed 1\n"
        cli("fetch", "jobs", "--group", "g")
        cli("ack", "jobs", str(2 * number + 1), "--group", "g")
        cli("mailbox", "delete", "jobs.dead", "--yes")
    assert cli("query", "jobs", "--payload").split() == ["first", "first", "second", "second"]


def test_a_replayed_letter_is_told_as_resolved(cli: Mq9, server: Server) -> None:
    """What follows the list of resolved letters, such as a table, hears of it."""
    dead = told(cli("mailbox", "create")).strip()
    work = told(cli("mailbox", "create", "--dead-letter", dead)).strip()
    told(cli("send", work, "x"))
    told(cli("fetch", work, "--group", "g", "--deliver", "earliest"))
    told(cli("ack", work, "0", "--group", "g", "--kind", "term"))
    told(cli("dead", "replay", dead, "0"))
    with Mail(server.url) as mail:
        letters = mail.done("ADMIN.DEAD.RESOLVED", {"limit": 1000})["letters"]
    assert [each["how"] for each in letters if each["subject"] == work] == ["replayed"]
