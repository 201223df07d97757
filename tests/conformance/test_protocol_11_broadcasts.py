"""Broadcasts: the sentences of docs/protocol.md under that heading, one test for each."""

import time
from collections.abc import Callable, Iterator

import pytest
from tests.conformance.conftest import Read
from tests.conformance.reader import Reader, header
from tests.mail import PREFIX, Mail
from tests.peers import MQ9, Serve, until
from tests.restarts import Restarting

Connect = Callable[[], Mail]
STORED = {"mq9-persist": "true"}


@pytest.fixture
def domain(fresh_name: str) -> str:
    """A domain that nobody else tells anything of."""
    return fresh_name.replace(".", "-")


@pytest.mark.parametrize("pattern", ["{}.start", "{}.*", "{}.>", "{}.#", "*.start"])
def test_a_broadcast_goes_to_all_who_are_subscribed(
    mail: Mail, read: Read, domain: str, pattern: str
) -> None:
    readers = [read(f"BROADCAST.{pattern.format(domain)}") for _ in range(3)]
    for reader in readers:
        reader.mail.ping()
    mail.publish(f"{PREFIX}BROADCAST.{domain}.start", b"go")
    mail.ping()
    for reader in readers:
        [message] = reader.take(1)
        assert (message.subject, message.payload) == (f"{PREFIX}BROADCAST.{domain}.start", b"go")


def test_a_queue_group_shares_broadcasts(mail: Mail, read: Read, domain: str) -> None:
    members = [read(f"BROADCAST.{domain}.*", "workers") for _ in range(3)]
    for member in members:
        member.mail.ping()
    for number in range(20):
        mail.publish(f"{PREFIX}BROADCAST.{domain}.x", str(number).encode())
    mail.ping()
    for member in members:
        member.mail.ping()
    got = [int(each.payload) for member in members for each in member.came]
    assert sorted(got) == list(range(20))


def test_wildcards_outside_hear_no_broadcast_and_no_mailbox(
    mail: Mail, box: str, connect: Connect, domain: str
) -> None:
    listener = connect()
    listener.send(b"SUB > 7\r\n")
    listener.ping()
    mail.publish(f"{PREFIX}BROADCAST.{domain}.x", b"no")
    mail.publish(f"{PREFIX}INBOX.{box}.normal", b"no")
    mail.publish(domain, b"yes")
    mail.ping()
    listener.ping()
    heard = [message.payload for found in listener.arrived.values() for message in found]
    assert [payload for payload in heard if payload in (b"yes", b"no")] == [b"yes"]


def test_a_stored_broadcast_is_given_to_those_who_come_later(
    mail: Mail, read: Read, domain: str
) -> None:
    early = read(f"BROADCAST.{domain}.*")
    early.mail.ping()
    for number in range(3):
        answer = mail.ask(f"BROADCAST.{domain}.x", str(number).encode(), {"mq9-persist": "true"})
        assert answer["error"] == ""
    mail.publish(f"{PREFIX}BROADCAST.{domain}.x", b"live only")
    mail.ping()
    assert sorted(early.texts(4)) == ["0", "1", "2", "live only"]
    late = read(f"BROADCAST.{domain}.*")
    assert late.texts(3) == ["0", "1", "2"]
    mail.done(f"BROADCAST.{domain}.x", b"3", {"mq9-persist": "true"})
    assert late.texts(1) == ["3"]


# Stored broadcasts.


def test_a_stored_broadcast_is_answered_like_send_and_nobody_sees_the_reply_subject(
    mail: Mail, read: Read, domain: str
) -> None:
    reader = read(f"BROADCAST.{domain}.*")
    reader.nothing()
    text = mail.text(f"BROADCAST.{domain}.x", b"1", STORED)
    assert text.startswith('{"error":"","msg_id":')
    [live] = reader.take(1)
    [later] = read(f"BROADCAST.{domain}.*").take(1)
    assert (live.reply, later.reply) == ("", "")
    assert (live.subject, live.headers, live.payload) == (
        later.subject,
        later.headers,
        later.payload,
    )


def test_a_publish_stores_a_broadcast_as_well(mail: Mail, read: Read, domain: str) -> None:
    mail.publish(f"{PREFIX}BROADCAST.{domain}.x", b"1", STORED)
    mail.done(f"BROADCAST.{domain}.x", b"2", STORED)
    assert read(f"BROADCAST.{domain}.*").texts(2) == ["1", "2"]


def test_a_broadcast_that_is_not_to_be_stored_is_not(mail: Mail, read: Read, domain: str) -> None:
    mail.publish(f"{PREFIX}BROADCAST.{domain}.x", b"1")
    mail.publish(f"{PREFIX}BROADCAST.{domain}.x", b"2", {"mq9-persist": "false"})
    mail.done(f"BROADCAST.{domain}.x", b"3", STORED)
    assert read(f"BROADCAST.{domain}.*").texts(1) == ["3"]


def test_only_stored_broadcasts_that_match_are_given(mail: Mail, read: Read, domain: str) -> None:
    for event in ("a", "b", "c"):
        mail.done(f"BROADCAST.{domain}.{event}", event.encode(), STORED)
    assert read(f"BROADCAST.{domain}.b").texts(1) == ["b"]
    assert read(f"BROADCAST.{domain}.>").texts(3) == ["a", "b", "c"]
    assert read(f"BROADCAST.{domain}.#").texts(3) == ["a", "b", "c"]


def test_nothing_is_missing_or_twice_between_what_is_stored_and_what_is_told(
    mail: Mail, read: Read, domain: str
) -> None:
    waiting = [
        mail.begin(f"BROADCAST.{domain}.x", str(number).encode(), STORED) for number in range(300)
    ]
    # In the middle of them.
    reader = read(f"BROADCAST.{domain}.*")
    for reply in waiting:
        assert mail.answer(reply)["error"] == ""
    assert reader.texts(300) == [str(number) for number in range(300)]


def test_each_subscription_is_given_stored_broadcasts_anew(
    mail: Mail, read: Read, domain: str
) -> None:
    mail.done(f"BROADCAST.{domain}.x", b"1", STORED)
    reader = read(f"BROADCAST.{domain}.*")
    assert reader.texts(1) == ["1"]
    reader.mail.send(b"UNSUB 9\r\n")
    reader.subscribe(f"BROADCAST.{domain}.*", sid=10)
    assert reader.texts(1) == ["1"]


def test_its_number_grows_whatever_its_subject(mail: Mail, read: Read, domain: str) -> None:
    told = [mail.done(f"BROADCAST.{domain}.{event}", b"", STORED)["msg_id"] for event in "abcab"]
    assert told == sorted(set(told))
    given = read(f"BROADCAST.{domain}.*").take(5)
    assert [int(header(message, "mq9-msg-id")) for message in given] == told


def test_a_queue_group_is_given_nothing_old(mail: Mail, read: Read, domain: str) -> None:
    mail.done(f"BROADCAST.{domain}.x", b"old", STORED)
    member = read(f"BROADCAST.{domain}.*", "workers")
    member.nothing()
    mail.done(f"BROADCAST.{domain}.x", b"new", STORED)
    assert member.texts(1) == ["new"]


def test_a_stored_broadcast_may_have_a_shorter_life(mail: Mail, read: Read, domain: str) -> None:
    mail.done(f"BROADCAST.{domain}.x", b"short", STORED | {"mq9-ttl": "1"})
    mail.done(f"BROADCAST.{domain}.x", b"long", STORED)
    deadline = time.monotonic() + 20
    while True:
        reader = read(f"BROADCAST.{domain}.*")
        reader.mail.ping()
        given = [message.payload for message in reader.came]
        if given == [b"long"]:
            break
        assert given == [b"short", b"long"]
        assert time.monotonic() < deadline


def test_an_id_makes_it_the_same_when_it_is_told_again(mail: Mail, read: Read, domain: str) -> None:
    reader = read(f"BROADCAST.{domain}.*")
    reader.nothing()
    once = STORED | {"mq9-id": domain}
    first = mail.done(f"BROADCAST.{domain}.x", b"1", once)
    second = mail.done(f"BROADCAST.{domain}.x", b"1", once)
    assert second == first | {"duplicate": True}
    assert reader.texts(1) == ["1"]
    assert read(f"BROADCAST.{domain}.*").texts(1) == ["1"]


@pytest.mark.parametrize(
    ("name", "value"),
    [("mq9-key", "k"), ("mq9-tags", "t"), ("mq9-delay", "5"), ("mq9-priority", "urgent")],
)
def test_what_is_for_mailboxes_is_an_error_and_told_to_nobody(
    mail: Mail, read: Read, domain: str, name: str, value: str
) -> None:
    reader = read(f"BROADCAST.{domain}.*")
    reader.nothing()
    answer = mail.ask(f"BROADCAST.{domain}.x", b"1", STORED | {name: value})
    assert answer == {
        "error": f"{name} is not for broadcasts that are stored",
        "msg_id": -1,
    }
    # Without a reply subject its sender is told as well.
    mail.publish(f"{PREFIX}BROADCAST.{domain}.x", b"1", STORED | {name: value})
    mail.ping()
    [error] = mail.errors
    assert error.startswith(f'Permissions Violation for Publish to "{PREFIX}BROADCAST.{domain}.x"')
    reader.nothing()
    read(f"BROADCAST.{domain}.*").nothing()


@pytest.mark.parametrize("kill", [False, True])
def test_stored_broadcasts_outlive_the_broker(own: Restarting, domain: str, kill: bool) -> None:
    with own.connect() as mail:
        for number in range(3):
            mail.done(f"BROADCAST.{domain}.x", str(number).encode(), STORED)
        mail.publish(f"{PREFIX}BROADCAST.{domain}.x", b"live only")
        mail.ping()
    own.restart(kill=kill)
    with own.connect() as mail, own.connect() as other:
        reader = Reader(mail).subscribe(f"BROADCAST.{domain}.*")
        assert reader.texts(3) == ["0", "1", "2"]
        other.done(f"BROADCAST.{domain}.x", b"3", STORED)
        assert reader.texts(1) == ["3"]


LIMITED = """
mq9 { max_broadcasts: 3 }
authorization { users: [
  { user: teller, password: p }
  { user: listener, password: p, permissions: {
    subscribe: { deny: "$mq9.AI.BROADCAST.system.>" } } }
] }
no_auth_user: teller
"""


@pytest.fixture
def limited(serve: Serve) -> Iterator[Callable[[str], Mail]]:
    """A broker that stores three of them, and has users."""
    server = serve(LIMITED, peer=MQ9)
    opened: list[Mail] = []

    def login(user: str) -> Mail:
        opened.append(Mail(server.url.replace("://", f"://{user}:p@")))
        return opened[-1]

    yield login
    for mail in opened:
        mail.close()


def test_beyond_the_limit_the_oldest_go(limited: Callable[[str], Mail]) -> None:
    teller = limited("teller")
    for number in range(5):
        teller.done("BROADCAST.task.x", str(number).encode(), STORED)
    assert Reader(limited("teller")).subscribe("BROADCAST.>").texts(3) == ["2", "3", "4"]


def test_beyond_the_limit_of_bytes_the_oldest_go(serve: Serve) -> None:
    server = serve("mq9 { max_broadcast_bytes: 10000 }", peer=MQ9)
    with Mail(server.url) as teller, Mail(server.url) as listener:
        for number in range(20):
            teller.done("BROADCAST.task.x", b"%02d" % number + b"x" * 1000, STORED)
        teller.done("BROADCAST.task.x", b"last", STORED)
        reader = Reader(listener).subscribe("BROADCAST.>")
        reader.mail.ping()
        kept = [message.payload[:2].decode() for message in reader.came]
        # What they take as stored is a little more than their payload.
        assert kept[-1] == "la"
        assert 5 <= len(kept[:-1]) < 10
        assert kept[:-1] == [f"{number:02d}" for number in range(20 - len(kept[:-1]), 20)]
        # Other messages count for nothing there.
        teller.done("MAILBOX.CREATE", {"name": "box"})
        assert teller.deliver("box", b"x" * 100_000) == 0


def test_a_stored_broadcast_lives_for_broadcast_ttl(serve: Serve) -> None:
    server = serve('mq9 { broadcast_ttl: "1s" }', peer=MQ9)
    with Mail(server.url) as teller:
        begin = time.monotonic()
        teller.done("BROADCAST.task.x", b"short", STORED)
        teller.done("BROADCAST.task.x", b"shorter", STORED | {"mq9-ttl": "3600"})

        def stored() -> int:
            with Mail(server.url) as listener:
                reader = Reader(listener).subscribe("BROADCAST.>")
                listener.ping()
                return len(reader.came)

        before = stored()
        assert before == 2 or time.monotonic() - begin >= 1
        until(lambda: stored() == 0, "both are gone", 20)
        assert time.monotonic() - begin >= 1


@pytest.mark.parametrize("pattern", ["BROADCAST.#", "BROADCAST.>", "BROADCAST.*.x"])
def test_permissions_count_for_each_broadcast(limited: Callable[[str], Mail], pattern: str) -> None:
    teller = limited("teller")
    teller.done("BROADCAST.system.x", b"secret", STORED)
    teller.done("BROADCAST.task.x", b"stored", STORED)
    reader = Reader(limited("listener")).subscribe(pattern)
    assert reader.texts(1) == ["stored"]
    teller.publish(f"{PREFIX}BROADCAST.system.x", b"secret")
    teller.done("BROADCAST.system.x", b"secret", STORED)
    teller.done("BROADCAST.task.x", b"live", STORED)
    assert reader.texts(1) == ["live"]
    refused = Reader(limited("listener")).subscribe("BROADCAST.system.x").refused()
    assert refused.startswith("Permissions Violation for Subscription")
