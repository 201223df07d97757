"""A follower whose disk is full waits until there is room, and follows on."""

import asyncio
from pathlib import Path

import pytest
from tests.cluster.disks import SmallDisk, send_until
from tests.cluster.test_nodes import agree
from tests.faults.room import NoRoomError

from mq9.cluster.local import LocalCluster

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
