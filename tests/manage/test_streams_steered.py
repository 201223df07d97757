"""Streams are sent to and deleted, and so are consumers, by those who may."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any

import httpx
import nats
import pytest
from nats.aio.client import Client
from nats.js.api import ConsumerConfig
from tests.manage.conftest import Manage, Managed, managed
from tests.manage.test_api import shown
from tests.manage.test_streams import STEERERS
from tests.peers import Serve, until

EMOJI = "%2F👩\u200d🚀%2e"


def within(found: Managed, work: Callable[[Client], Awaitable[Any]]) -> Any:  # noqa: ANN401
    """Do something as a client of the broker does it."""

    async def run() -> Any:  # noqa: ANN401
        client = await nats.connect(found.server.url, user="boss", password="boss-pw")
        try:
            return await work(client)
        finally:
            await client.close()

    return asyncio.run(run())


async def info(client: Client, name: str) -> Any:  # noqa: ANN401
    reply = await client.request(f"$JS.API.STREAM.INFO.{name}", b"", timeout=20)
    return json.loads(reply.data)


def state(found: Managed, name: str) -> Any:  # noqa: ANN401
    return within(found, partial(info, name=name)).get("state")


def known(api: httpx.Client, name: str) -> None:
    path = f"/v1/queues/{name}?kind=stream"
    until(lambda: api.get(path).status_code == 200, f"{name} is known")


@pytest.fixture(scope="module")
def steered(serve_for_session: Serve, tmp_path_factory: pytest.TempPathFactory) -> Managed:
    found = managed(serve_for_session, tmp_path_factory.mktemp("steered"), STEERERS)

    async def fill(client: Client) -> None:
        streams = client.jetstream()
        await streams.add_stream(name="ORDERS", subjects=["orders.*", "bills.>"])
        await streams.add_stream(name="OTHER", subjects=["other"])
        await streams.add_stream(name=EMOJI, subjects=["emoji"])
        await streams.add_stream(name="SILENT", subjects=["silent"], no_ack=True)
        envelopes = {"mq9.envelope": "hanzo.mq.v1"}
        await streams.add_stream(name="MQ", subjects=["mq"], metadata=envelopes)

    within(found, fill)
    with found.client(auth=("boss", "boss-pw")) as api:
        for name in ("ORDERS", "OTHER", "SILENT", "MQ"):
            known(api, name)
    return found


@pytest.fixture
def api(steered: Managed) -> Iterator[httpx.Client]:
    with steered.client(auth=("boss", "boss-pw"), params={"kind": "stream"}) as client:
        yield client


def test_a_message_is_stored_as_it_was_given(steered: Managed, api: httpx.Client) -> None:
    before = state(steered, "ORDERS")["last_seq"]
    path = "/v1/queues/ORDERS/messages"
    given = {"subject": "orders.new", "payload": "two cups", "headers": {"X-Hop": "ü 1"}}
    assert api.post(path, json=given).json() == {"msg_id": before + 1}
    entry = shown(api, f"{path}/{before + 1}")
    assert (entry["subject"], entry["payload"]) == ("orders.new", "two cups")
    assert entry["headers"] == {"X-Hop": ["ü 1"]}
    binary = {"subject": "bills.a.b", "payload": "/wA=", "encoding": "base64"}
    assert api.post(path, json=binary).json()["msg_id"] == before + 2
    assert shown(api, f"{path}/{before + 2}")["payload"] == "/wA="
    once = {"subject": "orders.1", "payload": "x", "headers": {"Nats-Msg-Id": "order 1"}}
    assert api.post(path, json=once).json() == {"msg_id": before + 3}
    assert api.post(path, json=once).json() == {"msg_id": before + 3, "duplicate": True}
    assert state(steered, "ORDERS")["last_seq"] == before + 3
    assert api.post(f"/v1/queues/{EMOJI.replace('%', '%25')}/messages", json={
        "subject": "emoji", "payload": "x"}).json()["msg_id"] == 1  # fmt: skip


def test_a_delayed_message_is_counted_until_it_is_due(steered: Managed, api: httpx.Client) -> None:
    given = {"subject": "other", "payload": "later", "delay_s": 3600}
    sent = api.post("/v1/queues/OTHER/messages", json=given)
    assert sent.json() == {"msg_id": -1}
    assert state(steered, "OTHER")["num_delayed"] == 1

    def counted(delayed: int, depth: int) -> bool:
        [listed] = shown(api, "/v1/queues", search="OTHER")["queues"]
        detail = shown(api, "/v1/queues/OTHER")
        found = {(each["delayed"], each["depth"]) for each in (listed, detail)}
        return found == {(delayed, depth)}

    until(partial(counted, 1, 0), "it is counted")
    given |= {"payload": "soon", "delay_s": 1}
    assert api.post("/v1/queues/OTHER/messages", json=given).json()["msg_id"] == -1
    until(partial(counted, 1, 1), "one of them is due")
    metrics = api.get("/metrics").text
    assert "mq9_delayed 1.0" in metrics


REFUSED: tuple[tuple[str, dict[str, object], str], ...] = (
    ("ORDERS", {}, "subject is missing"),
    ("ORDERS", {"subject": "orders"}, "does not store the subject orders: it stores orders.*, bil"),
    ("ORDERS", {"subject": "orders.a.b"}, "does not store"),
    ("ORDERS", {"subject": "bills"}, "does not store"),
    ("ORDERS", {"subject": "other"}, "does not store"),
    ("ORDERS", {"subject": "heard"}, "does not store"),
    ("ORDERS", {"subject": "orders.*"}, "subject"),
    ("ORDERS", {"subject": "orders.a b"}, "subject"),
    ("ORDERS", {"subject": "orders."}, "does not store"),
    ("ORDERS", {"subject": "bills.a..b"}, "does not store"),
    ("ORDERS", {"subject": "$JS.API.STREAM.DELETE.ORDERS"}, "does not store"),
    ("ORDERS", {"subject": "orders.1", "priority": "urgent"}, "no priority"),
    ("ORDERS", {"subject": "orders.1", "key": "k"}, "no priority, key"),
    ("ORDERS", {"subject": "orders.1", "headers": {"a": "b\r\nc: d"}}, "end of a line"),
    ("ORDERS", {"subject": "orders.1", "headers": {"a b": "c"}}, "name of a header"),
    ("ORDERS", {"subject": "orders.1", "headers": {"": "c"}}, "name of a header"),
    ("ORDERS", {"subject": "orders.1", "headers": {"mq9-dead-reason": "c"}}, "only the broker"),
    ("ORDERS", {"subject": "orders.1", "encoding": "base64", "payload": "?"}, "cannot be read"),
    ("SILENT", {"subject": "silent"}, "no_ack"),
    ("MQ", {"subject": "mq"}, "hanzo.mq.v1"),
)


@pytest.mark.parametrize(("name", "given", "words"), REFUSED)
def test_what_a_stream_does_not_store_is_refused_and_goes_nowhere(
    steered: Managed, api: httpx.Client, name: str, given: dict[str, object], words: str
) -> None:
    before = {each: state(steered, each)["last_seq"] for each in ("ORDERS", "OTHER", "SILENT")}

    async def post(client: Client) -> httpx.Response:
        heard = await client.subscribe("heard")
        await client.flush()
        path = f"/v1/queues/{name}/messages"
        answer = await asyncio.to_thread(api.post, path, json={"payload": "x"} | given)
        await client.flush()
        assert heard.pending_msgs == 0
        return answer

    answer = within(steered, post)
    assert answer.status_code == 422, answer.text
    assert words in answer.json()["detail"]
    assert {each: state(steered, each)["last_seq"] for each in before} == before


def test_a_mailbox_takes_headers_and_no_subject(manage: Manage) -> None:
    found = manage()
    with found.mail() as mail, found.client() as api:
        mail.done("MAILBOX.CREATE", {"name": "desk"})
        given = {"payload": "x", "headers": {"X-Hop": "1"}, "priority": "urgent"}
        assert api.post("/v1/queues/desk/messages", json=given).json()["msg_id"] == 0
        [entry] = mail.fetch("desk")
        assert (entry["headers"], entry["priority"]) == ({"X-Hop": ["1"]}, "urgent")
        refused = api.post("/v1/queues/desk/messages", json=given | {"subject": "a"})
        assert (refused.status_code, "is a mailbox" in refused.text) == (422, True)


def test_only_those_who_may_send_to_streams_and_delete_them(manage: Manage) -> None:
    found = manage(STEERERS)

    async def fill(client: Client) -> None:
        await client.jetstream().add_stream(name="WORK", subjects=["work"])
        await client.jetstream().add_consumer("WORK", ConsumerConfig(durable_name="crew"))
        await client.jetstream().publish("work", b"1")

    within(found, fill)
    calls = (
        ("POST", "/v1/queues/WORK/messages?kind=stream", {"subject": "work", "payload": "x"}),
        ("DELETE", "/v1/consumers/crew?queue=WORK&kind=stream", None),
        ("DELETE", "/v1/queues/WORK?kind=stream", None),
        ("DELETE", "/v1/queues/WORK?kind=stream&expected=9", None),
    )
    with found.client() as api:
        until(
            lambda: api.get("/v1/consumers/crew", auth=("boss", "boss-pw")).status_code == 200,
            "the consumer is known",
        )
        for method, path, body in calls:
            for user in ("eyes", "half"):
                auth = (user, f"{user}-pw")
                answer = api.request(method, path, json=body, auth=auth)
                assert answer.status_code == 403, (user, path, answer.text)
            assert api.request(method, path, json=body).status_code == 401
        assert state(found, "WORK")["messages"] == 1
        assert state(found, "WORK")["consumer_count"] == 1
        given = {"user": "boss", "password": "boss-pw"}
        token = api.post("/v1/session", json=given).json()["csrf"]
        for method, path, body in calls[:3]:
            assert api.request(method, path, json=body).status_code == 403, "without the token"
            answer = api.request(method, path, json=body, headers={"x-csrf-token": token})
            assert answer.status_code == 200, (path, answer.text)
    assert within(found, partial(info, name="WORK"))["error"]["err_code"] == 10059
    lines = [json.loads(line) for line in found.audit.read_text().splitlines()]
    noted = [(line["action"], line["target"]) for line in lines if line["result"] == "done"]
    assert noted[-3:] == [
        ("send", "WORK:work"),
        ("remove consumer", "WORK:crew"),
        ("remove", "WORK"),
    ]
    refused = [line for line in lines if line["user"] == "half"]
    assert {line["action"] for line in refused} == {"send", "remove consumer", "remove"}
    assert all(line["result"].startswith("failed: permission denied") for line in refused)


def test_a_stream_goes_with_no_more_than_was_seen(manage: Manage) -> None:
    found = manage("jetstream {}")
    with found.mail() as mail:
        mail.done("MAILBOX.CREATE", {"name": "work"})
        mail.deliver("work", b"kept")

    async def fill(client: Client) -> None:
        for name in ("work", "alone"):
            await client.jetstream().add_stream(name=name, subjects=[name])
            await client.jetstream().publish(name, b"1")
            later = await client.request(name, b"2", headers={"mq9-delay": "3600"})
            assert json.loads(later.data)["delayed"]

    within(found, fill)
    with found.client() as api:
        known(api, "work")
        known(api, "alone")
        unnamed = api.delete("/v1/queues/alone")
        assert (unnamed.status_code, state(found, "alone")["messages"]) == (404, 1)
        path = "/v1/queues/work?kind=stream"
        refused = api.delete(f"{path}&expected=1")
        assert (refused.status_code, refused.json()["found"]) == (409, 2), "delayed ones count"
        assert state(found, "work")["messages"] == 1
        assert api.delete(f"{path}&expected=2").json()["removed"]
        assert state(found, "work") is None
        [entry] = shown(api, "/v1/queues/work/messages", kind="mailbox")["messages"]
        assert entry["payload"] == "kept", "the mailbox of the same name"
        assert api.delete(path).status_code == 404
        until(lambda: api.get(path).status_code == 404, "and not the mailbox for it")
        until(lambda: shown(api, "/v1/queues", kind="stream")["total"] == 1, "the list follows")


def test_groups_and_consumers_are_removed(manage: Manage) -> None:
    found = manage("jetstream {}")
    with found.mail() as mail:
        mail.done("MAILBOX.CREATE", {"name": "desk"})
        mail.deliver("desk", b"kept")
        mail.fetch("desk", "a/b c")
        mail.fetch("desk", "crew")

    async def fill(client: Client) -> None:
        await client.jetstream().add_stream(name="desk", subjects=["desk"])
        await client.jetstream().add_consumer("desk", ConsumerConfig(durable_name="crew"))

    within(found, fill)
    with found.client() as api:
        until(lambda: shown(api, "/v1/consumers")["total"] == 3, "all are known")
        path = "/v1/consumers/crew"
        assert api.delete(path).status_code == 422, "of which queue?"
        assert api.delete("/v1/consumers/other", params={"queue": "desk"}).status_code == 404
        assert api.delete(path, params={"queue": "desk"}).json() == {"removed": True}
        odd = "/v1/consumers/a%2Fb%20c?queue=desk"
        assert api.delete(f"{odd}&kind=stream").status_code == 404, "no consumer is called so"
        assert api.delete(odd).json() == {"removed": True}
        assert api.delete(odd).status_code == 404
        assert state(found, "desk")["consumer_count"] == 1, "the other one of this name"
        query = {"queue": "desk", "kind": "stream"}
        assert api.delete(path, params=query).json() == {"removed": True}
        assert api.delete(path, params=query).status_code == 404
        assert state(found, "desk")["consumer_count"] == 0
        until(lambda: shown(api, "/v1/consumers")["total"] == 0, "the list follows")
        [entry] = shown(api, "/v1/queues/desk/messages")["messages"]
        assert entry["payload"] == "kept"


DECLARED = """
streams: [ { name: MQ, subjects: ["mq.>", "old"], retention: workqueue } ]
consumers: [ { name: workers, stream: MQ } ]
"""


def test_what_is_declared_says_that_it_comes_back_and_does(manage: Manage) -> None:
    found = manage(inside=DECLARED)

    async def other(client: Client) -> None:
        await client.jetstream().add_stream(name="MINE", subjects=["mine"])

    within(found, other)
    with found.client() as api:
        known(api, "MQ")
        known(api, "MINE")
        detail = partial(shown, api, "/v1/queues/MQ")
        until(lambda: len(detail()["groups"]) == 1, "its consumer is known")
        assert (detail()["declared"], detail()["declared_consumers"]) == (True, ["workers"])
        assert (detail()["subjects"], detail()["policy"]) == (
            *(["mq.>", "old"], {"retention": "workqueue"}),
        )
        mine = shown(api, "/v1/queues/MINE")
        assert (mine["declared"], mine["declared_consumers"]) == (False, [])
        for name in ("MQ", "MINE"):
            assert api.delete(f"/v1/queues/{name}", params={"kind": "stream"}).is_success
            assert state(found, name) is None
        assert found.server.config_file is not None
        found.server.reconfigure(found.server.config_file.read_text("utf-8"))
        until(lambda: state(found, "MQ") is not None, "it is back")
        assert state(found, "MQ")["consumer_count"] == 1
        assert state(found, "MINE") is None
