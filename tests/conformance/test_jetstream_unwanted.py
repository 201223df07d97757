"""Messages that a consumer wants no more, or has given up, go or stay as with nats-server.

Both servers are asked the same.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from tests.conformance.test_jetstream_refusals import ask, served_in
from tests.peers import MQ9, NATS_SERVER, NATS_SERVER_BINARY, Serve

ANSWER_S = 5.0
SETTLED_S = 10.0
SECOND = 10**9


@pytest.fixture
async def both(serve: Serve, tmp_path: Path) -> AsyncIterator[list[Client]]:
    """Clients of mq9 and of nats-server."""
    if not NATS_SERVER_BINARY.exists():
        pytest.skip(f"needs {NATS_SERVER_BINARY.name} next to the interpreter: make setup")
    async with AsyncExitStack() as stack:
        clients = []
        for peer in (MQ9, NATS_SERVER):
            client = await nats.connect(serve(served_in(tmp_path / peer), peer=peer).url)
            stack.push_async_callback(client.close)
            clients.append(client)
        yield clients


async def api(client: Client, subject: str, body: object = b"") -> dict[str, Any]:
    _, said = await ask(client, f"$JS.API.{subject}", body)
    assert isinstance(said, dict)
    assert "error" not in said, said
    return said


async def set_consumer(client: Client, **config: object) -> None:
    config = {"durable_name": "c", "ack_policy": "explicit"} | config
    await api(client, "CONSUMER.CREATE.S.c", {"stream_name": "S", "config": config})


async def pull(client: Client, most: int) -> list[Msg]:
    """The messages that are there now."""
    inbox = client.new_inbox()
    answers = await client.subscribe(inbox)
    request = json.dumps({"batch": most, "no_wait": True}).encode()
    await client.publish("$JS.API.CONSUMER.MSG.NEXT.S.c", request, reply=inbox)
    came: list[Msg] = []
    while len(came) < most and (message := await answers.next_msg(timeout=ANSWER_S)).reply:
        came.append(message)
    await answers.unsubscribe()
    return came


async def subjects(client: Client) -> dict[str, int]:
    """How many messages of each subject are stored."""
    said = await api(client, "STREAM.INFO.S", {"subjects_filter": ">"})
    found: dict[str, int] = said["state"].get("subjects", {})
    return found


async def settled(client: Client, expected: dict[str, int]) -> dict[str, int]:
    """The same, as soon as it is what is expected; what goes may take a moment."""
    end = time.monotonic() + SETTLED_S
    while True:
        found = await subjects(client)
        if found == expected or time.monotonic() > end:
            return found
        await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    ("retention", "given", "left"),
    [
        ("workqueue", 0, {"s.a": 3, "s.b": 3}),
        ("workqueue", 2, {"s.a": 3, "s.b": 3}),
        ("interest", 0, {"s.a": 3}),
        # With what a worker has in hand: it is not given again.
        ("interest", 2, {"s.a": 3}),
        ("limits", 2, {"s.a": 3, "s.b": 3}),
    ],
)
async def test_messages_that_other_filters_leave_out(
    both: list[Client], retention: str, given: int, left: dict[str, int]
) -> None:
    for client in both:
        stream = {"name": "S", "subjects": ["s.>"], "retention": retention}
        await api(client, "STREAM.CREATE.S", stream)
        await set_consumer(client, filter_subjects=["s.a", "s.b"])
        for subject in ["s.a", "s.b"] * 3:
            await ask(client, subject, b"x")
        held = await pull(client, given) if given else []
        await set_consumer(client, filter_subjects=["s.a"])
        # What is to go has gone when the next one is there; what is not must have had time to.
        await ask(client, "s.a", b"x")
        assert await settled(client, left | {"s.a": 4}) == left | {"s.a": 4}
        assert [await ask(client, message.reply) for message in held] == [({}, "")] * given
        rest = await pull(client, 10)
        assert {message.subject for message in rest} == {"s.a"}
        for message in rest:
            await ask(client, message.reply)
        kept = 3 if retention == "workqueue" else 0
        expected = {"s.b": kept - given // 2} if kept else {}
        if retention == "limits":
            expected = {"s.a": 4, "s.b": 3}
        assert await settled(client, expected) == expected


@pytest.mark.parametrize("retention", ["workqueue", "interest"])
async def test_messages_of_subjects_that_are_not_the_streams_any_more(
    both: list[Client], retention: str
) -> None:
    for client in both:
        stream: dict[str, Any] = {"name": "S", "subjects": ["s.a", "s.b"], "retention": retention}
        await api(client, "STREAM.CREATE.S", stream)
        await set_consumer(client)
        for subject in ("s.a", "s.b"):
            await ask(client, subject, b"x")
        await api(client, "STREAM.UPDATE.S", stream | {"subjects": ["s.a"]})
        came = await pull(client, 2)
        assert [message.subject for message in came] == ["s.a", "s.b"]
        assert await subjects(client) == {"s.a": 1, "s.b": 1}
        for message in came:
            await ask(client, message.reply)
        assert await settled(client, {}) == {}


@pytest.mark.parametrize("retention", ["workqueue", "interest", "limits"])
@pytest.mark.parametrize("said", [b"+ACK", b"+TERM no"])
async def test_late_words_about_what_was_given_up(
    both: list[Client], retention: str, said: bytes
) -> None:
    for client in both:
        stream = {"name": "S", "subjects": ["s"], "retention": retention}
        await api(client, "STREAM.CREATE.S", stream)
        await set_consumer(client, max_deliver=1, ack_wait=SECOND // 5)
        told = await client.subscribe("$JS.EVENT.ADVISORY.CONSUMER.>")
        await ask(client, "s", b"x")
        [given] = await pull(client, 1)
        reported = await told.next_msg(timeout=ANSWER_S)
        while "MAX_DELIVERIES" not in reported.subject:
            reported = await told.next_msg(timeout=ANSWER_S)
        assert await pull(client, 1) == []
        assert await subjects(client) == {"s": 1}
        # However often it is said, it is answered, and that a message is never wanted is reported.
        for _ in range(2):
            assert await ask(client, given.reply, said) == ({}, "")
            if said != b"+ACK":
                report = json.loads((await told.next_msg(timeout=ANSWER_S)).data)
                assert report["type"].endswith("terminated"), report
                about = [report[name] for name in ("stream_seq", "consumer_seq", "deliveries")]
                assert (about, report["reason"]) == ([1, 1, 1], "no")
        left = {"s": 1} if retention == "limits" else {}
        assert await settled(client, left) == left
        assert await pull(client, 1) == []
