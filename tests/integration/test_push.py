"""Push over a real broker: subscriptions that are given what is stored, then what arrives."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.mail import Mail
from tests.peers import MQ9, Serve, Server
from tests.restarts import Restarting
from tests.wire import Message

USERS = """
authorization { users: [
  { user: agent, password: x }
  { user: other, password: x, permissions: { subscribe: { deny: "$mq9.AI.INBOX.>" } } }
] }
no_auth_user: agent
"""


@pytest.fixture(scope="module")
def broker(serve_for_session: Serve) -> Server:
    """A broker where nobody is an operator."""
    return serve_for_session(USERS, peer=MQ9)


@pytest.fixture
def mail(broker: Server) -> Iterator[Mail]:
    with Mail(broker.url) as mail:
        yield mail


@pytest.fixture
def reader(broker: Server) -> Iterator[Mail]:
    with Mail(broker.url) as reader:
        yield reader


@pytest.fixture
def restarting(tmp_path: Path) -> Iterator[Restarting]:
    restarting = Restarting(tmp_path)
    yield restarting
    restarting.stop()


def subscribe(client: Mail, subject: str, queue: str = "", sid: int = 9) -> None:
    client.send(f"SUB $mq9.AI.{subject} {queue} {sid}\r\n".encode())


def pushed(client: Mail, count: int) -> list[Message]:
    """The next messages that were not asked for, in no order of subjects; none beyond them."""
    deadline = time.monotonic() + client.deadline_s
    found: list[Message] = []
    while len(found) < count:
        client.pump(deadline)
        for subject in [name for name in client.arrived if name.startswith("$mq9.AI.")]:
            found += client.arrived.pop(subject)
    client.ping()
    assert not [name for name in client.arrived if name.startswith("$mq9.AI.")]
    assert len(found) == count
    return found


def payloads(client: Mail, count: int) -> list[bytes]:
    return sorted(message.payload for message in pushed(client, count))


def test_messages_are_pushed_by_publish_and_subscribe_alone(mail: Mail, reader: Mail) -> None:
    made = mail.done("MAILBOX.CREATE", {"type": "standard", "ttl": 3600})
    mail.publish(f"{made['inbox']}.normal", b"one")
    subscribe(reader, f"INBOX.{made['mail_id']}.*")
    [first] = pushed(reader, 1)
    assert (first.subject, first.payload) == (f"{made['inbox']}.normal", b"one")
    assert b"mq9-msg-id: 0\r\nmq9-priority: normal\r\nmq9-create-time: " in first.headers
    mail.publish(f"{made['inbox']}.urgent", b"two")
    assert payloads(reader, 1) == [b"two"]
    assert not mail.errors


def test_what_an_inbox_has_not_pushed_is_queried_once_by_owner(mail: Mail, reader: Mail) -> None:
    made = mail.done("MAILBOX.CREATE", {"ttl": 3600})
    address, token = made["mail_id"], {"token": made["token"]}
    for nth in range(300):
        mail.publish(f"$mq9.AI.INBOX.{address}.normal", b"%d" % nth)
    mail.publish(f"$mq9.AI.INBOX.{address}.urgent", b"now")
    for wrong in ({}, {"token": "tok-0"}, {"token": made["token"][:-1]}):
        answer = mail.ask(f"MAILBOX.QUERY.{address}", wrong)
        assert answer["error"].startswith("permission denied: the token is ")
        assert (answer["mail_id"], answer["unread"], answer["messages"]) == ("", 0, [])
    answer = mail.done(f"MAILBOX.QUERY.{address}", token)
    assert list(answer) == ["error", "mail_id", "unread", "messages"]
    assert (answer["mail_id"], answer["unread"]) == (address, 301)
    assert [entry["payload"] for entry in answer["messages"][:2]] == ["now", "0"]
    assert len(answer["messages"]) == 301
    assert mail.done(f"MAILBOX.QUERY.{address}", token)["unread"] == 0
    mail.publish(f"$mq9.AI.INBOX.{address}.normal", b"new")
    subscribe(reader, f"INBOX.{address}.*")
    assert payloads(reader, 1) == [b"new"]


def test_a_query_without_reply_subject_reads_nothing(mail: Mail) -> None:
    made = mail.done("MAILBOX.CREATE", {"ttl": 3600})
    address, token = made["mail_id"], {"token": made["token"]}
    mail.deliver(address, b"kept")
    mail.publish(f"$mq9.AI.MAILBOX.QUERY.{address}", json.dumps(token).encode())
    assert not mail.errors
    assert mail.done(f"MAILBOX.QUERY.{address}", token)["unread"] == 1
    # Whether it could have been carried out is told.
    mail.publish(f"$mq9.AI.MAILBOX.QUERY.{address}", b"{}")
    while not mail.errors:
        mail.ping()
    assert "MAILBOX.QUERY" in mail.errors[0]


def test_a_large_query_says_that_there_is_more(mail: Mail) -> None:
    made = mail.done("MAILBOX.CREATE", {"ttl": 3600})
    address, token = made["mail_id"], {"token": made["token"]}
    for _ in range(30):
        mail.deliver(address, b"x" * 100_000)
    first = mail.done(f"MAILBOX.QUERY.{address}", token)
    assert first["more"]
    assert first["unread"] == 30
    seen = len(first["messages"])
    while (answer := mail.done(f"MAILBOX.QUERY.{address}", token))["messages"]:
        assert answer["unread"] == 30 - seen
        seen += len(answer["messages"])
    assert seen == 30


def test_workers_of_a_queue_group_share_and_delete(broker: Server, mail: Mail) -> None:
    address = mail.done("MAILBOX.CREATE", {"name": "task.queue", "public": True})["mail_id"]
    with Mail(broker.url) as a, Mail(broker.url) as b:
        for worker in (a, b):
            subscribe(worker, f"MAILBOX.MSG.{address}.*", "workers")
            worker.ping()
        for nth in range(10):
            mail.publish(f"$mq9.AI.MAILBOX.MSG.{address}", b"%d" % nth)
        mine = pushed(a, 5)
        assert len(pushed(b, 5)) == 5
        done = mine[0].headers.split(b"mq9-msg-id: ")[1].split(b"\r\n")[0].decode()
        assert mail.done(f"MAILBOX.DELETE.{address}.{done}")["deleted"]
        a.close()
        assert payloads(b, 4) == sorted(message.payload for message in mine[1:])


def test_an_inbox_goes_on_over_a_kill(restarting: Restarting) -> None:
    with Mail(restarting.url) as mail, Mail(restarting.url) as reader:
        mail.done("MAILBOX.CREATE", {"name": "kept"})
        subscribe(reader, "INBOX.kept.*")
        for nth in range(20):
            mail.done("INBOX.kept.normal", b"%d" % nth)
        mail.publish("$mq9.AI.INBOX.kept.notify", b"in memory")
        assert len(pushed(reader, 21)) == 21
        reader.close()
        mail.done("INBOX.kept.normal", b"later")
        mail.publish("$mq9.AI.INBOX.kept.notify", b"lost")
    restarting.restart(kill=True)
    with Mail(restarting.url) as reader:
        subscribe(reader, "INBOX.kept.*")
        assert payloads(reader, 1) == [b"later"]


def test_a_subscription_to_none_or_to_another_is_refused(broker: Server, reader: Mail) -> None:
    subscribe(reader, "INBOX.nowhere.*")
    reader.ping()
    text = 'Permissions Violation for Subscription to "$mq9.AI.INBOX.nowhere.*"'
    assert reader.errors == [f"{text}: mailbox nowhere does not exist"]
    with Mail(broker.url.replace("://", "://other:x@")) as other:
        other.done("MAILBOX.CREATE", {"name": "seen"})
        subscribe(other, "INBOX.seen.*")
        other.ping()
        assert other.errors == ['Permissions Violation for Subscription to "$mq9.AI.INBOX.seen.*"']


def test_a_reader_that_stops_reading_is_not_disconnected_and_costs_a_window(
    broker: Server, mail: Mail, reader: Mail
) -> None:
    mail.done("MAILBOX.CREATE", {"name": "long"})
    body = b"x" * 10_000
    for _ in range(40):
        for _ in range(100):
            mail.publish("$mq9.AI.MAILBOX.MSG.long", body)
        mail.ping()
    before = broker.rss_bytes()
    for sid in range(10, 60):
        subscribe(reader, "MAILBOX.MSG.long", sid=sid)
    # Fifty times forty megabytes wait, and others are served meanwhile.
    began = time.monotonic()
    mail.deliver("long", b"end")
    assert time.monotonic() - began < 5
    assert broker.rss_bytes() - before < 100_000_000
    seen = 0
    while seen < 5000:
        seen += len(pushed_some(reader))


def pushed_some(client: Mail) -> list[Message]:
    client.pump(time.monotonic() + client.deadline_s)
    return client.arrived.pop("$mq9.AI.MAILBOX.MSG.long", [])


def test_broadcasts_reach_all_who_listen_and_one_of_a_queue_group(
    broker: Server, mail: Mail, reader: Mail
) -> None:
    with Mail(broker.url) as worker:
        for sid, subject in enumerate(("system.*", "*.anomaly", "#", ">"), 10):
            subscribe(reader, f"BROADCAST.{subject}", sid=sid)
        subscribe(reader, "BROADCAST.task.available", "task.workers", 20)
        subscribe(worker, "BROADCAST.task.available", "task.workers", 20)
        for client in (reader, worker):
            client.ping()
        mail.publish("$mq9.AI.BROADCAST.system.anomaly", b"high")
        assert len(pushed(reader, 4)) == 4
        mail.publish("$mq9.AI.BROADCAST.task.available", b"t-001")
        mail.ping()
        reader.ping()
        worker.ping()
        heard = [
            len(c.arrived.pop("$mq9.AI.BROADCAST.task.available", ())) for c in (reader, worker)
        ]
        assert heard in ([3, 0], [2, 1])
