"""Consumers that are created again, or by pedantic clients, are answered as by nats-server.

Both servers are asked the same.
"""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import Client
from tests.conformance.jetstream_pair import ask, side_by_side
from tests.peers import Serve

SECOND = 10**9


@pytest.fixture
async def both(serve: Serve, tmp_path: Path) -> AsyncIterator[list[Client]]:
    """Clients of mq9 and of nats-server, each with a stream."""
    async with side_by_side(serve, tmp_path) as pairs:
        clients = [client for _, client in pairs]
        for client in clients:
            await ask(client, "$JS.API.STREAM.CREATE.A", {"name": "A", "subjects": ["a.>"]})
        yield clients


CREATED: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"durable_name": "c"}, {"durable_name": "c"}),
    ({}, {}),
    ({"inactive_threshold": 5 * SECOND}, {"inactive_threshold": 5 * SECOND}),
    ({"inactive_threshold": 300 * SECOND}, {"inactive_threshold": 300 * SECOND}),
    ({}, {"inactive_threshold": 5 * SECOND}),
    ({"inactive_threshold": 5 * SECOND}, {}),
    ({"durable_name": "c"}, {"durable_name": "c", "description": "x"}),
    ({"durable_name": "c"}, {"durable_name": "c", "ack_wait": 30 * SECOND, "max_deliver": -1}),
    ({"durable_name": "c", "metadata": {"a": "b"}}, {"durable_name": "c", "metadata": {"a": "b"}}),
    ({"durable_name": "c", "metadata": {"a": "b"}}, {"durable_name": "c"}),
    (
        {"durable_name": "c", "filter_subjects": ["a.1", "a.2"]},
        {"durable_name": "c", "filter_subjects": ["a.2", "a.1"]},
    ),
    (
        {"durable_name": "c", "filter_subject": "a.1"},
        {"durable_name": "c", "filter_subjects": ["a.1"]},
    ),
    ({"durable_name": "c"}, {}),
]


def outcome(answer: tuple[dict[str, str], Any]) -> object:
    """The refusal, or the configuration without what only nats-server writes into it."""
    said = answer[1]
    if "error" in said:
        return said["error"]
    config = said["config"]
    config.pop("metadata", None)
    return config


async def create(client: Client, config: dict[str, Any], **more: object) -> object:
    """What comes of asking for a consumer `c`."""
    config = {"name": "c", "ack_policy": "explicit"} | config
    request = {"stream_name": "A", "config": config} | more
    return outcome(await ask(client, "$JS.API.CONSUMER.CREATE.A.c", request))


async def test_an_equal_consumer_may_be_created_again(both: list[Client]) -> None:
    for first, second in CREATED:
        for config in (first, second):
            answers = [await create(client, config, action="create") for client in both]
            assert answers[0] == answers[1], (first, config)
        for client in both:
            await ask(client, "$JS.API.CONSUMER.DELETE.A.c")


PEDANTIC: list[dict[str, Any]] = [
    {"max_deliver": -2},
    {"max_deliver": -1},
    {"max_waiting": -1},
    {"max_ack_pending": -2},
    {"max_ack_pending": -1},
    {"max_batch": -1},
    {"max_expires": -1},
    {"max_bytes": -1},
    {"idle_heartbeat": -1},
    {"inactive_threshold": -1},
    {"backoff": [SECOND], "max_deliver": 3},
    {"backoff": [SECOND], "max_deliver": 3, "ack_wait": SECOND},
    {"max_deliver": -2, "max_waiting": -1},
]


async def test_pedantic_requests_are_refused_where_something_would_be_changed(
    both: list[Client],
) -> None:
    for config in PEDANTIC:
        for pedantic in (True, False):
            answers = [await create(client, config, pedantic=pedantic) for client in both]
            assert answers[0] == answers[1], (config, pedantic)
        for client in both:
            await ask(client, "$JS.API.CONSUMER.DELETE.A.c")


async def test_limits_of_the_stream_must_be_said_in_pedantic_requests(both: list[Client]) -> None:
    limits = {"max_ack_pending": 5, "inactive_threshold": 5 * SECOND}
    stream = {"name": "A", "subjects": ["a.>"], "consumer_limits": limits}
    for config in ({}, {"max_ack_pending": 5}, limits):
        for client in both:
            await ask(client, "$JS.API.STREAM.UPDATE.A", stream)
        answers = [await create(client, dict(config), pedantic=True) for client in both]
        assert answers[0] == answers[1], config


async def test_the_default_persist_mode_is_left_out(both: list[Client]) -> None:
    stream = {"name": "P", "subjects": ["p"], "persist_mode": "default"}
    answers = [await ask(client, "$JS.API.STREAM.CREATE.P", stream) for client in both]
    for _, said in answers:
        said["config"].pop("metadata", None)
    assert json.dumps(answers[0], sort_keys=True) == json.dumps(answers[1], sort_keys=True)
