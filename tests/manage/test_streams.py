"""Streams and consumers of JetStream beside mailboxes: in lists and in metrics."""

import asyncio
import json
from collections.abc import Iterator

import httpx
import nats
import pytest
from nats.js.api import ConsumerConfig
from tests.manage.conftest import Manage, Managed, managed
from tests.manage.test_api import shown
from tests.peers import Serve, until

STEERERS = """
jetstream {}
authorization {
  users = [
    { user: boss, password: boss-pw, permissions: { publish: [">", "$mq9.AI.ADMIN.>"] } }
    { user: half, password: half-pw, permissions: { publish: ["$mq9.AI.ADMIN.>"] } }
    { user: eyes, password: eyes-pw, permissions: { publish: [
        "$mq9.AI.ADMIN.ACTIVITY", "$mq9.AI.ADMIN.ACCESS", "$mq9.AI.ADMIN.STREAM.QUERY.>" ] } }
  ]
}
"""


@pytest.fixture(scope="module")
def streams(serve_for_session: Serve, tmp_path_factory: pytest.TempPathFactory) -> Managed:
    """A broker with a stream of ten messages, two of which were given to its consumer."""
    found = managed(serve_for_session, tmp_path_factory.mktemp("streams"), "jetstream {}")
    asyncio.run(fill(found.server.url))
    with found.mail() as mail:
        # The same names: neither is taken for the other.
        mail.done("MAILBOX.CREATE", {"name": "orders"})
        mail.deliver("orders", b"x")
        mail.fetch("orders", "billing")
    return found


async def fill(url: str) -> None:
    client = await nats.connect(url)
    stream = client.jetstream()
    await stream.add_stream(name="orders", subjects=["orders.>"])
    await stream.add_stream(name="EMPTY", subjects=["empty"])
    for number in range(10):
        await stream.publish(f"orders.{number}", b"%d" % number)
    config = ConsumerConfig(durable_name="billing", ack_wait=60)
    reader = await stream.pull_subscribe("orders.>", durable="billing", config=config)
    first, second, third = await reader.fetch(3)
    await first.ack_sync()
    await second.ack_sync()
    await third.nak(delay=600)
    await client.close()


@pytest.fixture
def api(streams: Managed) -> Iterator[httpx.Client]:
    with streams.client() as client:
        yield client


def test_streams_are_queues(api: httpx.Client) -> None:
    def listed() -> bool:
        rows = shown(api, "/v1/queues", kind="stream")["queues"]
        return any(row["consumers"] for row in rows)

    until(listed, "streams are listed")
    listing = shown(api, "/v1/queues", sort="name", kind="stream")
    assert [row["name"] for row in listing["queues"]] == ["EMPTY", "orders"]
    row = listing["queues"][1]
    assert (row["kind"], row["depth"], row["consumers"], row["lag"]) == ("stream", 10, 1, 7)
    assert shown(api, "/v1/queues", kind="mailbox")["total"] == 1
    both = shown(api, "/v1/queues", search="orders", sort="name")["queues"]
    assert {row["kind"] for row in both} == {"mailbox", "stream"}
    assert api.get("/v1/queues?kind=topic").status_code == 422


def test_a_stream_is_shown_with_its_consumers(api: httpx.Client) -> None:
    until(lambda: shown(api, "/v1/consumers", kind="stream")["total"], "the consumer is known")
    found = shown(api, "/v1/queues/orders", kind="stream")
    assert (found["kind"], found["depth"], found["next_id"]) == ("stream", 10, 10)
    [consumer] = found["groups"]
    assert (consumer["name"], consumer["lag"], consumer["ack_pending"]) == ("billing", 7, 1)
    assert (consumer["delivered"], consumer["acked"]) == (3, 2)
    assert consumer["lag_s"] > 0
    assert shown(api, "/v1/queues/orders")["kind"] == "mailbox", "a mailbox comes first"
    assert shown(api, "/v1/queues/EMPTY")["kind"] == "stream"


def test_consumers_of_both_kinds_are_told_apart(api: httpx.Client) -> None:
    def both() -> list[tuple[str, int]]:
        listing = shown(api, "/v1/consumers/billing")["consumers"]
        found = sorted((each["kind"], each["pending"]) for each in listing)
        return found if len(found) == 2 else []

    assert until(both, "both are known") == [("mailbox", 1), ("stream", 8)]
    assert shown(api, "/v1/consumers", kind="stream")["total"] == 1
    assert shown(api, "/v1/consumers", sort="-pending")["consumers"][0]["kind"] == "mailbox"


def test_metrics_call_a_consumer_as_the_document_does(api: httpx.Client) -> None:
    def metrics() -> list[str]:
        lines = [line for line in api.get("/metrics").text.splitlines() if "billing" in line]
        return lines if len([line for line in lines if "pending" in line]) == 2 else []

    lines = until(metrics, "metrics have followed")
    labels = '{consumer="billing",stream="orders"}'
    assert f"hanzo_mq_pending_count{labels} 8.0" in lines
    assert f"hanzo_mq_delivered_total{labels} 3.0" in lines
    assert f"hanzo_mq_acked_total{labels} 2.0" in lines
    assert f"hanzo_mq_nacked_total{labels} 1.0" in lines
    assert 'hanzo_mq_pending_count{consumer="billing",stream="$mailbox.orders"} 1.0' in lines
    series = [line.rpartition(" ")[0] for line in lines if not line.startswith("#")]
    assert len(series) == len(set(series)), "no series twice"
    text = api.get("/metrics").text
    assert 'mq9_stream_messages{stream="orders"} 10.0' in text
    assert "mq9_streams 2.0" in text
    assert "mq9_mailboxes 1.0" in text


def test_messages_of_a_stream_are_looked_at(api: httpx.Client) -> None:
    until(lambda: shown(api, "/v1/queues", kind="stream")["total"], "streams are listed")
    path = "/v1/queues/orders/messages"

    def page(**query: object) -> tuple[list[int], bool]:
        found = shown(api, path, kind="stream", **query)
        return [entry["msg_id"] for entry in found["messages"]], found["more"]

    assert page(limit=3) == ([8, 9, 10], False)
    assert page(limit=3, oldest=True) == ([1, 2, 3], False)
    assert page(limit=3, after=8) == ([9, 10], False)
    assert page(limit=3, after=10) == ([], False)
    [entry] = shown(api, path, kind="stream", after=4, limit=1, preview=0)["messages"]
    assert (entry["msg_id"], entry["subject"], entry["bytes"], entry["cut"]) == (
        *(5, "orders.4", 1, True),
    )
    one = shown(api, f"{path}/5", kind="stream")
    assert (one["payload"], one["subject"]) == ("4", "orders.4")
    assert api.get(f"{path}/11", params={"kind": "stream"}).status_code == 404
    assert shown(api, "/v1/queues/EMPTY/messages")["messages"] == []
    assert [entry["payload"] for entry in shown(api, path)["messages"]] == ["x"], "the mailbox"
    assert api.get("/v1/queues/NONE/messages", params={"kind": "stream"}).status_code == 404
    assert api.get(path, params={"kind": "stream", "delayed": True}).status_code == 422
    group = shown(api, "/v1/queues/orders", kind="stream")["groups"][0]
    assert (group["lag"], group["ack_pending"]) == (7, 1), "looking takes nothing"


def test_a_stream_with_much_is_looked_at_in_parts(manage: Manage) -> None:
    found = manage("jetstream {}")

    async def much() -> None:
        client = await nats.connect(found.server.url)
        stream = client.jetstream()
        await stream.add_stream(name="MUCH", subjects=["much"])
        for _ in range(30):
            await stream.publish("much", b"x" * 100_000)
        await client.close()

    asyncio.run(much())
    with found.client() as api:
        until(lambda: shown(api, "/v1/queues", kind="stream")["total"], "it is listed")
        path, seen, more = "/v1/queues/MUCH/messages", list[int](), True
        while more:
            part = shown(api, path, after=seen[-1] if seen else 0, limit=100)
            seen += [entry["msg_id"] for entry in part["messages"]]
            more = part["more"]
        assert seen == list(range(1, 31))
        newest = shown(api, path, limit=100)
        ids = [entry["msg_id"] for entry in newest["messages"]]
        assert newest["more"]
        assert ids == list(range(31 - len(ids), 31))


def test_a_stream_is_purged_of_no_more_than_was_seen(manage: Manage) -> None:
    found = manage(STEERERS)

    async def publish(count: int) -> None:
        client = await nats.connect(found.server.url, user="boss", password="boss-pw")
        stream = client.jetstream()
        await stream.add_stream(name="WORK", subjects=["work"])
        for number in range(count):
            await stream.publish("work", b"%d" % number)
        await client.close()

    asyncio.run(publish(5))
    with found.client(auth=("boss", "boss-pw")) as api:
        until(lambda: shown(api, "/v1/queues", kind="stream")["total"], "it is listed")
        path = "/v1/queues/WORK"
        for user in ("eyes", "half"):
            with found.client(auth=(user, f"{user}-pw")) as other:
                assert other.post(f"{path}/purge").status_code == 403, user
                assert other.delete(f"{path}/messages/1").status_code == 403, user
        refused = api.post(f"{path}/purge", json={"expected": 4})
        assert (refused.status_code, refused.json()["found"]) == (409, 5)
        assert api.delete(f"{path}/messages/2").json() == {"removed": True}
        assert api.delete(f"{path}/messages/2").status_code == 404
        left = shown(api, f"{path}/messages")["messages"]
        assert [entry["msg_id"] for entry in left] == [1, 3, 4, 5]
        assert api.post(f"{path}/purge", json={"expected": 4}).json() == {"purged": 4}
        assert shown(api, f"{path}/messages")["messages"] == []
        asyncio.run(publish(1))
        [entry] = shown(api, f"{path}/messages")["messages"]
        assert entry["msg_id"] == 6
    lines = [json.loads(line) for line in found.audit.read_text().splitlines()]
    noted = [(line["action"], line["target"], line["result"]) for line in lines]
    assert ("purge", "WORK", "done") in noted
    assert ("delete message", "WORK:2", "done") in noted
