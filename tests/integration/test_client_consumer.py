"""Consumers: what a worker is given, what becomes of it, and that nothing is lost on the way."""

import asyncio
import itertools
import logging
import time
from collections import Counter
from collections.abc import Callable
from datetime import timedelta

import pytest
from tests.peers import Serve, start

import mq9
from mq9 import errors


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def left_for(client: mq9.Client, inbox: str, group: str) -> list[str]:
    """What the group is given once everybody has let go."""
    messages = await client.fetch(inbox, group=group, deliver="earliest", max_wait=0)
    return [message.text for message in messages]


async def test_a_loop_acknowledges_a_message_when_it_asks_for_the_next(
    client: mq9.Client, inbox: str
) -> None:
    await client.send_many(inbox, ["a", "b", "c"])
    seen = []
    async with client.consume(inbox, group="g") as consumer:
        async for message in consumer:
            seen.append(message.text)
            if message.text == "b":
                break
    assert seen == ["a", "b"]
    assert await left_for(client, inbox, "g") == ["c"]


async def test_a_loop_that_raises_gives_the_message_back_at_once(
    client: mq9.Client, inbox: str
) -> None:
    await client.send_many(inbox, ["a", "b"])

    async def work() -> None:
        async with client.consume(inbox, group="g") as consumer:
            async for message in consumer:
                if message.text == "b":
                    raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await work()
    assert await left_for(client, inbox, "g") == ["b"]


async def test_a_handler_is_called_once_for_each_message_and_stop_ends_it(
    client: mq9.Client, inbox: str
) -> None:
    count = 200
    seen: list[str] = []
    consumer = client.consume(inbox, group="g", concurrency=8)

    async def handle(message: mq9.Message) -> None:
        seen.append(message.text)
        if len(seen) == count:
            await consumer.stop()

    await client.send_many(inbox, map(str, range(count)))
    await asyncio.wait_for(consumer.run(handle), 30)
    assert seen == [str(n) for n in range(count)]
    assert await left_for(client, inbox, "g") == []


async def test_handlers_run_side_by_side_up_to_the_limit(client: mq9.Client, inbox: str) -> None:
    running = most = 0
    full = asyncio.Event()
    consumer = client.consume(inbox, group="g", concurrency=3)

    async def handle(_message: mq9.Message) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == 3:
            full.set()
        await full.wait()
        running -= 1

    await client.send_many(inbox, map(str, range(30)))
    task = asyncio.create_task(consumer.run(handle))
    await asyncio.wait_for(full.wait(), 10)
    await consumer.stop()
    await task
    assert most == 3


async def test_the_most_important_message_in_hand_is_next(client: mq9.Client, inbox: str) -> None:
    await client.send_many(inbox, ["a", "b"])
    seen = []
    async with client.consume(inbox, group="g", prefetch=4) as consumer:
        async for message in consumer:
            seen.append(message.text)
            if message.text == "a":
                await client.send(inbox, "urgent", priority="urgent")
                await until(lambda: len(consumer._in_flight.msg_ids) == 3)
            if len(seen) == 3:
                break
    assert seen == ["a", "urgent", "b"]


async def test_a_message_whose_handler_failed_comes_again_later(
    client: mq9.Client, inbox: str, caplog: pytest.LogCaptureFixture
) -> None:
    tries: list[tuple[str, int, float]] = []
    consumer = client.consume(inbox, group="g", retry_delays=(0.2, 0.6))

    async def handle(message: mq9.Message) -> None:
        tries.append((message.text, message.deliveries, time.monotonic()))
        if message.text == "bad" and message.deliveries < 4:
            raise ValueError("not today")
        if len(tries) == 5:
            await consumer.stop()

    await client.send_many(inbox, ["bad", "good"])
    with caplog.at_level(logging.ERROR, "mq9.client"):
        await asyncio.wait_for(consumer.run(handle), 30)
    assert [(text, count) for text, count, _ in tries] == [
        ("bad", 1),
        ("good", 1),
        ("bad", 2),
        ("bad", 3),
        ("bad", 4),
    ]
    bad = [when for text, _, when in tries if text == "bad"]
    for (before, after), least in zip(itertools.pairwise(bad), (0.2, 0.6, 0.6), strict=True):
        assert least - 0.01 <= after - before < least + 2
    assert caplog.text.count("the handler failed on message 0") == 3
    assert "not today" in caplog.text
    assert caplog.text.count("the next delivery is in 0.6 s") == 2
    assert caplog.text.count("the next delivery is in 0.2 s") == 1


async def test_the_last_attempt_is_told_as_the_last(
    client: mq9.Client, inbox: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its line does not say that the message comes again; the one before it does."""
    dead = await client.create_mailbox()
    await client.update_mailbox(inbox, max_deliver=2, dead_letter=dead)
    await client.send(inbox, "poison")
    seen: list[bool] = []

    async def handle(message: mq9.Message) -> None:
        seen.append(message.last_delivery)
        if message.last_delivery:
            await consumer.stop()
        raise ValueError("not today")

    consumer = client.consume(inbox, group="g", retry_delays=(0.01,))
    with caplog.at_level(logging.ERROR, "mq9.client"):
        await asyncio.wait_for(consumer.run(handle), 30)
    assert seen == [False, True]
    assert [message.text for message in await client.query(dead)] == ["poison"]
    first, last = (each.getMessage() for each in caplog.records)
    assert first.endswith("(delivery 1); the next delivery is in 0.01 s")
    assert last.endswith("(delivery 2); this was its last delivery: it becomes a dead letter")


async def test_one_that_was_given_back_by_hand_comes_again_after_any_kind_of_time(
    client: mq9.Client, inbox: str
) -> None:
    await client.send(inbox, "again")
    seen: list[int] = []
    delays: list[float | timedelta] = [timedelta(milliseconds=50), 0.05]
    async with client.consume(inbox, group="g", auto_ack=False) as consumer:
        async for message in consumer:
            seen.append(message.deliveries)
            if len(seen) == 3:
                await consumer.ack(message)
                break
            await consumer.nak(message, delay=delays[len(seen) - 1])
    assert seen == [1, 2, 3]


async def test_a_handler_that_ends_as_if_cancelled_has_failed(
    client: mq9.Client, inbox: str
) -> None:
    consumer = client.consume(inbox, group="g", retry_delays=(0.01,))

    async def handle(message: mq9.Message) -> None:
        if message.deliveries == 1:
            raise asyncio.CancelledError
        await consumer.stop()

    await client.send(inbox, "x")
    await asyncio.wait_for(consumer.run(handle), 30)
    assert await left_for(client, inbox, "g") == []


async def test_a_handler_may_settle_a_message_itself(client: mq9.Client, inbox: str) -> None:
    await client.send_many(inbox, ["poison", "later", "done", "open"])
    consumer = client.consume(inbox, group="g", auto_ack=False)

    async def handle(message: mq9.Message) -> None:
        match message.text:
            case "poison":
                await consumer.term(message)
            case "later":
                await consumer.nak(message, delay=60)
            case "done":
                await consumer.ack(message)
            case "open":
                await consumer.stop()

    await asyncio.wait_for(consumer.run(handle), 30)
    assert await left_for(client, inbox, "g") == ["open"]


async def test_consumers_of_one_connection_compete(client: mq9.Client, inbox: str) -> None:
    count = 60
    seen: Counter[str] = Counter()
    by: Counter[int] = Counter()
    everything = asyncio.Event()

    async def work(number: int, consumer: mq9.Consumer) -> None:
        async def handle(message: mq9.Message) -> None:
            seen[message.text] += 1
            by[number] += 1
            # No message is done before both have some.
            await until(lambda: len(by) == 2)
            if len(seen) == count:
                everything.set()

        await consumer.run(handle)

    await client.send_many(inbox, map(str, range(count)))
    consumers = [client.consume(inbox, group="g", concurrency=2) for _ in range(2)]
    tasks = [asyncio.create_task(work(n, c)) for n, c in enumerate(consumers)]
    await asyncio.wait_for(everything.wait(), 30)
    for consumer in consumers:
        await consumer.stop()
    await asyncio.gather(*tasks)
    assert set(seen.values()) == {1}
    assert len(by) == 2


async def test_a_message_stays_with_its_handler_however_long_it_takes(
    client: mq9.Client, inbox: str
) -> None:
    """The lease is a second, here and in the mailbox; the handler takes three."""
    address = await client.create_mailbox(f"{inbox}.short", ack_wait=1)
    await client.send(address, "slow")
    ended = time.monotonic() + 3
    consumer = client.consume(address, group="g", ack_wait=1)

    async def handle(message: mq9.Message) -> None:
        assert message.deliveries == 1
        while time.monotonic() < ended:
            assert await client.fetch(address, group="g", member="thief", max_wait=0.2) == []
        await consumer.stop()

    await asyncio.wait_for(consumer.run(handle), 30)
    assert await left_for(client, address, "g") == []


async def test_stop_lets_handlers_finish_and_returns_the_rest(
    client: mq9.Client, inbox: str
) -> None:
    started, let_go = asyncio.Event(), asyncio.Event()
    done = []
    consumer = client.consume(inbox, group="g", prefetch=3)

    async def handle(message: mq9.Message) -> None:
        started.set()
        await let_go.wait()
        done.append(message.text)

    await client.send_many(inbox, ["a", "b", "c"])
    task = asyncio.create_task(consumer.run(handle))
    await started.wait()
    stopping = asyncio.create_task(consumer.stop())
    await asyncio.sleep(0)
    assert not stopping.done()
    let_go.set()
    await asyncio.wait_for(asyncio.gather(stopping, task), 10)
    assert done == ["a"]
    assert await left_for(client, inbox, "g") == ["b", "c"]


async def test_stop_with_a_timeout_cancels_handlers_and_returns_their_messages(
    client: mq9.Client, inbox: str
) -> None:
    started = asyncio.Event()
    consumer = client.consume(inbox, group="g")

    async def handle(_message: mq9.Message) -> None:
        started.set()
        await asyncio.Event().wait()

    await client.send(inbox, "stuck")
    task = asyncio.create_task(consumer.run(handle))
    await started.wait()
    await consumer.stop(timeout=0.1)
    await asyncio.wait_for(task, 10)
    assert await left_for(client, inbox, "g") == ["stuck"]


async def test_a_cancelled_consumer_returns_its_messages(client: mq9.Client, inbox: str) -> None:
    started = asyncio.Event()

    async def handle(_message: mq9.Message) -> None:
        started.set()
        await asyncio.Event().wait()

    await client.send_many(inbox, ["a", "b"])
    task = asyncio.create_task(client.consume(inbox, group="g").run(handle))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await left_for(client, inbox, "g") == ["a", "b"]


async def test_a_message_that_arrives_after_the_end_is_for_others(
    client: mq9.Client, inbox: str
) -> None:
    """Also one that the poll under way is given."""
    async with client.consume(inbox, group="g") as consumer:
        await _polling(client, inbox)
        await consumer.stop()
    await client.send(inbox, "late")
    [message] = await client.fetch(inbox, group="g", max_wait=10)
    assert message.text == "late"


async def _polling(client: mq9.Client, inbox: str) -> None:
    """Returns when the consumer's first request has been answered or waits."""
    await asyncio.sleep(0)
    await client.query(inbox)


async def test_what_makes_going_on_pointless_is_raised(client: mq9.Client) -> None:
    async def handle(_message: mq9.Message) -> None: ...

    with pytest.raises(errors.InvalidAddress):
        await client.consume("no.SUCH", group="g").run(handle)

    async def iterate() -> None:
        async with client.consume("no.SUCH", group="g") as consumer:
            async for _ in consumer:
                pass

    with pytest.raises(errors.InvalidAddress):
        await iterate()
    with pytest.raises(errors.InvalidField, match="async with"):
        aiter(client.consume("no.such", group="g"))
    with pytest.raises(errors.InvalidField, match="concurrency"):
        client.consume("no.such", group="g", concurrency=0)


async def test_nothing_is_lost_when_the_broker_is_killed_at_work(serve: Serve) -> None:
    server = serve()
    folder = server.log_file.parent
    count = 300
    done: Counter[str] = Counter()
    halfway, everything = asyncio.Event(), asyncio.Event()

    async with mq9.Client(server.url) as client:
        await client.create_mailbox("work")
        await client.send_many("work", map(str, range(count)))
        consumer = client.consume("work", group="g", concurrency=4)

        async def handle(message: mq9.Message) -> None:
            await asyncio.sleep(0.001)
            done[message.text] += 1
            if len(done) == count // 2:
                halfway.set()
            if len(done) == count:
                everything.set()

        task = asyncio.create_task(consumer.run(handle))
        await asyncio.wait_for(halfway.wait(), 30)
        server.process.kill()
        server.process.wait()
        again = start(folder, port=server.port)
        try:
            await asyncio.wait_for(everything.wait(), 30)
            await consumer.stop()
            await task
            assert await left_for(client, "work", "g") == []
        finally:
            await client.close()
            again.stop()
    # Only what was in hand, or acknowledged without an answer, may have come twice.
    assert sum(done.values()) <= count + 8
