"""What belongs to another cluster is refused with a reason: folders, and messages."""

import asyncio
import shutil
from pathlib import Path

import nats
import pytest
from nats.aio.client import Client
from tests.cluster.test_cut_off import until
from tests.cluster.test_folders import data, filled
from tests.cluster.test_nodes import agree
from tests.cluster.test_refusals import refused

from mq9.cluster.local import LocalCluster, Process

pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)


async def stream_of(client: Client) -> tuple[str, str]:
    """The stream of the only cluster there, and its subject."""
    [stream] = await client.jetstream().streams_info()
    assert stream.config.name is not None
    assert stream.config.subjects is not None
    return stream.config.name, stream.config.subjects[0]


def stands_still(node: Process, why: str) -> None:
    """Wait until it serves nobody, and says why."""
    until(lambda: why in node.log.read_text(), node)
    until(lambda: node.health().get("status") == "unavailable", node)


async def test_folders_and_messages_of_another_cluster(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    await filled(cluster, 60)
    await asyncio.to_thread(agree, cluster)
    other = LocalCluster(tmp_path / "other", count=1, name="other", lease_ms=1_500)
    try:
        await asyncio.to_thread(other.start)
        await filled(other, 5)
        there = await nats.connect(other.servers[0].url)
        name, _ = await stream_of(there)
        foreign = await there.jetstream().get_msg(name, 2)
        await there.close()
    finally:
        await asyncio.to_thread(other.stop)
    leader = await asyncio.to_thread(cluster.wait_for_leader)
    node = next(node for node in cluster.nodes if node is not leader)
    node.end()
    shutil.rmtree(data(node))
    shutil.copytree(data(other.nodes[0]), data(node))
    said = await asyncio.to_thread(refused, node)
    assert "does not continue what this node holds" in said
    # The others go on, until somebody writes into their stream.
    await filled(cluster, 5, "more")
    here = await nats.connect(cluster.servers[0].url)
    _, subject = await stream_of(here)
    assert foreign.data is not None
    await here.jetstream().publish(subject, foreign.data)
    await here.close()
    for each in cluster.nodes:
        if each is not node:
            await asyncio.to_thread(stands_still, each, "by another cluster")
            assert each.running is not None
            assert "Traceback" not in each.log.read_text()
