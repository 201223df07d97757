"""Mailboxes: names, replies, duplicates, expiry, kinds, and the public list."""

import math
import time

import pytest
from tests.conformance.conftest import Create
from tests.mail import Json, Mail, ids, payloads
from tests.peers import until

EXPIRY_SLACK_S = 0.1
# The broker's clock counts whole milliseconds.
CLOCK_S = 0.002


def test_create_takes_the_fields_of_all_dialects(mail: Mail, fresh_name: str) -> None:
    """Name, lifetime, description, type, visibility and queue policy in one request."""
    request = {
        "name": fresh_name,
        "ttl": 600,
        "desc": "what is left to do",
        "type": "standard",
        "public": False,
        "retention": "work_queue",
        "ack_wait": 5,
        "max_deliver": 3,
        "dead_letter": f"{fresh_name}.dead",
        "max_ack_pending": 10,
        "max_msgs": 100,
        "max_bytes": 100_000,
        "max_age": 60,
        "message_ttls": {"critical": 60, "10": 0},
        "max_msg_size": 10_000,
        "discard": "new",
    }
    assert mail.done("MAILBOX.CREATE", request)["mail_address"] == fresh_name


BROKEN_RULES = {
    "": "must not be empty",
    "a" * 129: "at most 128 characters",
    "Task.001": "lowercase",
    "task-001": "a-z, 0-9 and dots",
    "task_001": "a-z, 0-9 and dots",
    "task%2e001": "a-z, 0-9 and dots",
    "täsk": "a-z, 0-9 and dots",
    "a b": "a-z, 0-9 and dots",
    "a.*": "a-z, 0-9 and dots",
    ".task.001": "begin or end with a dot",
    "task.001.": "begin or end with a dot",
    "task..001": "two dots in a row",
}


@pytest.mark.parametrize("name", BROKEN_RULES)
def test_an_invalid_name_is_refused_with_the_rule_it_breaks(mail: Mail, name: str) -> None:
    """Each rule of the address format has its own words."""
    answer = mail.ask("MAILBOX.CREATE", {"name": name})
    assert BROKEN_RULES[name] in answer["error"]
    assert answer["mail_address"] == ""


@pytest.mark.parametrize("length", [1, 128])
def test_names_of_all_lengths_allowed_are_taken(mail: Mail, fresh_name: str, length: int) -> None:
    """1 to 128 characters."""
    name = (fresh_name[-1] if length == 1 else fresh_name).ljust(length, "9")
    answer = mail.ask("MAILBOX.CREATE", {"name": name, "ttl": 1})
    if length == 1 and answer["error"] == f"mailbox {name} already exists":
        pytest.skip("somebody has a mailbox of this name already")
    assert answer == {"error": "", "mail_address": name}
    assert mail.deliver(name) == 0


def test_generated_addresses_cannot_be_guessed(mail: Mail) -> None:
    """At least 128 random bits, in lowercase letters and digits, never the same twice."""
    found = {mail.done("MAILBOX.CREATE", {"ttl": 60})["mail_address"] for _ in range(200)}
    assert len(found) == 200
    letters = sorted(set("".join(found)))
    assert set(letters) <= set("abcdefghijklmnopqrstuvwxyz0123456789")
    shortest = min(map(len, found))
    # Letters that really vary, counted where they stand.
    bits = sum(math.log2(len({name[at] for name in found})) for at in range(shortest))
    assert bits >= 100, "200 samples cannot show all 128"
    assert shortest * math.log2(len(letters)) >= 128


@pytest.mark.parametrize("extra", [{"type": "latest"}, {"public": True}, {"public": False}, None])
def test_the_reply_carries_the_names_of_the_earlier_dialects_where_they_are_used(
    mail: Mail, fresh_name: str, extra: Json | None
) -> None:
    """With `type` or `public`, or without `name`: `mail_id`, `token` and `inbox` as well."""
    request = {"ttl": 60} if extra is None else {"name": fresh_name, "ttl": 60} | extra
    answer = mail.done("MAILBOX.CREATE", request)
    address = answer["mail_address"]
    assert answer["mail_id"] == address
    assert answer["token"] != ""
    assert answer["inbox"] == f"$mq9.AI.INBOX.{address}"


def test_the_reply_to_a_plain_create_is_that_of_the_current_protocol(
    mail: Mail, fresh_name: str
) -> None:
    """A name, a lifetime and a description add nothing to the reply."""
    text = mail.text("MAILBOX.CREATE", {"name": fresh_name, "ttl": 60, "desc": "d"})
    assert text == f'{{"error":"","mail_address":"{fresh_name}"}}'


def test_a_duplicate_name_is_an_error(mail: Mail, box: str) -> None:
    """The text is literal, and the mailbox that is there stays as it is."""
    mail.deliver(box, b"kept")
    expected = f'{{"error":"mailbox {box} already exists","mail_address":""}}'
    assert mail.text("MAILBOX.CREATE", {"name": box}) == expected
    assert mail.text("MAILBOX.CREATE", {"name": box, "ttl": 5}) == expected
    assert payloads(mail.fetch(box)) == ["kept"]


def test_a_duplicate_name_can_be_allowed_for(mail: Mail, fresh_name: str) -> None:
    """With `exist_ok` it is an error only if something that is given differs."""
    wanted: Json = {"name": fresh_name, "ttl": 600, "max_msgs": 5, "ack_wait": 7, "type": "latest"}
    first = mail.done("MAILBOX.CREATE", wanted | {"exist_ok": True})
    assert first.get("created", True) is True
    assert first["token"] != ""
    mail.deliver(fresh_name, b"kept")
    for same in (wanted, {"name": fresh_name}, {"name": fresh_name, "desc": "another"}):
        again = mail.done("MAILBOX.CREATE", same | {"exist_ok": True, "token": True})
        assert (again["mail_address"], again["created"]) == (fresh_name, False)
        assert not again.get("token")
    for other, problem in (
        ({"ttl": 60}, "its ttl_ms is 600000, not 60000"),
        (
            {"max_msgs": 6, "ack_wait": 8},
            "its max_msgs is 5, not 6, its ack_wait_ms is 7000, not 8000",
        ),
        ({"type": "standard"}, "its latest is true, not false"),
        ({"dead_letter": "d.d"}, 'its dead_letter is null, not "d.d"'),
    ):
        answer = mail.ask("MAILBOX.CREATE", wanted | {"exist_ok": True} | other)
        text = f"mailbox {fresh_name} already exists: {problem}"
        assert answer == {"error": text, "mail_address": ""}
    assert payloads(mail.fetch(fresh_name)) == ["kept"]


def test_a_duplicate_public_name_succeeds_and_keeps_the_first_lifetime(
    mail: Mail, fresh_name: str
) -> None:
    """With `public: true` it is said that nothing was created; the first TTL stays."""
    end = time.monotonic() + 1
    first = mail.done("MAILBOX.CREATE", {"name": fresh_name, "ttl": 1, "public": True})
    assert first.get("created", True) is True
    mail.deliver(fresh_name, b"kept")
    again = mail.done("MAILBOX.CREATE", {"name": fresh_name, "ttl": 600, "public": True})
    assert again["created"] is False
    assert again["mail_address"] == fresh_name
    assert payloads(mail.fetch(fresh_name)) == ["kept"]
    until(lambda: gone(mail, fresh_name), "it has expired", 5)
    assert time.monotonic() >= end - CLOCK_S


def gone(mail: Mail, address: str) -> bool:
    return bool(mail.ask(f"MSG.QUERY.{address}", {"limit": 1})["error"] != "")


def test_without_a_lifetime_a_mailbox_stays(mail: Mail, fresh_name: str) -> None:
    """`ttl` left out means the default, which is never; so does 0."""
    listed = [f"{fresh_name}.a", f"{fresh_name}.b"]
    mail.done("MAILBOX.CREATE", {"name": listed[0], "public": True})
    mail.done("MAILBOX.CREATE", {"name": listed[1], "public": True, "ttl": 0})
    found = {each["mail_id"]: each for each in public_list(mail)}
    assert [found[name]["expires"] for name in listed] == [0, 0]


def public_list(mail: Mail) -> list[Json]:
    """All pages of the public list."""
    found: list[Json] = []
    while True:
        request: Json = {"limit": 100}
        if found:
            request["after"] = found[-1]["mail_id"]
        page: list[Json] = mail.done("PUBLIC.LIST", request)["mailboxes"]
        found += page
        if not page:
            return found


def test_expires_is_created_plus_ttl_to_the_second(mail: Mail, fresh_name: str) -> None:
    """Whatever part of a second it was created in."""
    names = [f"{fresh_name}.{at}" for at in range(20)]
    for name in names:
        mail.done("MAILBOX.CREATE", {"name": name, "public": True, "ttl": 60})
    found = {each["mail_id"]: each for each in public_list(mail)}
    assert [found[name]["expires"] - found[name]["created"] for name in names] == [60] * 20


def test_a_mailbox_expires_on_time_to_100_ms(mail: Mail, fresh_name: str) -> None:
    """It is there until its time is over, and gone at once after that."""
    earliest = time.monotonic() + 1
    mail.done("MAILBOX.CREATE", {"name": fresh_name, "ttl": 1})
    created = asked = time.monotonic()
    while not gone(mail, fresh_name):
        assert asked < created + 1 + EXPIRY_SLACK_S, "it should have gone"
        asked = time.monotonic()
    assert time.monotonic() >= earliest - CLOCK_S


def test_expiry_takes_messages_and_groups_with_it(mail: Mail, fresh_name: str) -> None:
    """A mailbox of the same name created later starts from nothing."""
    box = fresh_name
    mail.done("MAILBOX.CREATE", {"name": box, "ttl": 1})
    mail.deliver(box, b"old")
    mail.deliver(box, b"delayed", delay=2)
    mail.deliver(box, b"key", key="k")
    assert len(mail.fetch(box, "g")) == 2
    until(lambda: gone(mail, box), "it has expired", 5)
    mail.done("MAILBOX.CREATE", {"name": box, "ttl": 600})
    assert mail.fetch(box) == []
    answer = mail.ask(f"MSG.ACK.{box}", {"group_name": "g", "msg_id": 0})
    assert answer["error"] == "group g has not been given msg_id 0"
    assert mail.deliver(box, b"new") == 0
    poll = {"group_name": "g", "deliver": "earliest", "config": {"max_wait_ms": 2000}}
    assert payloads(mail.done(f"MSG.FETCH.{box}", poll)["messages"]) == ["new"]
    mail.ack(box, "g", 0)
    # The delayed message of the first one would be due by now.
    assert mail.done(f"MSG.FETCH.{box}", poll)["messages"] == []


def test_expiry_answers_those_who_wait(mail: Mail, fresh_name: str) -> None:
    """A long poll at a mailbox that goes is told so, and does not wait for its end."""
    mail.done("MAILBOX.CREATE", {"name": fresh_name, "ttl": 1})
    poll = mail.begin(f"MSG.FETCH.{fresh_name}", {"config": {"max_wait_ms": 30_000}})
    assert mail.answer(poll, 5) == {
        "error": f"mailbox {fresh_name} does not exist",
        "messages": [],
    }


def test_a_latest_mailbox_keeps_the_newest_message(mail: Mail, create: Create) -> None:
    """One message, whatever its priority; ids go on."""
    box = create(type="latest")
    mail.deliver(box, b"first", priority="critical")
    assert mail.deliver(box, b"second") == 1
    assert payloads(mail.fetch(box)) == ["second"]
    assert ids(mail.done(f"MSG.QUERY.{box}")["messages"]) == [1]


def test_public_mailboxes_are_listed_in_pages(mail: Mail, fresh_name: str) -> None:
    """Each with its id, description, times and number of messages; private ones never."""
    names = [f"{fresh_name}.{letter}" for letter in "abc"]
    before = int(time.time())
    for name in names:
        mail.done(
            "MAILBOX.CREATE", {"name": name, "ttl": 60, "public": True, "desc": f"about {name}"}
        )
    hidden = f"{fresh_name}.hidden"
    mail.done("MAILBOX.CREATE", {"name": hidden, "ttl": 60, "public": False})
    mail.deliver(names[0])
    listed = {each["mail_id"]: each for each in public_list(mail)}
    assert hidden not in listed
    first = listed[names[0]]
    assert list(first) == ["mail_id", "desc", "created", "expires", "messages"]
    assert [first["desc"], first["messages"]] == [f"about {names[0]}", 1]
    assert before <= first["created"] <= time.time() + 1
    assert set(names) <= set(listed)
    page = mail.done("PUBLIC.LIST", {"limit": 2})["mailboxes"]
    assert len(page) == 2
