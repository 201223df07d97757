"""What publishers expect of the last message of a subject is looked up as with nats-server.

Both servers are asked the same.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from nats.aio.client import Client
from tests.conformance.jetstream_pair import ask, side_by_side
from tests.peers import Serve

SEQUENCE = "Nats-Expected-Last-Subject-Sequence"
OF_SUBJECT = "Nats-Expected-Last-Subject-Sequence-Subject"
LAST = "Nats-Expected-Last-Sequence"


@pytest.fixture
async def both(serve: Serve, tmp_path: Path) -> AsyncIterator[list[Client]]:
    """Clients of mq9 and of nats-server, each with a stream."""
    async with side_by_side(serve, tmp_path) as pairs:
        clients = [client for _, client in pairs]
        for client in clients:
            await ask(client, "$JS.API.STREAM.CREATE.A", {"name": "A", "subjects": ["a.>"]})
        yield clients


EXPECTED: list[tuple[str, dict[str, str]]] = [
    ("a.1.foo", {SEQUENCE: "0", OF_SUBJECT: "a.1.*"}),
    ("a.1.bar", {SEQUENCE: "6", OF_SUBJECT: "a.1.*"}),
    ("a.1.xxx", {SEQUENCE: "8", OF_SUBJECT: "a.1.*"}),
    ("a.2.foo", {SEQUENCE: "7", OF_SUBJECT: "a.2.*"}),
    ("a.xxx", {SEQUENCE: "0", OF_SUBJECT: "a.*"}),
    ("a.xxx", {SEQUENCE: "0", OF_SUBJECT: "a.*.*"}),
    ("a.3.xxx", {SEQUENCE: "4", OF_SUBJECT: "a.3.*"}),
    ("a.3.xyz", {SEQUENCE: "12", OF_SUBJECT: "a.3.>"}),
    ("a.1.foo", {SEQUENCE: "0", OF_SUBJECT: "b.>"}),
    ("a.1.foo", {SEQUENCE: "5", OF_SUBJECT: "b.>"}),
    ("a.1.foo", {SEQUENCE: "14", OF_SUBJECT: ">"}),
    ("a.1.foo", {SEQUENCE: "14", OF_SUBJECT: "*.*.foo"}),
    ("a.9.q", {SEQUENCE: "0", OF_SUBJECT: "a.9.q"}),
    ("a.1.foo", {SEQUENCE: "0", OF_SUBJECT: ""}),
    ("a.1.foo", {SEQUENCE: "0", OF_SUBJECT: "a..b"}),
    ("a.2.foo", {SEQUENCE: "9", OF_SUBJECT: "a.1.*"}),
    ("a.5.x", {OF_SUBJECT: "a.1.*"}),
    ("a.5.x", {OF_SUBJECT: "a.5.x"}),
    ("a.5.x", {OF_SUBJECT: "a.1.*", LAST: "3"}),
    ("a.5.x", {SEQUENCE: "3", OF_SUBJECT: "a.1.*", LAST: "3"}),
]


async def test_patterns_in_expectations_match(both: list[Client]) -> None:
    for client in both:
        for nth in ("1.foo", "1.bar", "2.foo", "3.bar", "1.baz", "1.bar", "2.baz"):
            await ask(client, f"a.{nth}", b"x")
    for subject, headers in EXPECTED:
        answers = [await ask(client, subject, b"x", headers) for client in both]
        assert answers[0] == answers[1], (subject, headers)
