"""`mq9.queues`: tasks over JetStream, against a real broker."""

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import nats
import nats.js.errors
import pytest
from nats.js.api import ConsumerConfig, RetentionPolicy
from tests.peers import Serve, Server

from mq9.client import Client
from mq9.errors import BrokerUnavailable, InvalidField, RequestTimeout
from mq9.queues import MQClient, NoQueue, Task, TaskRefused, new_ulid

DEADLINE_S = 30.0


@pytest.fixture(scope="module")
def server(serve_for_session: Serve) -> Server:
    return serve_for_session("jetstream { }")


@pytest.fixture
async def mq(server: Server) -> AsyncIterator[MQClient]:
    """A client, and a stream that nothing is in."""
    async with MQClient(server.url, source="tests", retry_delays=(0.1,)) as client:
        connection = await nats.connect(server.url)
        stream = connection.jetstream()
        await stream.add_stream(name="MQ", subjects=["mq.>"], retention=RetentionPolicy.WORK_QUEUE)
        yield client
        await stream.delete_stream("MQ")
        await connection.close()


async def work(mq: MQClient, until: asyncio.Event) -> None:
    """Runs the handlers until that has happened."""
    running = asyncio.create_task(mq.run())
    async with asyncio.timeout(DEADLINE_S):
        await until.wait()
        mq.stop()
        await running


async def waiting(server: Server) -> int:
    connection = await nats.connect(server.url)
    try:
        return (await connection.jetstream().stream_info("MQ")).state.messages
    finally:
        await connection.close()


async def test_a_task_is_handled_and_gone(mq: MQClient, server: Server) -> None:
    stored = await mq.publish(
        "mq.batch.embeddings", {"type": "batch.embeddings.generate", "data": {"n": 7}}
    )
    assert (stored.stream, stored.seq) == ("MQ", 1)
    seen: list[Task] = []
    done = asyncio.Event()

    @mq.subscribe("mq.batch.embeddings", group="embedding-workers")
    async def handle(task: Task) -> None:
        seen.append(task)
        done.set()

    await work(mq, done)
    [task] = seen
    assert (task.type, task.data, task.delivery) == ("batch.embeddings.generate", {"n": 7}, 1)
    assert task.subject == "mq.batch.embeddings"
    assert task.id.startswith("task_")
    assert task.envelope["schema"] == "hanzo.mq.v1"
    assert task.envelope["source"] == "tests"
    assert await waiting(server) == 0


async def test_the_same_id_is_stored_once(mq: MQClient, server: Server) -> None:
    task = {"id": "task_1", "data": {}}
    assert not (await mq.publish("mq.a", task)).duplicate
    assert (await mq.publish("mq.a", task)).duplicate
    assert await waiting(server) == 1


async def test_the_most_urgent_task_comes_first(server: Server) -> None:
    connection = await nats.connect(server.url)
    stream = connection.jetstream()
    await stream.add_stream(
        name="URGENT",
        subjects=["urgent.>"],
        retention=RetentionPolicy.WORK_QUEUE,
        metadata={"mq9.priority": "true"},
    )
    try:
        for priority in ("notify", "5", "critical", "5", "2"):
            data = f"{priority} {(await stream.stream_info('URGENT')).state.last_seq}".encode()
            await stream.publish("urgent.a", data, headers={"mq9-priority": priority})
        with pytest.raises(nats.js.errors.APIError, match="mq9-priority is") as refused:
            await stream.publish("urgent.a", b"", headers={"mq9-priority": "high"})
        assert (refused.value.code, refused.value.err_code) == (400, 10003)
        async with MQClient(server.url) as mq:
            await mq.publish("urgent.a", {"data": {}})
            await mq.publish("urgent.a", {"data": {}}, priority=1)
        pull = await stream.pull_subscribe("urgent.>", "crew", stream="URGENT")
        first = await pull.fetch(2)
        assert [message.metadata.sequence.stream for message in first] == [3, 7]
        assert json.loads(first[1].data)["priority"] == 1
        await first[1].nak()
        await first[0].ack_sync()
        rest = await pull.fetch(10, timeout=1)
        told = [(m.metadata.sequence.stream, m.metadata.num_delivered) for m in rest]
        assert told == [(7, 2), (5, 1), (2, 1), (4, 1), (6, 1), (1, 1)]
        info = await pull.consumer_info()
        assert (info.num_pending, info.num_ack_pending) == (0, 6)
    finally:
        await stream.delete_stream("URGENT")
        await connection.close()


async def test_a_handler_that_raises_gets_the_task_again(mq: MQClient, server: Server) -> None:
    await mq.publish("mq.a", {"data": 1})
    deliveries: list[int] = []
    done = asyncio.Event()

    @mq.subscribe("mq.a", group="workers")
    async def handle(task: Task) -> None:
        deliveries.append(task.delivery)
        if task.delivery < 3:
            raise ValueError("not yet")
        done.set()

    await work(mq, done)
    assert deliveries == [1, 2, 3]
    assert await waiting(server) == 0


async def test_a_plain_handler_may_raise_anything(mq: MQClient, server: Server) -> None:
    await mq.publish("mq.a", {"data": 1})
    raised = [StopIteration, asyncio.CancelledError]
    deliveries: list[int] = []
    done = asyncio.Event()
    loop = asyncio.get_running_loop()

    @mq.subscribe("mq.a", group="workers")
    def handle(task: Task) -> None:
        deliveries.append(task.delivery)
        if raised:
            raise raised.pop(0)
        loop.call_soon_threadsafe(done.set)

    await work(mq, done)
    assert deliveries == [1, 2, 3]
    assert await waiting(server) == 0


async def test_a_slow_handler_keeps_its_task(mq: MQClient, server: Server) -> None:
    connection = await nats.connect(server.url)
    await connection.jetstream().add_consumer(
        "MQ", ConsumerConfig(durable_name="slow", filter_subject="mq.a", ack_wait=1.0)
    )
    await connection.close()
    await mq.publish("mq.a", {"data": 1})
    deliveries: list[int] = []
    done = asyncio.Event()

    @mq.subscribe("mq.a", group="slow", concurrency=2)
    def handle(task: Task) -> None:
        deliveries.append(task.delivery)
        assert threading.current_thread() is not threading.main_thread()
        time.sleep(3.0)
        loop.call_soon_threadsafe(done.set)

    loop = asyncio.get_running_loop()
    await work(mq, done)
    assert deliveries == [1]
    assert await waiting(server) == 0


async def test_a_request_is_answered_by_its_handler(mq: MQClient) -> None:
    @mq.subscribe("mq.inference.chat", group="inference-workers")
    async def handle(task: Task) -> None:
        assert await task.respond({"text": task.data["prompt"].upper()})

    running = asyncio.create_task(mq.run())
    answer = await mq.request("mq.inference.chat", {"data": {"prompt": "hello"}}, wait=20)
    assert answer == {"text": "HELLO"}
    mq.stop()
    await running


@pytest.mark.parametrize(
    "asked",
    [
        "$mq9.AI.MSG.DELETE.victim.0",
        "$JS.API.STREAM.DELETE.MQ",
        "nobody $mq9.AI.MSG.DELETE.victim.0",
        "nobody\t$mq9.AI.MSG.DELETE.victim.0",
    ],
)
async def test_a_task_makes_its_worker_give_no_command(
    mq: MQClient, server: Server, asked: str
) -> None:
    """Whoever sends a task chooses where the answer goes: commands are none of these places."""
    async with Client(server.url) as client:
        await client.create_mailbox("victim", exist_ok=True)
        [before] = await client.send_many("victim", ["kept"])
        asked = asked.replace("victim.0", f"victim.{before}")
        await mq.publish("mq.a", {"data": 1}, headers={"Hanzo-Reply-To": asked})
        answered: list[bool] = []
        done = asyncio.Event()

        @mq.subscribe("mq.a", group="workers")
        async def handle(task: Task) -> None:
            answered.append(await task.respond("gone"))
            done.set()

        await work(mq, done)
        assert answered == [False]
        assert [message.text for message in await client.query("victim", limit=1)] == ["kept"]
        assert await waiting(server) == 0


@pytest.mark.parametrize("inbox", ["mq.b", "_INBOX.x y", "_INBOX", "_INBOX.>", "other.x"])
async def test_an_answer_goes_to_inboxes_only(mq: MQClient, server: Server, inbox: str) -> None:
    connection = await nats.connect(server.url)
    heard = await connection.subscribe(">")
    await connection.flush()
    await mq.publish("mq.a", {"data": 1}, headers={"Hanzo-Reply-To": inbox})
    done = asyncio.Event()

    @mq.subscribe("mq.a", group="workers")
    async def handle(task: Task) -> None:
        assert not await task.respond("told")
        done.set()

    await work(mq, done)
    await connection.flush()
    came = [await heard.next_msg() for _ in range(heard.pending_msgs)]
    assert not [message.subject for message in came if b"told" in message.data]
    await connection.close()


@pytest.mark.usefixtures("mq")
async def test_an_answer_goes_to_inboxes_of_a_chosen_prefix(server: Server) -> None:
    async with (
        MQClient(server.url, inbox_prefix="_INBOX_team") as asker,
        MQClient(server.url, inbox_prefix="_INBOX_team") as worker,
    ):

        @worker.subscribe("mq.a", group="workers")
        async def answer(task: Task) -> None:
            assert await task.respond(task.data + 1)

        running = asyncio.create_task(worker.run())
        assert await asker.request("mq.a", {"data": 1}, wait=20) == 2
        worker.stop()
        await running


async def test_a_request_that_nobody_answers_ends(mq: MQClient, server: Server) -> None:
    with pytest.raises(RequestTimeout):
        await mq.request("mq.inference.chat", {"data": {}}, wait=0.2)
    assert await waiting(server) == 1


async def test_what_is_no_task_is_given_up(mq: MQClient, server: Server) -> None:
    connection = await nats.connect(server.url)
    for payload in (b"\xff", b"[]", b"{}", json.dumps({"schema": "other"}).encode()):
        await connection.jetstream().publish("mq.a", payload)
    await connection.close()
    await mq.publish("mq.a", {"data": "good"})
    done = asyncio.Event()

    @mq.subscribe("mq.a", group="workers")
    async def handle(task: Task) -> None:
        assert task.data == "good"
        done.set()

    await work(mq, done)
    assert await waiting(server) == 0


async def test_members_of_a_group_share(mq: MQClient, server: Server) -> None:
    for number in range(30):
        await mq.publish("mq.a", {"data": number})
    seen: list[int] = []
    done = asyncio.Event()
    async with MQClient(server.url) as second:
        for client in (mq, second):

            @client.subscribe("mq.a", group="workers", concurrency=3)
            async def handle(task: Task) -> None:
                seen.append(task.data)
                if len(seen) == 30:
                    done.set()

        other = asyncio.create_task(second.run())
        await work(mq, done)
        second.stop()
        await other
    assert sorted(seen) == list(range(30))


async def test_a_group_takes_the_tasks_of_one_subject(mq: MQClient, server: Server) -> None:
    connection = await nats.connect(server.url)
    await connection.jetstream().add_consumer(
        "MQ", ConsumerConfig(durable_name="workers", filter_subject="mq.a")
    )
    await connection.close()
    await mq.publish("mq.a", {"data": 1})

    @mq.subscribe("mq.b", group="workers")
    async def handle(task: Task) -> None:
        raise AssertionError(f"{task} is another handler's")

    async with asyncio.timeout(DEADLINE_S):
        with pytest.raises(InvalidField, match=r"workers takes the tasks of mq\.a, not of mq\.b"):
            await mq.run()
    assert await waiting(server) == 1


async def test_of_two_handlers_in_a_new_group_one_is_refused(mq: MQClient) -> None:
    for subject in ("mq.a", "mq.b"):

        @mq.subscribe(subject, group="workers")
        async def handle(task: Task, subject: str = subject) -> None:
            assert task.subject == subject

    async with asyncio.timeout(DEADLINE_S):
        with pytest.raises(InvalidField, match=r"workers takes the tasks of mq\.[ab], not of mq"):
            await mq.run()


@pytest.mark.parametrize("subject", ["mq.>", "mq.a"])
async def test_a_group_without_a_filter_takes_all_tasks(
    mq: MQClient, server: Server, subject: str
) -> None:
    connection = await nats.connect(server.url)
    await connection.jetstream().add_consumer("MQ", ConsumerConfig(durable_name="workers"))
    await connection.close()
    await mq.publish("mq.b", {"data": 1})
    done = asyncio.Event()

    @mq.subscribe(subject, group="workers")
    async def handle(task: Task) -> None:
        assert (task.subject, subject) == ("mq.b", "mq.>")
        done.set()

    if subject == "mq.>":
        await work(mq, done)
        return
    async with asyncio.timeout(DEADLINE_S):
        with pytest.raises(InvalidField, match=r"takes the tasks of mq\.>, not of mq\.a"):
            await mq.run()


async def test_whoever_has_stopped_is_given_nothing_more(mq: MQClient, server: Server) -> None:
    @mq.subscribe("mq.a", group="workers", max_deliver=1)
    async def handle(task: Task) -> None:
        raise AssertionError(f"{task} came after the stop")

    connection = await nats.connect(server.url)
    stream = connection.jetstream()
    running = asyncio.create_task(mq.run())

    async with asyncio.timeout(DEADLINE_S):
        while True:
            with suppress(nats.js.errors.NotFoundError):
                if (await stream.consumer_info("MQ", "workers")).num_waiting:
                    break
        mq.stop()
        await running
    await mq.publish("mq.a", {"data": 1})
    info = await stream.consumer_info("MQ", "workers")
    assert (info.num_pending, info.num_ack_pending, info.num_waiting) == (1, 0, 0)
    await connection.close()


async def test_errors_say_what_is_wrong(mq: MQClient) -> None:
    with pytest.raises(NoQueue, match=r"no stream has the subject no\.stream"):
        await mq.publish("no.stream", {"data": 1})
    with pytest.raises(InvalidField, match="data is missing"):
        await mq.publish("mq.a", {"type": "x"})
    with pytest.raises(InvalidField, match="group"):
        mq.subscribe("mq.a", group="a b")
    with pytest.raises(InvalidField, match="nothing to do"):
        await mq.run()
    with pytest.raises(BrokerUnavailable):
        await MQClient("nats://127.0.0.1:1", timeout=0.5).publish("mq.a", {"data": 1})


def test_ids_sort_by_time() -> None:
    first = new_ulid()
    time.sleep(0.002)
    assert first < new_ulid()
    assert len(first) == 26


DECLARED = """
mq9 {
  streams: [ { name: MQ, subjects: ["mq.>"], retention: workqueue, envelope: yes } ]
  queues: [ { name: a, subject: mq.a, max_deliver: 2, dlq: yes, group: workers }
            { name: dead_letter, subject: "mq.dlq.>", max_deliver: 1, group: dlq-monitor } ]
}
"""


@pytest.fixture
async def declared(serve: Serve) -> AsyncIterator[MQClient]:
    """A client of a broker whose configuration declares a work queue."""
    async with MQClient(serve(DECLARED).url, source="tests", retry_delays=(0.05,)) as client:
        yield client


async def test_what_a_stream_does_not_take_is_told(declared: MQClient) -> None:
    with pytest.raises(TaskRefused, match="priority: 11 is not between 1"):
        await declared.publish("mq.a", {"priority": 11, "data": {}})
    with pytest.raises(InvalidField, match="is no dead letter"):
        await declared.replay(Task("mq.a", "1", "t", {}, {}))


async def test_a_task_that_comes_before_its_time_is_put_back(mq: MQClient) -> None:
    due = datetime.now(UTC) + timedelta(seconds=0.8)
    written = due.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    stream = (await mq._connected()).jetstream()
    envelope = {"schema": "hanzo.mq.v1", "id": "1", "type": "t", "data": {}, "delay_until": written}
    await stream.publish("mq.a", json.dumps(envelope).encode())
    at: list[datetime] = []
    done = asyncio.Event()

    @mq.subscribe("mq.a", group="workers")
    async def handle(task: Task) -> None:
        at.append(datetime.now(UTC))
        assert task.delivery > 1
        done.set()

    await work(mq, done)
    assert at[0] >= due - timedelta(milliseconds=1)


async def keeps_delays(client: MQClient) -> None:
    began = time.time()
    first = await client.publish("mq.a", {"id": "1", "data": {"is": "later"}}, delay=1.0)
    due = datetime.now(UTC) + timedelta(seconds=1.2)
    second = await client.publish("mq.a", {"data": {"is": "last"}, "delay_until": due})
    third = await client.publish("mq.a", {"data": {"is": "now"}})
    assert [first.seq, second.seq, third.seq] == [0, 0, 1]
    assert (await client.publish("mq.a", {"id": "1", "data": {"is": "later"}}, delay=1.0)).duplicate
    seen: list[tuple[object, int, float]] = []
    done = asyncio.Event()

    @client.subscribe("mq.a", group="workers")
    async def handle(task: Task) -> None:
        seen.append((task.data["is"], task.delivery, time.time() - began))
        if len(seen) == 3:
            done.set()

    await work(client, done)
    assert [(data, delivery) for data, delivery, _ in seen] == [
        ("now", 1),
        ("later", 1),
        ("last", 1),
    ]
    assert seen[1][2] >= 0.999
    assert seen[2][2] >= 1.199


async def test_a_delayed_task_is_kept_by_the_broker_until_its_time(mq: MQClient) -> None:
    await keeps_delays(mq)


async def test_so_it_is_where_the_stream_reads_envelopes(declared: MQClient) -> None:
    await keeps_delays(declared)


async def test_a_task_whose_life_is_over_is_gone(mq: MQClient, server: Server) -> None:
    await mq.publish("mq.a", {"data": "brief", "ttl_seconds": 1})
    await mq.publish("mq.a", {"data": "long", "ttl_seconds": 600})
    assert await waiting(server) == 2
    stream = (await mq._connected()).jetstream()
    async with asyncio.timeout(DEADLINE_S):
        while (await stream.stream_info("MQ")).state.messages == 2:
            pass
    seen: list[object] = []
    done = asyncio.Event()

    @mq.subscribe("mq.a", group="workers")
    async def handle(task: Task) -> None:
        seen.append(task.data)
        done.set()

    await work(mq, done)
    assert seen == ["long"]


async def test_a_task_that_fails_too_often_is_a_dead_letter_and_can_go_back(
    declared: MQClient,
) -> None:
    await declared.publish("mq.a", {"id": "1", "type": "t", "data": {"n": 7}})
    letters: list[Task] = []
    tries: list[int] = []
    done = asyncio.Event()

    @declared.subscribe("mq.a", group="workers")
    async def handle(task: Task) -> None:
        tries.append(task.delivery)
        if len(tries) <= 2:
            raise ValueError("broken")
        done.set()

    @declared.subscribe("mq.dlq.>", group="dlq-monitor")
    async def look(task: Task) -> None:
        letters.append(task)
        assert task.dead is not None
        assert not (await declared.replay(task)).duplicate
        assert (await declared.replay(task)).duplicate

    await work(declared, done)
    assert tries == [1, 2, 1]
    [letter] = letters
    assert (letter.id, letter.data, letter.subject) == ("1", {"n": 7}, "mq.dlq.mq.a")
    dead = letter.dead
    assert dead is not None
    assert (dead.reason, dead.error, dead.attempts) == ("max_deliver", "", 2)
    assert (dead.subject, dead.stream, dead.sequence) == ("mq.a", "MQ", 1)
    assert dead.group == "workers"
    first, last = (datetime.fromisoformat(at) for at in (dead.first_seen, dead.last_failed))
    assert first < last <= datetime.now(UTC) + timedelta(seconds=1)


async def test_what_is_no_task_is_kept_where_dead_letters_are_asked_for(mq: MQClient) -> None:
    stream = (await mq._connected()).jetstream()
    await stream.publish("mq.a", b"no task")
    await mq.publish("mq.a", {"data": "good"})
    done = asyncio.Event()

    @mq.subscribe("mq.a", group="workers", dead_letters="mq.dlq")
    async def handle(task: Task) -> None:
        assert task.data == "good"
        done.set()

    await work(mq, done)
    letter = await stream.get_last_msg("MQ", "mq.dlq.mq.a")
    assert letter.data == b"no task"
    assert letter.headers is not None
    assert letter.headers["mq9-dead-reason"] == "terminated"
