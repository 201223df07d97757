"""Pull requests end when nats-server ends them, and are told the same.

Both servers are asked the same.
"""

import asyncio
import json
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from tests.conformance.jetstream_pair import ask, side_by_side
from tests.peers import Serve, Server

MS = 10**6
ANSWER_S = 10.0
QUIET_S = 0.3
BEHIND_THE_END = 20


@pytest.fixture
async def both(serve: Serve, tmp_path: Path) -> AsyncIterator[list[tuple[Server, Client]]]:
    """mq9 and nats-server with a stream, each with a client."""
    async with side_by_side(serve, tmp_path, allow_reconnect=False) as pairs:
        for _, client in pairs:
            await ask(client, "$JS.API.STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
        yield pairs


async def set_consumer(client: Client, **config: object) -> None:
    config = {"durable_name": "c", "ack_policy": "explicit"} | config
    request = {"stream_name": "S", "config": config}
    _, said = await ask(client, "$JS.API.CONSUMER.CREATE.S.c", request)
    assert "error" not in said, said


async def pull(client: Client, request: dict[str, object]) -> asyncio.Queue[Msg]:
    """Asks for messages; what comes."""
    came: asyncio.Queue[Msg] = asyncio.Queue()
    inbox = client.new_inbox()
    await client.subscribe(inbox, cb=came.put)
    subject = "$JS.API.CONSUMER.MSG.NEXT.S.c"
    await client.publish(subject, json.dumps(request).encode(), reply=inbox)
    await client.flush()
    return came


def noted(message: Msg) -> object:
    """A message, or what a status says."""
    return message.data if message.reply else dict(message.headers or {})


async def all_of(came: asyncio.Queue[Msg]) -> list[object]:
    """What comes until all is quiet, but for heartbeats."""
    seen = []
    try:
        while True:
            seen.append(noted(await asyncio.wait_for(came.get(), QUIET_S + 1.0)))
    except TimeoutError:
        return [one for one in seen if not isinstance(one, dict) or one.get("Status") != "100"]


REQUESTS: list[dict[str, object]] = [
    {"batch": 9, "no_wait": True, "expires": 1000 * MS, "idle_heartbeat": 100 * MS},
    {"batch": 9, "no_wait": True, "expires": 1000 * MS, "idle_heartbeat": 400 * MS},
    {"batch": 9, "no_wait": True, "expires": 600 * MS},
    {"batch": 9, "expires": 600 * MS},
    {"batch": 9, "expires": 600 * MS, "idle_heartbeat": 100 * MS},
    {"batch": 1, "expires": -5},
    {"batch": 1, "expires": -5, "no_wait": True},
]


@pytest.mark.parametrize("request_", REQUESTS, ids=str)
async def test_requests_end_as_with_nats_server_if_too_much_is_out(
    both: list[tuple[Server, Client]], request_: dict[str, object]
) -> None:
    async def ended(client: Client) -> list[object]:
        for _ in range(5):
            await ask(client, "s", b"x")
        await set_consumer(client, max_ack_pending=2)
        return await all_of(await pull(client, request_))

    mq9, real = await asyncio.gather(*(ended(client) for _, client in both))
    assert mq9 == real


async def test_a_late_acknowledgement_gives_nothing_to_who_has_left(
    both: list[tuple[Server, Client]],
) -> None:
    request: dict[str, object] = REQUESTS[0]

    async def given(client: Client) -> list[object]:
        for _ in range(5):
            await ask(client, "s", b"x")
        await set_consumer(client, max_ack_pending=2)
        came = await pull(client, request)
        messages = [await asyncio.wait_for(came.get(), ANSWER_S) for _ in range(2)]
        last = await asyncio.wait_for(came.get(), ANSWER_S)
        await messages[0].ack()
        return [noted(last), *await all_of(came)]

    mq9, real = await asyncio.gather(*(given(client) for _, client in both))
    assert mq9 == real
    assert len(mq9) == 1


async def test_requests_that_have_expired_are_given_nothing(
    both: list[tuple[Server, Client]],
) -> None:
    _, client = both[0]
    await set_consumer(client, ack_policy="none", deliver_policy="new")
    for nth in range(BEHIND_THE_END):
        came = await pull(client, {"batch": 1, "expires": 40 * MS - 100_000})
        asked = time.perf_counter()
        await asyncio.sleep(0.03)
        # The client's clock began behind the server's, so the request is over by now.
        while time.perf_counter() < asked + 0.0401 + nth * 0.0001:
            pass
        await ask(client, "s", b"x")
        first = await asyncio.wait_for(came.get(), ANSWER_S)
        assert (first.headers or {}).get("Status") == "408", nth
        await ask(client, "$JS.API.STREAM.PURGE.S")


async def test_requests_are_told_when_the_server_stops(both: list[tuple[Server, Client]]) -> None:
    async def told(peer: Server, client: Client) -> list[object]:
        await set_consumer(client)
        requests: list[dict[str, object]] = [
            {"batch": 3, "expires": 20_000 * MS},
            {"batch": 7, "expires": 20_000 * MS, "max_bytes": 500},
        ]
        waiting = [await pull(client, request) for request in requests]
        peer.signal(signal.SIGTERM)
        return [noted(await asyncio.wait_for(came.get(), ANSWER_S)) for came in waiting]

    mq9, real = await asyncio.gather(*(told(peer, client) for peer, client in both))
    assert mq9 == real
