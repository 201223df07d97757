"""Streams and consumers of the configuration: there when the first client comes, and never lost."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import Client
from tests.integration.conftest import Connect
from tests.peers import Serve
from tests.restarts import Restarting

DEADLINE_S = 20
CONFIG = """
mq9 {
  streams: [ { name: MQ, subjects: ["mq.>"], retention: workqueue, max_msgs: 100, envelope: yes } ]
  queues: [ { name: "batch.images", subject: "mq.batch.images", max_deliver: 3, ack_wait: 30s } ]
}
"""


async def asked(client: Client, request: str) -> Any:  # noqa: ANN401
    answer = await client.request(f"$JS.API.{request}", timeout=DEADLINE_S)
    return json.loads(answer.data)


def task(**more: object) -> bytes:
    envelope = {
        "schema": "hanzo.mq.v1",
        "id": "task_1",
        "type": "batch.images.make",
        "source": "tests",
        "timestamp": "2026-02-23T10:30:00.000Z",
        "data": {},
    }
    return json.dumps(envelope | more).encode()


async def test_what_is_declared_is_there_and_follows_the_file(
    serve: Serve, connect: Connect
) -> None:
    server = serve(CONFIG)
    client = await connect(server)
    config = (await asked(client, "STREAM.INFO.MQ"))["config"]
    assert (config["max_msgs"], config["retention"]) == (100, "workqueue")
    consumer = (await asked(client, "CONSUMER.INFO.MQ.batch-images"))["config"]
    assert (consumer["max_deliver"], consumer["ack_wait"]) == (3, 30 * 10**9)
    assert "stream MQ was created" in server.log

    await client.jetstream(timeout=DEADLINE_S).publish("mq.batch.images", task())
    more = CONFIG.replace("100", "200").replace("30s", "60s")
    server.reconfigure(more.replace("streams: [", 'streams: [ { name: NEW, subjects: ["new"] },'))
    assert (await asked(client, "STREAM.INFO.MQ"))["config"]["max_msgs"] == 200
    consumer = (await asked(client, "CONSUMER.INFO.MQ.batch-images"))["config"]
    assert consumer["ack_wait"] == 60 * 10**9
    assert (await asked(client, "STREAM.INFO.NEW"))["config"]["subjects"] == ["new"]

    # What is no longer declared stays, and what may not be changed is told.
    server.reconfigure(CONFIG.replace("workqueue", "limits"))
    assert "error" not in await asked(client, "STREAM.INFO.NEW")
    state = await asked(client, "STREAM.INFO.MQ")
    assert (state["config"]["retention"], state["state"]["messages"]) == ("workqueue", 1)
    told = [line for line in server.log.splitlines() if "can not change retention" in line]
    assert len(told) == 1
    assert "server.conf:3:14: stream MQ is not as declared" in told[0]


async def test_only_the_envelope_is_stored_where_a_stream_asks_for_it(
    serve: Serve, connect: Connect
) -> None:
    client = await connect(serve(CONFIG))

    async def refused(payload: bytes) -> str:
        answer = json.loads((await client.request("mq.a", payload, timeout=DEADLINE_S)).data)
        assert (answer["stream"], answer["seq"]) == ("MQ", 0)
        assert (answer["error"]["code"], answer["error"]["err_code"]) == (400, 10003)
        return str(answer["error"]["description"])

    assert "missing field `schema`" in await refused(b"{}")
    assert "priority: 11 is not between" in await refused(task(priority=11))
    assert "delay_until: expected a time" in await refused(task(delay_until="soon"))
    assert "ttl_seconds: 0" in await refused(task(ttl_seconds=0))
    assert "expected value" in await refused(b"hello")
    good = await client.request("mq.a", task(priority=1), timeout=DEADLINE_S)
    assert json.loads(good.data)["seq"] == 1
    assert (await asked(client, "STREAM.INFO.MQ"))["state"]["messages"] == 1


def test_it_is_there_after_a_kill(tmp_path: Path) -> None:
    broker = Restarting(tmp_path, CONFIG)
    try:
        for _ in range(2):
            broker.restart(kill=True)
            log = broker.server.log
            assert "stream MQ was" not in log
            assert "is not as declared" not in log
    finally:
        broker.stop()


def test_the_check_of_a_configuration_shows_what_does_not_go_together(tmp_path: Path) -> None:
    file = tmp_path / "server.conf"
    command = [sys.executable, "-m", "mq9", "serve", "-c", str(file), "-t"]
    file.write_text(CONFIG, "utf-8")
    assert subprocess.run(command, check=False, capture_output=True).returncode == 0
    twice = '{ name: "more", subject: "mq.batch.>" }'
    file.write_text(CONFIG.replace("queues: [", f"queues: [ {twice},"), "utf-8")
    found = subprocess.run(command, check=False, capture_output=True, text=True)
    assert found.returncode == 1
    assert "mq.batch.images overlaps with mq.batch.> of more" in found.stderr + found.stdout


@pytest.mark.parametrize("flag", ["-js=false"])
def test_a_flag_that_says_otherwise_counts(serve: Serve, flag: str) -> None:
    assert "stream MQ" not in serve(CONFIG, flag).log
