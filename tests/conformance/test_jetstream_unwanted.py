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
from tests.conformance.jetstream_pair import ask, served_in, side_by_side
from tests.peers import MQ9, NATS_SERVER, NATS_SERVER_BINARY, Serve, start

ANSWER_S = 5.0
SETTLED_S = 10.0
SECOND = 10**9
INTEREST = {"name": "S", "subjects": ["s.>"], "retention": "interest"}
SUBJECTS = ["s.a", "s.b", "s.c"]
EACH_ONCE = dict.fromkeys(SUBJECTS, 1)


@pytest.fixture
async def both(serve: Serve, tmp_path: Path) -> AsyncIterator[list[Client]]:
    """Clients of mq9 and of nats-server."""
    async with side_by_side(serve, tmp_path) as pairs:
        yield [client for _, client in pairs]


async def api(client: Client, subject: str, body: object = b"") -> dict[str, Any]:
    _, said = await ask(client, f"$JS.API.{subject}", body)
    assert isinstance(said, dict)
    assert "error" not in said, said
    return said


async def set_consumer(client: Client, name: str = "c", **config: object) -> None:
    config = {"durable_name": name, "ack_policy": "explicit"} | config
    await api(client, f"CONSUMER.CREATE.S.{name}", {"stream_name": "S", "config": config})


async def pull(client: Client, most: int, consumer: str = "c") -> list[Msg]:
    """The messages that are there now."""
    inbox = client.new_inbox()
    answers = await client.subscribe(inbox)
    request = json.dumps({"batch": most, "no_wait": True}).encode()
    await client.publish(f"$JS.API.CONSUMER.MSG.NEXT.S.{consumer}", request, reply=inbox)
    came: list[Msg] = []
    while len(came) < most and (message := await answers.next_msg(timeout=ANSWER_S)).reply:
        came.append(message)
    await answers.unsubscribe()
    return came


async def take(client: Client, count: int, consumer: str = "c") -> list[Msg]:
    """So many messages. A consumer of nats-server sees them a moment after they are confirmed."""
    end = time.monotonic() + SETTLED_S
    came: list[Msg] = []
    while len(came) < count and time.monotonic() < end:
        came += await pull(client, count - len(came), consumer)
    assert len(came) == count, came
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
        held = await take(client, given) if given else []
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
        came = await take(client, 2)
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
        [given] = await take(client, 1)
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


async def two(client: Client, **config: object) -> None:
    """A consumer `c` that gives up what it was given once, another `d`, and messages for both."""
    await api(client, "STREAM.CREATE.S", INTEREST)
    await set_consumer(client, max_deliver=1, ack_wait=SECOND // 5)
    await set_consumer(client, "d", **config)
    for subject in SUBJECTS:
        await ask(client, subject, b"x")
    # So that nobody takes before a consumer of nats-server has seen all of them.
    end = time.monotonic() + SETTLED_S
    for name in "cd":
        while True:
            if await pending(client, name) == len(SUBJECTS) or time.monotonic() > end:
                break
            await asyncio.sleep(0.02)


async def give_up(client: Client, most: int = 3) -> list[Msg]:
    """The messages that `c` is given, and has given up."""
    told = await client.subscribe("$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.S.c")
    given = await take(client, most)
    for _ in given:
        await told.next_msg(timeout=ANSWER_S)
    await told.unsubscribe()
    return given


async def do_all(client: Client, consumer: str = "d") -> None:
    for message in await pull(client, 3, consumer):
        assert await ask(client, message.reply) == ({}, "")


async def pending(client: Client, consumer: str) -> int:
    """How many messages a consumer has not been given."""
    count: int = (await api(client, f"CONSUMER.INFO.S.{consumer}"))["num_pending"]
    return count


async def info(client: Client, consumer: str) -> dict[str, Any]:
    """What is said of a consumer, as far as it concerns what it was given."""
    said = await api(client, f"CONSUMER.INFO.S.{consumer}")
    found = {name: said[name] for name in ("num_ack_pending", "num_pending", "num_redelivered")}
    floor = [said["ack_floor"][name] for name in ("consumer_seq", "stream_seq")]
    return found | {"floor": floor}


@pytest.mark.parametrize("others_first", [False, True])
async def test_what_one_consumer_has_given_up_stays_for_it(
    both: list[Client], others_first: bool
) -> None:
    seen = []
    for client in both:
        await two(client)
        if others_first:
            await do_all(client)
        given = await give_up(client)
        await do_all(client)
        assert await subjects(client) == EACH_ONCE
        seen.append([await info(client, "c"), await info(client, "d")])
        # It is not given again, and late words let it go.
        assert await pull(client, 3) == []
        assert await ask(client, given[1].reply, b"-NAK") == ({}, "")
        assert await subjects(client) == EACH_ONCE
        assert await ask(client, given[1].reply, b"+ACK") == ({}, "")
        assert await ask(client, given[2].reply, b"+TERM") == ({}, "")
        assert await settled(client, {"s.a": 1}) == {"s.a": 1}
        seen[-1].append(await info(client, "c"))
    assert seen[0] == seen[1]


async def test_what_is_given_up_after_a_return_stays_too(both: list[Client]) -> None:
    for client in both:
        await two(client)
        await set_consumer(client, max_deliver=1)
        given = await pull(client, 3)
        for message in given:
            assert await ask(client, message.reply, b"-NAK") == ({}, "")
        # Only the next request finds that nothing is to be given again, and is told.
        assert await pull(client, 3) == []
        await do_all(client)
        assert await subjects(client) == EACH_ONCE
        assert await ask(client, given[0].reply, b"+ACK") == ({}, "")
        assert await settled(client, {"s.b": 1, "s.c": 1}) == {"s.b": 1, "s.c": 1}


async def test_late_words_count_before_others_have_done_with_it(both: list[Client]) -> None:
    for client in both:
        await two(client)
        given = await give_up(client)
        assert await ask(client, given[1].reply, b"+ACK") == ({}, "")
        assert await ask(client, given[2].reply, b"+TERM") == ({}, "")
        assert await subjects(client) == EACH_ONCE
        await do_all(client)
        assert await settled(client, {"s.a": 1}) == {"s.a": 1}


@pytest.mark.parametrize("ack_policy", ["all", "none"])
async def test_whatever_way_another_acknowledges(both: list[Client], ack_policy: str) -> None:
    for client in both:
        await two(client, ack_policy=ack_policy)
        given = await give_up(client, 2)
        [last] = await take(client, 1)
        assert await ask(client, last.reply) == ({}, "")
        of_other = await take(client, 3, "d")
        if ack_policy == "all":
            assert await ask(client, of_other[2].reply) == ({}, "")
        left = {"s.a": 1, "s.b": 1}
        assert await settled(client, left) == left
        assert await ask(client, given[0].reply) == ({}, "")
        assert await settled(client, {"s.b": 1}) == {"s.b": 1}


async def test_the_only_other_who_wanted_it_is_removed(both: list[Client]) -> None:
    for client in both:
        await two(client)
        given = await give_up(client, 2)
        await api(client, "CONSUMER.DELETE.S.d")
        assert await ask(client, given[0].reply) == ({}, "")
        left = {"s.b": 1, "s.c": 1}
        assert await settled(client, left) == left


@pytest.mark.parametrize("widened", [False, True])
async def test_other_filters_of_whoever_gave_it_up(both: list[Client], widened: bool) -> None:
    for client in both:
        await two(client)
        await give_up(client)
        config: dict[str, Any] = {"max_deliver": 1, "ack_wait": SECOND // 5}
        await set_consumer(client, filter_subjects=["s.a"], **config)
        if widened:
            await set_consumer(client, filter_subjects=["s.a", "s.b"], **config)
        await do_all(client)
        left = {"s.a": 1, "s.b": 1} if widened else {"s.a": 1}
        assert await settled(client, left) == left


async def first_life(client: Client) -> list[str]:
    """One of what was given up is acknowledged late, and another wants all of it."""
    await two(client)
    replies = [message.reply for message in await give_up(client)]
    assert await ask(client, replies[1]) == ({}, "")
    return replies


async def test_a_restart_and_the_removal_of_whoever_gave_it_up(tmp_path: Path) -> None:
    if not NATS_SERVER_BINARY.exists():
        pytest.skip(f"needs {NATS_SERVER_BINARY.name} next to the interpreter: make setup")
    for peer in (MQ9, NATS_SERVER):
        replies: list[str] = []
        for life in range(4):
            async with AsyncExitStack() as stack:
                folder = tmp_path / peer
                server = start(folder, served_in(folder / "streams"), peer=peer)
                stack.callback(server.stop)
                client = await nats.connect(server.url)
                stack.push_async_callback(client.close)
                match life:
                    case 0:
                        replies = await first_life(client)
                    case 1:
                        await do_all(client)
                        left = {"s.a": 1, "s.c": 1}
                        assert await settled(client, left) == left
                    case 2:
                        assert await ask(client, replies[2]) == ({}, "")
                        assert await settled(client, {"s.a": 1}) == {"s.a": 1}
                        await api(client, "CONSUMER.DELETE.S.c")
                    case _:
                        # nats-server lets some of it go only with a restart.
                        assert await settled(client, {}) == {}
