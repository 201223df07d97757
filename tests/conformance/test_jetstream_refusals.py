"""What mq9 does not serve of JetStream is refused as nats-server refuses it, not stored or ignored.

Both servers are asked the same at once. Where nats-server serves what mq9 does not, the refusal is
written down here.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from nats.aio.client import Client
from tests.conformance.jetstream_pair import ask, side_by_side
from tests.peers import Serve


@pytest.fixture
async def both(serve: Serve, tmp_path: Path) -> AsyncIterator[tuple[Client, Client]]:
    """mq9 and nats-server, with the same in them."""
    async with side_by_side(serve, tmp_path) as pairs:
        clients = [client for _, client in pairs]
        for client in clients:
            stream = {"name": "D", "subjects": ["d.>"], "allow_direct": True}
            await ask(client, "$JS.API.STREAM.CREATE.D", stream)
            await ask(client, "$JS.API.STREAM.CREATE.N", {"name": "N", "subjects": ["n"]})
            for number in range(3):
                await ask(client, "d.1", b"one %d" % number)
            await ask(client, "d.2", b"two", {"A": "b"})
            consumer = {"durable_name": "c", "ack_policy": "explicit"}
            request = {"stream_name": "D", "config": consumer}
            await ask(client, "$JS.API.CONSUMER.CREATE.D.c", request)
        yield clients[0], clients[1]


HEADERS: list[dict[str, str]] = [
    {"Nats-TTL": "1s"},
    {"Nats-TTL": "never"},
    {"Nats-TTL": ""},
    {"Nats-Rollup": "sub"},
    {"Nats-Rollup": ""},
    {"Nats-Incr": "1"},
    {"Nats-Incr": ""},
    {"Nats-Batch-Id": "b", "Nats-Batch-Sequence": "1"},
    {"Nats-Batch-Id": ""},
    {"Nats-TTL": "1", "Nats-Expected-Stream": "X"},
    {"Nats-Incr": "1", "Nats-Expected-Stream": "X"},
    {"Nats-Rollup": "sub", "Nats-TTL": "1", "Nats-Incr": "1", "Nats-Batch-Id": "1"},
]

REQUESTS: list[tuple[str, object]] = [
    *((f"STREAM.PEER.REMOVE.{stream}", {}) for stream in "DX"),
    *((f"STREAM.LEADER.STEPDOWN.{stream}", b"") for stream in "DX"),
    *((f"CONSUMER.LEADER.STEPDOWN.D.{consumer}", b"") for consumer in "cx"),
    *((f"STREAM.SNAPSHOT.{stream}", {}) for stream in "D"),
    ("STREAM.SNAPSHOT.D", b""),
    ("STREAM.RESTORE.D", {}),
    *((f"CONSUMER.PAUSE.{name}", {}) for name in ("D.c", "D.x", "X.c")),
    ("CONSUMER.UNPIN.D.c", {}),
    ("CONSUMER.UNPIN.D.c", {"group": "a"}),
    *((f"DIRECT.GET.{name}", {"seq": 1}) for name in ("D", "N", "X")),
    ("DIRECT.GET.D", b""),
    ("DIRECT.GET.D", b"x"),
    ("DIRECT.GET.D", {"seq": 9}),
    ("DIRECT.GET.D", {"last_by_subj": "d.1"}),
    ("DIRECT.GET.D", {"last_by_subj": "d.*"}),
    ("DIRECT.GET.D", {"next_by_subj": "d.2"}),
    ("DIRECT.GET.D", {"next_by_subj": "d.2", "seq": 2}),
    ("DIRECT.GET.D", {"next_by_subj": "d.9", "seq": 1}),
    ("DIRECT.GET.D", {"seq": 1, "last_by_subj": "d.1"}),
    ("DIRECT.GET.D", {"start_time": "2020-01-01T00:00:00Z"}),
    ("DIRECT.GET.D", {"start_time": "2020-01-01T00:00:00Z", "seq": 1}),
    ("DIRECT.GET.D", {"seq": 4, "no_hdr": True}),
    *((f"DIRECT.GET.{name}", b"") for name in ("D.d.1", "D.d.9", "D.d.*", "N.n")),
    ("DIRECT.GET.D.d.1", {"seq": 1}),
]

ONLY_NATS_SERVER: list[tuple[str, object, int]] = [
    ("STREAM.SNAPSHOT.D", {"deliver_subject": "foo"}, 10064),
    ("STREAM.RESTORE.E", {"config": {"name": "E", "subjects": ["e"]}, "state": {}}, 10062),
    ("CONSUMER.PAUSE.D.c", {"pause_until": "2100-01-01T00:00:00Z"}, 10012),
    ("CONSUMER.RESET.D.c", {"seq": 1}, 10012),
]


async def test_headers_that_are_not_served_are_refused(both: tuple[Client, Client]) -> None:
    mq9, real = both
    for headers in HEADERS:
        answers = [await ask(client, "d.3", b"x", headers) for client in (mq9, real)]
        assert answers[0] == answers[1], headers


async def test_requests_that_are_not_served_are_answered(both: tuple[Client, Client]) -> None:
    mq9, real = both
    for name, body in REQUESTS:
        answers = [await ask(client, f"$JS.API.{name}", body) for client in (mq9, real)]
        assert answers[0] == answers[1], (name, body)
    for name, body, code in ONLY_NATS_SERVER:
        _, said = await ask(mq9, f"$JS.API.{name}", body)
        assert isinstance(said, dict)
        assert said["error"]["err_code"] == code, (name, said)


async def test_consumers_keep_to_the_limits_of_their_stream(both: tuple[Client, Client]) -> None:
    limits = {"max_ack_pending": 5, "inactive_threshold": 5_000_000_000}
    for client in both:
        stream = {"name": "L", "subjects": ["l"], "consumer_limits": limits}
        await ask(client, "$JS.API.STREAM.CREATE.L", stream)
    asked: list[dict[str, object]] = [
        {},
        {"max_ack_pending": 6},
        {"max_ack_pending": 4},
        {"max_ack_pending": -1},
        {"inactive_threshold": 6_000_000_000},
        {"inactive_threshold": 1_000_000_000},
        {"inactive_threshold": -1},
        {"ack_policy": "none"},
    ]
    for nth, more in enumerate(asked):
        config = {"durable_name": f"c{nth}", "name": f"c{nth}", "ack_policy": "explicit"} | more
        request = {"stream_name": "L", "config": config}
        subject = f"$JS.API.CONSUMER.CREATE.L.c{nth}"
        answers = [await ask(client, subject, request) for client in both]
        for _, said in answers:
            assert isinstance(said, dict)
            said.get("config", {}).pop("metadata", None)
        assert answers[0] == answers[1], more
    lower = {"max_ack_pending": 4, "inactive_threshold": 5_000_000_000}
    stream = {"name": "L", "subjects": ["l"], "consumer_limits": lower}
    errors = []
    for client in both:
        _, said = await ask(client, "$JS.API.STREAM.UPDATE.L", stream)
        assert isinstance(said, dict)
        error = said["error"]
        head, _, names = error.pop("description").partition(": ")
        errors.append((error, head, sorted(names.split(", "))))
    assert errors[0] == errors[1]
