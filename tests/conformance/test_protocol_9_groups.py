"""Groups that go: who may list and remove them, and what becomes of messages, leases and waits.

Runs a broker of its own: where nobody has to authenticate, a client on the same machine is an
operator.
"""

import os
import secrets
from collections.abc import Iterator

import pytest
from tests.conformance.conftest import URL_VARIABLE
from tests.mail import Json, Mail, ids
from tests.peers import MQ9, Serve, Server, until

USERS = """
authorization { users: [
  { user: ops, password: x, permissions: { publish: [">", "$mq9.AI.ADMIN.>"] } }
  { user: remover, password: x, permissions: { publish: [">", "$mq9.AI.ADMIN.GROUP.REMOVE.>"] } }
  { user: other, password: x, permissions: { publish: [">", "$mq9.AI.ADMIN.MAILBOX.>"] } }
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


class Box:
    """A mailbox and its token."""

    def __init__(self, mail: Mail, **fields: object) -> None:
        self.mail = mail
        self.name = f"test.{secrets.token_hex(8)}"
        request = {"name": self.name, "ttl": 600, "token": True} | fields
        self.token: str = mail.done("MAILBOX.CREATE", request)["token"]
        self.command = f"GROUP.REMOVE.{self.name}"
        self.listing = f"GROUP.LIST.{self.name}"

    def remove(self, group: str) -> None:
        self.mail.done(self.command, {"group_name": group, "token": self.token})


@pytest.fixture
def box(mail: Mail) -> Box:
    return Box(mail)


def test_a_removed_group_starts_over_as_a_new_one(mail: Mail, box: Box) -> None:
    """With what is stored, as if for the first time; its acknowledgements are forgotten."""
    for _ in range(3):
        mail.deliver(box.name)
    assert ids(mail.fetch(box.name, "g", num_msgs=2)) == [0, 1]
    mail.ack(box.name, "g", 0, only=True)
    said = mail.text(box.command, {"group_name": "g", "token": box.token})
    assert said == '{"error":"","removed":true}'
    answer = mail.ask(f"MSG.ACK.{box.name}", {"group_name": "g", "msg_id": 1})
    assert answer["error"] == "group g has not been given msg_id 1"
    found = mail.fetch(box.name, "g")
    assert [(entry["msg_id"], entry["deliveries"]) for entry in found] == [(0, 1), (1, 1), (2, 1)]


def test_other_groups_and_the_messages_stay(mail: Mail, box: Box) -> None:
    """Where they were."""
    mail.deliver(box.name)
    for group in ("g", "h"):
        assert ids(mail.fetch(box.name, group)) == [0]
        mail.ack(box.name, group, 0)
    box.remove("g")
    assert mail.fetch(box.name, "h") == []
    assert ids(mail.done(f"MSG.QUERY.{box.name}")["messages"]) == [0]


def test_a_group_that_is_not_there_is_an_error(mail: Mail, box: Box) -> None:
    """So is the same removal again, and a mailbox that is not there."""
    request = {"group_name": "g", "token": box.token}
    missing = {"error": f"group g of mailbox {box.name} does not exist", "removed": False}
    assert mail.ask(box.command, request) == missing
    mail.fetch(box.name, "g")
    mail.done(box.command, request)
    assert mail.ask(box.command, request) == missing
    nowhere = f"test.{secrets.token_hex(8)}"
    answer = mail.ask(f"GROUP.REMOVE.{nowhere}", request)
    assert answer == {"error": f"mailbox {nowhere} does not exist", "removed": False}


def test_a_wait_for_a_removed_group_ends_with_an_error(mail: Mail, box: Box) -> None:
    """At once; waits of others go on."""
    config = {"max_wait_ms": 60_000}
    waits = [
        mail.begin(f"MSG.FETCH.{box.name}", {"group_name": group, "config": config})
        for group in ("g", "h")
    ]
    mail.ping()
    box.remove("g")
    gone = f"group g of mailbox {box.name} does not exist"
    assert mail.answer(waits[0]) == {"error": gone, "messages": []}
    mail.deliver(box.name)
    assert ids(mail.answer(waits[1])["messages"]) == [0]


def test_a_mailbox_full_of_groups_is_usable_again(mail: Mail, box: Box) -> None:
    """Whoever knows the address can fill it; the owner can empty it."""
    numbers = range(1024)
    fetch, config = f"MSG.FETCH.{box.name}", {"max_wait_ms": 0}
    asked = [mail.begin(fetch, {"group_name": f"g{n}", "config": config}) for n in numbers]
    assert all(mail.answer(subject)["error"] == "" for subject in asked)
    full = mail.ask(fetch, {"group_name": "mine", "config": config})["error"]
    assert full == f"quota max_groups reached: at most 1024 groups of mailbox {box.name}"
    box.remove("g511")
    mail.deliver(box.name)
    assert ids(mail.fetch(box.name, "mine")) == [0]
    assert full in mail.ask(fetch, {"group_name": "g511", "config": config})["error"]


def filled(mail: Mail, box: Box, names: list[str]) -> None:
    config = {"max_wait_ms": 0}
    fetch = f"MSG.FETCH.{box.name}"
    asked = [mail.begin(fetch, {"group_name": name, "config": config}) for name in names]
    assert all(mail.answer(subject)["error"] == "" for subject in asked)


def test_the_owner_is_told_the_groups_and_can_remove_what_strangers_made(
    mail: Mail, box: Box
) -> None:
    """Whoever has only the token needs no name that a stranger chose."""
    filled(mail, box, [secrets.token_hex(8) for _ in range(1024)])
    while groups := mail.done(box.listing, {"token": box.token, "limit": 1000})["groups"]:
        for group in groups:
            box.remove(group["name"])
    assert ids(mail.fetch(box.name, "mine")) == []


def test_groups_are_listed_by_name_in_pages(mail: Mail, box: Box) -> None:
    """With what they hold; a group that comes or goes moves no other to another page."""
    for _ in range(2):
        mail.deliver(box.name)
    names = [f"g{number:02}" for number in range(25)]
    filled(mail, box, names)
    assert ids(mail.fetch(box.name, "holds", num_msgs=1)) == [0]
    text = mail.text(box.listing, {"token": box.token, "after": "g23"})
    told = '{"name":"g24","pending":0},{"name":"holds","pending":1}'
    assert text == f'{{"error":"","groups":[{told}]}}'
    found: list[str] = []
    page: Json = {"more": True}
    while page.get("more"):
        request = {"token": box.token, "limit": 10, "after": found[-1] if found else None}
        page = mail.done(box.listing, request)
        found += [group["name"] for group in page["groups"]]
        if len(found) == 10:
            box.remove("g03")
            filled(mail, box, ["a"])
    assert found == [*names, "holds"]
    whole = mail.done(box.listing, {"token": box.token})
    assert len(whole["groups"]) == 26
    assert "more" not in whole
    longest = [("\x01" * 250) + f"{number:05}" for number in range(900)]
    filled(mail, box, longest)
    cut = mail.done(box.listing, {"token": box.token, "limit": 1000})
    assert cut["more"]
    assert 600 < len(cut["groups"]) < 900


def test_only_the_token_and_operators_list_groups(mail: Mail, box: Box, users: Server) -> None:
    """Users whose permissions name the command below `$mq9.AI.ADMIN.`, and no others."""
    filled(mail, box, ["g"])
    another = Box(mail)
    assert mail.ask(box.listing) == {"error": MISSING, "groups": []}
    for token in ("", box.token[:-1], another.token):
        assert mail.ask(box.listing, {"token": token}) == {"error": WRONG, "groups": []}
    with login(users, "remover") as remover, login(users, "ops") as ops:
        assert remover.ask(box.listing)["error"] == MISSING
        assert ops.done(box.listing)["groups"] == [{"name": "g", "pending": 0}]
    nowhere = f"test.{secrets.token_hex(8)}"
    answer = mail.ask(f"GROUP.LIST.{nowhere}", {"token": box.token})
    assert answer == {"error": f"mailbox {nowhere} does not exist", "groups": []}
    for limit in (0, 1001):
        answer = mail.ask(box.listing, {"token": box.token, "limit": limit})
        assert answer["error"] == f"limit is {limit}: it must be from 1 to 1000"


def test_a_work_queue_keeps_what_was_not_acknowledged(mail: Mail) -> None:
    """What its group had in hand goes to whoever comes next, at once."""
    box = Box(mail, retention="work_queue")
    for _ in range(3):
        mail.deliver(box.name)
    assert ids(mail.fetch(box.name, "workers")) == [0, 1, 2]
    mail.ack(box.name, "workers", 1, only=True)
    box.remove("workers")
    found = mail.fetch(box.name, "others")
    assert [(entry["msg_id"], entry["deliveries"]) for entry in found] == [(0, 1), (2, 1)]


def test_only_the_token_and_operators_remove_groups(mail: Mail, box: Box, users: Server) -> None:
    """Users whose permissions name the command below `$mq9.AI.ADMIN.`, and no others."""
    mail.fetch(box.name, "g")
    request: Json = {"group_name": "g"}
    assert mail.ask(box.command, request) == {"error": MISSING, "removed": False}
    another = Box(mail)
    for token in ("", box.token[:-1], another.token, "tok-é", "x" * 10_000):
        answer = mail.ask(box.command, request | {"token": token})
        assert answer == {"error": WRONG, "removed": False}
    with login(users, "other") as other:
        assert other.ask(box.command, request)["error"] == MISSING
    for user in ("remover", "ops"):
        with login(users, user) as operator:
            operator.done(box.command, request)
        mail.fetch(box.name, "g")
    box.remove("g")


def test_what_is_wrong_with_a_request_is_said(mail: Mail, box: Box) -> None:
    """And changes nothing."""
    mail.fetch(box.name, "g")
    length = "invalid group_name: it must have 1 to 255 bytes, not"
    token: Json = {"token": box.token}
    requests: list[tuple[object, str]] = [
        (token, "group_name is missing: the group to remove"),
        (token | {"group_name": None}, "group_name is missing: the group to remove"),
        (token | {"group_name": ""}, f"{length} 0"),
        (token | {"group_name": "x" * 256}, f"{length} 256"),
        (token | {"group_name": ["g"]}, "invalid group_name: expected a string, found a list"),
        ({"group_name": "g", "token": 7}, "invalid token: expected a string, found 7"),
        (b"[]", "the request must be a JSON object"),
    ]
    for request, problem in requests:
        assert mail.ask(box.command, request) == {"error": problem, "removed": False}
    too_large = mail.ask(box.command, b"x" * (mail.info["max_payload"] + 1))
    assert "max_payload" in too_large["error"]
    assert too_large["removed"] is False
    box.remove("g")


def groups_of(ops: Mail, name: str) -> list[str]:
    """As an operator sees them: to ask as a member would be to use them."""
    found = ops.done(f"ADMIN.MAILBOX.SHOW.{name}")["mailbox"]
    return [group["name"] for group in found["groups"]]


def test_a_group_that_nobody_uses_goes_after_group_ttl(mail: Mail, users: Server) -> None:
    """And no message with it; one that is used, held, waited for or in another mailbox stays."""
    box, other = Box(mail, group_ttl_ms=2_000), Box(mail)
    mail.deliver(box.name)
    with login(users, "ops") as ops:
        for group in ("unused", "acknowledges", "holds", "waits"):
            mail.fetch(box.name, group)
        mail.fetch(other.name, "unused")
        for group in ("unused", "waits"):
            mail.ack(box.name, group, 0)
        config = {"max_wait_ms": 60_000}
        mail.begin(f"MSG.FETCH.{box.name}", {"group_name": "waits", "config": config})

        def gone() -> bool:
            mail.ack(box.name, "acknowledges", 0)
            return "unused" not in groups_of(ops, box.name)

        until(gone, "the unused group has gone")
        assert sorted(groups_of(ops, box.name)) == ["acknowledges", "holds", "waits"]
        assert groups_of(ops, other.name) == ["unused"]
    assert ids(mail.fetch(box.name, "unused")) == [0]


def test_group_ttl_is_checked_and_shown(mail: Mail, users: Server) -> None:
    """In seconds or milliseconds, not both; 0 is never, and without it the broker's counts."""
    with login(users, "ops") as ops:
        for fields, shown in (({"group_ttl": 90}, 90_000), ({"group_ttl": 0}, 0), ({}, None)):
            box = Box(mail, **fields)
            details = ops.done(f"ADMIN.MAILBOX.SHOW.{box.name}")["mailbox"]
            assert details["policy"].get("group_ttl_ms") == shown
    refused: list[tuple[Json, str]] = [
        ({"group_ttl": 1, "group_ttl_ms": 1}, "group_ttl and group_ttl_ms cannot both be given"),
        ({"group_ttl": -1}, "group_ttl is -1: it must be from 0 to 3162240000"),
        ({"group_ttl": "1h"}, 'invalid group_ttl: expected a whole number, found "1h"'),
    ]
    for request, problem in refused:
        assert mail.ask("MAILBOX.CREATE", request)["error"] == problem
