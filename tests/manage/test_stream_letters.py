"""Dead letters of streams: what their consumers gave up is listed, goes back, and is dealt with."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import httpx
import nats
import pytest
from nats.js import JetStreamContext
from nats.js.api import ConsumerConfig
from tests.manage.conftest import Manage, Managed, managed
from tests.manage.test_api import letters, shown
from tests.peers import Serve, until

QUEUE = """
streams: [
  { name: HANZO_MQ, subjects: ["mq.inference.>", "mq.notify.>"], retention: WorkQueuePolicy }
  { name: HANZO_DLQ, subjects: ["mq.dlq.>"] }
  { name: BOTH, subjects: ["both.>"] }
]
consumers: [
  { name: workers, stream: HANZO_MQ, filter_subject: "mq.inference.>", max_deliver: 3,
    metadata: { "mq9.dead_letter_prefix": "mq.dlq" } }
  { name: both, stream: BOTH, filter_subject: "both.work.*", max_deliver: 3,
    metadata: { "mq9.dead_letter_prefix": "both.dead" } }
]
"""
Work = Callable[[JetStreamContext], Awaitable[Any]]


def within(found: Managed, work: Work, **options: Any) -> Any:  # noqa: ANN401
    """Do something with streams as a client does it."""

    async def run() -> Any:  # noqa: ANN401
        client = await nats.connect(found.server.url, **options)
        try:
            return await work(client.jetstream(timeout=20))
        finally:
            await client.close()

    return asyncio.run(run())


async def give_up(
    stream: JetStreamContext, subject: str, payloads: list[bytes], consumer: str = "workers"
) -> None:
    """Publish messages, and have their consumer end them with a reason."""
    name = await stream.find_stream_name_by_subject(subject)
    for payload in payloads:
        await stream.publish(subject, payload, headers={"x-hop": "1"})
    pull = await stream.pull_subscribe_bind(consumer, name)
    for message in await pull.fetch(len(payloads), timeout=20):
        await message._client.request(message.reply, b"+TERM no such model", timeout=20)


async def pulled(stream: JetStreamContext, consumer: str = "workers") -> list[Any]:
    name = {"workers": "HANZO_MQ", "both": "BOTH"}[consumer]
    pull = await stream.pull_subscribe_bind(consumer, name)
    found = await pull.fetch(10, timeout=2)
    for message in found:
        await message.ack_sync(timeout=20)
    return found


async def count(stream: JetStreamContext, name: str) -> int:
    return int((await stream.stream_info(name)).state.messages)


@pytest.fixture(scope="module")
def broker(serve_for_session: Serve, tmp_path_factory: pytest.TempPathFactory) -> Managed:
    folder = tmp_path_factory.mktemp("letters")
    return managed(serve_for_session, folder, "jetstream {}", inside=QUEUE)


@pytest.fixture
def api(broker: Managed) -> Iterator[httpx.Client]:
    with broker.client() as client:
        yield client


def test_a_letter_is_listed_looked_at_and_goes_back(broker: Managed, api: httpx.Client) -> None:
    subject = "mq.inference.chat"
    within(broker, lambda stream: give_up(stream, subject, [b'{"n": 1}', b"two"]))
    first = letters(api, subject, 2)[-1]
    assert (first["id"], first["subject"], first["original_id"]) == (
        *("stream:HANZO_DLQ:1", subject, "1"),
    )
    assert (first["group"], first["error"], first["detail"], first["attempts"]) == (
        *("workers", "terminated", "no such model", 1),
    )
    found = shown(api, f"/v1/dead-letters/{first['id']}")
    assert (found["payload"], found["headers"]["x-hop"]) == ('{"n": 1}', ["1"])
    assert shown(api, f"/v1/dead-letters/{first['id']}", preview=3)["cut"] is True
    [reason] = shown(api, "/v1/dead-letters/reasons")["reasons"]
    assert (reason["reason"], reason["queue"], reason["count"]) == ("terminated", subject, 2)
    texts = [each["text"] for each in shown(api, "/v1/overview")["attention"]]
    assert f"2 new dead letters in the last hour, most from {subject}" in texts
    metrics = api.get("/metrics").text
    assert "mq9_dead_letters 2.0" in metrics
    assert f'hanzo_mq_dead_letter_total{{original_subject="{subject}"}} 2.0' in metrics

    assert api.post(f"/v1/dead-letters/{first['id']}/replay").json()["replayed"] == 1
    assert api.post(f"/v1/dead-letters/{first['id']}/replay").status_code == 404
    with broker.mail() as mail:
        again = mail.done("ADMIN.DEAD.REPLAY.$stream.HANZO_DLQ.1")
        assert again == {"error": "", "resolved": True}
    [back] = within(broker, pulled)
    assert (back.subject, back.data, back.headers) == (subject, b'{"n": 1}', {"x-hop": "1"})
    assert within(broker, lambda stream: count(stream, "HANZO_DLQ")) == 1
    [left] = letters(api, subject, 1)

    changed = api.patch(f"/v1/dead-letters/{left['id']}", json={"resolved": True})
    assert changed.json()["resolved"] is True
    letters(api, subject, 0)
    assert within(broker, lambda stream: count(stream, "HANZO_DLQ")) == 0
    done = shown(api, "/v1/dead-letters", resolved=True, queue=subject)["dead_letters"]
    told = [(each["id"], each["how"], each["payload"], each["detail"]) for each in done]
    assert told == [
        ("stream:HANZO_DLQ:2", "resolved", "two", "no such model"),
        ("stream:HANZO_DLQ:1", "replayed", '{"n": 1}', "no such model"),
    ]
    assert [each["original_id"] for each in done] == ["2", "1"]
    metrics = api.get("/metrics").text
    assert f'hanzo_mq_dead_letter_total{{original_subject="{subject}"}} 2.0' in metrics, "so far"


def test_many_go_back_or_are_purged_by_reason(broker: Managed, api: httpx.Client) -> None:
    subject, other = "mq.inference.embed", "mq.inference.image"
    payloads = [b"%d" % number for number in range(6)]
    within(broker, lambda stream: give_up(stream, subject, payloads))
    within(broker, lambda stream: give_up(stream, other, [b"x"]))
    letters(api, subject, 6)
    letters(api, other, 1)
    body = {"queue": subject, "reason": "terminated", "expected": 5}
    assert api.post("/v1/dead-letters/replay-all", json=body).status_code == 409
    done = api.post("/v1/dead-letters/replay-all", json=body | {"expected": 6, "limit": 2}).json()
    assert (done["replayed"], done["failed"], done["total"]) == (2, 0, 2)
    back = within(broker, pulled)
    assert [message.data for message in back] == [b"0", b"1"], "those that died first"
    done = api.post("/v1/dead-letters/purge", json=body | {"expected": 4}).json()
    assert (done["purged"], done["failed"], done["total"]) == (4, 0, 4)
    letters(api, subject, 0)
    [left] = letters(api, other, 1)
    assert within(broker, lambda stream: count(stream, "HANZO_DLQ")) == 1
    assert api.post(f"/v1/dead-letters/{left['id']}/replay").status_code == 200
    assert len(within(broker, pulled)) == 1


def test_letters_among_other_messages(broker: Managed, api: httpx.Client) -> None:
    """A stream may have its dead letters beside its messages, and anybody may publish there."""

    async def fill(stream: JetStreamContext) -> None:
        for number in range(300):
            await stream.publish("both.other", b"%d" % number)
        await give_up(stream, "both.work.a", [b"work"], "both")
        await stream.publish("both.dead.by.hand", b"no letter")

    before = shown(api, "/v1/state")["counts"]["dead_letters"]
    within(broker, fill)
    [letter] = letters(api, "both.work.a", 1)
    assert letter["id"] == "stream:BOTH:302"
    assert shown(api, "/v1/state")["counts"]["dead_letters"] == before + 1
    assert api.post(f"/v1/dead-letters/{letter['id']}/replay").status_code == 200
    [back] = within(broker, lambda stream: pulled(stream, "both"))
    assert (back.subject, back.data) == ("both.work.a", b"work")
    with broker.mail() as mail:
        refused = mail.ask("ADMIN.DEAD.RESOLVE.$stream.BOTH.1")
        assert refused["error"] == 'message 1 of stream "BOTH" is no dead letter'
        for name in ("BOTH.9999", "NONE.1"):
            refused = mail.ask(f"ADMIN.DEAD.REPLAY.$stream.{name}")
            assert refused["error"] == "message not found"


def test_letters_that_a_consumer_takes_leave_the_list(manage: Manage) -> None:
    found = manage("jetstream {}", inside=QUEUE)
    with found.client() as api:
        payloads = [b"%d" % number for number in range(4)]
        within(found, lambda stream: give_up(stream, "mq.inference.a", payloads))
        letters(api, "mq.inference.a", 4)

        async def take(stream: JetStreamContext) -> None:
            await stream.delete_msg("HANZO_DLQ", 2)
            await stream.purge_stream("HANZO_DLQ", seq=2)

        within(found, take)
        left = letters(api, "mq.inference.a", 2)
        assert [each["id"] for each in left] == ["stream:HANZO_DLQ:4", "stream:HANZO_DLQ:3"]


def test_letters_of_a_stream_made_again_are_others(manage: Manage) -> None:
    found = manage("jetstream {}", inside=QUEUE)
    with found.client() as api, found.mail() as mail:
        within(found, lambda stream: give_up(stream, "mq.inference.a", [b"first"]))
        letters(api, "mq.inference.a", 1)
        rows = mail.done("ADMIN.ACTIVITY", {"start": 0, "limit": 1000})["mailboxes"]
        [created_ms] = [row["created_ms"] for row in rows if row.get("stream") == "HANZO_DLQ"]

        async def again(stream: JetStreamContext) -> None:
            await stream.delete_stream("HANZO_DLQ")
            await stream.add_stream(name="HANZO_DLQ", subjects=["mq.dlq.>"])
            await give_up(stream, "mq.inference.a", [b"second"])

        within(found, again)
        for command in ("REPLAY", "RESOLVE"):
            subject = f"ADMIN.DEAD.{command}.$stream.HANZO_DLQ.1"
            told = mail.ask(subject, {"created_ms": created_ms})
            assert told["error"] == "message not found"

        def payload() -> Any:  # noqa: ANN401
            listed = shown(api, "/v1/dead-letters", queue="mq.inference.a")["dead_letters"]
            # One of the old stream is listed for a moment, and not there.
            found = [api.get(f"/v1/dead-letters/{each['id']}").json() for each in listed]
            return [each.get("payload") for each in found] == ["second"]

        until(payload, "the list is that of the new stream")
        assert api.post("/v1/dead-letters/stream:HANZO_DLQ:1/replay").status_code == 200
        assert [message.data for message in within(found, pulled)] == [b"second"]


USERS = """
jetstream {}
authorization {
  users = [
    { user: boss, password: boss-pw, permissions: { publish: [">", "$mq9.AI.ADMIN.>"] } }
    { user: other, password: other-pw, permissions: {
        publish: { allow: [">", "$mq9.AI.ADMIN.>"], deny: ["mq.inference.>"] } } }
    { user: eyes, password: eyes-pw, permissions: { publish: [
        "$mq9.AI.ADMIN.ACTIVITY", "$mq9.AI.ADMIN.ACCESS", "$mq9.AI.ADMIN.STREAM.QUERY.>" ] } }
  ]
}
"""


def test_a_replay_needs_the_permission_to_publish(manage: Manage) -> None:
    found = manage(USERS, inside=QUEUE)
    options = {"user": "boss", "password": "boss-pw"}
    within(found, lambda stream: give_up(stream, "mq.inference.a", [b"x"]), **options)
    with found.client(auth=("boss", "boss-pw")) as boss:
        [letter] = letters(boss, "mq.inference.a", 1)
        path = f"/v1/dead-letters/{letter['id']}"
        for user in ("other", "eyes"):
            with found.client(auth=(user, f"{user}-pw")) as api:
                assert shown(api, path)["payload"] == "x"
                assert api.post(f"{path}/replay").status_code == 403
        info = within(found, lambda stream: count(stream, "HANZO_DLQ"), **options)
        assert info == 1
        assert shown(boss, "/v1/dead-letters", resolved=True)["total"] == 0, "nobody dealt with it"
        assert boss.post(f"{path}/replay").status_code == 200
    assert len(within(found, pulled, **options)) == 1


def test_a_refused_replay_leaves_the_letter(manage: Manage) -> None:
    found = manage("jetstream {}", inside=QUEUE)
    within(found, lambda stream: give_up(stream, "mq.inference.a", [b"x"]))
    with found.client() as api:
        [letter] = letters(api, "mq.inference.a", 1)
        within(found, lambda stream: stream.delete_stream("HANZO_MQ"))
        refused = api.post(f"/v1/dead-letters/{letter['id']}/replay")
        assert (refused.status_code, refused.json()["detail"]) == (
            *(422, 'no stream has the subject "mq.inference.a"'),
        )
        assert shown(api, "/v1/dead-letters", resolved=True)["total"] == 0

        async def elsewhere(stream: JetStreamContext) -> None:
            await stream.add_stream(name="MOVED", subjects=["mq.inference.*"])
            await stream.add_consumer("MOVED", ConsumerConfig(durable_name="new"))

        within(found, elsewhere)
        assert api.post(f"/v1/dead-letters/{letter['id']}/replay").status_code == 200
        assert within(found, lambda stream: count(stream, "MOVED")) == 1
        assert within(found, lambda stream: count(stream, "HANZO_DLQ")) == 0
