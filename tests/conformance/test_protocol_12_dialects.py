"""The earlier documents of mq9, sentence by sentence: what they promise of mailboxes and delivery.

Each test begins with the sentence it holds, in short. Where the documents disagree with each other
or with the current protocol, docs/protocol.md decides.
"""

import json
import os
import time
from collections.abc import Callable, Iterator

import pytest
from tests.conformance.conftest import URL_VARIABLE, Create, Read
from tests.conformance.reader import Reader, header
from tests.mail import PREFIX, Json, Mail
from tests.peers import MQ9, Serve
from tests.restarts import Restarting

Connect = Callable[[], Mail]
NO_OPERATOR = """
authorization { users: [ { user: agent, password: p } ] }
no_auth_user: agent
"""


@pytest.fixture
def made(mail: Mail) -> Json:
    """A private mailbox, as the reply to CREATE tells it."""
    return mail.done("MAILBOX.CREATE", {"type": "standard", "ttl": 600})


def later(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline


# The first dialect: mailboxes.


def test_create_returns_a_mail_id_a_token_and_an_inbox(made: Json) -> None:
    """A globally unique communication address obtained via MAILBOX.CREATE."""
    assert made["inbox"] == f"{PREFIX}INBOX.{made['mail_id']}"
    assert made["token"]


def test_one_agent_can_hold_many_mail_ids(mail: Mail) -> None:
    """Not bound to identity: one agent can hold multiple mail_ids."""
    held = {mail.done("MAILBOX.CREATE", {"ttl": 600})["mail_id"] for _ in range(20)}
    assert len(held) == 20


def test_standard_is_the_default_type(mail: Mail) -> None:
    """type: standard (default): messages accumulate."""
    box = mail.done("MAILBOX.CREATE", {"ttl": 600})["mail_id"]
    for number in range(3):
        mail.deliver(box, str(number).encode())
    assert [entry["payload"] for entry in mail.fetch(box)] == ["0", "1", "2"]


def test_latest_keeps_only_the_most_recent_message(mail: Mail, create: Create, read: Read) -> None:
    """type: latest: new messages overwrite old ones."""
    box = create(type="latest")
    for number in range(3):
        mail.publish(f"{PREFIX}INBOX.{box}.normal", str(number).encode())
    mail.ping()
    assert read(f"INBOX.{box}.*").texts(1) == ["2"]


def test_a_ttl_may_be_left_out(mail: Mail, fresh_name: str) -> None:
    """ttl: uses the system default if omitted."""
    mail.done("MAILBOX.CREATE", {"name": fresh_name, "public": True})
    listed = mail.done("PUBLIC.LIST", {"limit": 1000})["mailboxes"]
    [entry] = [entry for entry in listed if entry["mail_id"] == fresh_name]
    assert entry["expires"] == 0


def test_on_expiry_the_mailbox_and_its_messages_are_destroyed(mail: Mail, create: Create) -> None:
    """TTL manages the lifecycle entirely."""
    box = create(ttl=1)
    mail.deliver(box, b"x")
    later(lambda: mail.ask(f"MSG.SEND.{box}", b"y")["error"] != "")
    mail.done("MAILBOX.CREATE", {"name": box, "ttl": 600})
    assert mail.fetch(box) == []


@pytest.fixture
def stranger(serve: Serve) -> Iterator[Mail]:
    """A client that is no operator."""
    if os.environ.get(URL_VARIABLE):
        pytest.skip(f"needs a user of its own, which {URL_VARIABLE} does not have")
    with Mail(serve(NO_OPERATOR, peer=MQ9).url) as mail:
        yield mail


def test_the_token_is_needed_for_query_and_for_nothing_else(stranger: Mail) -> None:
    """token: required when calling QUERY. / There are no bearer tokens: who knows the mail_id sends
    and subscribes."""
    made = stranger.done("MAILBOX.CREATE", {"ttl": 600})
    box = made["mail_id"]
    stranger.done(f"INBOX.{box}.normal", b"x")
    assert stranger.ask(f"MAILBOX.QUERY.{box}", {"token": "tok-1"})["error"] != ""
    found = stranger.done(f"MAILBOX.QUERY.{box}", {"token": made["token"]})
    assert [entry["payload"] for entry in found["messages"]] == ["x"]
    reader = Reader(stranger).subscribe(f"INBOX.{box}.*")
    reader.nothing()
    stranger.publish(f"{PREFIX}INBOX.{box}.normal", b"y")
    assert reader.texts(1) == ["y"]


# The first dialect: messages.


def test_a_message_waits_in_storage_until_a_subscriber_comes(
    mail: Mail, made: Json, read: Read
) -> None:
    """Written to storage; if offline, the message waits until the subscriber comes online."""
    mail.publish(f"{made['inbox']}.normal", b"x")
    mail.ping()
    assert read(f"INBOX.{made['mail_id']}.*").texts(1) == ["x"]


def test_a_subscriber_that_is_online_is_pushed_to(mail: Mail, made: Json, read: Read) -> None:
    """Push if online."""
    reader = read(f"INBOX.{made['mail_id']}.*")
    reader.nothing()
    mail.publish(f"{made['inbox']}.normal", b"x")
    assert reader.texts(1) == ["x"]


def test_query_pulls_what_was_missed(mail: Mail, made: Json) -> None:
    """QUERY: check messages that arrived while offline; confirm that no unprocessed ones remain."""
    mail.publish(f"{made['inbox']}.normal", b"x")
    query = f"MAILBOX.QUERY.{made['mail_id']}"
    found = mail.done(query, {"token": made["token"]})
    assert (found["mail_id"], found["unread"]) == (made["mail_id"], 1)
    assert mail.done(query, {"token": made["token"]})["unread"] == 0


def test_urgent_is_processed_first_and_normal_in_its_order(
    mail: Mail, made: Json, read: Read
) -> None:
    """urgent: processed first; normal: FIFO; notify: background."""
    for number, priority in enumerate(("notify", "normal", "urgent", "normal", "urgent")):
        mail.publish(f"{made['inbox']}.{priority}", str(number).encode())
    mail.ping()
    assert read(f"INBOX.{made['mail_id']}.*").texts(5) == ["2", "4", "1", "3", "0"]


def test_priorities_have_lives_of_their_own(mail: Mail, create: Create, read: Read) -> None:
    """Suggested TTL: urgent 86400 s, normal 3600 s."""
    box = create(ttl=0, message_ttls={"urgent": 86400, "normal": 3600})
    for priority in ("urgent", "normal", "notify"):
        mail.done(f"INBOX.{box}.{priority}", b"x")
    urgent, normal, notify = read(f"MAILBOX.MSG.{box}.*").take(3)
    for message, life in ((urgent, 86400), (normal, 3600)):
        created, expires = (
            int(header(message, f"mq9-{name}")) for name in ("create-time", "expires-at")
        )
        assert expires - created in (life, life + 1)
    assert header(notify, "mq9-expires-at") == ""


def test_messages_of_an_inbox_are_persisted_and_notify_is_not(
    own: Restarting, fresh_name: str
) -> None:
    """urgent and normal: persisted; notify: memory."""
    with own.connect() as mail:
        mail.done("MAILBOX.CREATE", {"name": fresh_name})
        for priority in ("urgent", "normal", "notify"):
            mail.done(f"INBOX.{fresh_name}.{priority}", priority.encode())
    own.restart(kill=True)
    with own.connect() as mail:
        reader = Reader(mail).subscribe(f"INBOX.{fresh_name}.*")
        assert reader.texts(2) == ["urgent", "normal"]


def test_users_choose_storage_per_message(own: Restarting, fresh_name: str) -> None:
    """Not every message needs the same level of durability."""
    with own.connect() as mail:
        mail.done("MAILBOX.CREATE", {"name": fresh_name})
        for number in range(6):
            kept = "true" if number % 2 else "false"
            headers = {"mq9-persist": kept}
            mail.done(f"INBOX.{fresh_name}.normal", str(number).encode(), headers)
        before = [entry["payload"] for entry in mail.fetch(fresh_name)]
    assert before == ["0", "1", "2", "3", "4", "5"]
    own.restart(kill=True)
    with own.connect() as mail:
        assert [entry["payload"] for entry in mail.fetch(fresh_name)] == ["1", "3", "5"]


def test_the_recipient_can_publish_to_reply_to_directly(mail: Mail, read: Read) -> None:
    """reply_to: the recipient can PUB directly to this subject."""
    one, two = (mail.done("MAILBOX.CREATE", {"ttl": 600}) for _ in range(2))
    asked = {"from": two["mail_id"], "type": "task", "reply_to": f"{two['inbox']}.normal", "ts": 1}
    mail.publish(f"{one['inbox']}.normal", asked)
    [message] = read(f"INBOX.{one['mail_id']}.*").take(1)
    mail.publish(json.loads(message.payload)["reply_to"], b"done")
    assert read(f"INBOX.{two['mail_id']}.*").texts(1) == ["done"]


@pytest.mark.parametrize("payload", [b"", b"text", b"\x00\xff\r\n\x80", b"{", b"x" * 500_000])
def test_the_payload_is_arbitrary_bytes(mail: Mail, made: Json, read: Read, payload: bytes) -> None:
    """mq9 does not enforce a message format."""
    mail.publish(f"{made['inbox']}.normal", payload)
    mail.ping()
    [message] = read(f"INBOX.{made['mail_id']}.*").take(1)
    assert message.payload == payload


def test_a_subscription_to_urgent_messages_gets_those_only(
    mail: Mail, made: Json, read: Read
) -> None:
    """Subscribe to urgent messages only."""
    for priority in ("normal", "urgent"):
        mail.publish(f"{made['inbox']}.{priority}", priority.encode())
    mail.ping()
    box = made["mail_id"]
    assert read(f"INBOX.{box}.urgent").texts(1) == ["urgent"]
    assert read(f"INBOX.{box}.*").texts(1) == ["normal"]


# The first dialect: broadcasts, and NATS beside it.


def test_broadcast_requires_no_create(mail: Mail, read: Read, fresh_name: str) -> None:
    """No prior setup: publish directly, subscribe directly."""
    domain = fresh_name.replace(".", "-")
    reader = read(f"BROADCAST.{domain}.anomaly")
    reader.nothing()
    mail.publish(f"{PREFIX}BROADCAST.{domain}.anomaly", b"x")
    assert reader.texts(1) == ["x"]


def test_broadcasts_are_not_persisted_unless_it_is_said(
    mail: Mail, read: Read, fresh_name: str
) -> None:
    """Set persist=true for broadcasts that must survive subscriber downtime."""
    subject = f"BROADCAST.{fresh_name.replace('.', '-')}.x"
    mail.publish(PREFIX + subject, b"lost")
    mail.done(subject, b"kept", {"mq9-persist": "true"})
    assert read(subject).texts(1) == ["kept"]


def test_a_queue_group_handles_each_broadcast_once(mail: Mail, read: Read, fresh_name: str) -> None:
    """A queue group ensures each message is handled by exactly one worker."""
    subject = f"BROADCAST.{fresh_name.replace('.', '-')}.available"
    workers = [read(subject, "task.workers") for _ in range(3)]
    for worker in workers:
        worker.nothing()
    for number in range(12):
        mail.publish(PREFIX + subject, str(number).encode())
    mail.ping()
    for worker in workers:
        worker.mail.ping()
    claimed = [int(message.payload) for worker in workers for message in worker.came]
    assert sorted(claimed) == list(range(12))


def test_native_subjects_are_unchanged(mail: Mail, connect: Connect, fresh_name: str) -> None:
    """Native NATS pub/sub: if the subscriber is offline, the message is lost."""
    mail.publish(fresh_name, b"lost")
    mail.ping()
    listener = connect()
    listener.send(f"SUB {fresh_name} 7\r\n".encode())
    listener.ping()
    mail.publish(fresh_name, b"heard")
    mail.ping()
    listener.ping()
    assert [message.payload for message in listener.arrived[fresh_name]] == [b"heard"]


# The second dialect: mailboxes.


def test_a_private_mailbox_is_not_discoverable(mail: Mail) -> None:
    """Private: server-generated, not guessable, only parties who know the mail_id can interact."""
    made = mail.done("MAILBOX.CREATE", {"ttl": 600, "public": False})
    assert len(made["mail_id"]) >= 25
    listed = mail.done("PUBLIC.LIST", {"limit": 1000})["mailboxes"]
    assert made["mail_id"] not in [entry["mail_id"] for entry in listed]


def test_a_public_mailbox_is_registered_for_anyone(
    mail: Mail, connect: Connect, fresh_name: str
) -> None:
    """Public: a user-defined name, automatically registered to PUBLIC.LIST."""
    mail.done("MAILBOX.CREATE", {"name": fresh_name, "ttl": 600, "public": True})
    listed = connect().done("PUBLIC.LIST", {"limit": 1000})["mailboxes"]
    assert fresh_name in [entry["mail_id"] for entry in listed]


def test_creating_it_again_changes_nothing(mail: Mail, read: Read, fresh_name: str) -> None:
    """Idempotent: success without modifying the mailbox or resetting its TTL. The type is chosen
    at creation."""
    mail.done("MAILBOX.CREATE", {"name": fresh_name, "ttl": 600, "public": True})
    mail.deliver(fresh_name, b"1")
    for again in ({"ttl": 60}, {"ttl": 0}, {"ttl": 600, "type": "latest"}):
        answer = mail.done("MAILBOX.CREATE", {"name": fresh_name, "public": True} | again)
        assert answer["created"] is False
    mail.deliver(fresh_name, b"2")
    # It has not become one of type latest.
    assert read(f"MAILBOX.MSG.{fresh_name}").texts(2) == ["1", "2"]
    listed = mail.done("PUBLIC.LIST", {"limit": 1000})["mailboxes"]
    [entry] = [entry for entry in listed if entry["mail_id"] == fresh_name]
    assert entry["expires"] - entry["created"] == 600


def test_many_may_create_it_without_coordination(connect: Connect, fresh_name: str) -> None:
    """The first caller creates the mailbox; the rest observe the no-op."""
    callers = [connect() for _ in range(10)]
    request = {"name": fresh_name, "ttl": 600, "public": True}
    waiting = [caller.begin("MAILBOX.CREATE", request) for caller in callers]
    answers = [caller.answer(reply) for caller, reply in zip(callers, waiting, strict=True)]
    assert [answer["error"] for answer in answers] == [""] * 10
    assert sum("created" not in answer for answer in answers) == 1


# The second dialect: delivery.


def test_priorities_are_in_the_subject(mail: Mail, box: str, read: Read) -> None:
    """critical is delivered before urgent, urgent before normal; each level in order."""
    for number, suffix in enumerate(("", ".urgent", ".critical", "", ".urgent", ".critical")):
        mail.publish(f"{PREFIX}MAILBOX.MSG.{box}{suffix}", str(number).encode())
    mail.ping()
    assert read(f"MAILBOX.MSG.{box}.*").texts(6) == ["2", "5", "1", "4", "0", "3"]


def test_critical_and_urgent_survive_restarts(own: Restarting, fresh_name: str) -> None:
    """critical, urgent: persisted. (normal as well: it is lost only where its sender says so.)"""
    with own.connect() as mail:
        mail.done("MAILBOX.CREATE", {"name": fresh_name})
        for suffix in (".critical", ".urgent", ""):
            mail.done(f"MAILBOX.MSG.{fresh_name}{suffix}", suffix.encode())
    own.restart(kill=True)
    with own.connect() as mail:
        reader = Reader(mail).subscribe(f"MAILBOX.MSG.{fresh_name}.*")
        assert reader.texts(3) == [".critical", ".urgent", ""]


def test_all_who_are_connected_are_pushed_to(mail: Mail, box: str, read: Read) -> None:
    """Two separate connections subscribing to the same mailbox both receive the full set."""
    mail.deliver(box, b"1")
    readers = [read(f"MAILBOX.MSG.{box}") for _ in range(2)]
    for reader in readers:
        assert reader.texts(1) == ["1"]
    mail.deliver(box, b"2")
    for reader in readers:
        assert reader.texts(1) == ["2"]


def test_stored_messages_come_at_once_and_then_real_time_goes_on(
    mail: Mail, box: str, read: Read
) -> None:
    """A subscriber is given all stored messages in priority order, then real-time delivery."""
    mail.deliver(box, b"low")
    mail.deliver(box, b"high", priority="critical")
    reader = read(f"MAILBOX.MSG.{box}.*")
    assert reader.texts(2) == ["high", "low"]
    mail.deliver(box, b"live")
    assert reader.texts(1) == ["live"]


def test_subscribing_again_replays_everything(mail: Mail, box: str, read: Read) -> None:
    """Unsubscribing and resubscribing replays all non-expired messages again: there is no way to
    receive only new ones."""
    mail.deliver(box, b"1")
    reader = read(f"MAILBOX.MSG.{box}")
    assert reader.texts(1) == ["1"]
    reader.mail.send(b"UNSUB 9\r\n")
    mail.deliver(box, b"2")
    reader.subscribe(f"MAILBOX.MSG.{box}", sid=10)
    assert reader.texts(2) == ["1", "2"]


def test_a_msg_id_tells_messages_apart_over_reconnects(mail: Mail, box: str, read: Read) -> None:
    """The server provides msg_id as part of every delivered message."""
    for number in range(5):
        mail.deliver(box, str(number).encode(), priority=("urgent", "normal")[number % 2])
    seen = [
        [(header(message, "mq9-msg-id"), message.payload) for message in reader.take(5)]
        for reader in (read(f"MAILBOX.MSG.{box}.*"), read(f"MAILBOX.MSG.{box}.*"))
    ]
    assert seen[0] == seen[1]
    assert len({msg_id for msg_id, _ in seen[0]}) == 5


# The second dialect: queue groups.


def deleted(mail: Mail, box: str, message_id: str) -> None:
    mail.done(f"MAILBOX.DELETE.{box}.{message_id}")


@pytest.mark.parametrize("name", ["workers", "w", "task.workers", "Größe-1_x"])
def test_a_group_shares_and_its_name_is_arbitrary(
    mail: Mail, box: str, read: Read, name: str
) -> None:
    """Each message is delivered to exactly one member; the group name is any string."""
    workers = [read(f"MAILBOX.MSG.{box}.*", name) for _ in range(2)]
    other = read(f"MAILBOX.MSG.{box}.*", f"{name}2")
    for reader in (*workers, other):
        reader.nothing()
    for number in range(20):
        mail.deliver(box, str(number).encode())
    assert sorted(map(int, other.texts(20))) == list(range(20))

    def came() -> int:
        for worker in workers:
            worker.mail.ping()
        return sum(len(worker.came) for worker in workers)

    later(lambda: came() == 20)
    shares = [{int(message.payload) for message in worker.came} for worker in workers]
    assert shares[0] | shares[1] == set(range(20))
    # The broker routes by load: neither has it all.
    assert min(map(len, shares)) >= 5


def test_workers_come_and_go_at_any_time(mail: Mail, box: str, read: Read) -> None:
    """Dynamic membership: the broker adjusts routing immediately."""
    first = read(f"MAILBOX.MSG.{box}.*", "workers")
    mail.deliver(box, b"1")
    [message] = first.take(1)
    deleted(mail, box, header(message, "mq9-msg-id"))
    second = read(f"MAILBOX.MSG.{box}.*", "workers")
    second.nothing()
    first.mail.close()
    mail.deliver(box, b"2")
    assert second.texts(1) == ["2"]


def test_what_a_worker_had_when_it_crashed_comes_again(mail: Mail, box: str, read: Read) -> None:
    """Received and not deleted: it will be re-delivered when any group member reconnects; after
    an explicit delete it is not."""
    for number in range(4):
        mail.deliver(box, str(number).encode())
    crashed = read(f"MAILBOX.MSG.{box}.*", "workers")
    done, *_ = crashed.take(4)
    deleted(mail, box, header(done, "mq9-msg-id"))
    crashed.mail.close()
    assert read(f"MAILBOX.MSG.{box}.*", "workers").texts(3) == ["1", "2", "3"]


def test_what_a_worker_had_when_the_broker_was_killed_comes_again(
    own: Restarting, fresh_name: str
) -> None:
    """A message is not removed from storage by the act of delivery alone."""
    with own.connect() as mail, own.connect() as worker:
        mail.done("MAILBOX.CREATE", {"name": fresh_name})
        mail.deliver(fresh_name, b"done")
        mail.deliver(fresh_name, b"open")
        reader = Reader(worker).subscribe(f"MAILBOX.MSG.{fresh_name}.*", "workers")
        assert reader.texts(2) == ["done", "open"]
        deleted(mail, fresh_name, "0")
    own.restart(kill=True)
    with own.connect() as mail:
        reader = Reader(mail).subscribe(f"MAILBOX.MSG.{fresh_name}.*", "workers")
        assert reader.texts(1) == ["open"]
