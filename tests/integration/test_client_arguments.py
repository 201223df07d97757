"""What `send` and others take, and what they refuse before anything is sent."""

import time
from datetime import timedelta

import pytest

import mq9
from mq9 import errors


async def test_a_payload_is_bytes_or_text(client: mq9.Client, inbox: str) -> None:
    given = [b"bytes", "text", bytearray(b"array"), memoryview(b"view")]
    for payload in given:
        await client.send(inbox, payload)  # type: ignore[arg-type]
    sent = [message.payload for message in await client.query(inbox)]
    assert sent == [b"bytes", b"text", b"array", b"view"]


@pytest.mark.parametrize("payload", [5, 0, None, {"a": 1}, ["a"], 1.5, True])
async def test_anything_else_is_refused_with_a_hint(
    client: mq9.Client, inbox: str, payload: object
) -> None:
    with pytest.raises(errors.InvalidField, match=f"{type(payload).__name__}.*json="):
        await client.send(inbox, payload)  # type: ignore[arg-type]
    with pytest.raises(errors.PartlySent, match="json="):
        await client.send_many(inbox, [payload])  # type: ignore[list-item]
    assert await client.query(inbox) == []


@pytest.mark.parametrize("value", [{"a": [1, None, "ü"]}, [], 5, None, "text", True])
async def test_json_sends_any_value(client: mq9.Client, inbox: str, value: object) -> None:
    await client.send(inbox, json=value)
    await client.send_many(inbox, [mq9.NewMessage(json=value)])
    assert [message.json() for message in await client.query(inbox)] == [value, value]


async def test_a_message_has_either_a_payload_or_json(client: mq9.Client, inbox: str) -> None:
    with pytest.raises(errors.InvalidField, match="both"):
        await client.send(inbox, "a", json="a")
    with pytest.raises(errors.InvalidField, match="no payload"):
        await client.send(inbox)
    for value in (object(), float("nan"), {1, 2}, "\ud800"):
        with pytest.raises(errors.InvalidField, match="JSON"):
            await client.send(inbox, json=value)
    assert await client.query(inbox) == []


async def test_spans_of_time_are_seconds_or_timedeltas(client: mq9.Client, inbox: str) -> None:
    for delay in (0.05, timedelta(milliseconds=50)):
        begun = time.time()
        assert await client.send(inbox, "later", delay=delay) is None
        [message] = await client.fetch(inbox, group="g", deliver="earliest", max_wait=20)
        # The broker counts in whole milliseconds.
        assert time.time() - begun >= 0.049
        await client.ack(message)
    for ttl in (0.5, timedelta(seconds=0.5)):
        await client.send(inbox, "short", ttl=ttl)
    address = await client.create_mailbox(
        ttl=timedelta(minutes=1), ack_wait=0.25, max_age=timedelta(days=1)
    )
    assert await client.query(address) == []


@pytest.mark.parametrize("span", [-1, float("nan"), float("inf"), "5", True, timedelta(-1)])
async def test_spans_that_are_none_are_refused(
    client: mq9.Client, inbox: str, span: object
) -> None:
    for name in ("delay", "ttl"):
        with pytest.raises(errors.InvalidField, match=name):
            await client.send(inbox, "a", **{name: span})  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidField, match="ttl"):
        await client.create_mailbox(ttl=span)  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidField, match="ack_wait"):
        client.consume(inbox, group="g", ack_wait=span)  # type: ignore[arg-type]
    assert await client.query(inbox) == []


async def test_to_settle_nothing_is_nothing(client: mq9.Client) -> None:
    await client.ack()
    await client.nak()
    await client.progress()
    await client.term()
    await client.ack(address="no.such", group="g", msg_ids=[])
