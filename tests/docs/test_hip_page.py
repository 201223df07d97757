"""docs/guides/hip-0055.md: its permissions are enough for the work, and for nothing else.

The programs of the page are run by test_sessions.py.
"""

import asyncio

import nats
import nats.errors
import pytest
from tests.pages import blocks
from tests.peers import Serve, Server

from mq9.queues import MQClient, Task

PAGE = "docs/guides/hip-0055.md"
NEXT = "$JS.API.CONSUMER.MSG.NEXT.HANZO_MQ"
DEADLINE_S = 30
# A refusal comes as an error, and the answer never.
NO_ANSWER_S = 0.5


@pytest.fixture
def server(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> Server:
    monkeypatch.setenv("CLOUD_API_NATS_PASS", "cloud")
    monkeypatch.setenv("WORKER_NATS_PASS", "worker")
    (permissions,) = [block for block in blocks(PAGE, "conf") if "authorization" in block]
    return serve("".join(blocks(PAGE, "hocon")) + permissions)


async def test_a_worker_gets_its_tasks_and_acknowledges_them(server: Server) -> None:
    done = asyncio.Event()
    worker = MQClient(server.url, user="inference-worker", password="worker")

    @worker.subscribe("mq.inference.>", group="inference-workers")
    async def infer(task: Task) -> None:
        await task.respond({"text": task.data["prompt"].upper()})
        done.set()

    async with worker, MQClient(server.url, user="cloud-api", password="cloud") as api:
        working = asyncio.create_task(worker.run())
        asked = api.request("mq.inference.chat", {"data": {"prompt": "hello"}}, wait=DEADLINE_S)
        assert await asked == {"text": "HELLO"}
        async with asyncio.timeout(DEADLINE_S):
            await done.wait()
        worker.stop()
        await working
        found = (
            await (await worker._connected())
            .jetstream()
            .consumer_info("HANZO_MQ", "inference-workers")
        )
        assert (found.num_pending, found.num_ack_pending) == (0, 0)


@pytest.mark.parametrize(
    "subject",
    [
        f"{NEXT}.finetune-workers",
        "$JS.API.CONSUMER.CREATE.HANZO_MQ.mine",
        "$JS.API.STREAM.PURGE.HANZO_MQ",
        "$JS.ACK.HANZO_MQ.finetune-workers.1.1.1.0.0",
        "mq.inference.chat",
    ],
)
async def test_a_worker_can_do_nothing_else(server: Server, subject: str) -> None:
    refused: list[Exception] = []
    heard = asyncio.Event()

    async def note(error: Exception) -> None:
        refused.append(error)
        heard.set()

    connection = await nats.connect(
        server.url, user="inference-worker", password="worker", error_cb=note
    )
    try:
        with pytest.raises(nats.errors.TimeoutError):
            await connection.request(subject, b"", timeout=NO_ANSWER_S)
        async with asyncio.timeout(DEADLINE_S):
            await heard.wait()
        assert "permissions violation for publish" in str(refused[0]).lower()
    finally:
        await connection.close()
