"""Push: the sentences of docs/protocol.md under that heading, one test for each."""

import os
import time
from collections.abc import Callable

import pytest
from tests.conformance.conftest import URL_VARIABLE, Create, Read
from tests.conformance.reader import Reader, header
from tests.mail import PREFIX, Mail
from tests.peers import MQ9, Serve
from tests.restarts import Restarting

Connect = Callable[[], Mail]
NAMED = {"critical": "critical", "urgent": "urgent", "normal": "normal", "notify": "notify"}


# Sending.


@pytest.mark.parametrize(
    ("subject", "priority"),
    [
        ("MAILBOX.MSG.{}", "normal"),
        ("MAILBOX.MSG.{}.critical", "critical"),
        ("MAILBOX.MSG.{}.urgent", "urgent"),
        ("MAILBOX.MSG.{}.normal", "normal"),
        ("MAILBOX.MSG.{}.notify", "notify"),
        ("INBOX.{}.urgent", "urgent"),
        ("INBOX.{}.normal", "normal"),
        ("INBOX.{}.notify", "notify"),
        ("INBOX.{}.critical", "critical"),
    ],
)
def test_a_publish_sends_with_the_priority_of_its_subject(
    mail: Mail, box: str, subject: str, priority: str
) -> None:
    mail.publish(PREFIX + subject.format(box), b"x")
    mail.ping()
    [entry] = mail.fetch(box)
    assert (entry["payload"], entry["priority"]) == ("x", priority)


@pytest.mark.parametrize("subject", ["MAILBOX.MSG.{}", "INBOX.{}.normal"])
def test_a_request_is_answered_like_send(mail: Mail, box: str, subject: str) -> None:
    for number in range(2):
        text = mail.text(subject.format(box), b"x")
        assert text == f'{{"error":"","msg_id":{number}}}'


def test_a_priority_header_must_agree_with_the_subject(mail: Mail, box: str) -> None:
    assert mail.ask(f"INBOX.{box}.urgent", b"x", {"mq9-priority": "urgent"})["error"] == ""
    answer = mail.ask(f"INBOX.{box}.urgent", b"x", {"mq9-priority": "notify"})
    assert answer["error"] != ""
    assert answer["msg_id"] == -1
    assert len(mail.fetch(box)) == 1


def test_a_mailbox_named_like_the_whole_rest_is_meant(mail: Mail, create: Create) -> None:
    box = create()
    whole = f"{box}.urgent"
    mail.done("MAILBOX.CREATE", {"name": whole, "ttl": 600})
    mail.publish(f"{PREFIX}MAILBOX.MSG.{whole}", b"x")
    mail.ping()
    assert mail.fetch(box) == []
    assert [entry["priority"] for entry in mail.fetch(whole)] == ["normal"]


def test_notify_through_inbox_is_kept_in_memory_unless_it_asks_for_more(
    own: Restarting, fresh_name: str
) -> None:
    with own.connect() as mail:
        mail.done("MAILBOX.CREATE", {"name": fresh_name})
        mail.done(f"INBOX.{fresh_name}.notify", b"memory")
        mail.done(f"INBOX.{fresh_name}.notify", b"disk", {"mq9-persist": "true"})
        mail.done(f"INBOX.{fresh_name}.normal", b"normal")
        mail.done(f"MSG.SEND.{fresh_name}", b"also memory", {"mq9-persist": "false"})
    own.restart(kill=True)
    with own.connect() as mail:
        assert [entry["payload"] for entry in mail.fetch(fresh_name)] == ["normal", "disk"]


# What is pushed.


def test_the_payload_and_headers_are_pushed(mail: Mail, box: str, read: Read) -> None:
    headers = {"mq9-key": "k", "mq9-tags": "a,b", "mq9-ttl": "60", "trace": "7"}
    mail.done(f"MSG.SEND.{box}", b"\x00\xff", headers | {"mq9-priority": "urgent"})
    [message] = read(f"MAILBOX.MSG.{box}").take(1)
    assert message.payload == b"\x00\xff"
    assert header(message, "mq9-msg-id") == "0"
    assert header(message, "mq9-priority") == "urgent"
    assert abs(int(header(message, "mq9-create-time")) - time.time()) < 60
    expires = int(header(message, "mq9-expires-at"))
    assert expires - int(header(message, "mq9-create-time")) in (60, 61)
    assert (header(message, "mq9-key"), header(message, "mq9-tags")) == ("k", "a,b")
    assert header(message, "trace") == "7"


def test_the_subject_is_that_of_the_family(mail: Mail, box: str, read: Read) -> None:
    for priority in ("critical", "urgent", "normal", "notify"):
        mail.deliver(box, b"x", priority=priority)
    everything = [message.subject for message in read(f"MAILBOX.MSG.{box}.*").take(4)]
    base = f"{PREFIX}MAILBOX.MSG.{box}"
    assert everything == [f"{base}.critical", f"{base}.urgent", base, base]
    inbox = [message.subject for message in read(f"INBOX.{box}.*").take(4)]
    assert inbox == [f"{PREFIX}INBOX.{box}.{priority}" for priority in NAMED]


@pytest.mark.parametrize(("level", "name"), [(1, "critical"), (5, "normal"), (7, "7")])
def test_the_priority_is_a_name_or_the_number_of_another_level(
    mail: Mail, box: str, read: Read, level: int, name: str
) -> None:
    mail.deliver(box, b"x", priority=level)
    [message] = read(f"MAILBOX.MSG.{box}.*").take(1)
    assert header(message, "mq9-priority") == name


@pytest.mark.parametrize("family", ["MAILBOX.MSG", "INBOX"])
def test_one_priority_is_a_subscription_of_its_own(
    mail: Mail, box: str, read: Read, family: str
) -> None:
    for priority in ("notify", "urgent", "normal"):
        mail.deliver(box, priority.encode(), priority=priority)
    reader = read(f"{family}.{box}.urgent")
    assert reader.texts(1) == ["urgent"]
    mail.deliver(box, b"later", priority="urgent")
    mail.deliver(box, b"other", priority="normal")
    assert reader.texts(1) == ["later"]


# Order.


@pytest.mark.parametrize("family", ["MAILBOX.MSG", "INBOX"])
def test_what_is_stored_comes_first_then_what_arrives(
    mail: Mail, box: str, read: Read, family: str
) -> None:
    for number, priority in enumerate(("normal", "critical", "notify", "normal", "urgent")):
        mail.deliver(box, str(number).encode(), priority=priority)
    reader = read(f"{family}.{box}.*")
    assert reader.texts(5) == ["1", "4", "0", "3", "2"]
    for number in range(5, 8):
        mail.deliver(box, str(number).encode())
    assert reader.texts(3) == ["5", "6", "7"]


def test_there_is_no_gap_and_nothing_twice_while_messages_arrive(
    mail: Mail, box: str, read: Read
) -> None:
    count = 600
    waiting = [mail.begin(f"MSG.SEND.{box}", str(number).encode()) for number in range(count)]
    # In the middle of them.
    reader = read(f"MAILBOX.MSG.{box}")
    for reply in waiting:
        assert mail.answer(reply)["error"] == ""
    assert sorted(map(int, reader.texts(count))) == list(range(count))


def test_a_delayed_message_is_pushed_when_it_is_due(mail: Mail, box: str, read: Read) -> None:
    reader = read(f"MAILBOX.MSG.{box}")
    mail.deliver(box, b"later", delay=1)
    reader.nothing()
    assert reader.texts(1) == ["later"]


def test_a_latest_mailbox_pushes_the_newest(mail: Mail, create: Create, read: Read) -> None:
    box = create(type="latest")
    mail.deliver(box, b"1")
    mail.deliver(box, b"2")
    reader = read(f"MAILBOX.MSG.{box}")
    assert reader.texts(1) == ["2"]
    mail.deliver(box, b"3")
    assert reader.texts(1) == ["3"]


def test_the_newest_of_a_key_is_pushed(mail: Mail, box: str, read: Read) -> None:
    mail.deliver(box, b"old", key="k")
    mail.deliver(box, b"new", key="k")
    reader = read(f"INBOX.{box}.*")
    assert reader.texts(1) == ["new"]


def test_expired_messages_are_not_pushed(mail: Mail, box: str, read: Read) -> None:
    mail.deliver(box, b"short", ttl=1)
    mail.deliver(box, b"long")
    deadline = time.monotonic() + 20
    while len(mail.fetch(box)) == 2:
        assert time.monotonic() < deadline
    assert read(f"MAILBOX.MSG.{box}").texts(1) == ["long"]


# MAILBOX.MSG.


def test_each_subscription_starts_over(mail: Mail, box: str, read: Read) -> None:
    mail.deliver(box, b"1")
    for _ in range(2):
        assert read(f"MAILBOX.MSG.{box}").texts(1) == ["1"]
    reader = read(f"MAILBOX.MSG.{box}", sid=1)
    reader.subscribe(f"MAILBOX.MSG.{box}.*", sid=2)
    assert reader.texts(2) == ["1", "1"]


def test_a_queue_group_gets_each_message_once(mail: Mail, box: str, read: Read) -> None:
    members = [read(f"MAILBOX.MSG.{box}", "workers") for _ in range(3)]
    for member in members:
        member.mail.ping()
    for number in range(30):
        mail.deliver(box, str(number).encode())
    got: list[str] = []
    deadline = time.monotonic() + 20
    while len(got) < 30:
        assert time.monotonic() < deadline
        for member in members:
            member.mail.ping()
        got = [each.payload.decode() for member in members for each in member.came]
    assert sorted(map(int, got)) == list(range(30))


def test_what_a_member_had_not_deleted_goes_to_the_others(mail: Mail, box: str, read: Read) -> None:
    first = read(f"MAILBOX.MSG.{box}", "workers")
    mail.deliver(box, b"done")
    mail.deliver(box, b"open")
    assert sorted(first.texts(2)) == ["done", "open"]
    second = read(f"MAILBOX.MSG.{box}", "workers")
    second.nothing()
    mail.done(f"MAILBOX.DELETE.{box}.0")
    first.mail.close()
    assert second.texts(1) == ["open"]


def test_when_the_last_member_has_left_the_group_starts_over(
    mail: Mail, box: str, read: Read
) -> None:
    mail.deliver(box, b"1")
    first = read(f"MAILBOX.MSG.{box}", "workers")
    assert first.texts(1) == ["1"]
    first.mail.send(b"UNSUB 9\r\n")
    first.mail.ping()
    assert read(f"MAILBOX.MSG.{box}", "workers").texts(1) == ["1"]


# INBOX.


def test_an_inbox_gives_each_message_once(mail: Mail, box: str, read: Read) -> None:
    mail.deliver(box, b"1")
    first = read(f"INBOX.{box}.*")
    assert first.texts(1) == ["1"]
    first.mail.close()
    mail.deliver(box, b"2")
    assert read(f"INBOX.{box}.*").texts(1) == ["2"]


def test_all_who_subscribe_share_the_inbox(mail: Mail, box: str, read: Read) -> None:
    readers = [read(f"INBOX.{box}.*"), read(f"INBOX.{box}.*", "group"), read(f"INBOX.{box}.*")]
    for reader in readers:
        reader.mail.ping()
    for number in range(30):
        mail.deliver(box, str(number).encode())
    got: list[str] = []
    deadline = time.monotonic() + 20
    while len(got) < 30:
        assert time.monotonic() < deadline
        for reader in readers:
            reader.mail.ping()
        got = [each.payload.decode() for reader in readers for each in reader.came]
    assert sorted(map(int, got)) == list(range(30))


def test_a_message_is_unread_until_the_ping_behind_it_is_answered(
    mail: Mail, box: str, connect: Connect, read: Read
) -> None:
    deaf = connect()
    pings: list[int] = []
    deaf.pinged = lambda: pings.append(1)  # type: ignore[method-assign]
    reader = Reader(deaf)
    mail.deliver(box, b"1")
    reader.subscribe(f"INBOX.{box}.*")
    deadline = time.monotonic() + 20
    while not (reader.came and pings):
        deaf.pump(deadline)
    other = read(f"INBOX.{box}.*")
    other.nothing()
    deaf.close()
    assert other.texts(1) == ["1"]


@pytest.mark.parametrize("kill", [False, True])
def test_an_inbox_is_known_after_a_restart(own: Restarting, fresh_name: str, kill: bool) -> None:
    with own.connect() as mail, own.connect() as other:
        mail.done("MAILBOX.CREATE", {"name": fresh_name})
        mail.deliver(fresh_name, b"1")
        assert Reader(other).subscribe(f"INBOX.{fresh_name}.*").texts(1) == ["1"]
        other.ping()
    own.restart(kill=kill)
    with own.connect() as mail:
        mail.deliver(fresh_name, b"2")
        assert Reader(mail).subscribe(f"INBOX.{fresh_name}.*").texts(1) == ["2"]


def test_what_was_read_of_a_work_queue_is_removed(mail: Mail, create: Create, read: Read) -> None:
    box = create(retention="work_queue")
    mail.deliver(box, b"1")
    mail.deliver(box, b"2")
    reader = read(f"INBOX.{box}.*", most=1)
    assert reader.texts(1) == ["1"]
    reader.mail.ping()
    assert [entry["payload"] for entry in mail.done(f"MSG.QUERY.{box}")["messages"]] == ["2"]


# A slow reader.


def test_a_long_history_disconnects_nobody(mail: Mail, box: str, read: Read) -> None:
    payload = b"x" * 50_000
    count = 200
    for at in range(0, count, 20):
        waiting = [mail.begin(f"MSG.SEND.{box}", payload) for _ in range(at, at + 20)]
        assert all(mail.answer(reply)["error"] == "" for reply in waiting)
    reader = read(f"MAILBOX.MSG.{box}")
    # It reads nothing, while others are served.
    for _ in range(50):
        mail.ping()
    assert len(reader.take(count)) == count


@pytest.mark.parametrize("writes", [True, False])
def test_a_reader_of_a_long_history_may_take_its_time_as_long_as_it_writes(
    serve: Serve, fresh_name: str, writes: bool
) -> None:
    if os.environ.get(URL_VARIABLE):
        pytest.skip(f"needs settings of its own, which {URL_VARIABLE} does not have")
    server = serve('write_deadline: "500ms"\nping_interval: "1s"\nping_max: 1\n', peer=MQ9)
    count, payload = 400, b"x" * 50_000
    with Mail(server.url) as mail, Mail(server.url) as slow, Mail(server.url) as other:
        mail.done("MAILBOX.CREATE", {"name": fresh_name})
        for at in range(0, count, 20):
            waiting = [mail.begin(f"MSG.SEND.{fresh_name}", payload) for _ in range(at, at + 20)]
            assert all(mail.answer(reply)["error"] == "" for reply in waiting)
        reader = Reader(slow).subscribe(f"MAILBOX.MSG.{fresh_name}")
        # Somebody else who reads nothing is given up in that time.
        other.send(b"SUB x 9\r\nPING\r\n")
        over = time.monotonic() + 6
        while time.monotonic() < over:
            mail.publish("x", payload)
            mail.ping()
            if writes:
                slow.send(b"PING\r\n")
        with pytest.raises(ConnectionError):
            Reader(other).take(1 << 30)
        if writes:
            assert len(reader.take(count)) == count
        else:
            with pytest.raises(ConnectionError):
                reader.take(count)


def test_what_was_written_beyond_a_maximum_that_came_late_is_unread(
    mail: Mail, box: str, connect: Connect, read: Read
) -> None:
    deaf = connect()
    deaf.pinged = lambda: None  # type: ignore[method-assign]
    reader = Reader(deaf).subscribe(f"INBOX.{box}.*")
    for number in range(5):
        mail.deliver(box, str(number).encode())
    deadline = time.monotonic() + deaf.deadline_s
    while len(reader.came) < 5:
        deaf.pump(deadline)
    # It takes two, passes over the rest, and answers whatever it is asked.
    del deaf.pinged
    deaf.send(b"UNSUB 9 2\r\nPONG\r\n")
    deaf.ping()
    deaf.ping()
    assert read(f"INBOX.{box}.*").texts(3) == ["2", "3", "4"]
    deaf.close()
    read(f"INBOX.{box}.*").nothing()


def test_unsub_with_a_maximum_counts(mail: Mail, box: str, read: Read) -> None:
    for number in range(5):
        mail.deliver(box, str(number).encode())
    first = read(f"INBOX.{box}.*", most=2)
    assert first.texts(2) == ["0", "1"]
    first.mail.ping()
    # What was not written was not pushed.
    assert read(f"INBOX.{box}.*").texts(3) == ["2", "3", "4"]


# Errors.


@pytest.mark.parametrize("subject", ["MAILBOX.MSG.{}", "MAILBOX.MSG.{}.*", "INBOX.{}.*"])
def test_a_missing_mailbox_is_an_error(read: Read, fresh_name: str, subject: str) -> None:
    said = read(subject.format(fresh_name)).refused()
    full = PREFIX + subject.format(fresh_name)
    assert said == (
        f'Permissions Violation for Subscription to "{full}": mailbox {fresh_name} does not exist'
    )


@pytest.mark.parametrize(
    "subject",
    ["MAILBOX.MSG.*", "INBOX.*.*", "INBOX.>", "MAILBOX.>", "MAILBOX.MSG.{}.>", "MSG.SEND.{}", ">"],
)
def test_what_is_no_subject_of_one_mailbox_is_refused(read: Read, box: str, subject: str) -> None:
    full = PREFIX + subject.format(box)
    said = read(subject.format(box)).refused()
    assert said == f'Permissions Violation for Subscription to "{full}"'


@pytest.mark.parametrize(
    ("subject", "ends"),
    [
        ("MAILBOX.MSG.{}.*", "MAILBOX.MSG.{}"),
        ("INBOX.{}.*", "INBOX.{}"),
    ],
)
def test_a_subscription_ends_with_its_mailbox(
    create: Create, read: Read, subject: str, ends: str
) -> None:
    box = create(ttl=1)
    [message] = read(subject.format(box)).take(1)
    assert message.subject == PREFIX + ends.format(box)
    assert message.headers.startswith(f"NATS/1.0 404 mailbox {box} does not exist".encode())
    assert message.payload == b""


def test_a_subscription_ends_when_its_mailbox_is_removed(mail: Mail, read: Read) -> None:
    token = mail.done("MAILBOX.CREATE", {"ttl": 600})
    box = token["mail_id"]
    readers = [read(f"INBOX.{box}.*"), read(f"MAILBOX.MSG.{box}"), read(f"MAILBOX.MSG.{box}", "q")]
    for reader in readers:
        reader.nothing()
    mail.done(f"MAILBOX.REMOVE.{box}", {"token": token["token"]})
    for reader in readers:
        [message] = reader.take(1)
        assert message.headers.startswith(f"NATS/1.0 404 mailbox {box} does not exist".encode())
    # The name is free, and nobody who was there is pushed anything of the next mailbox.
    mail.done("MAILBOX.CREATE", {"name": box, "ttl": 600})
    mail.deliver(box, b"x")
    for reader in readers:
        reader.nothing()


# MAILBOX.QUERY and MAILBOX.DELETE.


def test_mailbox_query_gives_what_was_not_read(mail: Mail, box: str, read: Read) -> None:
    mail.deliver(box, b"a")
    mail.deliver(box, b"b", priority="urgent")
    answer = mail.ask(f"MAILBOX.QUERY.{box}")
    assert (answer["error"], answer["mail_id"], answer["unread"]) == ("", box, 2)
    assert [entry["payload"] for entry in answer["messages"]] == ["b", "a"]
    assert mail.ask(f"MAILBOX.QUERY.{box}")["unread"] == 0
    reader = read(f"INBOX.{box}.*")
    mail.deliver(box, b"c")
    assert reader.texts(1) == ["c"]


def test_what_was_pushed_is_not_given_by_mailbox_query(mail: Mail, box: str, read: Read) -> None:
    mail.deliver(box, b"a")
    reader = read(f"INBOX.{box}.*")
    assert reader.texts(1) == ["a"]
    reader.mail.ping()
    assert mail.ask(f"MAILBOX.QUERY.{box}")["messages"] == []


def test_mailbox_query_says_whether_there_is_more(mail: Mail, box: str) -> None:
    waiting = [mail.begin(f"MSG.SEND.{box}", str(number).encode()) for number in range(5000)]
    assert all(mail.answer(reply)["error"] == "" for reply in waiting)
    first = mail.done(f"MAILBOX.QUERY.{box}")
    assert (first["unread"], len(first["messages"]), first["more"]) == (5000, 4096, True)
    second = mail.done(f"MAILBOX.QUERY.{box}")
    assert second["unread"] == len(second["messages"]) == 5000 - 4096
    assert "more" not in second
    got = [int(entry["payload"]) for entry in first["messages"] + second["messages"]]
    assert got == list(range(5000))


def test_mailbox_query_without_a_reply_subject_reads_nothing(mail: Mail, box: str) -> None:
    mail.deliver(box, b"a")
    mail.publish(f"{PREFIX}MAILBOX.QUERY.{box}")
    mail.ping()
    assert mail.done(f"MAILBOX.QUERY.{box}")["unread"] == 1


def test_mailbox_query_gives_bytes_as_fetch_does(mail: Mail, box: str) -> None:
    mail.deliver(box, b"\xff")
    mail.deliver(box, b"text")
    [first, second] = mail.done(f"MAILBOX.QUERY.{box}")["messages"]
    assert (first["payload"], first["encoding"]) == ("/w==", "base64")
    assert "encoding" not in second
    mail.deliver(box, b"text")
    [entry] = mail.done(f"MAILBOX.QUERY.{box}", {"encoding": "base64"})["messages"]
    assert (entry["payload"], entry["encoding"]) == ("dGV4dA==", "base64")


def test_mailbox_query_of_none_is_an_error_in_its_shape(mail: Mail, fresh_name: str) -> None:
    answer = mail.ask(f"MAILBOX.QUERY.{fresh_name}")
    assert answer == {
        "error": f"mailbox {fresh_name} does not exist",
        "mail_id": "",
        "unread": 0,
        "messages": [],
    }


def test_mailbox_delete_is_delete(mail: Mail, box: str) -> None:
    mail.deliver(box, b"a")
    assert mail.text(f"MAILBOX.DELETE.{box}.0") == '{"error":"","deleted":true}'
    assert mail.text(f"MAILBOX.DELETE.{box}.0") == '{"error":"message not found","deleted":false}'
