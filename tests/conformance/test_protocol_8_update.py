"""MAILBOX.UPDATE: what a request names changes, what it does not name stays.

Runs a broker of its own: where nobody has to authenticate, a client on the same machine is an
operator.
"""

import json
import os
import secrets
import time
from collections.abc import Iterator

import pytest
from tests.conformance.conftest import URL_VARIABLE
from tests.mail import DEADLINE_S, Json, Mail, payloads
from tests.peers import MQ9, Serve, Server

USERS = """
authorization { users: [
  { user: ops, password: x, permissions: { publish: [">", "$mq9.AI.ADMIN.>"] } }
  { user: updater, password: x, permissions: { publish: [">", "$mq9.AI.ADMIN.MAILBOX.UPDATE.>"] } }
  { user: remover, password: x, permissions: { publish: [">", "$mq9.AI.ADMIN.MAILBOX.REMOVE.>"] } }
  { user: narrow, password: x, permissions: { publish: { deny: ["$mq9.AI.MSG.SEND.victim"] } } }
  { user: agent, password: x }
] }
no_auth_user: agent
"""
MISSING = "permission denied: the token is missing; only its creator and operators may do this"
WRONG = (
    "permission denied: the token is not that of this mailbox; only its creator and operators "
    "may do this"
)


@pytest.fixture(scope="module")
def users(serve_for_session: Serve) -> Server:
    """A broker with operators and others."""
    if os.environ.get(URL_VARIABLE):
        pytest.skip(f"needs users of its own, which {URL_VARIABLE} does not have")
    return serve_for_session(USERS, peer=MQ9)


def login(users: Server, user: str) -> Mail:
    return Mail(users.url.replace("://", f"://{user}:x@"))


@pytest.fixture
def mail(users: Server) -> Iterator[Mail]:
    """A client that is no operator."""
    with Mail(users.url) as mail:
        yield mail


@pytest.fixture
def ops(users: Server) -> Iterator[Mail]:
    """An operator, who sees everything of a mailbox."""
    with login(users, "ops") as ops:
        yield ops


class Owned:
    """A mailbox, its token and its owner."""

    def __init__(self, mail: Mail, **policy: object) -> None:
        self.mail = mail
        self.name = f"test.{secrets.token_hex(8)}"
        request = {"name": self.name, "ttl": 600, "token": True} | policy
        self.token = mail.done("MAILBOX.CREATE", request)["token"]

    def ask(self, **fields: object) -> Json:
        return self.mail.ask(f"MAILBOX.UPDATE.{self.name}", fields | {"token": self.token})

    def update(self, **fields: object) -> None:
        assert self.ask(**fields) == {"error": "", "mail_address": self.name}

    def refused(self, **fields: object) -> str:
        answer = self.ask(**fields)
        assert answer["error"] != "", answer
        assert answer == {"error": answer["error"], "mail_address": ""}
        return str(answer["error"])


@pytest.fixture
def box(mail: Mail) -> Owned:
    """A mailbox with nothing special."""
    return Owned(mail)


def shown(ops: Mail, box: Owned) -> Json:
    mailbox: Json = ops.done(f"ADMIN.MAILBOX.SHOW.{box.name}")["mailbox"]
    return mailbox


def test_the_reply_has_the_address(mail: Mail, box: Owned) -> None:
    """And is the same where nothing is named or nothing changes."""
    for request in ({"max_msgs": 7}, {"max_msgs": 7}, {}, {"unknown": 1}, {"max_msgs": None}):
        text = mail.text(f"MAILBOX.UPDATE.{box.name}", {**request, "token": box.token})
        assert text == f'{{"error":"","mail_address":"{box.name}"}}'


CHANGES: list[Json] = [
    {"type": "latest"},
    {"retention": "work_queue"},
    {"ack_wait": 5},
    {"ack_wait_ms": 1500},
    {"dead_letter": "test.dead"},
    {"dead_letter": "test.dead", "max_deliver": 3},
    {"max_ack_pending": 4},
    {"max_msgs": 5},
    {"max_bytes": 6000},
    {"max_age": 7},
    {"max_age_ms": 1700},
    {"message_ttls": {"urgent": 7, "2": 8}},
    {"message_ttls": {}},
    {"max_msg_size": 8000},
    {"discard": "new"},
    {"dedup_window": 9},
    {"group_ttl": 10},
    {"group_ttl_ms": 1900},
    {"group_ttl": 0},
    {"desc": "what it is for"},
    {"public": True},
]


@pytest.mark.parametrize("change", CHANGES, ids=json.dumps)
def test_a_change_is_as_if_the_mailbox_had_been_created_so(
    mail: Mail, ops: Mail, change: Json
) -> None:
    """Of all fields alike: an operator sees no difference, and others stay."""
    common = {"max_msgs": 99, "max_ack_pending": 77, "desc": "old"}
    created, updated = Owned(mail, **(common | change)), Owned(mail, **common)
    updated.update(**change)
    changing = {"address", "mail_address", "mail_id", "created", "created_ms", "expires"}
    changing |= {"expires_ms", "token"}
    both = [
        {name: value for name, value in shown(ops, each).items() if name not in changing}
        for each in (created, updated)
    ]
    assert both[0] == both[1]


def test_a_dead_letter_mailbox_can_be_taken_off(mail: Mail, ops: Mail) -> None:
    """By an empty name, and only with what needs it."""
    box = Owned(mail, dead_letter="test.dead", max_deliver=2)
    before = shown(ops, box)
    assert "dead_letter" in box.refused(dead_letter="")
    assert shown(ops, box) == before
    box.update(dead_letter="", max_deliver=0)
    mail.deliver(box.name, b"often")
    for _ in range(4):
        assert payloads(mail.fetch(box.name, "g")) == ["often"]
        mail.done(f"MSG.ACK.{box.name}", {"group_name": "g", "msg_id": 0, "kind": "nak"})


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"max_msgs": -1}, "max_msgs is -1: it must be from 0 to"),
        ({"max_msgs": "5"}, 'invalid max_msgs: expected a whole number, found "5"'),
        ({"type": "newest"}, 'invalid type: expected "standard" or "latest", found "newest"'),
        ({"desc": "x" * 5000}, "desc"),
        ({"desc": 5}, "invalid desc"),
        ({"max_deliver": 2}, "max_deliver"),
        ({"dead_letter": "no good"}, "dead_letter"),
        ({"ttl": 1, "ttl_ms": 5}, "ttl and ttl_ms cannot both be given"),
        ({"max_age": 1, "max_age_ms": 5}, "max_age and max_age_ms cannot both be given"),
        ({"ttl_ms": 1}, "ttl: it is over already"),
        ({"backoff": [1]}, "backoff is not supported by this version"),
    ],
    ids=str,
)
def test_what_create_refuses_update_refuses(
    ops: Mail, box: Owned, change: Json, problem: str
) -> None:
    """In words, and nothing changes, of the rest of the request neither."""
    before = shown(ops, box)
    created = time.monotonic()
    while time.monotonic() < created + 0.002:
        ops.ping()
    assert problem in box.refused(**(change | {"max_ack_pending": 3}))
    assert shown(ops, box) == before


def test_dead_letters_go_in_no_circle(mail: Mail) -> None:
    """Not through several mailboxes either; once the circle is open, it may be closed elsewhere."""
    first = Owned(mail)
    second = Owned(mail, dead_letter=first.name)
    third = Owned(mail, dead_letter=second.name)
    for target in (first, second, third):
        assert "dead letters would come back" in first.refused(dead_letter=target.name)
    second.update(dead_letter="")
    first.update(dead_letter=third.name)
    assert "dead letters would come back" in second.refused(dead_letter=first.name)


def test_a_new_dead_letter_mailbox_needs_the_permission_to_send_to_it(users: Server) -> None:
    """One that it has already does not."""
    with login(users, "narrow") as narrow, Mail(users.url) as other:
        box = Owned(narrow)
        error = 'permission denied: dead_letter needs the permission to send to "victim"'
        assert box.refused(dead_letter="victim") == error
        box.update(dead_letter="test.dead")
        answer = {"dead_letter": "victim", "token": box.token}
        other.done(f"MAILBOX.UPDATE.{box.name}", answer)
        box.update(dead_letter="victim", max_deliver=5)


def test_the_token_is_needed(mail: Mail, ops: Mail, box: Owned) -> None:
    """Without it, or with another: an error, and nothing changes."""
    before = shown(ops, box)
    for token, problem in ((None, MISSING), ("", WRONG), (box.token[:-1], WRONG)):
        answer = mail.ask(f"MAILBOX.UPDATE.{box.name}", {"max_msgs": 1, "token": token})
        assert answer == {"error": problem, "mail_address": ""}
    assert shown(ops, box) == before
    box.update(max_msgs=1)
    box.update(max_msgs=2)


def test_an_operator_needs_no_token(users: Server, box: Owned) -> None:
    """One whose permissions name the command below `$mq9.AI.ADMIN.`."""
    with login(users, "remover") as remover:
        assert remover.ask(f"MAILBOX.UPDATE.{box.name}", {"max_msgs": 1})["error"] == MISSING
    with login(users, "updater") as updater:
        updater.done(f"MAILBOX.UPDATE.{box.name}", {"max_msgs": 1})


def test_a_mailbox_that_is_not_there(mail: Mail, ops: Mail) -> None:
    """The text is literal, for everyone."""
    name = f"test.{secrets.token_hex(8)}"
    for client in (mail, ops):
        answer = client.ask(f"MAILBOX.UPDATE.{name}", {"max_msgs": 1})
        assert answer == {"error": f"mailbox {name} does not exist", "mail_address": ""}


def test_a_payload_that_is_too_large_is_refused_in_the_shape_of_the_command(
    mail: Mail, box: Owned
) -> None:
    """And the connection lives on."""
    answer = mail.ask(f"MAILBOX.UPDATE.{box.name}", b"x" * (mail.info["max_payload"] + 1))
    assert "max_payload" in answer.pop("error")
    assert answer == {"mail_address": ""}
    mail.ping()


def test_public_list_follows(mail: Mail, box: Owned) -> None:
    """Both ways, and with the new description."""
    assert box.name not in listed(mail)
    for _ in range(2):
        box.update(public=True, desc="found")
        assert listed(mail)[box.name] == "found"
        box.update(public=False)
        assert box.name not in listed(mail)


def listed(mail: Mail) -> dict[str, str]:
    mailboxes = mail.done("PUBLIC.LIST", {"limit": 1000})["mailboxes"]
    return {each["mail_id"]: each["desc"] for each in mailboxes}


@pytest.mark.parametrize(
    ("change", "left"), [({"max_msgs": 2}, 2), ({"max_bytes": 300}, 2), ({"type": "latest"}, 1)]
)
def test_lowered_limits_hold_for_messages_that_are_there(
    mail: Mail, box: Owned, change: Json, left: int
) -> None:
    """The oldest go, from groups as well."""
    sent = [f"{number} {'x' * 40}" for number in range(6)]
    for payload in sent:
        mail.deliver(box.name, payload.encode())
    assert len(mail.fetch(box.name, "g")) == 6
    box.update(**change)
    assert payloads(mail.done(f"MSG.QUERY.{box.name}")["messages"]) == sent[-left:]
    assert payloads(mail.fetch(box.name, "g")) == sent[-left:]
    assert mail.deliver(box.name, b"new") == 6


def test_thousands_of_messages_over_a_lowered_limit_go_soon(mail: Mail, box: Owned) -> None:
    """By themselves, and whoever sends meanwhile is answered as ever."""
    subject = f"$mq9.AI.MSG.SEND.{box.name}"
    for _ in range(3000):
        mail.publish(subject, b"many")
    mail.ping()
    box.update(max_msgs=3)
    mail.deliver(box.name, b"new")
    deadline = time.monotonic() + DEADLINE_S
    while len(found := mail.done(f"MSG.QUERY.{box.name}", {"limit": 10})["messages"]) > 3:
        assert time.monotonic() < deadline, "they stay"
    assert payloads(found) == ["many", "many", "new"]


def test_nothing_goes_where_new_messages_are_refused(mail: Mail) -> None:
    """With `discard` new the limit holds for what is sent."""
    box = Owned(mail, discard="new")
    for _ in range(5):
        mail.deliver(box.name, b"kept")
    box.update(max_msgs=2)
    assert len(mail.done(f"MSG.QUERY.{box.name}")["messages"]) == 5
    assert "max_msgs 2" in mail.ask(f"MSG.SEND.{box.name}", b"new")["error"]


def test_a_life_is_made_longer_and_shorter(mail: Mail) -> None:
    """It counts from the creation; 0 is for ever."""
    lasting, endless = Owned(mail, ttl=1), Owned(mail, ttl=1)
    lasting.update(ttl=600)
    endless.update(ttl=0)
    short = Owned(mail)
    short.update(ttl=1)
    poll = mail.begin(f"MSG.FETCH.{short.name}", {"config": {"max_wait_ms": 60_000}})
    gone = {"error": f"mailbox {short.name} does not exist", "messages": []}
    assert mail.answer(poll) == gone
    for box in (lasting, endless):
        mail.deliver(box.name, b"still there")
        box.update(desc="and can be changed")


def test_a_group_that_is_there_goes_by_a_new_group_ttl(mail: Mail, ops: Mail, box: Owned) -> None:
    """Though it had no time set when it was last used."""
    mail.deliver(box.name, b"given")
    mail.fetch(box.name, "g")
    mail.ack(box.name, "g", 0)
    box.update(group_ttl_ms=50)
    deadline = time.monotonic() + DEADLINE_S
    while shown(ops, box)["groups"]:
        assert time.monotonic() < deadline, "it stays"
