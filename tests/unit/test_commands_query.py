"""MSG.QUERY and MSG.DELETE: what is found, in which order, in which pieces, and what is gone."""

import base64
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.peers import Serve, Server, until
from tests.requester import Requester
from tests.wire import messages

MIB = 1 << 20


@pytest.fixture
def client(server: Server) -> Iterator[Requester]:
    with Requester(server.port) as client:
        yield client


def payloads(answer: dict[str, Any]) -> list[str]:
    assert answer["error"] == ""
    return [message["payload"] for message in answer["messages"]]


def test_all_messages_come_oldest_first_whatever_their_priority(client: Requester) -> None:
    client.create("query.order")
    for payload, priority in ((b"a", b"notify"), (b"b", b"critical"), (b"c", b"normal")):
        client.post("query.order", payload, b"mq9-priority: %b\r\n" % priority)
    answer = client.ask_json("MSG.QUERY.query.order")
    assert payloads(answer) == ["a", "b", "c"]
    assert [m["priority"] for m in answer["messages"]] == ["notify", "critical", "normal"]
    assert "more" not in answer


def test_an_empty_mailbox_has_no_messages(client: Requester) -> None:
    client.create("query.empty")
    assert client.raw("MSG.QUERY.query.empty") == b'{"error":"","messages":[]}'
    assert client.raw("MSG.QUERY.query.empty", b'{"limit":3}') == b'{"error":"","messages":[]}'


def test_limit_alone_gives_the_most_recent_in_ascending_order(client: Requester) -> None:
    client.create("query.limit")
    for payload in b"abcdef":
        client.post("query.limit", bytes([payload]))
    subject = "MSG.QUERY.query.limit"
    assert payloads(client.ask_json(subject, limit=2)) == ["e", "f"]
    assert payloads(client.ask_json(subject, limit=2, encoding="base64")) == ["ZQ==", "Zg=="]
    assert payloads(client.ask_json(subject, limit=2, tags=[])) == ["e", "f"]
    assert payloads(client.ask_json(subject, limit=10_000)) == list("abcdef")
    assert payloads(client.ask_json(subject, limit=2, since=0)) == ["a", "b"]
    assert payloads(client.ask_json(subject, limit=2, after_id=0)) == ["b", "c"]
    assert payloads(client.ask_json(subject, after_id=3)) == ["e", "f"]
    assert payloads(client.ask_json(subject, after_id=5)) == []
    assert payloads(client.ask_json(subject, after_id=2**64 - 1)) == []


def test_a_key_finds_its_one_message(client: Requester) -> None:
    client.create("query.key")
    for payload in (b"running", b"done"):
        client.post("query.key", payload, b"mq9-key: status\r\n")
    client.post("query.key", b"other")
    answer = client.ask_json("MSG.QUERY.query.key", key="status")
    assert [(m["msg_id"], m["payload"], m["key"]) for m in answer["messages"]] == [
        (1, "done", "status")
    ]
    assert payloads(client.ask_json("MSG.QUERY.query.key", key="none")) == []
    assert payloads(client.ask_json("MSG.QUERY.query.key", key="")) == []
    assert payloads(client.ask_json("MSG.QUERY.query.key", key="status", after_id=1)) == []
    assert payloads(client.ask_json("MSG.QUERY.query.key", key="status", tags=["x"])) == []


def test_any_of_the_tags_is_enough(client: Requester) -> None:
    client.create("query.tags")
    for tags in (b"a", b"a,b", b"b, c", b"cc"):
        client.post("query.tags", tags, b"mq9-tags: %b\r\n" % tags)
    client.post("query.tags", b"none")
    subject = "MSG.QUERY.query.tags"
    assert payloads(client.ask_json(subject, tags=["a"])) == ["a", "a,b"]
    assert payloads(client.ask_json(subject, tags=["c", "a"])) == ["a", "a,b", "b, c"]
    assert payloads(client.ask_json(subject, tags=["a", "b"], limit=2)) == ["a", "a,b"]
    assert payloads(client.ask_json(subject, tags=["b"], after_id=1)) == ["b, c"]
    assert payloads(client.ask_json(subject, tags=["nobody"])) == []
    assert len(payloads(client.ask_json(subject, tags=[]))) == 5


def test_since_is_a_time_in_seconds_and_inclusive(client: Requester) -> None:
    client.create("query.since")
    client.post("query.since", b"early")
    first = client.ask_json("MSG.QUERY.query.since")["messages"][0]["create_time"]
    until(lambda: time.time() >= first + 1, "the next second has begun")
    client.post("query.since", b"late")
    subject = "MSG.QUERY.query.since"
    assert payloads(client.ask_json(subject, since=first)) == ["early", "late"]
    assert payloads(client.ask_json(subject, since=first + 1)) == ["late"]
    assert payloads(client.ask_json(subject, since=2**53 - 1)) == []


def test_a_query_moves_no_group_and_shows_no_deliveries(client: Requester) -> None:
    client.create("query.group")
    client.post("query.group", b"one")
    fetch = {"group_name": "g", "deliver": "earliest", "config": {"max_wait_ms": 0}}
    assert payloads(client.ask_json("MSG.FETCH.query.group", **fetch)) == ["one"]
    client.post("query.group", b"two")
    answer = client.ask_json("MSG.QUERY.query.group")
    assert payloads(answer) == ["one", "two"]
    assert all("deliveries" not in message for message in answer["messages"])
    assert payloads(client.ask_json("MSG.FETCH.query.group", **fetch)) == ["one", "two"]


def test_delayed_and_expired_messages_are_not_seen(client: Requester) -> None:
    client.create("query.times")
    client.post("query.times", b"later", b"mq9-delay: 1000\r\n")
    client.post("query.times", b"short", b"mq9-ttl: 1\r\n")
    assert payloads(client.ask_json("MSG.QUERY.query.times")) == ["short"]
    until(lambda: not payloads(client.ask_json("MSG.QUERY.query.times")), "it has expired")


def test_a_large_mailbox_is_read_in_pieces_by_after_id(client: Requester) -> None:
    client.create("query.large")
    size, count = 30_000, 120
    for number in range(count):
        client.post("query.large", b"%03d" % number + b"x" * size)
    found: list[str] = []
    asked: dict[str, int] = {}
    replies = 0
    while True:
        raw = client.raw("MSG.QUERY.query.large", json.dumps(asked).encode())
        assert MIB - 2 * size < len(raw) < MIB + 100 or b'"more"' not in raw
        answer = json.loads(raw)
        found += [text[:3] for text in payloads(answer)]
        replies += 1
        if not answer.get("more"):
            break
        assert answer["more"] is True
        assert list(answer) == ["error", "messages", "more"]
        asked = {"after_id": answer["messages"][-1]["msg_id"]}
    assert found == [f"{number:03}" for number in range(count)]
    assert replies == 4
    newest = client.ask_json("MSG.QUERY.query.large", limit=100)
    assert (payloads(newest)[-1][:3], newest["more"]) == (f"{count - 1:03}", True)
    assert len(newest["messages"]) == MIB // size


def test_a_reply_is_never_cut_below_one_message(serve: Serve) -> None:
    with Requester(serve("max_payload: 4MB").port) as client:
        client.create("huge")
        for letter in (b"a", b"b"):
            client.post("huge", letter * (2 * MIB))
        answer = client.ask_json("MSG.QUERY.huge")
        assert (payloads(answer), answer["more"]) == (["a" * 2 * MIB], True)
        answer = client.ask_json("MSG.QUERY.huge", after_id=0)
        assert payloads(answer) == ["b" * 2 * MIB]
        assert "more" not in answer
        answer = client.ask_json("MSG.QUERY.huge", limit=2)
        assert (payloads(answer), answer["more"]) == (["b" * 2 * MIB], True)


def test_the_cut_counts_what_is_sent_not_what_is_stored(client: Requester) -> None:
    client.create("query.escaped")
    for _ in range(4):
        client.post("query.escaped", b"\x01" * 100_000)  # Six bytes each in JSON.
    for asked in ({}, {"limit": 4}):
        answer = client.ask_json("MSG.QUERY.query.escaped", **asked)
        assert (len(answer["messages"]), answer["more"]) == (1, True)


def test_many_small_messages_are_all_found(client: Requester) -> None:
    client.create("query.many")
    count = 3000
    for number in range(count):
        tags = b"mq9-tags: odd\r\n" if number % 2 else b""
        client.publish("MSG.SEND.query.many", b"%d" % number, tags)
    subject = "MSG.QUERY.query.many"
    assert payloads(client.ask_json(subject)) == [str(n) for n in range(count)]
    assert payloads(client.ask_json(subject, tags=["odd"])) == [str(n) for n in range(1, count, 2)]
    newest = [str(n) for n in range(count - 1000, count)]
    assert payloads(client.ask_json(subject, limit=1000)) == newest
    oldest = [str(n) for n in range(1000)]
    assert payloads(client.ask_json(subject, limit=1000, since=0)) == oldest


def test_queries_without_waiting_for_replies_are_all_answered(client: Requester) -> None:
    client.create("query.pipeline")
    for number in range(600):
        client.publish("MSG.SEND.query.pipeline", b"%d" % number)
    asked = range(0, 600, 20)
    for after in asked:
        client.publish(
            "MSG.QUERY.query.pipeline",
            b'{"after_id":%d}' % after,
            reply=f"_INBOX.requester.{after}",
        )
    found = {}
    for _ in asked:
        [message] = messages(client.message_frame())
        found[message.subject] = len(payloads(json.loads(message.payload)))
    assert found == {f"_INBOX.requester.{after}": 600 - after - 1 for after in asked}


def test_a_flood_of_queries_is_answered_in_order(client: Requester) -> None:
    client.create("query.flood")
    for number in range(300):
        client.publish("MSG.SEND.query.flood", b"%d" % number)
    assert len(payloads(client.ask_json("MSG.QUERY.query.flood"))) == 300
    # More than a connection may have in line: for a while it is not read from.
    count = 1500
    for number in range(count):
        after = b'{"after_id":297}' if number % 2 else b'{"after_id":298}'
        client.publish("MSG.QUERY.query.flood", after, reply="_INBOX.requester.flood")
    for number in range(count):
        [message] = messages(client.message_frame())
        assert message.payload.count(b'"msg_id"') == (2 if number % 2 else 1)
    assert payloads(client.ask_json("MSG.QUERY.query.flood", limit=1)) == ["299"]


def test_bytes_that_are_no_text_come_as_base64(client: Requester) -> None:
    client.create("query.bytes")
    client.post("query.bytes", b"\xff\x00")
    client.post("query.bytes", "grüß".encode())
    binary, text = client.ask_json("MSG.QUERY.query.bytes")["messages"]
    assert (binary["payload"], binary["encoding"]) == ("/wA=", "base64")
    assert text["payload"] == "grüß"
    assert "encoding" not in text
    for message in client.ask_json("MSG.QUERY.query.bytes", encoding="base64")["messages"]:
        assert message["encoding"] == "base64"
        assert base64.b64decode(message["payload"]) in (b"\xff\x00", "grüß".encode())


def test_the_broker_may_be_told_to_use_base64_always(serve: Serve) -> None:
    with Requester(serve("mq9 { payload_encoding: base64 }").port) as client:
        client.create("forced")
        client.post("forced", b"text")
        query = client.raw("MSG.QUERY.forced")
        fetch = client.raw("MSG.FETCH.forced", b'{"deliver":"earliest"}')
        assert query == fetch
        assert b'"payload":"dGV4dA==","encoding":"base64"' in query


def test_delete_takes_one_message_away(client: Requester) -> None:
    client.create("delete.one")
    for payload in b"abc":
        client.post("delete.one", bytes([payload]))
    assert client.raw("MSG.DELETE.delete.one.1") == b'{"error":"","deleted":true}'
    gone = b'{"error":"message not found","deleted":false}'
    assert client.raw("MSG.DELETE.delete.one.1") == gone
    assert client.raw("MSG.DELETE.delete.one.3", b"{}") == gone
    assert client.raw("MSG.DELETE.delete.one.18446744073709551615") == gone
    assert payloads(client.ask_json("MSG.QUERY.delete.one")) == ["a", "c"]
    fetched = client.ask_json("MSG.FETCH.delete.one", deliver="earliest")
    assert payloads(fetched) == ["a", "c"]


def test_delete_of_an_address_that_ends_in_a_number(client: Requester) -> None:
    client.create("delete.session.20260502")
    client.post("delete.session.20260502", b"a")
    answer = client.ask_json("MSG.DELETE.delete.session.20260502.0")
    assert answer == {"error": "", "deleted": True}


def test_other_subjects_are_unknown_commands(client: Requester) -> None:
    for command in ("MSG.QUERY", "MSG.DELETE", "MAILBOX.CREATE.x", "MAILBOX.REMOVE", "PUBLIC", "X"):
        assert client.ask_json(command)["error"] == f'unknown command "{command}"'
