"""ACK, QUERY and DELETE: what counts as done, what comes again, and looking without touching."""

import time
from collections.abc import Callable

import pytest
from tests.conformance.conftest import Create
from tests.mail import Json, Mail, ids, payloads
from tests.peers import until
from tests.restarts import Restarting

Connect = Callable[[], Mail]

WAIT_MS = 8000
PROMPT_S = 4.0
# The broker's clock counts whole milliseconds.
CLOCK_S = 0.002


def wait(group: str) -> Json:
    return {"group_name": group, "config": {"max_wait_ms": WAIT_MS}}


def test_an_urgent_message_acknowledged_early_never_skips_an_undelivered_normal_one(
    mail: Mail, box: str
) -> None:
    """ACK follows the order of delivery, not of ids: only what was delivered is confirmed."""
    for number in range(3):
        mail.deliver(box, f"normal {number}".encode())
    urgent = mail.deliver(box, b"urgent", priority="urgent")
    assert payloads(mail.fetch(box, "g", num_msgs=1)) == ["urgent"]
    mail.ack(box, "g", urgent)
    assert payloads(mail.fetch(box, "g")) == ["normal 0", "normal 1", "normal 2"]


def test_ack_confirms_all_that_the_member_was_given_up_to_it(mail: Mail, box: str) -> None:
    """In the order of delivery, whatever the ids."""
    for level in (5, 5, 1, 3):
        mail.deliver(box, priority=level)
    assert ids(mail.fetch(box, "g")) == [2, 3, 0, 1]
    mail.ack(box, "g", 0)
    assert ids(mail.fetch(box, "g")) == [1]


def test_one_ack_of_the_last_entry_confirms_a_batch(mail: Mail, box: str) -> None:
    """Whatever its priorities."""
    for level in (5, 1, 9, 3):
        mail.deliver(box, priority=level)
    mail.ack(box, "g", mail.fetch(box, "g")[-1]["msg_id"])
    assert mail.fetch(box, "g") == []


def test_ack_does_not_confirm_what_other_members_were_given(
    mail: Mail, connect: Connect, box: str
) -> None:
    """A later message acknowledged by another leaves an earlier one where it is."""
    for _ in range(3):
        mail.deliver(box)
    other = connect()
    assert ids(mail.fetch(box, "g", num_msgs=1)) == [0]
    assert ids(other.fetch(box, "g")) == [1, 2]
    other.ack(box, "g", 2)
    assert ids(mail.fetch(box, "g")) == [0]


def test_ack_may_come_from_any_connection(mail: Mail, connect: Connect, box: str) -> None:
    """It acts on the member that last received the message, gone or not."""
    for _ in range(3):
        mail.deliver(box)
    gone = connect()
    assert ids(gone.fetch(box, "g")) == [0, 1, 2]
    gone.close()
    connect().ack(box, "g", 1)
    assert ids(mail.done(f"MSG.FETCH.{box}", wait("g"))["messages"]) == [2]


@pytest.mark.parametrize("msg_id", [0, 1, 7, 2**63])
def test_ack_of_what_the_group_was_not_given_is_an_error(mail: Mail, box: str, msg_id: int) -> None:
    """Also of an id that the mailbox never assigned."""
    mail.deliver(box, b"for another group")
    mail.fetch(box, "other")
    body = {"group_name": "g", "msg_id": msg_id}
    expected = f"group g has not been given msg_id {msg_id}"
    assert mail.ask(f"MSG.ACK.{box}", body)["error"] == expected
    mail.done(f"MSG.FETCH.{box}", {"group_name": "g", "config": {"max_wait_ms": 0}})
    assert mail.ask(f"MSG.ACK.{box}", body)["error"] == expected


def test_ack_twice_is_not_an_error(mail: Mail, box: str) -> None:
    """The second changes nothing."""
    mail.deliver(box)
    mail.deliver(box)
    assert ids(mail.fetch(box, "g")) == [0, 1]
    for _ in range(3):
        mail.ack(box, "g", 0)
    assert ids(mail.fetch(box, "g")) == [1]


@pytest.mark.parametrize("kill", [False, True])
def test_an_ack_after_a_restart_counts_for_a_delivery_before_it(
    own: Restarting, fresh_name: str, kill: bool
) -> None:
    """A batch can be confirmed by the broker's next life."""
    box = fresh_name
    with own.connect() as mail:
        mail.done("MAILBOX.CREATE", {"name": box})
        for level in (5, 1, 5):
            mail.deliver(box, priority=level)
        assert ids(mail.fetch(box, "g")) == [1, 0, 2]
    own.restart(kill=kill)
    with own.connect() as mail:
        mail.ack(box, "g", 0)
        assert ids(mail.fetch(box, "g")) == [2]


def test_an_ack_is_durable(own: Restarting, fresh_name: str) -> None:
    """What was confirmed does not come again after the broker died."""
    box = fresh_name
    with own.connect() as mail:
        mail.done("MAILBOX.CREATE", {"name": box})
        for _ in range(3):
            mail.deliver(box)
        mail.fetch(box, "g")
        mail.ack(box, "g", 1)
        own.restart(kill=True)
    with own.connect() as mail:
        assert ids(mail.fetch(box, "g")) == [2]


def test_msg_ids_acknowledges_many(mail: Mail, box: str) -> None:
    """With `only`, exactly those."""
    for _ in range(5):
        mail.deliver(box)
    mail.fetch(box, "g")
    mail.done(f"MSG.ACK.{box}", {"group_name": "g", "msg_ids": [1, 3], "only": True})
    assert ids(mail.fetch(box, "g")) == [0, 2, 4]
    mail.done(f"MSG.ACK.{box}", {"group_name": "g", "msg_ids": [0, 2]})
    assert ids(mail.fetch(box, "g")) == [4]


def test_one_wrong_id_among_many_confirms_none(mail: Mail, box: str) -> None:
    """An error changes nothing."""
    mail.deliver(box)
    mail.fetch(box, "g")
    answer = mail.ask(f"MSG.ACK.{box}", {"group_name": "g", "msg_ids": [0, 9]})
    assert answer["error"] == "group g has not been given msg_id 9"
    assert ids(mail.fetch(box, "g")) == [0]


def test_only_confirms_just_this_one(mail: Mail, box: str) -> None:
    """Not those delivered before it."""
    for _ in range(3):
        mail.deliver(box)
    mail.fetch(box, "g")
    mail.ack(box, "g", 1, only=True)
    assert ids(mail.fetch(box, "g")) == [0, 2]


def test_nak_gives_a_message_back(mail: Mail, connect: Connect, box: str) -> None:
    """To anybody, at once; those before it stay out."""
    mail.deliver(box)
    mail.deliver(box)
    other = connect()
    assert ids(mail.fetch(box, "g")) == [0, 1]
    mail.ack(box, "g", 1, kind="nak")
    [entry] = other.fetch(box, "g")
    assert (entry["msg_id"], entry["deliveries"]) == (1, 2)


def test_nak_with_a_delay_lets_a_message_rest(mail: Mail, box: str) -> None:
    """Nobody gets it before that, the member that gave it back included."""
    mail.deliver(box)
    mail.fetch(box, "g")
    start = time.monotonic()
    mail.ack(box, "g", 0, kind="nak", delay_ms=500)
    assert mail.fetch(box, "g") == []
    assert ids(mail.done(f"MSG.FETCH.{box}", wait("g"))["messages"]) == [0]
    assert 0.5 - CLOCK_S <= time.monotonic() - start < PROMPT_S


def test_progress_starts_the_lease_anew(mail: Mail, connect: Connect, create: Create) -> None:
    """A worker that says so in time keeps its message."""
    box = create(ack_wait=1)
    mail.deliver(box)
    worker = connect()
    assert ids(worker.fetch(box, "g")) == [0]
    start = time.monotonic()
    waiting = mail.begin(f"MSG.FETCH.{box}", wait("g"))
    until(lambda: time.monotonic() - start > 0.6, "most of the lease is over")
    worker.ack(box, "g", 0, kind="progress")
    assert ids(mail.answer(waiting)["messages"]) == [0]
    assert 1.6 - CLOCK_S <= time.monotonic() - start < PROMPT_S


def test_term_ends_a_message(mail: Mail, create: Create, fresh_name: str) -> None:
    """It never comes again; the dead-letter mailbox gets it with the reason."""
    box = create(dead_letter=fresh_name)
    mail.deliver(box, b"poison")
    mail.fetch(box, "g")
    mail.ack(box, "g", 0, kind="term")
    assert mail.fetch(box, "g") == []
    [dead] = mail.fetch(fresh_name)
    assert dead["payload"] == "poison"
    assert dead["headers"]["mq9-dead-reason"] == ["terminated"]


def test_a_message_delivered_too_often_becomes_a_dead_letter(
    mail: Mail, connect: Connect, create: Create, fresh_name: str
) -> None:
    """After `max_deliver` deliveries without ACK it is moved, with its history in headers."""
    box = create(max_deliver=2, dead_letter=fresh_name)
    mail.done(f"MSG.SEND.{box}", b"poison", {"mq9-priority": "urgent", "Trace": "1"})
    mail.deliver(box, b"good")
    for count in (1, 2):
        worker = connect()
        entries = worker.fetch(box, "g", num_msgs=1, member="ada")
        assert [(each["payload"], each["deliveries"]) for each in entries] == [("poison", count)]
    # Its time has not come, but a worker that starts again is given nothing once too often.
    assert payloads(connect().fetch(box, "g", member="ada")) == ["good"]
    [dead] = mail.fetch(fresh_name)
    assert (dead["payload"], dead["priority"]) == ("poison", "urgent")
    assert dead["headers"] == {
        "Trace": ["1"],
        "mq9-dead-reason": ["max_deliver"],
        "mq9-dead-mailbox": [box],
        "mq9-dead-group": ["g"],
        "mq9-dead-msg-id": ["0"],
        "mq9-dead-deliveries": ["2"],
    }


def test_the_last_delivery_says_that_it_is(
    mail: Mail, connect: Connect, create: Create, fresh_name: str
) -> None:
    """In both formats; where there is no `max_deliver`, none is the last."""
    box = create(max_deliver=2, dead_letter=fresh_name)
    mail.deliver(box, b"a")
    [first] = mail.fetch(box, "g")
    assert "last_delivery" not in first
    mail.ack(box, "g", 0, kind="nak")
    # A member that fetches again gets the same delivery again.
    for _ in range(2):
        text = mail.text(f"MSG.FETCH.{box}", {"group_name": "g", "deliver": "earliest"})
        assert text.endswith('"deliveries":2,"last_delivery":true}]}')
    request = {"group_name": "r", "deliver": "earliest", "config": {"format": "raw"}}
    for last in (False, True):
        [entry] = connect().raw(f"MSG.FETCH.{box}", request).entries
        assert (b"\r\nmq9-last-delivery: true\r\n" in entry.headers) == last
        mail.ack(box, "r", 0, kind="nak")
    unlimited = create()
    mail.deliver(unlimited)
    assert "last_delivery" not in mail.fetch(unlimited, "g")[0]


@pytest.mark.parametrize("delay_ms", [0, 60_000])
def test_a_message_given_back_for_the_last_time_is_dead_at_once(
    mail: Mail, create: Create, fresh_name: str, delay_ms: int
) -> None:
    """Nobody has to fetch first, and there is nothing to rest for."""
    box = create(max_deliver=2, dead_letter=fresh_name)
    mail.deliver(box, b"poison")
    mail.fetch(box, "g")
    mail.ack(box, "g", 0, kind="nak")
    assert [each["deliveries"] for each in mail.fetch(box, "g")] == [2]
    mail.ack(box, "g", 0, kind="nak", delay_ms=delay_ms)
    [dead] = mail.fetch(fresh_name)
    assert dead["payload"] == "poison"
    assert dead["headers"]["mq9-dead-reason"] == ["max_deliver"]
    assert mail.fetch(box, "g") == []


@pytest.mark.parametrize(
    ("said", "left"),
    [(b"", [1]), (b"+ACK", [1]), (b"+TERM", [1]), (b"-NAK", [0, 1]), (b"+WPI", [0, 1])],
)
def test_raw_deliveries_are_acknowledged_one_by_one(
    mail: Mail, box: str, said: bytes, left: list[int]
) -> None:
    """As NATS pull consumers do it, at the reply subject of each message."""
    mail.deliver(box)
    mail.deliver(box)
    config = {"format": "raw", "max_wait_ms": 0}
    group = "g.with space/é"
    body = {"group_name": group, "deliver": "earliest", "config": config}
    first, _ = mail.raw(f"MSG.FETCH.{box}", body).entries
    command = first.reply.removeprefix("$mq9.AI.")
    assert mail.done(command, said) == {"error": ""}
    assert ids(mail.fetch(box, group)) == left


def test_raw_nak_takes_a_delay_in_nanoseconds(mail: Mail, box: str) -> None:
    """As NATS clients send it."""
    mail.deliver(box)
    body = {"group_name": "g", "deliver": "earliest", "config": {"format": "raw"}}
    [entry] = mail.raw(f"MSG.FETCH.{box}", body).entries
    start = time.monotonic()
    mail.done(entry.reply.removeprefix("$mq9.AI."), b'-NAK {"delay": 400000000}')
    assert mail.fetch(box, "g") == []
    assert ids(mail.done(f"MSG.FETCH.{box}", wait("g"))["messages"]) == [0]
    assert 0.4 - CLOCK_S <= time.monotonic() - start < PROMPT_S


@pytest.fixture
def shelf(mail: Mail, box: str) -> str:
    """A mailbox with messages of all kinds."""
    mail.deliver(box, b"0", tags="red,big")
    mail.deliver(box, b"1", priority="critical", key="k")
    mail.deliver(box, b"2", tags="blue")
    mail.deliver(box, b"3", priority="notify", tags="big")
    mail.deliver(box, b"4", key="other")
    return box


QUERIES: list[tuple[Json, list[int]]] = [
    ({}, [0, 1, 2, 3, 4]),
    ({"key": "k"}, [1]),
    ({"key": "none"}, []),
    ({"tags": ["red"]}, [0]),
    ({"tags": ["red", "blue"]}, [0, 2]),
    ({"tags": ["big"]}, [0, 3]),
    ({"tags": ["none"]}, []),
    ({"limit": 2}, [3, 4]),
    ({"limit": 100}, [0, 1, 2, 3, 4]),
    ({"after_id": 1}, [2, 3, 4]),
    ({"after_id": 1, "limit": 2}, [2, 3]),
    ({"after_id": 4}, []),
    ({"tags": ["big"], "limit": 1}, [0]),
    ({"since": 0}, [0, 1, 2, 3, 4]),
    ({"since": 0, "limit": 2}, [0, 1]),
    ({"since": 32_000_000_000}, []),
]


@pytest.mark.parametrize(("body", "expected"), QUERIES, ids=[str(body) for body, _ in QUERIES])
def test_query_selects_oldest_first(
    mail: Mail, shelf: str, body: Json, expected: list[int]
) -> None:
    """By key, tags, time and position; `limit` alone gives the newest, ascending."""
    assert ids(mail.done(f"MSG.QUERY.{shelf}", body)["messages"]) == expected


def test_query_since_is_inclusive_in_seconds(mail: Mail, box: str) -> None:
    """The second of the message itself is in, the next one is not."""
    mail.deliver(box)
    [entry] = mail.fetch(box)
    created = entry["create_time"]
    for since, expected in ((created - 1, [0]), (created, [0]), (created + 1, [])):
        assert ids(mail.done(f"MSG.QUERY.{box}", {"since": since})["messages"]) == expected


def test_query_pages_through_a_mailbox(mail: Mail, shelf: str) -> None:
    """`after_id` of the last entry gives the next page until there is none."""
    found: list[int] = []
    request: Json = {"since": 0, "limit": 2}
    while page := ids(mail.done(f"MSG.QUERY.{shelf}", request)["messages"]):
        found += page
        request["after_id"] = page[-1]
    assert found == [0, 1, 2, 3, 4]


def test_query_never_moves_a_group(mail: Mail, shelf: str) -> None:
    """Before, during and after consumption it shows what is stored."""
    mail.done(f"MSG.QUERY.{shelf}")
    assert ids(mail.fetch(shelf, "g")) == [1, 0, 2, 4, 3]
    mail.ack(shelf, "g", 0)
    assert ids(mail.done(f"MSG.QUERY.{shelf}")["messages"]) == [0, 1, 2, 3, 4]
    assert ids(mail.fetch(shelf, "g")) == [2, 4, 3]


def test_delete_removes_one_message(mail: Mail, shelf: str) -> None:
    """For everybody: groups that had not got it, and those that hold it."""
    assert mail.text(f"MSG.DELETE.{shelf}.2") == '{"error":"","deleted":true}'
    assert ids(mail.done(f"MSG.QUERY.{shelf}")["messages"]) == [0, 1, 3, 4]
    assert ids(mail.fetch(shelf, "g")) == [1, 0, 4, 3]
    mail.done(f"MSG.DELETE.{shelf}.0")
    assert ids(mail.fetch(shelf, "g")) == [1, 4, 3]


def test_delete_of_an_absent_message_says_so(mail: Mail, shelf: str) -> None:
    """Never there, deleted, or replaced by its key."""
    mail.done(f"MSG.DELETE.{shelf}.0")
    mail.deliver(shelf, key="k")
    for msg_id in (0, 1, 6, 2**40):
        text = mail.text(f"MSG.DELETE.{shelf}.{msg_id}")
        assert text == '{"error":"message not found","deleted":false}'


@pytest.mark.parametrize("payload", [b"{", b"7", b"nonsense", b"\xff\x00", b'{"msg_id": 1}'])
def test_delete_ignores_its_payload(mail: Mail, shelf: str, payload: bytes) -> None:
    """The subject says which message; whatever comes with it is not looked at."""
    assert mail.text(f"MSG.DELETE.{shelf}.0", payload) == '{"error":"","deleted":true}'
    assert ids(mail.done(f"MSG.QUERY.{shelf}")["messages"]) == [1, 2, 3, 4]


def test_a_deletion_is_durable(own: Restarting, fresh_name: str) -> None:
    """What was deleted stays so when the broker dies."""
    box = fresh_name
    with own.connect() as mail:
        mail.done("MAILBOX.CREATE", {"name": box})
        mail.deliver(box)
        mail.deliver(box)
        mail.done(f"MSG.DELETE.{box}.0")
        own.restart(kill=True)
    with own.connect() as mail:
        assert ids(mail.done(f"MSG.QUERY.{box}")["messages"]) == [1]
