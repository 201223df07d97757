"""Programs written for the original's client run on `mq9.compat` and a real broker."""

import asyncio
import json
from typing import Any

import pytest
from tests.pages import ROOT, blocks

import mq9
from mq9 import compat, errors
from mq9.compat import Consumer, Message, Mq9Client, Mq9Error, Priority


async def until(condition: Any) -> None:  # noqa: ANN401
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_messages_are_sent_fetched_acknowledged_and_deleted(mq9_url: str) -> None:
    async with Mq9Client(mq9_url) as client:
        box = await client.mailbox_create(name="inbox", ttl=60)
        assert box == "inbox"
        first = await client.send(box, {"n": 1})
        await client.send(box, "2", priority=Priority.URGENT, tags=["a", "b"])
        await client.send(box, b"\x00\xff", priority=Priority.CRITICAL, ttl=50)
        await client.send(box, "old", key="state")
        await client.send(box, "new", key="state")
        assert await client.send(box, "later", delay=50) == -1

        given = await client.fetch(box, group_name="g", deliver="earliest", num_msgs=3)
        assert [(m.priority, m.payload) for m in given] == [
            (Priority.CRITICAL, b"\x00\xff"),
            (Priority.URGENT, b"2"),
            (Priority.NORMAL, b'{"n":1}'),
        ]
        assert isinstance(given[0], Message)
        assert given[0].create_time > 0
        await client.ack(box, "g", given[-1].msg_id)
        [state] = await client.query(box, key="state")
        assert state.payload == b"new"
        [rest] = await client.fetch(box, group_name="g")
        assert rest == state
        await client.delete(box, first)
        assert json.dumps({"n": 1}).encode() not in [m.payload for m in await client.query(box)]
        assert await client.fetch(box, max_wait_ms=0) == []

        with pytest.raises(Mq9Error, match="already exists"):
            await client.mailbox_create(name="inbox")
        with pytest.raises(errors.MailboxNotFound):
            await client.send("no.such", "x")


async def test_levels_that_the_original_does_not_know(mq9_url: str) -> None:
    async with Mq9Client(mq9_url) as client:
        box = await client.mailbox_create()
        for level in (1, 2, 3, 4, 5, 9, 10):
            await client.client.send(box, "x", priority=level)
        given = await client.fetch(box, deliver="earliest")
        shown = [message.priority.value for message in given]
        assert shown == ["critical", "urgent", "urgent", *["normal"] * 4]


async def test_a_consumer_handles_reports_and_stops(mq9_url: str) -> None:
    handled: list[bytes] = []
    failed: list[tuple[bytes, str]] = []
    bad_may_pass = asyncio.Event()

    async def handle(message: Message) -> None:
        if message.payload == b"bad" and not bad_may_pass.is_set():
            raise ValueError("oops")
        handled.append(message.payload)

    async def on_error(message: Message, error: Exception) -> None:
        failed.append((message.payload, str(error)))
        bad_may_pass.set()
        raise RuntimeError("nobody minds")

    async with Mq9Client(mq9_url) as client:
        box = await client.mailbox_create()
        for body in ("one", "bad", "two"):
            await client.send(box, body)
        consumer = await client.consume(
            box, handle, group_name="g", deliver="earliest", error_handler=on_error
        )
        assert isinstance(consumer, Consumer)
        await until(lambda: consumer.processed_count == 3)
        assert consumer.is_running
        await consumer.stop()
        assert not consumer.is_running
        assert (handled, failed) == ([b"one", b"two", b"bad"], [(b"bad", "oops")])


async def test_a_slow_handler_keeps_the_rest_of_its_batch(
    mq9_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compat, "_LEASE_S", 2.0)
    monkeypatch.setattr(compat, "_RENEWAL_S", 0.1)
    handled: list[bytes] = []
    began, may_end = asyncio.Event(), asyncio.Event()

    async def handle(message: Message) -> None:
        began.set()
        await may_end.wait()
        handled.append(message.payload)

    async with Mq9Client(mq9_url) as client, mq9.Client(mq9_url) as other:
        await other.create_mailbox("slow", ack_wait=2)
        await other.send_many("slow", ["one", "two", "three"])
        consumer = await client.consume("slow", handle, group_name="g", deliver="earliest")
        await began.wait()
        # Longer than the lease: another worker is given nothing.
        assert await other.fetch("slow", group="g", max_wait=3.5) == []
        may_end.set()
        await until(lambda: consumer.processed_count == 3)
        await consumer.stop()
        assert handled == [b"one", b"two", b"three"]


async def test_a_handler_that_succeeded_is_no_failure_whatever_becomes_of_the_acknowledgement(
    mq9_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    failed: list[str] = []

    async with Mq9Client(mq9_url) as client, mq9.Client(mq9_url) as other:
        await other.create_mailbox("box")
        await other.send("box", "x")

        async def handle(_message: Message) -> None:
            await other.remove_mailbox("box")

        def on_error(_message: Message, error: Exception) -> None:
            failed.append(str(error))

        consumer = await client.consume(
            "box", handle, group_name="g", deliver="earliest", error_handler=on_error
        )
        await until(lambda: "was handled, but" in caplog.text)
        assert consumer.processed_count == 1
        await consumer.stop()
    assert failed == []


async def test_an_error_handler_may_be_a_plain_function(mq9_url: str) -> None:
    failed: list[str] = []

    async def handle(_message: Message) -> None:
        raise ValueError("oops")

    async with Mq9Client(mq9_url) as client:
        box = await client.mailbox_create()
        await client.send(box, "x")
        consumer = await client.consume(
            box,
            handle,
            deliver="earliest",
            error_handler=lambda _, error: failed.append(str(error)),
        )
        await until(lambda: failed)
        await consumer.stop()
    assert failed[0] == "oops"


async def test_a_consumer_that_cannot_go_on_says_so(
    mq9_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with Mq9Client(mq9_url) as client:
        box = await client.mailbox_create()
        consumer = await client.consume(box, print, max_wait_ms="soon")  # type: ignore[arg-type]
        await until(lambda: not consumer.is_running)
    assert "the consumer has ended" in caplog.text
    assert "TypeError" in caplog.text


async def test_what_its_demos_do_works(mq9_url: str) -> None:
    """Two agents: one registers, the other finds it by meaning, writes to it and is answered."""
    async with Mq9Client(mq9_url) as worker, Mq9Client(mq9_url) as asker:
        inbox = await worker.mailbox_create(name="demo.translator", ttl=300)
        text = "Multilingual translation of documents; languages: EN, ZH, JA."
        await worker.agent_register({"name": "demo.translator", "mailbox": inbox, "payload": text})
        await worker.agent_register(
            {"name": "demo.cook", "mailbox": "demo.cook", "payload": "Plans meals and shopping."}
        )

        async def work(message: Message) -> None:
            asked = json.loads(message.payload)
            await worker.send(asked["reply_to"], {"result": asked["text"].upper()})

        consumer = await worker.consume(
            inbox, work, group_name="workers", deliver="earliest", auto_ack=True
        )
        answers = await asker.mailbox_create(ttl=60)
        found: list[dict[str, Any]] = []
        async with asyncio.timeout(60):
            # Cards are read one after the other.
            while not found or found[0]["mailbox"] != inbox:
                found = await asker.agent_discover(semantic="translate a document into Chinese")
        await asker.send(found[0]["mailbox"], {"text": "hello", "reply_to": answers})
        given: list[Message] = []
        async with asyncio.timeout(60):
            while not given:
                given = await asker.fetch(answers, group_name="asker", deliver="earliest")
        assert json.loads(given[0].payload) == {"result": "HELLO"}
        await consumer.stop()


async def test_what_its_message_demo_does_works(mq9_url: str) -> None:
    """Priorities, a key, tags, lifetimes and a delay; fetch, ack, query, consume and delete."""
    async with Mq9Client(mq9_url) as client:
        box = await client.mailbox_create(name="demo.message", ttl=300)
        plain = await client.send(box, {"id": 1}, priority=Priority.NORMAL)
        await client.send(box, {"id": 2}, priority=Priority.URGENT)
        await client.send(box, {"id": 3}, priority=Priority.CRITICAL)
        for state in ("running", "60%", "done"):
            latest = await client.send(box, {"status": state}, key="status")
        await client.send(box, {"order": "o-1"}, tags=["billing", "vip"])
        await client.send(box, {"short": True}, ttl=10)
        assert await client.send(box, {"later": True}, delay=3) == -1

        given = await client.fetch(box, group_name="workers", deliver="earliest", num_msgs=10)
        bodies = [json.loads(message.payload) for message in given]
        assert bodies == [
            *({"id": 3}, {"id": 2}, {"id": 1}, {"status": "done"}, {"order": "o-1"}),
            {"short": True},
        ]
        await client.ack(box, "workers", given[-1].msg_id)
        [found] = await client.query(box, key="status")
        assert (found.msg_id, json.loads(found.payload)) == (latest, {"status": "done"})

        handled: list[object] = []

        async def handle(message: Message) -> None:
            handled.append(json.loads(message.payload))

        async def on_error(_message: Message, error: Exception) -> None:
            handled.append(error)

        consumer = await client.consume(
            box,
            handle,
            group_name="others",
            deliver="earliest",
            auto_ack=True,
            error_handler=on_error,
        )
        await until(lambda: consumer.processed_count == 7)
        await consumer.stop()
        assert handled == [*bodies, {"later": True}]
        # Of the first group only what was due later is left.
        [late] = await client.fetch(box, group_name="workers")
        assert json.loads(late.payload) == {"later": True}
        await client.delete(box, plain)
        assert plain not in [message.msg_id for message in await client.query(box)]


async def test_a_consumer_without_a_group_misses_nothing_and_leaves_none(mq9_url: str) -> None:
    handled: list[int] = []

    async def handle(message: Message) -> None:
        handled.append(int(message.payload))

    async with Mq9Client(mq9_url) as client:
        box = await client.mailbox_create()
        consumer = await client.consume(box, handle, deliver="earliest", num_msgs=3, max_wait_ms=1)
        for number in range(50):
            await client.send(box, str(number))
        await until(lambda: len(handled) == 50)
        await consumer.stop()
        assert handled == list(range(50))
        assert (await client.client.show_mailbox(box)).groups == ()


async def test_agents_are_registered_found_and_taken_out(mq9_url: str) -> None:
    async with Mq9Client(mq9_url) as client:
        box = await client.mailbox_create(name="tr", ttl=60)
        card = {"name": "demo.tr", "mailbox": box, "payload": "Translates between languages."}
        await client.agent_register(card)
        await client.agent_report({"name": "demo.tr", "mailbox": box, "report_info": "running"})
        assert [a["mailbox"] for a in await client.agent_discover(text="translates")] == ["tr"]
        assert len(await client.agent_discover(limit=20)) == 1
        await client.agent_unregister(box)
        assert await client.agent_discover() == []


async def test_without_a_connection_the_error_says_so() -> None:
    with pytest.raises(Mq9Error, match="connect"):
        await Mq9Client("nats://127.0.0.1:1").mailbox_create()


async def test_the_example_of_the_page(mq9_url: str) -> None:
    example = blocks("docs/migrate-robustmq.md", "python")[0]
    body = "\n".join(f"    {line}" for line in example.splitlines())
    names: dict[str, Any] = {}
    exec(f"async def example():\n{body}".replace("nats://127.0.0.1:4222", mq9_url), names)
    await names["example"]()
    async with mq9.Client(mq9_url) as client:
        assert (await client.show_mailbox("agent.inbox")).groups[0].pending == 0


def test_the_page_names_every_method() -> None:
    page = (ROOT / "docs/migrate-robustmq.md").read_text("utf-8")
    methods = {name for name in vars(Mq9Client) if not name.startswith("_")}
    for name in methods - {"connect", "close", "client"}:
        assert f"| `{name}(" in page, name
