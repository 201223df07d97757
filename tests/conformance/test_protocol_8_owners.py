"""What only the owner of a mailbox and operators may do: remove, empty and change it.

Runs a broker of its own: where nobody has to authenticate, a client on the same machine is an
operator.
"""

import json
import os
import re
import secrets
from collections.abc import Iterator

import pytest
from tests.conformance.conftest import URL_VARIABLE
from tests.mail import Json, Mail, payloads
from tests.peers import MQ9, Serve, Server, own_address

USERS = """
authorization { users: [
  { user: ops, password: x, permissions: { publish: [">", "$mq9.AI.ADMIN.>"] } }
  { user: viewer, password: x, permissions: { publish: [">", "$mq9.AI.ADMIN.MAILBOX.SHOW.>"] } }
  { user: remover, password: x, permissions: { publish: [">", "$mq9.AI.ADMIN.MAILBOX.REMOVE.>"] } }
  { user: agent, password: x }
] }
no_auth_user: agent
"""
MISSING = "permission denied: the token is missing; only its creator and operators may do this"
WRONG = (
    "permission denied: the token is not that of this mailbox; only its creator and operators "
    "may do this"
)
SHAPES: dict[str, Json] = {"REMOVE": {"removed": False}, "PURGE": {"purged": 0}}
COMMANDS = list(SHAPES)


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
    """An operator."""
    with login(users, "ops") as ops:
        yield ops


@pytest.fixture
def owned(mail: Mail) -> tuple[str, str]:
    """A mailbox with a message, and its token."""
    name = f"test.{secrets.token_hex(8)}"
    token = mail.done("MAILBOX.CREATE", {"name": name, "ttl": 600, "token": True})["token"]
    mail.deliver(name, b"kept")
    return name, token


def test_a_token_can_be_asked_for(mail: Mail) -> None:
    """`"token": true` gives one where the reply would have none, and nothing else."""
    name = f"test.{secrets.token_hex(8)}"
    text = mail.text("MAILBOX.CREATE", {"name": name, "ttl": 60, "token": True})
    [token] = re.findall("tok-[0-9a-f]{32}", text)
    assert text == f'{{"error":"","mail_address":"{name}","token":"{token}"}}'
    other = f"{name}.other"
    plain = mail.text("MAILBOX.CREATE", {"name": other, "ttl": 60, "token": False})
    assert plain == f'{{"error":"","mail_address":"{other}"}}'


@pytest.mark.parametrize("asked", [{}, {"token": True}])
def test_the_token_is_given_to_the_creator_alone(mail: Mail, ops: Mail, asked: Json) -> None:
    """Whoever repeats CREATE is told that it is there, and gets no token."""
    name = f"test.{secrets.token_hex(8)}"
    request = {"name": name, "ttl": 60, "public": True}
    first = mail.done("MAILBOX.CREATE", request)
    assert first["token"] != ""
    for client in (mail, ops):
        again = client.done("MAILBOX.CREATE", request | asked)
        assert again == first | {"token": "", "created": False}


@pytest.mark.parametrize("command", COMMANDS)
def test_the_token_is_needed(mail: Mail, owned: tuple[str, str], command: str) -> None:
    """Without it, or with another: an error in the command's shape, and nothing changes."""
    box, token = owned
    requests: list[tuple[Json, str]] = [
        ({}, MISSING),
        ({"token": None}, MISSING),
        ({"token": ""}, WRONG),
        ({"token": token[:-1]}, WRONG),
        ({"token": token + "0"}, WRONG),
        ({"token": "tok-é\u0000"}, WRONG),
        ({"token": "x" * 10_000}, WRONG),
        ({"token": 7}, "invalid token: expected a string, found 7"),
    ]
    for request, problem in requests:
        answer = mail.ask(f"MAILBOX.{command}.{box}", request)
        assert answer == {"error": problem, **SHAPES[command]}
    assert payloads(mail.fetch(box)) == ["kept"]


@pytest.mark.parametrize("command", COMMANDS)
def test_the_token_of_another_mailbox_is_none(
    mail: Mail, owned: tuple[str, str], command: str
) -> None:
    """Nor is that of an earlier mailbox of the same name."""
    box, token = owned
    other = f"{box}.other"
    mail.done("MAILBOX.CREATE", {"name": other, "ttl": 60})
    assert mail.ask(f"MAILBOX.{command}.{other}", {"token": token})["error"] == WRONG
    mail.done(f"MAILBOX.REMOVE.{box}", {"token": token})
    mail.done("MAILBOX.CREATE", {"name": box, "ttl": 60})
    assert mail.ask(f"MAILBOX.{command}.{box}", {"token": token})["error"] == WRONG


@pytest.mark.parametrize("command", COMMANDS)
def test_an_operator_needs_no_token(
    owned: tuple[str, str], users: Server, ops: Mail, command: str
) -> None:
    """One whose permissions name the command below `$mq9.AI.ADMIN.`."""
    box, _ = owned
    with login(users, "viewer") as viewer:
        assert viewer.ask(f"MAILBOX.{command}.{box}")["error"] == MISSING
    with login(users, "remover") as remover:
        answer = remover.ask(f"MAILBOX.{command}.{box}")
        assert answer["error"] == ("" if command == "REMOVE" else MISSING)
    ops.ask("MAILBOX.CREATE", {"name": box, "ttl": 60})
    ops.done(f"MAILBOX.{command}.{box}")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_mailbox_that_is_not_there(mail: Mail, ops: Mail, command: str) -> None:
    """The text is literal, for everyone."""
    box = f"test.{secrets.token_hex(8)}"
    for client in (mail, ops):
        for request in ({}, {"token": "tok-"}):
            answer = client.ask(f"MAILBOX.{command}.{box}", request)
            assert answer == {"error": f"mailbox {box} does not exist", **SHAPES[command]}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_payload_that_is_too_large_is_refused_in_the_shape_of_the_command(
    mail: Mail, owned: tuple[str, str], command: str
) -> None:
    """And the connection lives on."""
    box, _ = owned
    answer = mail.ask(f"MAILBOX.{command}.{box}", b"x" * (mail.info["max_payload"] + 1))
    assert "max_payload" in answer.pop("error")
    assert answer == SHAPES[command]
    assert payloads(mail.fetch(box)) == ["kept"]


def test_remove_takes_the_mailbox_with_all_that_is_in_it(
    mail: Mail, owned: tuple[str, str]
) -> None:
    """Messages, delayed ones and groups; the name is free, and ids begin again."""
    box, token = owned
    mail.deliver(box, b"later", delay=1)
    assert len(mail.fetch(box, "g")) == 1
    assert mail.text(f"MAILBOX.REMOVE.{box}", {"token": token}) == '{"error":"","removed":true}'
    gone = f"mailbox {box} does not exist"
    assert mail.ask(f"MSG.QUERY.{box}") == {"error": gone, "messages": []}
    assert mail.ask(f"MAILBOX.REMOVE.{box}", {"token": token})["error"] == gone
    mail.done("MAILBOX.CREATE", {"name": box, "ttl": 60})
    assert mail.fetch(box, "g") == []
    assert mail.deliver(box, b"new") == 0


def test_remove_answers_those_who_wait(mail: Mail, owned: tuple[str, str]) -> None:
    """A long poll at a mailbox that goes is told so."""
    box, token = owned
    poll = mail.begin(f"MSG.FETCH.{box}", {"config": {"max_wait_ms": 60_000}})
    mail.ping()
    mail.done(f"MAILBOX.REMOVE.{box}", {"token": token})
    assert mail.answer(poll) == {"error": f"mailbox {box} does not exist", "messages": []}


def test_a_removed_public_mailbox_leaves_the_list(mail: Mail) -> None:
    """At once."""
    name = f"test.{secrets.token_hex(8)}"
    token = mail.done("MAILBOX.CREATE", {"name": name, "ttl": 60, "public": True})["token"]
    assert name in listed(mail)
    mail.done(f"MAILBOX.REMOVE.{name}", {"token": token})
    assert name not in listed(mail)


def listed(mail: Mail) -> list[str]:
    return [each["mail_id"] for each in mail.done("PUBLIC.LIST", {"limit": 1000})["mailboxes"]]


def test_purge_takes_all_messages_and_tells_how_many(mail: Mail, owned: tuple[str, str]) -> None:
    """Delayed ones too; the mailbox stays, ids go on, and groups go on behind them."""
    box, token = owned
    mail.deliver(box, b"later", delay=1)
    mail.deliver(box, b"keyed", key="k")
    assert len(mail.fetch(box, "g")) == 2
    assert mail.text(f"MAILBOX.PURGE.{box}", {"token": token}) == '{"error":"","purged":3}'
    assert mail.done(f"MSG.QUERY.{box}")["messages"] == []
    assert mail.text(f"MAILBOX.PURGE.{box}", {"token": token}) == '{"error":"","purged":0}'
    # An ACK of what a group was given before is no error.
    mail.ack(box, "g", 1)
    assert mail.deliver(box, b"new") == 2
    poll = {"group_name": "g", "config": {"max_wait_ms": 2000}}
    assert payloads(mail.done(f"MSG.FETCH.{box}", poll)["messages"]) == ["new"]
    mail.ack(box, "g", 2)
    # The delayed message would be due by now.
    assert mail.done(f"MSG.FETCH.{box}", poll)["messages"] == []


@pytest.mark.parametrize(("command", "told"), [("PURGE", "purged"), ("REMOVE", "removed")])
def test_more_messages_than_expected_stay(
    mail: Mail, owned: tuple[str, str], command: str, told: str
) -> None:
    """The broker counts in the same step, delayed ones too; without the field it does not."""
    box, token = owned
    mail.deliver(box, b"seen")
    mail.deliver(box, b"not seen", delay=60)
    have = 3
    fields = {"token": token, "expected": have - 1}
    reply = mail.reply(mail.begin(f"MAILBOX.{command}.{box}", fields))
    assert b"mq9-error: more_messages" in reply.headers
    refused = json.loads(reply.payload)
    assert refused["error"] == f"mailbox {box} has {have} messages by now, not {have - 1}"
    assert not refused[told]
    for wrong in (-1, 2**63, "1", 0.5):
        answer = mail.ask(f"MAILBOX.{command}.{box}", {"token": token, "expected": wrong})
        assert "expected" in answer["error"]
    assert len(mail.done(f"MSG.QUERY.{box}", {"since": 0})["messages"]) == have - 1
    done = mail.done(f"MAILBOX.{command}.{box}", fields | {"expected": have})
    assert done[told] in (have, True)


def test_a_wait_outlives_a_purge(mail: Mail, owned: tuple[str, str]) -> None:
    """Who waits gets the next message."""
    box, token = owned
    poll = mail.begin(f"MSG.FETCH.{box}", {"config": {"max_wait_ms": 60_000}})
    mail.ping()
    mail.done(f"MAILBOX.PURGE.{box}", {"token": token})
    mail.deliver(box, b"new")
    assert payloads(mail.answer(poll)["messages"]) == ["new"]


def test_who_finds_a_mailbox_there_is_told_its_policy_only_as_an_operator(
    users: Server, mail: Mail, ops: Mail
) -> None:
    """The name is known to senders: where failed messages go, and all else, is not theirs."""
    name, secret = (f"test.{secrets.token_hex(8)}" for _ in range(2))
    policy: Json = {"dead_letter": secret, "max_msgs": 7, "ttl": 600}
    mail.done("MAILBOX.CREATE", {"name": name, **policy})
    other: Json = {"name": name, "exist_ok": True, "dead_letter": "bad", "max_msgs": 8, "ttl": 60}
    answer = mail.ask("MAILBOX.CREATE", other)
    differs = f"mailbox {name} already exists: it differs in max_msgs, dead_letter, ttl_ms"
    assert answer == {"error": differs, "mail_address": ""}
    values = f'its max_msgs is 7, not 8, its dead_letter is "{secret}", not "bad"'
    told = f"mailbox {name} already exists: {values}, its ttl_ms is 600000, not 60000"
    assert ops.ask("MAILBOX.CREATE", other)["error"] == told
    # The values are those that SHOW tells: who may not use it is not told them here.
    with login(users, "viewer") as viewer, login(users, "remover") as remover:
        assert viewer.ask("MAILBOX.CREATE", other)["error"] == told
        assert remover.ask("MAILBOX.CREATE", other)["error"] == differs


def test_how_the_broker_is_is_told_to_operators_alone(ops: Mail, mail: Mail) -> None:
    status = ops.done("ADMIN.STATUS", {})
    assert status["writes_stopped"] == ""
    assert status["clients"] >= 2
    assert status["log_bytes"] >= status["live_bytes"] >= 0
    refused = mail.ask("ADMIN.STATUS", {})
    assert refused["error"].startswith("permission denied")
    assert (refused["clients"], refused["mailboxes"]) == (0, 0)


def test_where_nobody_has_to_authenticate_clients_on_loopback_are_operators(serve: Serve) -> None:
    """From elsewhere they are not: they need the token, and are told nothing of the broker."""
    if os.environ.get(URL_VARIABLE):
        pytest.skip(f"needs a broker that others reach, which {URL_VARIABLE} may not be")
    server = serve("", "-a", "0.0.0.0", peer=MQ9)
    near = f"nats://127.0.0.1:{server.port}"
    far = f"nats://{own_address()}:{server.port}"
    with Mail(near) as here, Mail(far) as there:
        token = there.done("MAILBOX.CREATE", {"name": "box", "token": True})["token"]
        for command, shape in SHAPES.items():
            answer = there.ask(f"MAILBOX.{command}.box", {})
            assert answer == {"error": MISSING, **shape}
        for command in ("STATUS", "MAILBOX.LIST", "MAILBOX.SHOW.box"):
            assert there.ask(f"ADMIN.{command}")["error"].startswith("permission denied")
            assert here.ask(f"ADMIN.{command}")["error"] == ""
        there.deliver("box", b"x")
        assert here.ask("MAILBOX.PURGE.box", {}) == {"error": "", "purged": 1}
        # Who created it needs no address for it.
        assert there.ask("MAILBOX.REMOVE.box", {"token": token}) == {"error": "", "removed": True}
        here.done("MAILBOX.CREATE", {"name": "other"})
        assert here.ask("MAILBOX.REMOVE.other", {}) == {"error": "", "removed": True}


def test_where_several_agents_have_a_name_that_of_the_caller_counts(
    mail: Mail, users: Server
) -> None:
    """Nobody takes a name away from others by registering agents of the same name."""
    tag = secrets.token_hex(8)
    name = f"name {tag}"
    boxes = {part: f"agent.{part}.{tag}" for part in ("mine", "theirs", "more")}
    mail.done("AGENT.REGISTER", {"mailbox": boxes["mine"], "name": name, "tags": [tag]})
    with login(users, "viewer") as viewer, login(users, "remover") as remover:
        for part in ("theirs", "more"):
            viewer.done("AGENT.REGISTER", {"mailbox": boxes[part], "name": name, "tags": [tag]})
        mail.done("AGENT.REPORT", {"name": name, "load": 1})
        found = mail.done("AGENT.DISCOVER", {"tags": [tag], "status": True, "fields": []})
        reports = [each["report"] for each in found["statuses"]]
        assert reports == [{"name": name, "load": 1}, None, None]
        # Whoever has several of that name, or none, has to say which.
        several = {"error": f'several agents have the name "{name}": give mailbox'}
        for client in (viewer, remover):
            assert client.ask("AGENT.REPORT", {"name": name}) == several
            assert client.ask("AGENT.UNREGISTER", {"name": name}) == several
        mail.done("AGENT.UNREGISTER", {"name": name})
        assert mail.ask("AGENT.UNREGISTER", {"name": name}) == several
        viewer.done("AGENT.UNREGISTER", {"mailbox": boxes["more"]})
        # One that another user registered is nobody else's, whatever its name.
        assert "permission denied" in mail.ask("AGENT.UNREGISTER", {"name": name})["error"]
        viewer.done("AGENT.UNREGISTER", {"name": name})
