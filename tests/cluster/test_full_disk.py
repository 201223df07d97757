"""Disks that are full or fail: a follower waits until there is room, a leader leaves the lead."""

import asyncio
import errno
from pathlib import Path

import pytest
from tests.cluster.disks import SmallDisk, send_until
from tests.cluster.test_cut_off import until
from tests.cluster.test_folders import data, done
from tests.cluster.test_nodes import agree, ask_until_done, connected, stored
from tests.faults import shim
from tests.faults.room import NoRoomError

from mq9.cluster.local import LocalCluster, Process

pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)


async def test_a_follower_whose_disk_is_full_follows_when_there_is_room(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path, lease_ms=1_500)
    try:
        disk = SmallDisk.of(cluster, 300 << 20)
    except NoRoomError as error:
        pytest.skip(str(error))
    try:
        # It is the last to start, so that another leads.
        for process in (*cluster.servers, *cluster.nodes[:-1]):
            process.start()
        leader = await asyncio.to_thread(cluster.wait_for_leader)
        disk.node.start()
        await asyncio.to_thread(agree, cluster)
        await asyncio.to_thread(disk.fill)
        assert await send_until(cluster.urls, disk.is_noticed) > 0
        assert disk.node.health()["status"] == "unavailable"
        # Others go on without it.
        behind = disk.node.health()["sequence"]
        await send_until(cluster.urls, lambda: leader.health().get("sequence", 0) > behind + 5)
        assert disk.node.health()["sequence"] == behind
        await asyncio.to_thread(disk.empty)
        await asyncio.to_thread(agree, cluster)
        assert disk.node.health()["status"] == "ok"
        assert "Traceback" not in disk.node.log.read_text()
    finally:
        cluster.stop()
        disk.close()


async def lead(cluster: LocalCluster, node: Process) -> None:
    """Give it the lead."""
    await asyncio.to_thread(agree, cluster)
    leader = await asyncio.to_thread(cluster.wait_for_leader)
    if leader is not node:
        number = str(cluster.nodes.index(node) + 1)
        await asyncio.to_thread(done, "-s", leader.url, "cluster", "yield", "--to", number)
    assert await asyncio.to_thread(cluster.wait_for_leader) is node


async def confirmed_by_another(cluster: LocalCluster, node: Process) -> None:
    """Messages are confirmed by the next leader, while `node` cannot write."""

    def others_lead() -> bool:
        return any(each.health().get("role") == "leading" for each in cluster.nodes[:-1])

    await send_until(cluster.urls, others_lead)
    client = await connected(*cluster.nodes)
    await ask_until_done(client, "MSG.SEND.box", b"after")
    assert await stored(client, "box") == ["before", "after"]
    await client.close()
    assert "its lead is given away" in node.log.read_text()


async def test_a_leader_whose_disk_is_full_leaves_the_lead_to_one_with_room(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path, lease_ms=1_500)
    try:
        disk = SmallDisk.of(cluster, 300 << 20)
    except NoRoomError as error:
        pytest.skip(str(error))
    try:
        await asyncio.to_thread(cluster.start)
        client = await connected(*cluster.nodes)
        await ask_until_done(client, "MAILBOX.CREATE", b'{"name": "box"}')
        await ask_until_done(client, "MSG.SEND.box", b"before")
        await client.close()
        await lead(cluster, disk.node)
        await asyncio.to_thread(disk.fill)
        await confirmed_by_another(cluster, disk.node)
        # It does not come back to one that is full.
        led = await asyncio.to_thread(cluster.wait_for_leader)
        term = led.health()["term"]
        await send_until(cluster.urls, disk.is_noticed)
        assert led.health()["term"] == term
        await asyncio.to_thread(disk.empty)
        await asyncio.to_thread(agree, cluster)
        await asyncio.to_thread(until, lambda: disk.node.health()["status"] == "ok", disk.node)
        await lead(cluster, disk.node)
        assert "Traceback" not in disk.node.log.read_text()
    finally:
        cluster.stop()
        disk.close()


@pytest.mark.skipif(shim.missing() is not None, reason=str(shim.missing()))
async def test_a_leader_whose_sync_fails_leaves_the_lead(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path / "cluster", lease_ms=1_500)
    node = cluster.nodes[-1]
    disk = shim.Shim(tmp_path / "shim", data(node))
    node.command = [*disk.around, *node.command]
    try:
        await asyncio.to_thread(cluster.start)
        client = await connected(*cluster.nodes)
        await ask_until_done(client, "MAILBOX.CREATE", b'{"name": "box"}')
        await ask_until_done(client, "MSG.SEND.box", b"before")
        await client.close()
        await lead(cluster, node)
        disk.set("sync_errno", errno.EIO)
        await confirmed_by_another(cluster, node)
        assert disk.get("hits") > 0
        disk.set("sync_errno", 0)
        if node.running is not None and node.running.poll() is not None:
            node.start()
        await asyncio.to_thread(agree, cluster)
        assert "Traceback" not in node.log.read_text()
    finally:
        cluster.stop()
