"""All processes of a cluster are replaced one after the other under load, and nobody loses a word.

So a new version is brought in. A node that is too old for what the log holds is refused.
"""

import asyncio
import subprocess
import sys
import time

import nats
import pytest
from nats.aio.client import Client
from nats.js import api
from nats.js.errors import Error as StreamError
from tests.cluster.load import Load
from tests.cluster.test_refusals import refused

from mq9.cluster.local import LocalCluster, Process

pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)

_PATIENCE_S = 60.0


def wait_until_well(cluster: LocalCluster) -> None:
    """All nodes have what the leader has."""
    until = time.monotonic() + _PATIENCE_S
    while time.monotonic() < until:
        healths = [node.health() for node in cluster.nodes]
        roles = sorted(str(health.get("role")) for health in healths)
        if roles == ["following", "following", "leading"] and all(
            health.get("status") == "ok" and health["lag"] < 50 for health in healths
        ):
            return
        time.sleep(0.05)
    raise AssertionError(f"nodes are not well: {healths}")


async def wait_until_whole(cluster: LocalCluster, name: str) -> None:
    """All nats-servers have what the stream holds."""
    until, found = time.monotonic() + _PATIENCE_S, None
    while time.monotonic() < until:
        client = None
        try:
            client = await nats.connect(
                f"nats://127.0.0.1:{cluster.servers[0].port}", allow_reconnect=False
            )
            found = (await client.jetstream(timeout=2).stream_info(name)).cluster
        except (OSError, TimeoutError, StreamError, nats.errors.Error):
            found = None
        finally:
            if client is not None:
                await client.close()
        replicas = (found.replicas or []) if found is not None and found.leader else []
        if len(replicas) == 2 and all(one.current and not one.offline for one in replicas):
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"the stream is not whole: {found}")


async def replace(process: Process) -> None:
    """End it in order, and start what may be another version of it."""
    await asyncio.to_thread(process.end)
    process.start()


async def give_lead_away(leader: Process) -> None:
    """As an operator does before work on the machine."""
    url = f"nats://127.0.0.1:{leader.port}"
    command = [sys.executable, "-m", "mq9", "-s", url, "cluster", "yield"]
    done = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


async def test_everything_is_replaced_one_by_one_under_load(cluster: LocalCluster) -> None:
    load = Load(cluster)
    await load.start()
    leader = await asyncio.to_thread(cluster.wait_for_leader)
    first = {process.name: process.pid for process in (*cluster.servers, *cluster.nodes)}
    for node in cluster.nodes:
        if node is not leader:
            await replace(node)
            await asyncio.to_thread(wait_until_well, cluster)
    await give_lead_away(leader)
    assert await asyncio.to_thread(cluster.wait_for_leader) is not leader
    await replace(leader)
    await asyncio.to_thread(wait_until_well, cluster)
    for server in cluster.servers:
        await wait_until_whole(cluster, "MQ9_LOG_local")
        await replace(server)
    await wait_until_whole(cluster, "MQ9_LOG_local")
    await asyncio.to_thread(wait_until_well, cluster)
    now = {process.name: process.pid for process in (*cluster.servers, *cluster.nodes)}
    assert not set(first.items()) & set(now.items())
    confirmed = load.ledger.confirmed()
    await load.until_confirmed(confirmed + 50)
    await load.stop()
    verdict = await load.check()
    await load.close()
    assert verdict.wrong == []
    assert load.ledger.acked


async def log_of(cluster: LocalCluster, *, makes: bool) -> Client:
    """A client of the servers, with the stream that nodes would make."""
    client = await nats.connect(f"nats://127.0.0.1:{cluster.servers[0].port}")
    stream = api.StreamConfig(
        name="MQ9_LOG_local",
        subjects=["mq9.log.local"],
        num_replicas=3,
        discard=api.DiscardPolicy.NEW,
    )
    for _ in range(600 if makes else 0):
        try:
            await client.jetstream(timeout=2).add_stream(stream)
        except (TimeoutError, StreamError, nats.errors.Error):
            await asyncio.sleep(0.1)
        else:
            break
    return client


async def test_a_node_that_is_too_old_for_the_log_is_refused(made: LocalCluster) -> None:
    try:
        for server in made.servers:
            server.start()
        await asyncio.to_thread(_listening, made.servers[0])
        client = await log_of(made, makes=True)
        # What the next version may write.
        await client.jetstream(timeout=10).publish("mq9.log.local", b"mq9b\x02" + bytes(70))
        await client.close()
        said = await asyncio.to_thread(refused, made.nodes[0])
        assert "a batch of version 2; this mq9 reads version 1: upgrade this node first" in said
    finally:
        made.stop()


def _listening(server: Process) -> None:
    import socket

    until = time.monotonic() + _PATIENCE_S
    while time.monotonic() < until:
        try:
            socket.create_connection(("127.0.0.1", server.port), 1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise AssertionError(server.log.read_text())


async def test_nodes_whose_log_is_damaged_stand_still_and_say_so(cluster: LocalCluster) -> None:
    client = await log_of(cluster, makes=False)
    await client.jetstream(timeout=10).publish("mq9.log.local", b"a stranger's word")
    await client.close()
    until = time.monotonic() + _PATIENCE_S
    while True:
        healths = [await asyncio.to_thread(node.health) for node in cluster.nodes]
        if all(health.get("role") == "stopped" for health in healths):
            break
        assert time.monotonic() < until, healths
        await asyncio.sleep(0.05)
    for node, health in zip(cluster.nodes, healths, strict=True):
        assert health["status"] == "unavailable"
        assert "not a batch of mq9" in health["error"]
        # A process that ends would be started again and again, and ask nobody for help.
        assert node.running is not None
        assert node.running.poll() is None
        node.running.terminate()
        assert await asyncio.to_thread(node.running.wait, 30) == 0
        assert "Traceback" not in node.log.read_text()
