"""What applications do with NATS, through nats-py: publish, subscribe, request, drain."""

import asyncio
from collections import Counter
from collections.abc import Callable

import nats.errors
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from tests.integration.conftest import Connect, settled
from tests.peers import Serve, Server

DEADLINE_S = 10


async def eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        # What is waited for happens in another process.
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def test_a_message_reaches_a_subscriber(server: Server, connect: Connect) -> None:
    publisher, subscriber = await connect(server), await connect(server)
    subscription = await subscriber.subscribe("m.one")
    await settled(subscriber)
    await publisher.publish("m.one", b"hello", reply="m.back")
    message = await subscription.next_msg(DEADLINE_S)
    assert (message.subject, message.reply, message.data) == ("m.one", "m.back", b"hello")


async def test_messages_come_in_order_and_complete(server: Server, connect: Connect) -> None:
    publisher, subscriber = await connect(server), await connect(server)
    payloads = [b"%d" % number + b"." * (number % 1500) for number in range(3000)]
    subscription = await subscriber.subscribe("m.order")
    await settled(subscriber)
    for payload in payloads:
        await publisher.publish("m.order", payload)
    received = [(await subscription.next_msg(DEADLINE_S)).data for _ in payloads]
    assert received == payloads


@pytest.mark.parametrize(
    ("pattern", "matches"),
    [
        ("m.w.*", {"m.w.a", "m.w.b"}),
        ("m.w.>", {"m.w.a", "m.w.b", "m.w.a.b", "m.w.a.b.c"}),
        ("m.*.a", {"m.w.a"}),
        ("*.*.*.b", {"m.w.a.b"}),
        ("m.w.a", {"m.w.a"}),
        (">", {"m.w", "m.w.a", "m.w.b", "m.w.a.b", "m.w.a.b.c"}),
    ],
)
async def test_wildcards(server: Server, connect: Connect, pattern: str, matches: set[str]) -> None:
    client = await connect(server)
    subscription = await client.subscribe(pattern)
    end = await client.subscribe("end-of-wildcards")
    for subject in ("m.w", "m.w.a", "m.w.b", "m.w.a.b", "m.w.a.b.c"):
        await client.publish(subject)
    await client.publish("end-of-wildcards")
    await end.next_msg(DEADLINE_S)
    received = {
        (await subscription.next_msg(DEADLINE_S)).subject for _ in range(subscription.pending_msgs)
    }
    assert received - {"end-of-wildcards"} == matches


async def test_one_member_of_each_queue_group_gets_a_message(
    server: Server, connect: Connect
) -> None:
    count = 300
    received: Counter[str] = Counter()

    def counting(name: str) -> Callable[[Msg], asyncio.Future[None]]:
        async def count_one(_message: Msg) -> None:
            received[name] += 1

        return count_one  # type: ignore[return-value]

    for number in range(3):
        member = await connect(server)
        await member.subscribe("m.q", queue="red", cb=counting(f"red{number}"))
        await member.subscribe("m.q", queue="blue", cb=counting(f"blue{number}"))
        await member.subscribe("m.q", cb=counting(f"plain{number}"))
        await settled(member)
    publisher = await connect(server)
    for _ in range(count):
        await publisher.publish("m.q", b"x")
    await eventually(lambda: received.total() >= 5 * count)
    for number in range(3):
        assert received[f"plain{number}"] == count
    for group in ("red", "blue"):
        shares = [received[f"{group}{number}"] for number in range(3)]
        assert sum(shares) == count
        # Random choice: a member with less than a tenth of its share has been forgotten.
        assert min(shares) > count / 30


async def test_a_queue_group_goes_on_when_a_member_leaves(server: Server, connect: Connect) -> None:
    first, second, publisher = [await connect(server) for _ in range(3)]
    leaving = await first.subscribe("m.leave", queue="q")
    staying = await second.subscribe("m.leave", queue="q")
    await settled(first, second)
    await leaving.unsubscribe()
    await settled(first)
    for _ in range(50):
        await publisher.publish("m.leave")
    for _ in range(50):
        await staying.next_msg(DEADLINE_S)


async def test_request_and_reply(server: Server, connect: Connect) -> None:
    service, client = await connect(server), await connect(server)

    async def answer(message: Msg) -> None:
        await message.respond(message.data.upper())

    await service.subscribe("m.shout", cb=answer)
    await settled(service)
    replies = await asyncio.gather(
        *[client.request("m.shout", b"n%d" % number, timeout=DEADLINE_S) for number in range(100)]
    )
    assert [reply.data for reply in replies] == [b"N%d" % number for number in range(100)]
    old_style = await client.request("m.shout", b"old", timeout=DEADLINE_S, old_style=True)
    assert old_style.data == b"OLD"


async def test_a_request_has_many_replies(server: Server, connect: Connect) -> None:
    for number in range(5):
        service = await connect(server)

        async def answer(message: Msg, number: int = number) -> None:
            await message.respond(b"%d" % number)

        await service.subscribe("m.many", cb=answer)
        await settled(service)
    client = await connect(server)
    inbox = client.new_inbox()
    replies = await client.subscribe(inbox)
    await client.publish("m.many", reply=inbox)
    assert {(await replies.next_msg(DEADLINE_S)).data for _ in range(5)} == {
        b"0",
        b"1",
        b"2",
        b"3",
        b"4",
    }


async def test_a_subscription_ends_after_its_maximum(server: Server, connect: Connect) -> None:
    client = await connect(server)
    subscription = await client.subscribe("m.max")
    await subscription.unsubscribe(limit=3)
    for number in range(5):
        await client.publish("m.max", b"%d" % number)
    await settled(client)
    assert [(await subscription.next_msg(DEADLINE_S)).data for _ in range(3)] == [b"0", b"1", b"2"]
    await eventually(lambda: subscription.pending_msgs == 0)


async def test_headers_arrive_with_their_message(server: Server, connect: Connect) -> None:
    publisher, subscriber = await connect(server), await connect(server)
    subscription = await subscriber.subscribe("m.headers")
    await settled(subscriber)
    sent = {"Trace-Id": "4711", "Content-Type": "text/plain; charset=utf-8", "Empty": ""}
    await publisher.publish("m.headers", b"body", headers=sent)
    await publisher.publish("m.headers", b"", headers=sent)
    await publisher.publish("m.headers", b"none")
    first, second, third = [await subscription.next_msg(DEADLINE_S) for _ in range(3)]
    assert (first.data, first.headers) == (b"body", sent)
    assert (second.data, second.headers) == (b"", sent)
    assert (third.data, third.headers) == (b"none", None)


async def test_a_request_that_nobody_answers_fails_at_once(
    server: Server, connect: Connect
) -> None:
    client = await connect(server)
    with pytest.raises(nats.errors.NoRespondersError):
        await client.request("m.nobody", b"?", timeout=DEADLINE_S)


async def test_no_echo(server: Server, connect: Connect) -> None:
    silent, other = await connect(server, no_echo=True), await connect(server)
    own = await silent.subscribe("m.echo")
    others = await other.subscribe("m.echo")
    await settled(silent, other)
    await silent.publish("m.echo", b"from silent")
    assert (await others.next_msg(DEADLINE_S)).data == b"from silent"
    await other.publish("m.echo", b"from other")
    assert (await own.next_msg(DEADLINE_S)).data == b"from other"


async def test_drain_delivers_what_was_sent_before(server: Server, connect: Connect) -> None:
    publisher, subscriber = await connect(server), await connect(server)
    received: list[bytes] = []

    async def keep(message: Msg) -> None:
        received.append(message.data)
        await message.respond(b"done")

    await subscriber.subscribe("m.drain", cb=keep)
    await settled(subscriber)
    replies = await publisher.subscribe("m.drained")
    for number in range(200):
        await publisher.publish("m.drain", b"%d" % number, reply="m.drained")
    await settled(publisher)
    await subscriber.drain()
    assert subscriber.is_closed
    assert received == [b"%d" % number for number in range(200)]
    for _ in range(200):
        await replies.next_msg(DEADLINE_S)
    with pytest.raises(nats.errors.NoRespondersError):
        await publisher.request("m.drain", timeout=DEADLINE_S)


async def test_the_largest_payload_arrives_and_a_larger_one_is_refused(
    serve: Serve, connect: Connect
) -> None:
    server = serve("max_payload: 100000\n")
    client = await connect(server)
    assert client.max_payload == 100_000
    subscription = await client.subscribe("m.large")
    await client.publish("m.large", b"x" * 100_000)
    assert len((await subscription.next_msg(DEADLINE_S)).data) == 100_000
    with pytest.raises(nats.errors.MaxPayloadError):
        await client.publish("m.large", b"x" * 100_001)

    closed = asyncio.Event()

    async def on_closed() -> None:
        closed.set()

    async def send_too_much(client: Client) -> None:
        client._max_payload = 1 << 20  # The server has to refuse it, too.
        await client.publish("m.large", b"x" * 100_001)

    rude = await connect(server, closed_cb=on_closed)
    await send_too_much(rude)
    await asyncio.wait_for(closed.wait(), DEADLINE_S)
    assert "maximum payload violation" in str(rude.last_error).lower()
    await settled(client)


async def test_a_thousand_subscribers_get_every_message(server: Server, connect: Connect) -> None:
    clients = [await connect(server) for _ in range(50)]
    received: Counter[bytes] = Counter()

    async def count(message: Msg) -> None:
        received[message.data] += 1

    for client in clients:
        for _ in range(20):
            await client.subscribe("m.thousand", cb=count)
    await settled(*clients)
    publisher = await connect(server)
    sent = [b"%d" % number for number in range(10)]
    for payload in sent:
        await publisher.publish("m.thousand", payload)
    await eventually(lambda: received.total() >= 10_000)
    assert received == dict.fromkeys(sent, 1000)
