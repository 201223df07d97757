"""FETCH: where it starts, how it waits, who gets what, and how much."""

import threading
import time
from collections.abc import Callable

import pytest
from tests.conformance.conftest import Create
from tests.mail import Json, Mail, ids, payloads
from tests.peers import until
from tests.restarts import Restarting

Connect = Callable[[], Mail]

WAIT_MS = 8000
# A long poll that is answered this soon was not answered at the end of its wait.
PROMPT_S = 4.0
# The broker's clock counts whole milliseconds.
CLOCK_S = 0.002


def request(group: str | None = None, wait_ms: int = 0, **fields: object) -> Json:
    """The body of a FETCH."""
    found: Json = {"config": {"max_wait_ms": wait_ms}} | fields
    return found if group is None else {"group_name": group} | found


def test_latest_is_what_arrives_after_the_call(mail: Mail, box: str) -> None:
    """The default: nothing that was there before, everything that comes during the wait."""
    mail.deliver(box, b"before")
    assert mail.done(f"MSG.FETCH.{box}", request())["messages"] == []
    waiting = mail.begin(f"MSG.FETCH.{box}", request(wait_ms=WAIT_MS, deliver="latest"))
    mail.deliver(box, b"after")
    assert payloads(mail.answer(waiting)["messages"]) == ["after"]


def test_the_first_fetch_of_a_group_pins_its_start(mail: Mail, box: str) -> None:
    """What is sent between two FETCHes of a `latest` group is not missed."""
    mail.deliver(box, b"before")
    assert mail.done(f"MSG.FETCH.{box}", request("g"))["messages"] == []
    mail.deliver(box, b"between")
    assert payloads(mail.done(f"MSG.FETCH.{box}", request("g"))["messages"]) == ["between"]


def test_a_group_goes_on_where_it_was_whatever_deliver_says(mail: Mail, box: str) -> None:
    """`deliver` counts only when the group is new."""
    for _ in range(3):
        mail.deliver(box)
    mail.ack(box, "g", mail.fetch(box, "g", num_msgs=2)[-1]["msg_id"])
    for start in ({"deliver": "earliest"}, {"deliver": "latest"}, {"deliver": "from_id"}):
        body = request("g", from_id=0) | start
        assert ids(mail.done(f"MSG.FETCH.{box}", body)["messages"]) == [2]


def test_force_deliver_starts_a_group_again(mail: Mail, box: str) -> None:
    """With it, `deliver` counts although the group has consumed before."""
    for _ in range(3):
        mail.deliver(box)
    mail.ack(box, "g", mail.fetch(box, "g")[-1]["msg_id"])
    assert mail.fetch(box, "g") == []
    assert ids(mail.fetch(box, "g", force_deliver=True)) == [0, 1, 2]
    forced = request("g", deliver="from_id", from_id=2, force_deliver=True)
    assert ids(mail.done(f"MSG.FETCH.{box}", forced)["messages"]) == [2]
    forced = request("g", deliver="latest", force_deliver=True)
    assert mail.done(f"MSG.FETCH.{box}", forced)["messages"] == []


def test_without_a_group_nothing_is_remembered(mail: Mail, box: str) -> None:
    """Each call starts where it says, and shows the same again."""
    mail.deliver(box, b"a")
    mail.deliver(box, b"b", priority="urgent")
    assert payloads(mail.fetch(box)) == payloads(mail.fetch(box)) == ["b", "a"]
    assert payloads(mail.fetch(box, "g")) == ["b", "a"]


def test_from_time_is_inclusive_in_seconds(mail: Mail, box: str) -> None:
    """A message of that very second is in; one of the second before is not."""
    mail.deliver(box, b"old")
    [old] = mail.fetch(box)
    until(lambda: time.time() >= old["create_time"] + 1.05, "the next second has begun")
    mail.deliver(box, b"new")
    for after, expected in ((-1, ["old", "new"]), (0, ["old", "new"]), (1, ["new"]), (100, [])):
        body = request(deliver="from_time", from_time=old["create_time"] + after)
        assert payloads(mail.done(f"MSG.FETCH.{box}", body)["messages"]) == expected
        body |= {"group_name": f"g{after}"}
        assert payloads(mail.done(f"MSG.FETCH.{box}", body)["messages"]) == expected


def test_from_id_is_inclusive(mail: Mail, box: str) -> None:
    """The message of that id is in, and the order is by level all the same."""
    for level in (5, 1, 5, 3):
        mail.deliver(box, priority=level)
    for group in ({}, {"group_name": "g"}):
        body = request(deliver="from_id", from_id=1) | group
        assert ids(mail.done(f"MSG.FETCH.{box}", body)["messages"]) == [1, 3, 2]


def test_a_fetch_that_finds_nothing_waits(mail: Mail, box: str) -> None:
    """500 ms unless it says otherwise; then the list is empty."""
    start = time.monotonic()
    assert mail.done(f"MSG.FETCH.{box}", {}) == {"error": "", "messages": []}
    assert time.monotonic() - start >= 0.5 - CLOCK_S
    start = time.monotonic()
    assert mail.done(f"MSG.FETCH.{box}", request(wait_ms=200))["messages"] == []
    assert time.monotonic() - start >= 0.19


def test_a_wait_of_zero_returns_at_once(mail: Mail, box: str) -> None:
    """Before the broker answers the PING behind it."""
    waiting = mail.begin(f"MSG.FETCH.{box}", request())
    mail.reply(waiting)


def test_a_long_poll_is_answered_the_moment_something_is_sent(mail: Mail, box: str) -> None:
    """Not at the end of the wait."""
    for group in (None, "g"):
        start = time.monotonic()
        waiting = mail.begin(f"MSG.FETCH.{box}", request(group, WAIT_MS))
        mail.deliver(box, b"here")
        assert payloads(mail.answer(waiting)["messages"]) == ["here"]
        assert time.monotonic() - start < PROMPT_S


def test_a_long_poll_is_answered_when_a_delay_is_due(mail: Mail, box: str) -> None:
    """A delayed message wakes those who wait."""
    mail.deliver(box, b"due", delay=1)
    start = time.monotonic()
    body = request("g", WAIT_MS, deliver="earliest")
    assert payloads(mail.done(f"MSG.FETCH.{box}", body)["messages"]) == ["due"]
    assert time.monotonic() - start < PROMPT_S


@pytest.mark.parametrize("how", ["nak", "disconnect", "lease"])
def test_a_long_poll_is_answered_when_a_lease_returns(
    mail: Mail, connect: Connect, box: str, how: str
) -> None:
    """By a nak, by the end of a connection, or by time."""
    holder = connect()
    mail.deliver(box, b"held")
    assert len(holder.fetch(box, "g", ack_wait_ms=300 if how == "lease" else 60_000)) == 1
    start = time.monotonic()
    waiting = mail.begin(f"MSG.FETCH.{box}", request("g", WAIT_MS))
    mail.ping()
    if how == "nak":
        holder.ack(box, "g", 0, kind="nak")
    elif how == "disconnect":
        holder.close()
    [entry] = mail.answer(waiting)["messages"]
    assert (entry["payload"], entry["deliveries"]) == ("held", 2)
    assert time.monotonic() - start < PROMPT_S


def test_a_message_wakes_one_member_of_a_group(mail: Mail, connect: Connect, box: str) -> None:
    """Of two that wait, one gets it; the other goes on waiting and gets the next."""
    polls = [
        (each, each.begin(f"MSG.FETCH.{box}", request("g", WAIT_MS)))
        for each in (connect(), connect())
    ]
    for each, _ in polls:
        each.ping()
    mail.deliver(box, b"one")
    mail.deliver(box, b"two")
    found = [payloads(each.answer(waiting)["messages"]) for each, waiting in polls]
    assert sorted(found) == [["one"], ["two"]]


def test_a_long_poll_of_a_connection_that_is_gone_takes_nothing(
    mail: Mail, connect: Connect, box: str
) -> None:
    """What arrives later goes to those who are there, as a first delivery."""
    gone = connect()
    gone.begin(f"MSG.FETCH.{box}", request("g", WAIT_MS))
    gone.ping()
    waiting = mail.begin(f"MSG.FETCH.{box}", request("g", WAIT_MS))
    gone.close()
    connect().deliver(box, b"here")
    [entry] = mail.answer(waiting)["messages"]
    assert (entry["payload"], entry["deliveries"]) == ("here", 1)


def test_a_group_has_a_cursor_for_each_lane(mail: Mail, box: str) -> None:
    """A message more important than those consumed already comes first, and none is skipped."""
    mail.deliver(box, b"n0")
    mail.deliver(box, b"n1")
    mail.ack(box, "g", mail.fetch(box, "g", num_msgs=1)[0]["msg_id"])
    mail.deliver(box, b"u2", priority="urgent")
    assert payloads(mail.fetch(box, "g")) == ["u2", "n1"]


def test_groups_do_not_see_each_other(mail: Mail, box: str) -> None:
    """Each group gets every message."""
    mail.deliver(box)
    mail.ack(box, "a", mail.fetch(box, "a")[0]["msg_id"])
    assert ids(mail.fetch(box, "b")) == [0]
    assert mail.fetch(box, "a") == []


def test_a_member_that_fetches_again_gets_its_messages_again(mail: Mail, box: str) -> None:
    """All that it did not acknowledge, as the same delivery; new ones in order."""
    mail.deliver(box)
    mail.deliver(box)
    assert ids(mail.fetch(box, "g")) == [0, 1]
    mail.deliver(box, priority="urgent")
    again = mail.fetch(box, "g")
    assert [(entry["msg_id"], entry["deliveries"]) for entry in again] == [(2, 1), (0, 1), (1, 1)]


def test_fetching_again_over_the_same_connection_does_not_count_towards_max_deliver(
    mail: Mail, create: Create, fresh_name: str
) -> None:
    """While its lease runs it is the same delivery, however often it is asked for."""
    box = create(max_deliver=2, dead_letter=fresh_name)
    mail.deliver(box)
    for _ in range(5):
        for member in ({}, {"member": "ada"}):
            found = mail.fetch(box, "named" if member else "g", **member)
            assert [(entry["msg_id"], entry["deliveries"]) for entry in found] == [(0, 1)]
    mail.ack(box, "g", 0)
    mail.ack(box, "named", 0)
    assert mail.ask(f"MSG.QUERY.{fresh_name}")["error"] != ""


def test_fetching_again_over_a_new_connection_counts(
    mail: Mail, connect: Connect, create: Create, fresh_name: str
) -> None:
    """Its worker may have crashed."""
    box = create(max_deliver=2, dead_letter=fresh_name)
    mail.deliver(box)
    for count in (1, 2):
        worker = connect()
        for _ in range(2):
            [entry] = worker.fetch(box, "g", member="ada")
            assert entry["deliveries"] == count
        worker.close()
    assert mail.fetch(box, "g", member="ada") == []
    [dead] = mail.fetch(fresh_name)
    assert dead["headers"]["mq9-dead-deliveries"] == ["2"]


def test_fetching_again_after_the_lease_counts(mail: Mail, box: str) -> None:
    """The time for that delivery is over: this is another."""
    mail.deliver(box)
    assert [entry["deliveries"] for entry in mail.fetch(box, "g", ack_wait_ms=100)] == [1]
    watcher = request("g", WAIT_MS, member="somebody else", config={"max_wait_ms": 5000})
    [entry] = mail.done(f"MSG.FETCH.{box}", watcher)["messages"]
    assert entry["deliveries"] == 2


def test_the_count_of_deliveries_is_the_same_after_a_restart(
    own: Restarting, fresh_name: str
) -> None:
    """What was fetched three times over one connection was delivered once."""
    with own.connect() as mail:
        mail.done("MAILBOX.CREATE", {"name": fresh_name})
        mail.deliver(fresh_name)
        for _ in range(3):
            mail.fetch(fresh_name, "g", member="ada")
        own.restart(kill=True)
    with own.connect() as mail:
        assert [each["deliveries"] for each in mail.fetch(fresh_name, "g", member="ada")] == [2]


def test_held_false_leaves_out_what_the_member_holds(mail: Mail, box: str) -> None:
    """It gives only others, and the member holds both: one ACK confirms all of it in order."""
    for _ in range(5):
        mail.deliver(box)
    others = {"config": {"held": False, "num_msgs": 2, "max_wait_ms": 0}}
    fetch = {"group_name": "g", "deliver": "earliest"} | others
    for expected in ([0, 1], [2, 3], [4], []):
        assert ids(mail.done(f"MSG.FETCH.{box}", fetch)["messages"]) == expected
    assert ids(mail.fetch(box, "g", member="somebody else")) == []
    mail.ack(box, "g", 3)
    assert ids(mail.fetch(box, "g")) == [4]
    without = mail.ask(f"MSG.FETCH.{box}", others)
    assert without["error"] == "config.held is given, but group_name is missing"


def test_what_is_held_besides_is_confirmed_by_one_ack_after_a_restart_too(
    own: Restarting, fresh_name: str
) -> None:
    """The order of deliveries is durable."""
    config = {"held": False, "num_msgs": 1, "max_wait_ms": 0}
    fetch = request("g", member="ada", deliver="earliest", config=config)
    with own.connect() as mail:
        mail.done("MAILBOX.CREATE", {"name": fresh_name})
        for _ in range(3):
            mail.deliver(fresh_name)
        for msg_id in (0, 1, 2):
            assert ids(mail.done(f"MSG.FETCH.{fresh_name}", fetch)["messages"]) == [msg_id]
        own.restart(kill=True)
    with own.connect() as mail:
        mail.ack(fresh_name, "g", 1)
        assert ids(mail.fetch(fresh_name, "g")) == [2]


def test_workers_of_a_group_compete(mail: Mail, connect: Connect, box: str) -> None:
    """Messages out with another live member are skipped."""
    for _ in range(4):
        mail.deliver(box)
    first, second = connect(), connect()
    assert ids(first.fetch(box, "g", num_msgs=2)) == [0, 1]
    assert ids(second.fetch(box, "g")) == [2, 3]
    assert ids(first.fetch(box, "g")) == [0, 1]


def test_what_another_member_held_comes_when_its_connection_closes(
    mail: Mail, connect: Connect, box: str
) -> None:
    """Its unacknowledged messages are anybody's."""
    mail.deliver(box)
    mail.deliver(box)
    first = connect()
    assert ids(first.fetch(box, "g")) == [0, 1]
    first.ack(box, "g", 0)
    assert mail.fetch(box, "g") == []
    first.close()
    assert ids(mail.done(f"MSG.FETCH.{box}", request("g", WAIT_MS))["messages"]) == [1]


def test_what_another_member_held_comes_when_its_lease_ends(
    mail: Mail, connect: Connect, box: str
) -> None:
    """`ack_wait_ms` is how long; the connection is still there."""
    mail.deliver(box)
    first = connect()
    start = time.monotonic()
    assert ids(first.fetch(box, "g", ack_wait_ms=400)) == [0]
    assert mail.fetch(box, "g") == []
    [entry] = mail.done(f"MSG.FETCH.{box}", request("g", WAIT_MS))["messages"]
    assert 0.4 - CLOCK_S <= time.monotonic() - start < PROMPT_S
    assert entry["deliveries"] == 2


def test_a_mailbox_can_have_its_own_ack_wait(mail: Mail, connect: Connect, create: Create) -> None:
    """It counts where FETCH does not say otherwise."""
    box = create(ack_wait=1)
    mail.deliver(box)
    first = connect()
    start = time.monotonic()
    assert ids(first.fetch(box, "g")) == [0]
    assert ids(mail.done(f"MSG.FETCH.{box}", request("g", WAIT_MS))["messages"]) == [0]
    assert 1 - CLOCK_S <= time.monotonic() - start < PROMPT_S


def test_a_named_member_is_the_same_on_every_connection(
    mail: Mail, connect: Connect, box: str
) -> None:
    """It gets its messages again from anywhere, and its end is not that of a connection."""
    mail.deliver(box)
    first = connect()
    assert ids(first.fetch(box, "g", member="worker")) == [0]
    assert mail.fetch(box, "g") == []
    first.close()
    assert mail.fetch(box, "g") == []
    assert ids(mail.fetch(box, "g", member="worker")) == [0]


def test_two_members_on_one_connection_compete(mail: Mail, box: str) -> None:
    """The member field says who it is, not the connection."""
    mail.deliver(box)
    mail.deliver(box)
    assert ids(mail.fetch(box, "g", member="a", num_msgs=1)) == [0]
    assert ids(mail.fetch(box, "g", member="b")) == [1]


def test_num_msgs_is_the_most_of_one_call(mail: Mail, box: str) -> None:
    """100 unless it says otherwise."""
    for _ in range(103):
        mail.begin(f"MSG.SEND.{box}", b"")
    mail.deliver(box)
    assert len(mail.fetch(box)) == 100
    assert len(mail.fetch(box, num_msgs=3)) == 3
    assert len(mail.fetch(box, num_msgs=10_000)) == 104


def test_a_reply_is_cut_at_about_a_mebibyte(mail: Mail, box: str) -> None:
    """The rest comes with the next FETCH."""
    for _ in range(5):
        mail.deliver(box, bytes([65]) * 400_000)
    first = mail.fetch(box, "g")
    assert ids(first) == [0, 1]
    mail.ack(box, "g", 1)
    assert ids(mail.fetch(box, "g")) == [2, 3]


def test_max_bytes_never_cuts_below_one_message(mail: Mail, box: str) -> None:
    """One message larger than the limit comes alone."""
    mail.deliver(box, bytes([65]) * 5000)
    mail.deliver(box, b"small")
    mail.deliver(box, b"small")
    assert ids(mail.fetch(box, max_bytes=1)) == [0]
    assert ids(mail.fetch(box, "g", max_bytes=1000)) == [0]
    mail.ack(box, "g", 0)
    assert ids(mail.fetch(box, "g", max_bytes=1000)) == [1, 2]


@pytest.mark.parametrize("least", ["urgent", 3, "3"])
def test_min_priority_leaves_less_important_messages(mail: Mail, box: str, least: object) -> None:
    """They stay for a FETCH that wants them."""
    for level in (9, 5, 3, 1):
        mail.deliver(box, priority=level)
    assert ids(mail.fetch(box, "g", min_priority=least)) == [3, 2]
    mail.ack(box, "g", 2)
    assert ids(mail.fetch(box, "g")) == [1, 0]


def test_a_long_poll_with_min_priority_sleeps_through_less_important_ones(
    mail: Mail, box: str
) -> None:
    """Only a message that it wants answers it."""
    config = {"max_wait_ms": WAIT_MS, "min_priority": "urgent"}
    waiting = mail.begin(f"MSG.FETCH.{box}", {"group_name": "g", "config": config})
    mail.deliver(box, b"normal")
    mail.deliver(box, b"urgent", priority="urgent")
    assert payloads(mail.answer(waiting)["messages"]) == ["urgent"]


def test_groups_and_deliveries_survive_a_restart(own: Restarting, fresh_name: str) -> None:
    """A group goes on where it was; what was out and not acknowledged comes again."""
    box = fresh_name
    with own.connect() as mail:
        mail.done("MAILBOX.CREATE", {"name": box})
        for _ in range(4):
            mail.deliver(box)
        assert ids(mail.fetch(box, "g", num_msgs=3)) == [0, 1, 2]
        mail.ack(box, "g", 0)
        own.restart(kill=True)
    with own.connect() as mail:
        entries = mail.fetch(box, "g")
        found = [(entry["msg_id"], entry["deliveries"]) for entry in entries]
        assert found == [(1, 2), (2, 2), (3, 1)]


def test_raw_answers_with_a_message_per_entry_and_a_status(mail: Mail, box: str) -> None:
    """Payload bytes untouched, metadata in headers, a reply subject to acknowledge."""
    mail.done(
        f"MSG.SEND.{box}",
        b"\xff\x00",
        {"mq9-key": "k", "mq9-tags": "a,b", "mq9-ttl": "60", "mq9-priority": "urgent", "X": "y"},
    )
    mail.deliver(box, b"second")
    body = request("g", deliver="earliest", config={"format": "raw", "max_wait_ms": 0})
    answer = mail.raw(f"MSG.FETCH.{box}", body)
    assert answer.status == "204 Batch Completed"
    first, second = answer.entries
    assert (first.payload, second.payload) == (b"\xff\x00", b"second")
    lines = first.headers.decode().strip().split("\r\n")
    assert lines[0] == "NATS/1.0"
    named = dict(line.split(": ", 1) for line in lines[1:])
    assert int(named.pop("mq9-expires-at")) == pytest.approx(time.time() + 60, abs=3)
    assert int(named.pop("mq9-create-time")) == pytest.approx(time.time(), abs=3)
    assert named == {
        "mq9-msg-id": "0",
        "mq9-priority": "urgent",
        "mq9-key": "k",
        "mq9-tags": "a,b",
        "mq9-deliveries": "1",
        "X": "y",
    }
    for entry in answer.entries:
        mail.publish(entry.reply, b"+ACK")
    mail.ping()
    assert mail.fetch(box, "g") == []


@pytest.mark.parametrize(
    "name", ["mq9-msg-id", "mq9-create-time", "mq9-expires-at", "mq9-deliveries", "MQ9-Msg-Id"]
)
def test_a_sender_cannot_forge_the_metadata_of_a_raw_message(
    mail: Mail, box: str, name: str
) -> None:
    """A header with the name of such metadata is refused, or not delivered beside the true one."""
    refused = mail.ask(f"MSG.SEND.{box}", b"", {name: "99"})["error"]
    body = request("g", deliver="earliest", config={"format": "raw", "max_wait_ms": 0})
    entries = mail.raw(f"MSG.FETCH.{box}", body).entries
    assert len(entries) == (0 if refused else 1)
    assert [entry for entry in entries if b": 99\r\n" in entry.headers] == []


def test_raw_says_why_there_is_nothing(mail: Mail, box: str, fresh_name: str) -> None:
    """No messages, time over, or an error: each has its status."""
    for wait_ms, status in ((0, "404 No Messages"), (50, "408 Request Timeout")):
        body = {"config": {"format": "raw", "max_wait_ms": wait_ms}}
        assert mail.raw(f"MSG.FETCH.{box}", body).status == status
    answer = mail.raw(f"MSG.FETCH.{fresh_name}", {"config": {"format": "raw"}})
    assert answer.status == f"400 mailbox {fresh_name} does not exist"


def test_raw_without_a_group_has_nothing_to_acknowledge(mail: Mail, box: str) -> None:
    """The messages have no reply subject."""
    mail.deliver(box)
    body = {"deliver": "earliest", "config": {"format": "raw"}}
    assert [entry.reply for entry in mail.raw(f"MSG.FETCH.{box}", body).entries] == [""]


def test_many_long_polls_wait_side_by_side(connect: Connect, create: Create) -> None:
    """Each mailbox wakes its own, on one connection."""
    boxes = [create() for _ in range(20)]
    mail = connect()
    polls = [mail.begin(f"MSG.FETCH.{box}", request("g", WAIT_MS)) for box in boxes]
    sender = connect()
    thread = threading.Thread(
        target=lambda: [sender.deliver(box, box.encode()) for box in reversed(boxes)]
    )
    thread.start()
    found = [payloads(mail.answer(each)["messages"]) for each in polls]
    thread.join()
    assert found == [[box] for box in boxes]
