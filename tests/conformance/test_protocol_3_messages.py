"""Messages: ids, priorities, order, keys, delays, lifetimes, headers and encodings."""

import base64
import time

import pytest
from tests.conformance.conftest import Create
from tests.mail import Json, Mail, ids, payloads
from tests.restarts import Restarting

EXACT_S = 0.1
# The broker's clock counts whole milliseconds.
CLOCK_S = 0.002
NAMES = {"critical": 1, "urgent": 3, "normal": 5, "notify": 9}


def poll(wait_s: float, **fields: object) -> Json:
    """The body of a FETCH from the oldest message on that waits."""
    return {"deliver": "earliest", "config": {"max_wait_ms": int(wait_s * 1000)}} | fields


def test_message_ids_count_from_zero_in_each_mailbox(mail: Mail, create: Create) -> None:
    """0, 1, 2, ... in every mailbox, whatever the priority."""
    first, second = create(), create()
    assert [mail.deliver(first, priority=name) for name in NAMES] == [0, 1, 2, 3]
    assert mail.deliver(second) == 0


def test_message_ids_are_never_used_again(mail: Mail, create: Create) -> None:
    """Neither deletion nor expiry gives an id back."""
    box = create()
    mail.deliver(box)
    assert mail.deliver(box, ttl=1) == 1
    mail.done(f"MSG.DELETE.{box}.0")
    mail.done(f"MSG.DELETE.{box}.1")
    assert mail.deliver(box) == 2
    assert ids(mail.fetch(box)) == [2]


@pytest.mark.parametrize("kill", [False, True])
def test_message_ids_are_the_same_after_a_restart(
    own: Restarting, fresh_name: str, kill: bool
) -> None:
    """Messages keep their ids and the count goes on, however the broker ended."""
    box = fresh_name
    with own.connect() as mail:
        mail.done("MAILBOX.CREATE", {"name": box})
        for text in (b"zero", b"one", b"two"):
            mail.deliver(box, text)
        mail.done(f"MSG.DELETE.{box}.2")
    own.restart(kill=kill)
    with own.connect() as mail:
        entries = mail.fetch(box)
        assert list(zip(ids(entries), payloads(entries), strict=True)) == [(0, "zero"), (1, "one")]
        assert mail.deliver(box) == 3


@pytest.mark.parametrize(("name", "level"), NAMES.items())
def test_a_priority_has_a_name_and_a_number(mail: Mail, box: str, name: str, level: int) -> None:
    """A name and its number mean the same; entries say the name."""
    mail.deliver(box, priority=name)
    mail.deliver(box, priority=level)
    assert [entry["priority"] for entry in mail.fetch(box)] == [name, name]


def test_levels_without_a_name_are_numbers(mail: Mail, box: str) -> None:
    """All ten levels exist; those without a name are shown as their number."""
    for level in range(10, 0, -1):
        mail.deliver(box, priority=level)
    shown = [entry["priority"] for entry in mail.fetch(box)]
    assert shown == ["critical", "2", "urgent", "4", "normal", "6", "7", "8", "notify", "10"]


def test_the_default_priority_is_normal(mail: Mail, box: str) -> None:
    """Without the header a message is normal."""
    mail.deliver(box)
    assert [entry["priority"] for entry in mail.fetch(box)] == ["normal"]


@pytest.mark.parametrize("value", ["0", "11", "-1", "high", "Urgent", "1.5", "normal,urgent"])
def test_any_other_priority_is_an_error(mail: Mail, box: str, value: str) -> None:
    """It is not silently normal."""
    answer = mail.ask(f"MSG.SEND.{box}", b"", {"mq9-priority": value})
    assert answer["error"].startswith(f'mq9-priority is "{value}"')
    assert answer["msg_id"] == -1
    assert mail.fetch(box) == []


def test_order_is_by_level_and_then_by_id(mail: Mail, box: str) -> None:
    """The most important first; among equals the oldest."""
    sent = [5, 1, 9, 5, 3, 1, 10, 3]
    for level in sent:
        mail.deliver(box, priority=level)
    expected = sorted(range(len(sent)), key=lambda msg_id: (sent[msg_id], msg_id))
    assert ids(mail.fetch(box)) == expected
    assert ids(mail.fetch(box, "g")) == expected


def test_the_newest_message_of_a_key_replaces_the_older_one(mail: Mail, box: str) -> None:
    """Also at another priority; other keys and messages without one are left alone."""
    mail.deliver(box, b"running", key="status")
    mail.deliver(box, b"other", key="progress")
    mail.deliver(box, b"plain")
    assert mail.deliver(box, b"done", key="status", priority="urgent") == 3
    entries = mail.fetch(box)
    assert payloads(entries) == ["done", "other", "plain"]
    assert [entry.get("key") for entry in entries] == ["status", "progress", None]


def test_a_group_that_had_not_consumed_the_old_one_sees_only_the_new(mail: Mail, box: str) -> None:
    """One that had, gets the new one as well."""
    mail.deliver(box, b"old", key="k")
    assert payloads(mail.fetch(box, "quick")) == ["old"]
    mail.ack(box, "quick", 0)
    mail.deliver(box, b"new", key="k")
    assert payloads(mail.fetch(box, "quick")) == ["new"]
    assert payloads(mail.fetch(box, "slow")) == ["new"]


def test_a_replaced_message_that_was_out_does_not_come_back(mail: Mail, box: str) -> None:
    """A member that held the old one and asks again gets the new one alone."""
    mail.deliver(box, b"old", key="k")
    assert payloads(mail.fetch(box, "g")) == ["old"]
    mail.deliver(box, b"new", key="k")
    assert payloads(mail.fetch(box, "g")) == ["new"]


def test_a_delayed_message_is_invisible_until_due(mail: Mail, box: str) -> None:
    """Its `msg_id` is -1; neither FETCH nor QUERY shows it before its time."""
    assert mail.deliver(box, b"later", delay=1) == -1
    assert mail.fetch(box) == []
    assert mail.done(f"MSG.QUERY.{box}")["messages"] == []
    [entry] = mail.done(f"MSG.FETCH.{box}", poll(5))["messages"]
    assert entry["payload"] == "later"


def test_a_delay_is_exact_to_100_ms(mail: Mail, box: str) -> None:
    """An answer before its time never shows it; a question 100 ms after it always does."""
    start = time.monotonic()
    mail.deliver(box, b"later", delay=1)
    sent = time.monotonic()
    asked = sent
    while not mail.fetch(box):
        assert asked < sent + 1 + EXACT_S, "it should be there"
        asked = time.monotonic()
    assert time.monotonic() >= start + 1 - CLOCK_S


def test_a_delayed_message_gets_its_id_when_due(mail: Mail, box: str) -> None:
    """Messages sent while it waits come before it."""
    mail.deliver(box, b"later", delay=1)
    assert mail.deliver(box, b"now") == 0
    mail.ack(box, "g", mail.fetch(box, "g")[0]["msg_id"])
    [entry] = mail.done(f"MSG.FETCH.{box}", poll(5, group_name="g"))["messages"]
    assert (entry["msg_id"], entry["payload"]) == (1, "later")
    assert mail.deliver(box) == 2


def test_a_delayed_message_is_created_when_due(mail: Mail, box: str) -> None:
    """`create_time` is when it became visible, not when it was sent."""
    sent = time.time()
    mail.deliver(box, delay=1)
    [entry] = mail.done(f"MSG.FETCH.{box}", poll(5))["messages"]
    assert entry["create_time"] >= int(sent + 1 - CLOCK_S)


def test_a_delay_of_zero_is_none(mail: Mail, box: str) -> None:
    """The message is there at once, with its id."""
    assert mail.deliver(box, delay=0) == 0


def test_a_delay_survives_a_restart(own: Restarting, fresh_name: str) -> None:
    """Durable at once: it comes at its time though the broker has died in between."""
    box = fresh_name
    with own.connect() as mail:
        mail.done("MAILBOX.CREATE", {"name": box})
        start = time.monotonic()
        mail.deliver(box, b"later", delay=3)
    own.restart(kill=True)
    with own.connect() as mail:
        [entry] = mail.done(f"MSG.FETCH.{box}", poll(8))["messages"]
        assert entry["payload"] == "later"
        assert time.monotonic() - start >= 3 - CLOCK_S


def test_a_message_expires_on_time_to_100_ms(mail: Mail, box: str) -> None:
    """`mq9-ttl` counts from the send; the mailbox and other messages stay."""
    mail.deliver(box, b"stays")
    start = time.monotonic()
    mail.deliver(box, b"goes", ttl=1)
    asked = sent = time.monotonic()
    while len(mail.fetch(box)) == 2:
        assert asked < sent + 1 + EXACT_S, "it should have gone"
        asked = time.monotonic()
    assert time.monotonic() >= start + 1 - CLOCK_S
    assert payloads(mail.done(f"MSG.QUERY.{box}")["messages"]) == ["stays"]
    assert mail.ask(f"MSG.DELETE.{box}.1")["error"] == "message not found"


def lives(mail: Mail, box: str) -> dict[str, int | None]:
    """How long each message of a mailbox lives, in seconds; None is as long as the mailbox."""
    entries = mail.done(f"MSG.QUERY.{box}")["messages"]
    found: dict[str, int | None] = {}
    for entry in entries:
        until = entry.get("expires_at")
        # Both are whole seconds: the end is rounded up.
        found[entry["payload"]] = (
            None if until is None else (until - entry["create_time"]) // 10 * 10
        )
    return found


def test_a_mailbox_says_how_long_messages_of_a_priority_live(mail: Mail, create: Create) -> None:
    """`message_ttls` is for those without `mq9-ttl`, whichever way they are sent."""
    box = create(message_ttls={"urgent": 500, "normal": 300, "9": 700, "10": 0}, max_age=600)
    for name in ("critical", "urgent", "normal", "notify", "10"):
        mail.deliver(box, name.encode(), priority=name)
    mail.deliver(box, b"own", ttl=100)
    mail.deliver(box, b"none", ttl=0)
    for subject in (f"INBOX.{box}.urgent", f"MAILBOX.MSG.{box}"):
        mail.done(subject, subject.split(".")[0].encode())
    by_priority = {"critical": 600, "urgent": 500, "normal": 300, "notify": 600, "10": 600}
    others = {"own": 100, "none": 600, "INBOX": 500, "MAILBOX": 300}
    assert lives(mail, box) == by_priority | others


def test_a_message_without_any_life_of_its_own_stays(mail: Mail, create: Create) -> None:
    """`mq9-ttl: 0` is no limit, and a priority that is not named has none."""
    box = create(message_ttls={"normal": 300})
    mail.deliver(box, b"a", ttl=0)
    mail.deliver(box, b"b", priority="urgent")
    mail.deliver(box, b"c")
    assert lives(mail, box) == {"a": None, "b": None, "c": 300}


def test_the_life_of_a_delayed_message_counts_from_the_send(mail: Mail, box: str) -> None:
    """A message whose life is over before it is due is never seen; one with more to live is."""
    sent = time.time()
    mail.deliver(box, b"never", delay=2, ttl=1)
    mail.deliver(box, b"seen", delay=1, ttl=60)
    [entry] = mail.done(f"MSG.FETCH.{box}", poll(5))["messages"]
    assert entry["payload"] == "seen"
    assert sent + 60 - 1 <= entry["expires_at"] <= time.time() + 60 + 1
    mail.deliver(box, b"marker", delay=1)
    entries = mail.done(f"MSG.FETCH.{box}", poll(5, deliver="from_id", from_id=1))["messages"]
    assert payloads(entries) == ["marker"]


def test_other_headers_come_back_with_the_message(mail: Mail, box: str) -> None:
    """Names as they were sent, each with its values in order; those of mq9 are not among them."""
    headers = [("Trace-Id", "4711"), ("X", "one"), ("mq9-tags", "a"), ("X", "two"), ("y", "z: é")]
    mail.done(f"MSG.SEND.{box}", b"", headers)
    [entry] = mail.fetch(box)
    assert entry["headers"] == {"Trace-Id": ["4711"], "X": ["one", "two"], "y": ["z: é"]}


@pytest.mark.parametrize("text", ["", "plain", 'quo"te\\', "zeilen\n\t\x00\x7f", "grün 🦀 \u2028"])
def test_text_goes_as_the_string_it_is(mail: Mail, box: str, text: str) -> None:
    """Valid UTF-8 is never touched."""
    mail.deliver(box, text.encode())
    [entry] = mail.fetch(box)
    assert entry["payload"] == text
    assert "encoding" not in entry


@pytest.mark.parametrize("data", [b"\xff", b"\xc3\x28", b"ok\x80", bytes(range(256))])
def test_other_bytes_go_as_base64(mail: Mail, box: str, data: bytes) -> None:
    """The entry says so."""
    mail.deliver(box, data)
    for entry in (*mail.fetch(box), *mail.done(f"MSG.QUERY.{box}")["messages"]):
        assert entry["encoding"] == "base64"
        assert base64.b64decode(entry["payload"], validate=True) == data


def test_a_request_can_ask_for_base64(mail: Mail, box: str) -> None:
    """Then every entry is in it, text or not."""
    mail.deliver(box, b"text")
    asked = mail.fetch(box, encoding="base64")
    asked += mail.done(f"MSG.QUERY.{box}", {"encoding": "base64"})["messages"]
    assert [(entry["payload"], entry["encoding"]) for entry in asked] == [
        ("dGV4dA==", "base64")
    ] * 2


def test_the_broker_can_be_set_to_base64(own: Restarting, fresh_name: str) -> None:
    """`payload_encoding = "base64"` in its configuration forces it for every reply."""
    own.config = 'mq9 { payload_encoding: "base64" }\n'
    own.restart()
    own.config = ""
    with own.connect() as mail:
        mail.done("MAILBOX.CREATE", {"name": fresh_name})
        mail.deliver(fresh_name, b"text")
        entries = mail.fetch(fresh_name) + mail.done(f"MSG.QUERY.{fresh_name}")["messages"]
    own.restart()
    found = [(entry["payload"], entry["encoding"]) for entry in entries]
    assert found == [("dGV4dA==", "base64")] * 2


def test_entries_carry_what_is_there_and_nothing_else(mail: Mail, box: str) -> None:
    """`key`, `tags`, `headers`, `expires_at` and `deliveries` only where present."""
    mail.deliver(box, b"plain")
    mail.done(
        f"MSG.SEND.{box}",
        b"full",
        {"mq9-key": "k", "mq9-tags": "a, b", "mq9-ttl": "60", "Trace": "1"},
    )
    plain, full = mail.fetch(box)
    assert list(plain) == ["msg_id", "payload", "priority", "create_time"]
    assert {name: full[name] for name in ("key", "tags", "headers")} == {
        "key": "k",
        "tags": ["a", "b"],
        "headers": {"Trace": ["1"]},
    }
    assert full["expires_at"] > full["create_time"]
    assert [entry["deliveries"] for entry in mail.fetch(box, "g")] == [1, 1]
    assert [entry["deliveries"] for entry in mail.fetch(box, "g")] == [1, 1]
