"""MAILBOX.CREATE: names, kinds, public mailboxes, tokens and policy."""

import json
import re
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.peers import Serve, Server, start, until
from tests.requester import Requester

from mq9.commands.tokens import Tokens
from mq9.store import Store

OPERATOR = """
authorization { users: [
  { user: ops, password: x, permissions: { publish: [">", "$mq9.AI.ADMIN.>"] } }
] }
no_auth_user: ops
"""


@pytest.fixture(scope="module")
def operated(serve_for_session: Serve) -> Server:
    """A server where everyone may look at all mailboxes."""
    return serve_for_session(OPERATOR)


@pytest.fixture
def client(operated: Server) -> Iterator[Requester]:
    with Requester(operated.port) as client:
        yield client


def test_a_named_mailbox_gets_its_address_and_nothing_else(client: Requester) -> None:
    answer = client.raw("MAILBOX.CREATE", b'{"name": "agent.translator.inbox", "ttl": 0}')
    assert answer == b'{"error":"","mail_address":"agent.translator.inbox"}'


def test_a_name_that_is_taken_is_an_error(client: Requester) -> None:
    client.create("taken.once")
    answer = client.raw("MAILBOX.CREATE", b'{"name": "taken.once"}')
    assert answer == b'{"error":"mailbox taken.once already exists","mail_address":""}'
    answer = client.raw("MAILBOX.CREATE", b'{"name": "taken.once", "public": false}')
    assert answer == b'{"error":"mailbox taken.once already exists","mail_address":""}'


@pytest.mark.parametrize("payload", [b"", b"{}", b" \r\n\t ", b'{"name":null,"unknown":[{}]}'])
def test_without_a_name_the_address_cannot_be_guessed(client: Requester, payload: bytes) -> None:
    first, second = (json.loads(client.raw("MAILBOX.CREATE", payload)) for _ in range(2))
    assert list(first) == ["error", "mail_address", "mail_id", "token", "inbox"]
    # 32 characters out of 32: 160 bits.
    assert re.fullmatch("[a-z2-7]{32}", first["mail_address"])
    assert first["mail_id"] == first["mail_address"] != second["mail_address"]
    assert first["inbox"] == f"$mq9.AI.INBOX.{first['mail_id']}"
    assert re.fullmatch("tok-[0-9a-f]{32}", first["token"])
    assert first["token"] != second["token"]


@pytest.mark.parametrize("field", ['"type":"standard"', '"type":"latest"', '"public":false'])
def test_fields_of_the_first_dialects_bring_their_reply(client: Requester, field: str) -> None:
    name = "dialect." + re.sub("[^a-z]", "", field)
    answer = client.raw("MAILBOX.CREATE", f'{{"name":"{name}",{field}}}'.encode())
    token = json.loads(answer)["token"]
    expected = (
        f'{{"error":"","mail_address":"{name}","mail_id":"{name}","token":"{token}",'
        f'"inbox":"$mq9.AI.INBOX.{name}"}}'
    )
    assert answer.decode() == expected


def test_latest_keeps_one_message(client: Requester) -> None:
    client.create("status.board", type="latest")
    for payload in (b"old", b"new"):
        client.post("status.board", payload)
    [message] = client.ask_json("MSG.QUERY.status.board")["messages"]
    assert (message["msg_id"], message["payload"]) == (1, "new")


def test_a_public_mailbox_may_be_created_again_and_keeps_its_first_life(client: Requester) -> None:
    first = client.ask_json("MAILBOX.CREATE", name="task.queue", public=True, ttl=1000, desc="one")
    assert "created" not in first
    again = client.ask_json("MAILBOX.CREATE", name="task.queue", public=True, ttl=9, desc="two")
    assert again == first | {"created": False, "token": ""}
    shown = client.ask_json("ADMIN.MAILBOX.SHOW.task.queue")["mailbox"]
    assert shown["expires"] - shown["created"] == 1000
    assert (shown["desc"], shown["policy"]["public"]) == ("one", True)


def test_asking_for_a_public_mailbox_does_not_give_away_the_token_of_a_private_one(
    client: Requester,
) -> None:
    client.create("not.yours")
    answer = client.ask_json("MAILBOX.CREATE", name="not.yours", public=True)
    assert (answer["error"], answer["token"], answer["created"]) == ("", "", False)
    assert not client.ask_json("ADMIN.MAILBOX.SHOW.not.yours")["mailbox"]["policy"]["public"]


def test_every_policy_reaches_the_mailbox(client: Requester) -> None:
    wanted: dict[str, object] = {
        "type": "latest",
        "public": True,
        "retention": "work_queue",
        "max_deliver": 3,
        "dead_letter": "policy.dead",
        "max_ack_pending": 4,
        "max_msgs": 5,
        "max_bytes": 6000,
        "max_age": 7,
        "max_msg_size": 800,
        "discard": "new",
        "group_ttl_ms": 10_000,
        "dedup_window": 11,
        "message_ttls": {"critical": 12, "2": 13, "normal": 14},
    }
    for name, lease in (("policy.s", {"ack_wait": 9}), ("policy.ms", {"ack_wait_ms": 9000})):
        client.create(name, desc="all of it", ttl=50, **wanted, **lease)
        shown = client.ask_json(f"ADMIN.MAILBOX.SHOW.{name}")["mailbox"]
        assert shown["policy"] == wanted | {"ack_wait_ms": 9000}
        assert shown["desc"] == "all of it"
        assert shown["expires"] - shown["created"] == 50


def test_zero_and_null_are_as_if_left_out(client: Requester) -> None:
    numbers = ("ttl", "ack_wait", "max_deliver", "max_ack_pending", "max_msgs", "max_bytes")
    more = ("max_age", "max_msg_size")
    client.create("plain")
    client.create("zeros", **dict.fromkeys(numbers + more, 0))
    texts = ("type", "public", "retention", "discard", "dead_letter", "desc", "backoff", "subjects")
    client.create("nulls", **dict.fromkeys(numbers + more + texts))
    plain, zeros, nulls = (
        client.ask_json(f"ADMIN.MAILBOX.SHOW.{name}")["mailbox"]["policy"]
        for name in ("plain", "zeros", "nulls")
    )
    assert plain == zeros == nulls


def test_a_request_without_a_reply_subject_is_carried_out(client: Requester) -> None:
    client.publish("MAILBOX.CREATE", b'{"name":"silent"}')
    assert client.ask(b"") == b""
    assert client.ask_json("ADMIN.MAILBOX.SHOW.silent")["error"] == ""


def test_what_was_asked_before_a_client_left_is_carried_out(serve: Serve) -> None:
    server = serve(OPERATOR)
    count = 3000
    with Requester(server.port) as client:
        for number in range(count):
            client.publish("MAILBOX.CREATE", b'{"name":"left.%d"}' % number)
        # A plain close would take back what the server has not read yet.
        client.finish()
    with Requester(server.port) as client:
        until(
            lambda: client.ask_json("ADMIN.MAILBOX.LIST", limit=1)["total"] == count,
            "all were created",
        )


def test_the_configured_life_is_for_mailboxes_without_one(serve: Serve) -> None:
    server = serve(OPERATOR + 'mq9 { default_ttl: "1h" }')
    with Requester(server.port) as client:
        client.create("a")
        client.create("b", ttl=0)
        a, b = (client.ask_json(f"ADMIN.MAILBOX.SHOW.{name}")["mailbox"] for name in "ab")
        assert a["expires"] - a["created"] == 3600
        assert b["expires"] == 0


def test_mailboxes_and_tokens_survive_a_kill(tmp_path: Path) -> None:
    # Nobody is an operator here.
    users = "authorization { users: [{ user: agent, password: x }] }\nno_auth_user: agent\n"
    first = start(tmp_path / "server", users)
    try:
        with Requester(first.port) as client:
            token = client.ask_json("MAILBOX.CREATE", name="kept", token=True)["token"]
        first.process.kill()
        first.process.wait()
        secret = tmp_path / "server" / "data" / "token.secret"
        assert stat.S_IMODE(secret.stat().st_mode) == 0o600
        second = start(tmp_path / "server", users)
        try:
            with Requester(second.port) as client:
                removed = client.ask_json("MAILBOX.REMOVE.kept", token=token)
        finally:
            second.stop()
    finally:
        first.stop()
    assert removed == {"error": "", "removed": True}


def test_a_mailbox_created_anew_has_another_token(tmp_path: Path) -> None:
    tokens, other = Tokens(tmp_path), Tokens(tmp_path)
    assert tokens.of("a", 1) == other.of("a", 1)
    assert len({tokens.of("a", 1), tokens.of("a", 2), tokens.of("b", 1)}) == 3
    (tmp_path / "elsewhere").mkdir()
    assert Tokens(tmp_path / "elsewhere").of("a", 1) != tokens.of("a", 1)


def test_a_secret_that_was_cut_short_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "token.secret").write_bytes(b"short")
    with pytest.raises(OSError, match="it has 5 bytes and should have 32") as caught:
        Tokens(tmp_path)
    assert caught.value.filename == str(tmp_path / "token.secret")
    with Store(tmp_path) as store:
        assert store.damage() == []
