"""What else a broker does goes on with the next leader: waits, pushes, broadcasts, agents, export,
schedules."""

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import nats
import pyarrow.dataset
import pytest
from nats.aio.client import Client
from nats.errors import Error as NatsError
from tests.cluster.links import config_of
from tests.cluster.test_nodes import ask, ask_until_done, connected, stored
from tests.manage.conftest import free_port

from mq9.cluster.local import LocalCluster, Process

pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)

_BROADCAST = "$mq9.AI.BROADCAST.system.restart"


async def killed(cluster: LocalCluster) -> Process:
    """Kill the leader; it stays away, and another leads."""
    leader = await asyncio.to_thread(cluster.wait_for_leader)
    os.kill(leader.pid, signal.SIGKILL)
    await asyncio.to_thread(leader.end)
    assert await asyncio.to_thread(cluster.wait_for_leader) is not leader
    return leader


async def alone_at(node: Process) -> Client:
    """A client that knows only this node."""
    return await nats.connect(
        f"nats://127.0.0.1:{node.port}",
        reconnect_time_wait=0.1,
        max_reconnect_attempts=-1,
        connect_timeout=1,
    )


async def until_so(what: Callable[[], bool], timeout_s: float = 60.0) -> None:
    end = time.monotonic() + timeout_s
    while not what():
        assert time.monotonic() < end
        await asyncio.sleep(0.05)


async def test_waits_pushes_and_ends_of_connections_pass_through_a_follower(
    cluster: LocalCluster,
) -> None:
    leader = await asyncio.to_thread(cluster.wait_for_leader)
    follower, other = (node for node in cluster.nodes if node is not leader)
    there, here = await alone_at(follower), await alone_at(other)
    await ask_until_done(here, "MAILBOX.CREATE", b'{"name": "box", "ack_wait": 60}')
    heard: list[str] = []

    async def hear(message: Any) -> None:  # noqa: ANN401
        heard.append(message.data.decode())

    await there.subscribe("$mq9.AI.INBOX.box.*", cb=hear)
    await there.flush()
    body = b'{"group_name": "g", "deliver": "earliest", "config": {"max_wait_ms": 20000}}'
    waiting = asyncio.create_task(ask(there, "MSG.FETCH.box", body, 25.0))
    await asyncio.sleep(0.2)
    assert not waiting.done()
    await ask_until_done(here, "MSG.SEND.box", b"one")
    assert [one["payload"] for one in (await waiting)["messages"]] == ["one"]
    await until_so(lambda: heard == ["one"])
    # What a connection held goes back to its group when it ends, wherever it came in.
    await there.close()
    again: list[str] = []
    while not again:
        found = await ask(here, "MSG.FETCH.box", body.replace(b"20000", b"500"), 10.0)
        again = [one["payload"] for one in found["messages"]]
    assert again == ["one"]
    await here.close()


async def test_broadcasts_and_agents_outlive_a_leader(cluster: LocalCluster) -> None:
    client = await connected(*cluster.nodes)
    live: list[bytes] = []

    async def hear(message: Any) -> None:  # noqa: ANN401
        live.append(message.data)

    for text in (b"at noon", b"at one"):
        answer = await client.request(_BROADCAST, text, headers={"mq9-persist": "true"}, timeout=10)
        assert not json.loads(answer.data)["error"]
    agent = {"mailbox": "agent.order", "name": "Till", "description": "Takes a payment"}
    await ask_until_done(client, "AGENT.REGISTER", json.dumps(agent).encode())
    await client.subscribe("$mq9.AI.BROADCAST.system.*", cb=hear)
    await until_so(lambda: len(live) == 2)
    await killed(cluster)
    later = await connected(*(node for node in cluster.nodes if node.running is not None))
    late = await later.subscribe("$mq9.AI.BROADCAST.system.*")
    assert [(await late.next_msg(20)).data for _ in range(2)] == [b"at noon", b"at one"]
    # It stores more, under numbers of their own, and tells everybody.
    told: dict[str, Any] = {"error": "not asked"}
    while told["error"]:
        try:
            answer = await later.request(
                _BROADCAST,
                b"at two",
                headers={"mq9-persist": "true", "mq9-id": "two"},
                timeout=2,
            )
        except (TimeoutError, NatsError):
            continue
        told = json.loads(answer.data)
    assert told["msg_id"] == 2
    assert (await late.next_msg(20)).data == b"at two"
    await until_so(lambda: live[-1] == b"at two")
    found = await ask_until_done(later, "AGENT.DISCOVER", b'{"text": "payment"}')
    assert [one["name"] for one in found["agents"]] == ["Till"]
    await later.close()
    await client.close()


def with_block(made: LocalCluster, block: Callable[[Path], str]) -> None:
    """Add settings to all nodes."""
    for node in made.nodes:
        file = config_of(node)
        text = file.read_text().replace("  management: off\n", block(file.parent))
        # Servers may have names.
        for server in made.servers:
            text = text.replace(
                f"nats://127.0.0.1:{server.port}", f"nats://localhost:{server.port}"
            )
        file.write_text(text)


def exported(made: LocalCluster) -> list[tuple[bytes, int]]:
    """Payloads and message numbers in the exports of all nodes."""
    found = []
    for node in made.nodes:
        folder = config_of(node).parent / "export" / "messages"
        if folder.exists():
            rows = pyarrow.dataset.dataset(folder, partitioning="hive").to_table().to_pylist()
            found += [(row["payload"], row["msg_id"]) for row in rows]
    return found


async def test_the_page_the_export_and_schedules_go_on_with_the_next_leader(
    made: LocalCluster,
) -> None:
    port = free_port()
    tick = '{ name: "tick", mailbox: "ticks", cron: "* * * * *", payload: "now" }'
    with_block(
        made,
        lambda folder: (
            f'  management {{ listen: "127.0.0.1:{port}" }}\n'
            f'  export {{ dir: "{folder / "export"}", every: "1s" }}\n'
            f"  schedules: [ {tick} ]\n"
        ),
    )
    try:
        await asyncio.to_thread(made.start)
        client = await connected(*made.nodes)
        await ask_until_done(client, "MAILBOX.CREATE", b'{"name": "ticks"}')
        await ask_until_done(client, "MAILBOX.CREATE", b'{"name": "box"}')
        await ask_until_done(client, "MSG.SEND.box", b"before")
        await until_so(lambda: any(payload == b"before" for payload, _ in exported(made)))
        await healthy(port)
        await killed(made)
        await ask_until_done(client, "MSG.SEND.box", b"after")
        assert await stored(client, "box") == ["before", "after"]
        await healthy(port)
        await until_so(lambda: any(payload == b"after" for payload, _ in exported(made)))
        # Each leader exports what it holds: by number a message is one, however many wrote it.
        numbers = {payload: msg_id for payload, msg_id in exported(made) if payload}
        assert numbers[b"after"] == numbers[b"before"] + 1
        dues: list[str] = []
        end = time.monotonic() + 150
        while not dues:
            assert time.monotonic() < end, "the schedule is not followed"
            found = await ask_until_done(client, "MSG.QUERY.ticks", b"{}")
            dues = [one["headers"]["mq9-schedule-due"][0] for one in found["messages"]]
            await asyncio.sleep(0.2)
        assert len(dues) == len(set(dues))
        assert all(datetime.fromisoformat(due).second == 0 for due in dues)
        await client.close()
    finally:
        made.stop()


async def healthy(port: int) -> None:
    """The management page answers."""
    async with httpx.AsyncClient(timeout=5) as client:
        for _ in range(600):
            try:
                answer = await client.get(f"http://127.0.0.1:{port}/healthz")
            except httpx.HTTPError:
                await asyncio.sleep(0.1)
                continue
            if answer.status_code == 200:
                return
            await asyncio.sleep(0.1)
    raise AssertionError("the management page does not answer")
