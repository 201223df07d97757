"""`mq9 sub`, `inbox` and `broadcast` against a running broker: what they print, how they end."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from tests.peers import Serve, Server, until

DEADLINE_S = 60
Mq9 = Callable[..., subprocess.CompletedProcess[str]]


def environment(url: str) -> dict[str, str]:
    return {**os.environ, "MQ9_URL": url, "TZ": "UTC"}


def run(url: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mq9", *arguments],
        env=environment(url),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )


@pytest.fixture
def mq9(server: Server) -> Mq9:
    return lambda *arguments: run(server.url, *arguments)


@pytest.fixture
def box(mq9: Mq9) -> str:
    address = printed(mq9("mailbox", "create")).strip()
    for payload, priority in (("a", "normal"), ("b", "normal"), ("c", "urgent")):
        printed(mq9("send", address, payload, "--priority", priority))
    return address


def printed(done: subprocess.CompletedProcess[str], status: int = 0) -> str:
    assert (done.stderr, done.returncode) == ("", status)
    return done.stdout


@contextmanager
def listening(url: str, *arguments: str) -> "Iterator[subprocess.Popen[str]]":
    """A command that goes on; begins when it says that it listens."""
    with subprocess.Popen(
        [sys.executable, "-u", "-m", "mq9", *arguments],
        env=environment(url),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stderr is not None
            assert process.stderr.readline().startswith("listening to ")
            yield process
        finally:
            process.kill()


def test_sub_prints_a_mailbox_from_the_beginning_each_time(mq9: Mq9, box: str) -> None:
    for _ in range(2):
        assert printed(mq9("sub", "-m", box, "-n", "3", "--payload")) == "c\na\nb\n"
    only = mq9("sub", "-m", box, "-p", "urgent", "-n", "1", "--json")
    entry = json.loads(printed(only))
    assert (entry["msg_id"], entry["payload"], entry["priority"]) == (2, "c", "urgent")


def test_sub_goes_on_with_live_messages_until_ctrl_c(mq9: Mq9, server: Server, box: str) -> None:
    with listening(server.url, "sub", "--mailbox", box) as sub:
        assert sub.stdout is not None
        first = [sub.stdout.readline().split() for _ in range(3)]
        assert [(line[0], *line[-2:]) for line in first] == [
            *(("2", "urgent", "c"), ("0", "normal", "a"), ("1", "normal", "b"))
        ]
        printed(mq9("send", box, "live"))
        assert sub.stdout.readline().split()[-1] == "live"
        sub.send_signal(signal.SIGINT)
        assert sub.wait(DEADLINE_S) == 130


def test_workers_of_a_queue_delete_what_they_printed(mq9: Mq9, box: str) -> None:
    shared = mq9("sub", "-m", box, "-q", "workers", "--delete", "-n", "3", "--payload")
    assert printed(shared) == "c\na\nb\n"
    assert printed(mq9("query", box, "--json"), 5) == "[]\n"


def test_inbox_prints_each_message_once(mq9: Mq9, box: str) -> None:
    assert printed(mq9("inbox", box, "-n", "2", "--payload")) == "c\na\n"
    assert printed(mq9("inbox", box, "--no-wait", "--payload")) == "b\n"
    done = mq9("inbox", box, "--no-wait", "--payload")
    assert (done.stdout, done.returncode) == ("", 5)


def test_an_inbox_that_is_not_waited_for_is_its_owners(serve: Serve) -> None:
    config = """authorization { users: [
      { user: ops, password: x, permissions: { publish: ["$mq9.AI.>", "$mq9.AI.ADMIN.>"] } }
      { user: guest, password: x, permissions: { publish: ">" } }
    ] }\nno_auth_user: guest"""
    url = serve(config).url
    created = printed(run(url, "mailbox", "create", "--show-token", "--json"))
    address, token = (json.loads(created)[name] for name in ("mail_address", "token"))
    printed(run(url, "send", address, "hello"))
    for given in ((), ("--mailbox-token", "tok-0")):
        refused = run(url, "inbox", address, "--no-wait", *given)
        assert (refused.stdout, refused.returncode) == ("", 1)
        assert "token" in refused.stderr
    unread = run(url, "inbox", address, "--no-wait", "--payload", "--mailbox-token", token)
    assert printed(unread) == "hello\n"


def test_broadcast_reaches_who_listens(mq9: Mq9, server: Server) -> None:
    event = f"cli{os.getpid()}.told"
    with listening(server.url, "sub", "-b", f"{event.split('.')[0]}.*", "-n", "2") as sub:
        told = printed(mq9("broadcast", event, "hello", "-H", "Trace: 1"))
        assert told == f"told 5 bytes to whoever listens to {event}\n"
        printed(mq9("broadcast", event))
        assert sub.stdout is not None
        assert sub.stdout.read().splitlines() == [f"{event}  hello", f"{event}  "]
        assert sub.wait(DEADLINE_S) == 0


def test_a_stored_broadcast_is_printed_to_who_listens_later(mq9: Mq9) -> None:
    event = f"cli{os.getpid()}.kept"
    stored = printed(mq9("broadcast", event, "hello", "--persist"))
    assert stored == f"told 5 bytes to whoever listens now or later to {event}\n"
    number = json.loads(printed(mq9("broadcast", event, "again", "--persist", "--json")))["msg_id"]
    heard = printed(mq9("sub", "-b", event, "-n", "2", "--json")).splitlines()
    first, second = map(json.loads, heard)
    assert (first["payload"], second["payload"], second["msg_id"]) == ("hello", "again", number)
    assert first["msg_id"] < number


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("sub",), "one of the arguments"),
        (("sub", "a", "-m", "b"), "not allowed with"),
        (("sub", "a", "--delete"), "give one with -m"),
        (("sub", "-m", "a", "--delete"), "give a queue"),
        (("sub", "-m", "a", "-n", "0"), "at least 1"),
        (("inbox", "a", "--no-wait", "-n", "1"), "without --priority, --count"),
        (("broadcast", "a.*", "x"), "a domain and an event"),
    ],
)
def test_a_wrong_line_ends_with_2_and_says_why(
    mq9: Mq9, arguments: tuple[str, ...], says: str
) -> None:
    done = mq9(*arguments)
    assert (done.stdout, done.returncode) == ("", 2)
    assert says in done.stderr


def test_a_mailbox_that_is_not_there_or_goes_ends_it(mq9: Mq9, server: Server) -> None:
    for command in (("sub", "-m", "cli.nowhere"), ("inbox", "cli.nowhere")):
        done = mq9(*command)
        assert done.returncode == 1
        assert "mailbox cli.nowhere does not exist" in done.stderr
    address = printed(mq9("mailbox", "create")).strip()
    with listening(server.url, "sub", "-m", address) as sub:
        printed(mq9("mailbox", "delete", address, "--yes"))
        until(lambda: sub.poll() is not None, "the command ends")
        assert sub.returncode == 1
        assert sub.stderr is not None
        assert f"mailbox {address} does not exist" in sub.stderr.read()
