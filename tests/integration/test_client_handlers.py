"""Handlers as people write them: plain functions, functions that block, workers that come first."""

import asyncio
import functools
import logging
import threading
import time
from asyncio import CancelledError
from collections.abc import Callable

import pytest

import mq9
from mq9 import errors

Handler = Callable[[mq9.Message], object]

DEADLINE_S = 30


async def run_until(consumer: mq9.Consumer, done: asyncio.Event, handler: Handler) -> None:
    task = asyncio.create_task(consumer.run(handler))
    async with asyncio.timeout(DEADLINE_S):
        await done.wait()
    await consumer.stop()
    await task


async def test_a_plain_function_runs_once_for_each_message_in_a_thread(
    client: mq9.Client, inbox: str
) -> None:
    loop = asyncio.get_running_loop()
    done = asyncio.Event()
    seen: list[tuple[str, bool]] = []

    def handle(message: mq9.Message) -> None:
        seen.append((message.text, threading.current_thread() is threading.main_thread()))
        if len(seen) == 3:
            loop.call_soon_threadsafe(done.set)

    await client.send_many(inbox, ["a", "b", "c"])
    await run_until(client.consume(inbox, group="g"), done, handle)
    assert seen == [("a", False), ("b", False), ("c", False)]
    assert await client.fetch(inbox, group="g", max_wait=0) == []


class OwnEnd(StopIteration):
    """The end of somebody's own iteration."""


@pytest.mark.parametrize("error", [ZeroDivisionError, StopIteration, OwnEnd, CancelledError])
async def test_a_plain_function_that_raises_is_called_again(
    client: mq9.Client, inbox: str, error: type[BaseException]
) -> None:
    """Whatever it raises: no future can hold the end of an iteration, say."""
    loop = asyncio.get_running_loop()
    done = asyncio.Event()
    tries: list[int] = []

    def handle(message: mq9.Message) -> None:
        tries.append(message.deliveries)
        if message.deliveries == 1:
            raise error
        loop.call_soon_threadsafe(done.set)

    await client.send(inbox, "a")
    await run_until(client.consume(inbox, group="g", retry_delays=(0.05,)), done, handle)
    assert tries == [1, 2]


async def test_plain_functions_run_side_by_side_up_to_the_limit(
    client: mq9.Client, inbox: str
) -> None:
    loop = asyncio.get_running_loop()
    done = asyncio.Event()
    # More than the default pool of a two-core machine has threads.
    count = 12
    together = threading.Barrier(count)

    def handle(_message: mq9.Message) -> None:
        if together.wait(DEADLINE_S) == 0:
            loop.call_soon_threadsafe(done.set)

    await client.send_many(inbox, map(str, range(count)))
    await run_until(client.consume(inbox, group="g", concurrency=count), done, handle)


async def test_whatever_can_be_called_can_be_a_handler(client: mq9.Client, inbox: str) -> None:
    seen: list[tuple[str, str]] = []

    async def named(how: str, message: mq9.Message) -> None:
        seen.append((how, message.text))

    class Worker:
        async def __call__(self, message: mq9.Message) -> None:
            await named("object", message)

        async def method(self, message: mq9.Message) -> None:
            await named("method", message)

    ways: dict[str, Handler] = {
        "partial": functools.partial(named, "partial"),
        "object": Worker(),
        "method": Worker().method,
        # It is no `async def`, but what it returns can be awaited.
        "lambda": lambda message: named("lambda", message),
    }
    for how, handler in ways.items():
        await client.send(inbox, how)
        consumer = client.consume(inbox, group="g")
        task = asyncio.create_task(consumer.run(handler))
        async with asyncio.timeout(DEADLINE_S):
            while (how, how) not in seen:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        await consumer.stop()
        await task
    assert seen == [(how, how) for how in ways]
    with pytest.raises(errors.InvalidField, match="function"):
        await client.consume(inbox, group="g").run("no function")  # type: ignore[arg-type]


async def test_a_handler_that_stops_the_loop_for_longer_than_its_lease_is_warned_about(
    client: mq9.Client, inbox: str, caplog: pytest.LogCaptureFixture
) -> None:
    done = asyncio.Event()

    async def handle(_message: mq9.Message) -> None:
        await asyncio.sleep(0)
        time.sleep(0.5)  # noqa: ASYNC251
        # The renewal that was due meanwhile finds the message still in hand.
        await asyncio.sleep(0.2)
        done.set()

    await client.send(inbox, "a")
    with caplog.at_level(logging.WARNING, "mq9.client"):
        await run_until(client.consume(inbox, group="g", ack_wait=0.3), done, handle)
    assert any("stood still" in text and "ack_wait" in text for text in caplog.messages)


async def test_an_important_message_does_not_wait_behind_one_that_is_worked_on(
    client: mq9.Client, inbox: str
) -> None:
    busy, let_go, seen = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def slow(_message: mq9.Message) -> None:
        busy.set()
        await let_go.wait()

    async def quick(message: mq9.Message) -> None:
        if message.text == "now":
            seen.set()

    await client.send(inbox, "a")
    first = client.consume(inbox, group="g")
    working = asyncio.create_task(first.run(slow))
    async with asyncio.timeout(DEADLINE_S):
        await busy.wait()
    # A worker that took messages ahead would be waiting for this one.
    await client.query(inbox)
    await client.send(inbox, "now", priority="critical")
    second = client.consume(inbox, group="g")
    idle = asyncio.create_task(second.run(quick))
    async with asyncio.timeout(DEADLINE_S):
        await seen.wait()
    let_go.set()
    for consumer, task in ((first, working), (second, idle)):
        await consumer.stop()
        await task


async def test_a_worker_may_come_before_its_mailbox(
    client: mq9.Client, caplog: pytest.LogCaptureFixture
) -> None:
    done = asyncio.Event()

    async def handle(_message: mq9.Message) -> None:
        done.set()

    consumer = client.consume("not.yet", group="g", member="m")
    task = asyncio.create_task(consumer.run(handle))
    with caplog.at_level(logging.WARNING, "mq9.client"):
        async with asyncio.timeout(DEADLINE_S):
            while not caplog.messages:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
            await client.create_mailbox("not.yet")
            await client.send("not.yet", "a")
            await done.wait()
    await consumer.stop()
    await task
    [warning] = [text for text in caplog.messages if "waiting for the mailbox" in text]
    assert "not.yet does not exist" in warning


async def test_a_worker_may_make_its_mailbox(client: mq9.Client) -> None:
    done = asyncio.Event()

    async def handle(_message: mq9.Message) -> None:
        done.set()

    for _ in range(2):
        done.clear()
        consumer = client.consume("made.by.worker", group="g", create=True)
        task = asyncio.create_task(consumer.run(handle))
        async with asyncio.timeout(DEADLINE_S):
            while True:
                try:
                    await client.send("made.by.worker", "a")
                    break
                except errors.MailboxNotFound:
                    await asyncio.sleep(0.005)
            await done.wait()
        await consumer.stop()
        await task
