"""PUBLIC.LIST for everyone; ADMIN.MAILBOX.LIST and SHOW for operators, and for nobody else."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.peers import Serve, own_address, start, until
from tests.requester import Requester

from mq9.commands.permission import is_granted
from mq9.config import PermissionRules

USERS = """
authorization { users: [
  { user: ops, password: x, permissions: { publish: [">", "$mq9.AI.ADMIN.>"] } }
  { user: viewer, password: x, permissions: { publish: "$mq9.AI.ADMIN.MAILBOX.SHOW.>" } }
  { user: everything, password: x, permissions: { publish: ">" } }
  { user: reserved, password: x, permissions: { publish: ["$mq9.>", "$mq9.AI.>", "$mq9.AI.*.>"] } }
  { user: denied, password: x, permissions: {
      publish: { allow: [">", "$mq9.AI.ADMIN.>"], deny: "$mq9.AI.ADMIN.MAILBOX.LIST" } } }
  { user: plain, password: x }
] }
"""
OPERATOR = USERS + "no_auth_user: ops\n"
DENIED = (
    "permission denied: this command is for users whose permissions allow publishing to "
    '"$mq9.AI.ADMIN.>" by that name'
)


@pytest.fixture
def client(serve: Serve) -> Iterator[Requester]:
    with Requester(serve(OPERATOR).port) as client:
        yield client


def ids(answer: dict[str, Any]) -> list[str]:
    assert answer["error"] == ""
    return [mailbox["mail_id"] for mailbox in answer["mailboxes"]]


def addresses(answer: dict[str, Any]) -> list[str]:
    assert answer["error"] == ""
    return [mailbox["mail_address"] for mailbox in answer["mailboxes"]]


def test_public_mailboxes_are_listed_and_private_ones_are_not(client: Requester) -> None:
    assert client.raw("PUBLIC.LIST") == b'{"error":"","mailboxes":[]}'
    client.create("private.one")
    client.create("private.two", public=False)
    client.create("vision.results", public=True, desc='say "hé"', ttl=100)
    client.create("task.queue", public=True)
    client.post("task.queue", b"a")
    client.post("task.queue", b"b", b"mq9-delay: 1000\r\n")
    answer = client.ask_json("PUBLIC.LIST")
    assert ids(answer) == ["task.queue", "vision.results"]
    task, vision = answer["mailboxes"]
    assert list(task) == ["mail_id", "desc", "created", "expires", "messages"]
    assert (task["desc"], task["expires"], task["messages"]) == ("", 0, 1)
    assert (vision["desc"], vision["messages"]) == ('say "hé"', 0)
    assert vision["expires"] - vision["created"] == 100


def test_public_mailboxes_come_in_pages(client: Requester) -> None:
    names = sorted(f"public.{number}" for number in range(250))
    for name in names:
        client.create(name, public=True)
        client.create(f"private.{name}")
    first = client.ask_json("PUBLIC.LIST")
    assert (ids(first), first["more"]) == (names[:100], True)
    found: list[str] = []
    after = ""
    while True:
        page = client.ask_json("PUBLIC.LIST", limit=60, after=after)
        found += ids(page)
        if "more" not in page:
            break
        after = found[-1]
    assert found == names
    exact = client.ask_json("PUBLIC.LIST", limit=250)
    assert (len(ids(exact)), "more" in exact) == (250, False)
    assert ids(client.ask_json("PUBLIC.LIST", after="zzz")) == []
    assert ids(client.ask_json("PUBLIC.LIST", after="public.98")) == ["public.99"]


def test_a_page_is_cut_at_about_a_megabyte(client: Requester) -> None:
    for number in range(300):
        client.create(f"wordy.{number:03}", public=True, desc="x" * 4096)
    found: list[str] = []
    after = ""
    pages, page = 0, {"more": True}
    while "more" in page:
        raw = client.raw("PUBLIC.LIST", json.dumps({"limit": 1000, "after": after}).encode())
        assert len(raw) < (1 << 20) + 10_000
        page = json.loads(raw)
        found += ids(page)
        after, pages = found[-1], pages + 1
    assert (len(found), pages) == (300, 2)
    first = client.raw("ADMIN.MAILBOX.LIST", b'{"limit":1000}')
    assert len(first) < (1 << 20) + 100_000
    rest = client.ask_json("ADMIN.MAILBOX.LIST", limit=1000, start=json.loads(first)["next"])
    assert addresses(json.loads(first)) + addresses(rest) == found


def test_an_expired_public_mailbox_leaves_the_list(client: Requester) -> None:
    client.create("brief", public=True, ttl=1)
    client.create("lasting", public=True)
    assert ids(client.ask_json("PUBLIC.LIST")) == ["brief", "lasting"]
    until(lambda: ids(client.ask_json("PUBLIC.LIST")) == ["lasting"], "it has expired")
    client.create("brief")
    assert ids(client.ask_json("PUBLIC.LIST")) == ["lasting"]


def test_the_list_is_right_after_many_were_created_since(client: Requester) -> None:
    client.create("first", public=True)
    assert ids(client.ask_json("PUBLIC.LIST")) == ["first"]
    names = sorted(f"many.{number}" for number in range(1200))
    for name in names:
        client.create(name, public=True)
    found: list[str] = []
    while True:
        page = client.ask_json("PUBLIC.LIST", limit=1000, after=found[-1] if found else "")
        found += ids(page)
        if "more" not in page:
            break
    assert found == ["first", *names]


def test_public_mailboxes_are_found_after_a_restart(tmp_path: Path) -> None:
    server = start(tmp_path / "server")
    try:
        with Requester(server.port) as client:
            for number in range(150):
                client.create(f"kept.{number:03}", public=number % 2 == 0)
        server.stop()
        server = start(tmp_path / "server")
        with Requester(server.port) as client:
            client.create("new", public=True)
            expected = [f"kept.{number:03}" for number in range(0, 150, 2)] + ["new"]
            assert ids(client.ask_json("PUBLIC.LIST")) == expected
    finally:
        server.stop()


def test_an_operator_sees_all_mailboxes_in_pages(client: Requester) -> None:
    assert client.raw("ADMIN.MAILBOX.LIST") == b'{"error":"","mailboxes":[],"total":0}'
    names = [f"box.{number}" for number in range(45)]
    for number, name in enumerate(names):
        client.create(name, public=number == 0, type="latest" if number == 1 else "standard")
    first = client.ask_json("ADMIN.MAILBOX.LIST", limit=20)
    second = client.ask_json("ADMIN.MAILBOX.LIST", limit=20, start=first["next"])
    third = client.ask_json("ADMIN.MAILBOX.LIST", limit=20, start=second["next"])
    assert addresses(first) + addresses(second) + addresses(third) == names
    assert (len(second["mailboxes"]), first["total"], third.get("next")) == (20, 45, None)
    assert addresses(client.ask_json("ADMIN.MAILBOX.LIST", start=1000)) == []
    public, latest, plain = first["mailboxes"][:3]
    assert (public["public"], public["type"]) == (True, "standard")
    assert (latest["public"], latest["type"]) == (False, "latest")
    assert plain == {
        "mail_address": "box.2",
        "desc": "",
        "created": plain["created"],
        "expires": 0,
        "type": "standard",
        "public": False,
        "messages": 0,
        "delayed": 0,
        "bytes": 0,
        "groups": 0,
    }


def test_an_operator_sees_what_a_mailbox_holds_and_how_far_its_groups_are(
    client: Requester,
) -> None:
    client.create("work")
    for number in range(10):
        client.post("work", b"%d" % number, b"mq9-priority: urgent\r\n" if number == 4 else b"")
    client.post("work", b"later", b"mq9-delay: 1000\r\n")

    def fetch(group: str, count: int, deliver: str = "earliest") -> list[int]:
        config = {"num_msgs": count, "max_wait_ms": 0}
        answer = client.ask_json("MSG.FETCH.work", group_name=group, deliver=deliver, config=config)
        return [message["msg_id"] for message in answer["messages"]]

    assert fetch("half", 4) == [4, 0, 1, 2]
    assert client.ask_json("MSG.ACK.work", group_name="half", msg_id=4)["error"] == ""
    assert len(fetch("all", 100)) == 10
    assert fetch("new", 100, "latest") == []
    client.post("work", b"for all")
    shown = client.ask_json("ADMIN.MAILBOX.SHOW.work")["mailbox"]
    assert shown["groups"] == [
        {"name": "half", "pending": 3, "lag": 7},
        {"name": "all", "pending": 10, "lag": 1},
        {"name": "new", "pending": 0, "lag": 1},
    ]
    counts = (shown["messages"], shown["delayed"], shown["next_id"])
    assert counts == (11, 1, 11)
    assert shown["bytes"] > 0
    assert list(shown)[:3] == ["mail_address", "desc", "created"]
    [listed] = client.ask_json("ADMIN.MAILBOX.LIST")["mailboxes"]
    assert (listed["messages"], listed["delayed"], listed["groups"]) == (11, 1, 3)
    assert listed["bytes"] == shown["bytes"]


def test_the_lag_of_many_messages_is_counted(client: Requester) -> None:
    client.create("long")
    fetch = json.dumps({"group_name": "g", "config": {"max_wait_ms": 0}}).encode()
    client.raw("MSG.FETCH.long", fetch)
    for number in range(2000):
        client.publish("MSG.SEND.long", b"%d" % number)
    [group] = client.ask_json("ADMIN.MAILBOX.SHOW.long")["mailbox"]["groups"]
    assert group == {"name": "g", "pending": 0, "lag": 2000}


def test_without_named_permissions_nobody_is_an_operator(serve: Serve) -> None:
    server = serve("authorization { user: solo, password: x }")
    with Requester(server.port, user="solo", **{"pass": "x"}) as client:
        client.create("secret")
        answer = client.raw("ADMIN.MAILBOX.LIST")
        assert json.loads(answer) == {"error": DENIED, "mailboxes": []}
        # The same words whether it exists, does not exist, or cannot.
        answers = {client.raw(f"ADMIN.MAILBOX.SHOW.{name}") for name in ("secret", "none", "A")}
        answers.add(client.raw("ADMIN.MAILBOX.SHOW.secret", b"nonsense"))
        [answer] = answers
        assert json.loads(answer) == {"error": DENIED, "mailbox": None}


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "own"])
def test_where_nobody_authenticates_local_clients_are_operators(serve: Serve, host: str) -> None:
    server = serve("", "-a", "0.0.0.0")
    with Requester(server.port, host=own_address() if host == "own" else host) as client:
        client.create("secret")
        listed = client.ask_json("ADMIN.MAILBOX.LIST")
        shown = client.ask_json("ADMIN.MAILBOX.SHOW.secret")
        if host == "own":
            assert (listed["error"], shown["error"]) == (DENIED, DENIED)
        else:
            assert addresses(listed) == ["secret"]
            assert shown["mailbox"]["mail_address"] == "secret"


def test_a_user_that_stands_for_everybody_is_no_operator_by_its_address(serve: Serve) -> None:
    with Requester(serve(USERS + "no_auth_user: everything\n").port) as client:
        assert client.ask_json("ADMIN.MAILBOX.LIST")["error"] == DENIED


def test_a_reload_that_asks_for_users_ends_operators_by_address(serve: Serve) -> None:
    server = serve("max_payload: 1MB")
    with Requester(server.port) as client:
        assert client.ask_json("ADMIN.MAILBOX.LIST")["error"] == ""
        server.reconfigure(USERS + "no_auth_user: everything\n")
        assert client.ask_json("ADMIN.MAILBOX.LIST")["error"] == DENIED


@pytest.mark.parametrize(
    ("config", "host", "warned"),
    [
        ("", "0.0.0.0", True),
        ("", "127.0.0.1", False),
        ("", "::1", False),
        (USERS, "0.0.0.0", False),
    ],
)
def test_a_server_that_lets_everyone_in_says_so(
    serve: Serve, config: str, host: str, warned: bool
) -> None:
    server = serve(config, "-a", host)
    told = "[WRN] Everyone who reaches 0.0.0.0 may connect"
    assert (told in server.log) is warned


def test_only_permissions_that_name_the_commands_give_them(serve: Serve) -> None:
    server = serve(USERS)

    def error(user: str, command: str) -> str:
        with Requester(server.port, user=user, **{"pass": "x"}) as client:
            return str(client.ask_json(command)["error"])

    list_, show = "ADMIN.MAILBOX.LIST", "ADMIN.MAILBOX.SHOW.none"
    for user in ("everything", "reserved", "plain"):
        assert [error(user, list_), error(user, show)] == [DENIED, DENIED]
    not_found = "mailbox none does not exist"
    assert [error("ops", list_), error("ops", show)] == ["", not_found]
    assert error("viewer", show) == not_found
    assert error("denied", show) == not_found


def test_a_reload_makes_and_unmakes_operators(serve: Serve) -> None:
    server = serve(USERS)
    with Requester(server.port, user="everything", **{"pass": "x"}) as client:
        assert client.ask_json("ADMIN.MAILBOX.LIST")["error"] == DENIED
        server.reconfigure(USERS.replace('publish: ">"', 'publish: [">", "$mq9.AI.ADMIN.>"]'))
        assert client.ask_json("ADMIN.MAILBOX.LIST")["error"] == ""
        server.reconfigure(USERS)
        assert client.ask_json("ADMIN.MAILBOX.LIST")["error"] == DENIED


@pytest.mark.parametrize(
    ("allow", "deny", "expected"),
    [
        (None, (), False),
        ((), (), False),
        ((">",), (), False),
        (("$mq9.>",), (), False),
        (("$mq9.AI.>",), (), False),
        (("*.*.*.*.*",), (), False),
        (("$mq9.AI.*.MAILBOX.LIST",), (), False),
        (("$mq9.AI.ADMIN",), (), False),
        (("$mq9.AI.ADMINS.>",), (), False),
        (("$mq9.AI.ADMIN.>",), (), True),
        (("$mq9.AI.ADMIN.*.LIST",), (), True),
        (("$mq9.AI.ADMIN.MAILBOX.LIST",), (), True),
        (("$mq9.AI.ADMIN.MAILBOX.LIST.>",), (), False),
        (("$mq9.AI.ADMIN.MAILBOX.LIST.*",), (), False),
        (("$mq9.AI.ADMIN.MAILBOX.*",), (), True),
        (("$mq9.AI.ADMIN.MAILBOX",), (), False),
        (("x", "$mq9.AI.ADMIN.>"), (), True),
        (("$mq9.AI.ADMIN.>",), (">",), False),
        (("$mq9.AI.ADMIN.>",), ("$mq9.AI.*.MAILBOX.*",), False),
        (("$mq9.AI.ADMIN.>",), ("$mq9.AI.ADMIN.MAILBOX.SHOW.>",), True),
    ],
)
def test_which_rules_name_a_command(
    allow: tuple[str, ...] | None, deny: tuple[str, ...], expected: bool
) -> None:
    rules = PermissionRules(publish_allow=allow, publish_deny=deny)
    assert is_granted(rules, "$mq9.AI.ADMIN.MAILBOX.LIST") is expected
    assert not is_granted(None, "$mq9.AI.ADMIN.MAILBOX.LIST")
