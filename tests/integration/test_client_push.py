"""`mq9.Client` is pushed to: all of a mailbox, an inbox once, broadcasts; over restarts."""

import asyncio
import itertools
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

import pytest
from tests.peers import Serve, Server, until
from tests.restarts import Restarting

import mq9
import mq9.sync
from mq9 import errors
from mq9.client import connecting, link
from mq9.client.sources import Everything

DEADLINE_S = 30
_names = itertools.count()


@pytest.fixture
async def other(server: Server) -> AsyncIterator[mq9.Client]:
    """A second client."""
    async with mq9.Client(server.url) as client:
        yield client


@pytest.fixture
async def box(client: mq9.Client) -> str:
    return await client.create_mailbox(f"push.box{next(_names)}", ttl=600)


async def texts(messages: "mq9.Subscription[mq9.Message]") -> list[str]:
    async with asyncio.timeout(DEADLINE_S), messages:
        return [message.text async for message in messages]


async def filled(client: mq9.Client, box: str, *payloads: str) -> None:
    for payload in payloads:
        await client.send(box, payload, priority="urgent" if payload.startswith("u") else None)


async def test_a_subscription_gives_all_by_priority_then_live_ones(
    client: mq9.Client, box: str
) -> None:
    await filled(client, box, "a", "b", "u1")
    async with asyncio.timeout(DEADLINE_S), client.subscribe(box) as messages:
        found = [(await anext(messages)) for _ in range(3)]
        assert [message.text for message in found] == ["u1", "a", "b"]
        assert [message.msg_id for message in found] == [2, 0, 1]
        assert [(message.priority, message.address) for message in found] == [
            *(("urgent", box), ("normal", box), ("normal", box))
        ]
        await client.send(box, "live", headers={"Trace": "7"})
        last = await anext(messages)
        assert (last.text, dict(last.headers)) == ("live", {"Trace": "7"})
    # Each begins anew.
    assert await texts(client.subscribe(box, limit=4)) == ["u1", "a", "b", "live"]


async def test_one_priority_can_be_asked_for(client: mq9.Client, box: str) -> None:
    await filled(client, box, "a", "u1", "b", "u2")
    assert await texts(client.subscribe(box, "urgent", limit=2)) == ["u1", "u2"]
    assert await texts(client.subscribe(box, "normal", limit=2)) == ["a", "b"]
    assert await texts(client.inbox(box, "urgent", limit=2)) == ["u1", "u2"]
    assert await texts(client.inbox(box, limit=2)) == ["a", "b"]


async def test_an_inbox_gives_each_message_once(client: mq9.Client, box: str) -> None:
    await filled(client, box, *"abcdef")
    assert await texts(client.inbox(box, limit=2)) == ["a", "b"]
    async with asyncio.timeout(DEADLINE_S), client.inbox(box) as messages:
        async for message in messages:
            if message.text == "d":
                break
    assert await texts(client.inbox(box, limit=2)) == ["e", "f"]
    assert await client.unread(box) == []
    await client.send(box, "g")
    assert [message.text for message in await client.unread(box)] == ["g"]
    assert await client.unread(box) == []
    # They are all still there.
    assert await texts(client.subscribe(box, limit=7)) == [*"abcdefg"]


@pytest.mark.parametrize("end", [errors.BrokerUnavailable("away"), asyncio.CancelledError()])
async def test_what_was_read_is_there_whatever_happens_to_the_rest(
    client: mq9.Client, box: str, monkeypatch: pytest.MonkeyPatch, end: BaseException
) -> None:
    for _ in range(14):
        await client.send(box, "x" * 100_000)
    ask = client._wire.ask
    calls = itertools.count()

    async def ask_once(
        subject: str,
        request: Mapping[str, object],
        *,
        timeout: float,  # noqa: ASYNC109
    ) -> object:
        if "QUERY" in subject and next(calls) == 1:
            raise end
        return await ask(subject, request, timeout=timeout)

    monkeypatch.setattr(client._wire, "ask", ask_once)
    if isinstance(end, asyncio.CancelledError):
        with pytest.raises(asyncio.CancelledError):
            await client.unread(box)
        assert len(await client.unread(box)) == 14
    else:
        first = await client.unread(box)
        assert 0 < len(first) < 14
        assert len(await client.unread(box)) == 14 - len(first)
    assert await client.unread(box) == []


async def test_what_a_program_was_not_done_with_is_unread(
    client: mq9.Client, box: str, other: mq9.Client
) -> None:
    """A message whose reader fails, or is cancelled, comes again to the next one."""
    await filled(client, box, "a")

    async def fail() -> None:
        async with asyncio.timeout(DEADLINE_S), client.inbox(box) as messages:
            async for _ in messages:
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    assert await texts(other.inbox(box, limit=1)) == ["a"]


async def test_many_messages_of_an_inbox_come_in_order(client: mq9.Client, box: str) -> None:
    payloads = [str(number) for number in range(3_000)]
    await client.send_many(box, payloads)
    assert await texts(client.inbox(box, limit=3_000)) == payloads


async def test_a_queue_shares_messages_and_what_was_deleted_is_gone(
    client: mq9.Client, box: str, other: mq9.Client
) -> None:
    done: list[str] = []

    async def note(message: mq9.Message) -> None:
        done.append(message.text)

    workers = [
        asyncio.create_task(each.subscribe(box, queue="w", delete=True, limit=10).run(note))
        for each in (client, other)
    ]
    await client.send_many(box, [str(number) for number in range(20)])
    async with asyncio.timeout(DEADLINE_S):
        await asyncio.gather(*workers)
    assert sorted(map(int, done)) == list(range(20))
    assert await client.query(box) == []


async def test_a_handler_is_called_one_message_at_a_time(client: mq9.Client, box: str) -> None:
    """A plain function in a thread; one that raises does not end it, `stop` does."""
    raised = {"b": ZeroDivisionError, "c": StopIteration, "d": asyncio.CancelledError}
    await filled(client, box, *"abcde")
    seen: list[tuple[str, bool]] = []
    messages = client.subscribe(box)
    loop = asyncio.get_running_loop()

    def handle(message: mq9.Message) -> None:
        seen.append((message.text, threading.current_thread() is threading.main_thread()))
        if message.text in raised:
            raise raised[message.text]
        if message.text == "e":
            loop.call_soon_threadsafe(messages.stop)

    async with asyncio.timeout(DEADLINE_S):
        await messages.run(handle)
    assert seen == [(text, False) for text in "abcde"]
    with pytest.raises(errors.InvalidField, match="used once"):
        await messages.run(handle)


async def test_a_mailbox_that_is_not_there_is_an_error(client: mq9.Client) -> None:
    for messages in (client.subscribe("push.nowhere"), client.inbox("push.nowhere")):
        with pytest.raises(errors.MailboxNotFound, match=r"mailbox push\.nowhere does not exist"):
            await texts(messages)


async def test_a_mailbox_that_goes_ends_the_subscription(client: mq9.Client) -> None:
    """After what had arrived before."""
    box = await client.create_mailbox(ttl=2)
    await filled(client, box, "a")
    found: list[mq9.Message] = []
    with pytest.raises(errors.MailboxNotFound, match=f"mailbox {box} does not exist"):
        async with asyncio.timeout(DEADLINE_S):
            await client.subscribe(box).run(found.append)
    assert [message.text for message in found] == ["a"]


async def test_arguments_are_checked(client: mq9.Client, box: str) -> None:
    for wrong in (
        lambda: client.subscribe("a b"),
        lambda: client.subscribe(box, "7"),
        lambda: client.subscribe(box, queue="a b"),
        lambda: client.subscribe(box, delete=True),
        lambda: client.inbox(box, limit=0),
        lambda: client.on_broadcast("a..b"),
    ):
        with pytest.raises((errors.InvalidField, errors.InvalidAddress)):
            wrong()
    with pytest.raises(errors.InvalidField):
        await client.broadcast("task.*", "x")
    with pytest.raises(errors.InvalidField, match="open the subscription first"):
        aiter(client.subscribe(box))


async def test_broadcasts_reach_those_who_listen(client: mq9.Client, other: mq9.Client) -> None:
    domain = f"d{next(_names)}"
    async with (
        asyncio.timeout(DEADLINE_S),
        other.on_broadcast(f"{domain}.*") as events,
        other.on_broadcast("#") as everything,
    ):
        await client.broadcast(f"{domain}.started", json={"n": 1}, headers={"Trace": "7"})
        event = await anext(events)
        assert (event.event, event.json(), event.text) == (f"{domain}.started", {"n": 1}, '{"n":1}')
        assert event.headers["Trace"] == "7"
        # What other tests had stored on this broker comes first.
        while (await anext(everything)).event != event.event:
            pass


async def test_a_queue_shares_broadcasts(client: mq9.Client) -> None:
    event = f"d{next(_names)}.available"
    got: list[str] = []

    all_told = asyncio.Event()

    async def note(told: mq9.Broadcast) -> None:
        got.append(told.text)
        if told.text == "29":
            all_told.set()

    listeners = [client.on_broadcast(event, "workers") for _ in range(3)]
    tasks = [asyncio.create_task(each.run(note)) for each in listeners]
    async with asyncio.timeout(DEADLINE_S):
        while not got:
            await client.broadcast(event, "are you there?")
        got.clear()
        for number in range(30):
            await client.broadcast(event, str(number))
        await all_told.wait()
        for each in listeners:
            each.stop()
        await asyncio.gather(*tasks)
    assert sorted(map(int, (text for text in got if text.isdigit()))) == list(range(30))


async def test_permissions_count(serve: Serve) -> None:
    """What may not be subscribed to or published is `AccessDenied`."""
    config = """authorization { users: [
      { user: ops, password: x }
      { user: poor, password: x, permissions: {
        publish: { deny: ["$mq9.AI.BROADCAST.>"] }
        subscribe: { deny: ["$mq9.AI.INBOX.>", "$mq9.AI.BROADCAST.system.>"] } } }
    ] }"""
    server = serve(config)
    async with (
        mq9.Client(server.url, user="ops", password="x") as ops,
        mq9.Client(server.url, user="poor", password="x") as poor,
    ):
        await ops.create_mailbox("a")
        await ops.send("a", "x")
        with pytest.raises(errors.AccessDenied):
            await texts(poor.inbox("a"))
        with pytest.raises(errors.AccessDenied):
            async with poor.on_broadcast("system.*"):
                pass
        with pytest.raises(errors.AccessDenied):
            await poor.broadcast("task.available", "x")
        assert await texts(poor.subscribe("a", limit=1)) == ["x"]


@pytest.fixture
async def own(tmp_path: Path) -> AsyncIterator[Restarting]:
    """A broker to be killed."""
    broker = await asyncio.to_thread(Restarting, tmp_path)
    try:
        yield broker
    finally:
        await asyncio.to_thread(broker.stop)


@pytest.mark.parametrize("kind", ["subscribe", "inbox"])
async def test_nothing_is_lost_or_doubled_when_the_broker_is_killed(
    own: Restarting, kind: str
) -> None:
    """Not even what was under way, or waited in the program."""
    async with mq9.Client(own.url) as client, mq9.Client(own.url) as sender:
        await client.create_mailbox("a")
        got: list[str] = []
        opened, ended = asyncio.Event(), asyncio.Event()

        async def listen() -> None:
            messages = client.subscribe("a") if kind == "subscribe" else client.inbox("a")
            async with messages:
                opened.set()
                async for message in messages:
                    got.append(message.text)
                    if message.text == "end":
                        ended.set()
                    await asyncio.sleep(0)

        listening = asyncio.create_task(listen())
        await opened.wait()
        expected: list[str] = []
        for turn in range(3):
            some = [f"{turn}.{number}" for number in range(500)]
            await sender.send_many("a", some)
            expected += some
            await asyncio.to_thread(own.restart, kill=True)
        await sender.send("a", "end", timeout=DEADLINE_S)
        async with asyncio.timeout(DEADLINE_S):
            await ended.wait()
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        assert got == [*expected, "end"]


async def test_a_slow_program_holds_back_the_broker_and_not_itself(own: Restarting) -> None:
    """It is behind by more than can wait, and still gets all, in order."""
    async with mq9.Client(own.url) as client:
        await client.create_mailbox("a")
        count = 3_000
        await client.send_many("a", [f"{number}".ljust(20_000) for number in range(count)])
        async with asyncio.timeout(2 * DEADLINE_S), client.subscribe("a", limit=count) as messages:
            await asyncio.sleep(0.5)
            # The connection of the client is another.
            await client.send("a", "more")
            got = [int(message.text) async for message in messages]
        assert got == list(range(count))


async def test_reading_that_is_held_back_for_long_keeps_the_connection(
    own: Restarting, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with mq9.Client(own.url) as client:
        await client.create_mailbox("a")
        await client.send_many("a", [f"{number}".ljust(20_000) for number in range(1000)])
        # From here on: a busy machine answers the client that sends not that fast.
        monkeypatch.setattr(connecting, "PING_INTERVAL_S", 0.1)
        monkeypatch.setattr(link, "PING_INTERVAL_S", 0.1)
        async with asyncio.timeout(DEADLINE_S), client.subscribe("a", limit=1000) as messages:
            assert messages._link is not None
            assert messages._link._nats is not None
            connection, sent = messages._link._nats, asyncio.Event()
            ping, count = connection._send_ping, itertools.count()

            async def ping_often(future: asyncio.Future[bool] | None = None) -> None:
                await ping(future)
                # Two that are not answered end a connection otherwise.
                if not messages._room.is_set() and next(count) == 10:
                    sent.set()

            monkeypatch.setattr(connection, "_send_ping", ping_often)
            monkeypatch.setattr(Everything, "buffered", 10)
            await sent.wait()
            assert [int(message.text) async for message in messages] == list(range(1000))
    assert "the connection is lost" not in caplog.text


def test_without_asyncio(own_sync: Restarting) -> None:
    with mq9.sync.Client(own_sync.url) as client:
        box = client.create_mailbox()
        for payload in "abc":
            client.send(box, payload)
        with client.subscribe(box, limit=3) as messages:
            assert [message.text for message in messages] == [*"abc"]
        with client.inbox(box) as messages:
            for message in messages:
                if message.text == "b":
                    break
        until(lambda: [message.text for message in client.unread(box)] == ["c"], "c is unread")
        seen: list[str] = []
        subscription = client.subscribe(box)

        def handle(message: mq9.Message) -> None:
            seen.append(message.text)
            if message.text == "c":
                subscription.stop()

        subscription.run(handle)
        assert seen == [*"abc"]
        with client.on_broadcast("x.*", limit=1) as events:
            client.broadcast("x.y", "z")
            assert [event.text for event in events] == ["z"]


@pytest.fixture
def own_sync(tmp_path: Path) -> "Iterator[Restarting]":
    """The same without asyncio."""
    broker = Restarting(tmp_path)
    try:
        yield broker
    finally:
        broker.stop()


async def told(events: "mq9.Subscription[mq9.Broadcast]") -> list[str]:
    async with asyncio.timeout(DEADLINE_S), events:
        return [event.text async for event in events]


async def test_a_stored_broadcast_reaches_those_who_listen_later(
    client: mq9.Client, other: mq9.Client
) -> None:
    domain = f"d{next(_names)}"
    async with asyncio.timeout(DEADLINE_S), other.on_broadcast(f"{domain}.*") as live:
        number = await client.broadcast(f"{domain}.a", "1", persist=True, headers={"Trace": "7"})
        again = [await client.broadcast(f"{domain}.b", "2", persist=True, id="x") for _ in "ab"]
        assert number is not None
        assert again == [number + 1, number + 1]
        assert await client.broadcast(f"{domain}.a", "gone") is None
        await client.broadcast(f"{domain}.a", "3", persist=True, ttl=600)
        heard = [await anext(live) for _ in range(4)]
    assert sorted(event.text for event in heard) == ["1", "2", "3", "gone"]
    stored = [event for event in heard if event.msg_id is not None]
    assert [event.text for event in stored] == ["1", "2", "3"]
    async with asyncio.timeout(DEADLINE_S), other.on_broadcast(f"{domain}.>", limit=3) as later:
        given = [event async for event in later]
    assert given == stored
    first = given[0]
    assert (first.event, first.msg_id, dict(first.headers)) == (
        *(f"{domain}.a", number, {"Trace": "7"}),
    )
    assert await told(other.on_broadcast(f"{domain}.b", limit=1)) == ["2"]
    for wrong in ({"ttl": 5}, {"id": "y"}):
        with pytest.raises(errors.InvalidField, match="persist=True"):
            await client.broadcast(f"{domain}.a", "x", **wrong)


async def test_stored_broadcasts_are_heard_once_when_the_broker_is_killed(own: Restarting) -> None:
    async with mq9.Client(own.url) as client, mq9.Client(own.url) as sender:
        await sender.broadcast("a.before", "before", persist=True)
        got: list[str] = []
        opened, ended = asyncio.Event(), asyncio.Event()

        async def listen() -> None:
            async with client.on_broadcast("a.*") as events:
                opened.set()
                async for event in events:
                    got.append(event.text)
                    if event.text == "end":
                        ended.set()

        listening = asyncio.create_task(listen())
        await opened.wait()
        expected = ["before"]
        for turn in range(3):
            for number in range(20):
                await sender.broadcast("a.b", f"{turn}.{number}", persist=True, timeout=DEADLINE_S)
                expected.append(f"{turn}.{number}")
            await asyncio.to_thread(own.restart, kill=True)
        await sender.broadcast("a.b", "end", persist=True, timeout=DEADLINE_S)
        async with asyncio.timeout(DEADLINE_S):
            await ended.wait()
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        assert got == [*expected, "end"]


async def test_a_slow_program_misses_no_stored_broadcast(own: Restarting) -> None:
    """More than can wait in the program, though what is not stored is dropped then."""
    count = 2_500
    async with mq9.Client(own.url) as client:
        sends = (
            client.broadcast("a.b", str(number).ljust(20_000), persist=True)
            for number in range(count)
        )
        await asyncio.gather(*sends)
        listener = client.on_broadcast("a.b", limit=count)
        async with asyncio.timeout(2 * DEADLINE_S), listener as events:
            await asyncio.sleep(0.5)
            got = [int(event.text) async for event in events]
    assert got == list(range(count))


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ("mq9 { max_broadcasts: 0 }", "max_broadcasts is 0"),
        ("mq9 { max_broadcasts: 2, broadcast_ttl: '1h', max_broadcast_bytes: 1MiB }", ""),
    ],
)
async def test_the_operator_limits_stored_broadcasts(serve: Serve, config: str, says: str) -> None:
    async with mq9.Client(serve(config).url) as client:
        if says:
            with pytest.raises(errors.InvalidRequest, match=says):
                await client.broadcast("a.b", "x", persist=True)
            return
        for text in "abc":
            await client.broadcast("a.b", text, persist=True)
        assert await told(client.on_broadcast("a.b", limit=2)) == ["b", "c"]
