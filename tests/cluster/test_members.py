"""Nodes are added and taken out, one process at a time, while messages are confirmed."""

import asyncio
import dataclasses
import re
from pathlib import Path

import pytest
from tests.cluster.links import config_of
from tests.cluster.load import contents
from tests.cluster.test_cut_off import until
from tests.cluster.test_folders import data, done, mq9
from tests.cluster.test_nodes import Sender, agree, ask_until_done, connected
from tests.cluster.test_up import free_port

from mq9.cluster.local import LocalCluster, Process

pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)


def know(node: Process, addresses: list[str]) -> None:
    """Write these addresses into its configuration."""
    file = config_of(node)
    nodes = ", ".join(f'"{address}"' for address in addresses)
    file.write_text(re.sub(r"nodes: \[.*\]", f"nodes: [{nodes}]", file.read_text()))


def fourth(cluster: LocalCluster, folder: Path) -> Process:
    """Another node, with the settings of the third."""
    third, own = cluster.nodes[2], folder / "node4"
    own.mkdir()
    port = free_port(2)
    http = port + 1
    text = config_of(third).read_text().replace("node: 3", "node: 4").replace("n3", "n4")
    text = text.replace(f'listen: "127.0.0.1:{third.port}"', f'listen: "127.0.0.1:{port}"')
    text = text.replace(str(third.http), str(http)).replace(str(config_of(third).parent), str(own))
    (own / "mq9.conf").write_text(text)
    command = [*third.command[:-1], str(own / "mq9.conf")]
    return dataclasses.replace(
        third, name="node 4", port=port, http=http, command=command, log=own / "mq9.log"
    )


async def restart(cluster: LocalCluster, node: Process) -> None:
    """One process, until it has caught up."""
    await asyncio.to_thread(node.end)
    node.start()
    await asyncio.to_thread(agree, cluster)


async def hand_over(cluster: LocalCluster, number: int) -> None:
    """Give the lead to that node, of which the others may not know yet."""
    leader = await asyncio.to_thread(cluster.wait_for_leader)
    if leader.health()["node"] != number:
        words = ("-s", leader.url, "cluster", "yield", "--to", str(number))
        await asyncio.to_thread(mq9, *words)
    wanted = next(node for node in cluster.nodes if node.health().get("node") == number)
    await asyncio.to_thread(until, lambda: wanted.health().get("role") == "leading", wanted)


async def test_a_node_is_added_and_another_taken_out_under_load(made: LocalCluster) -> None:
    cluster, folder = made, config_of(made.nodes[0]).parent.parent
    try:
        cluster.start()
        client = await connected(*cluster.nodes)
        await ask_until_done(client, "MAILBOX.CREATE", b'{"name": "box"}')
        sender = Sender(client, "box")
        sending = asyncio.create_task(sender.run())
        await hand_over(cluster, 1)
        # A fourth one, with a copy of one that follows.
        node = fourth(cluster, folder)
        backup = folder / "backup"
        await asyncio.to_thread(done, "cluster", "backup", data(cluster.nodes[1]), backup)
        await asyncio.to_thread(done, "cluster", "join", data(node), "--from", backup)
        old, cluster.nodes = cluster.nodes, [*cluster.nodes, node]
        addresses = [f"127.0.0.1:{each.port}" for each in cluster.nodes]
        for each in cluster.nodes:
            know(each, addresses)
        node.start()
        await asyncio.to_thread(agree, cluster)
        # It leads before the others have heard of it: they hand nobody on, and live.
        await hand_over(cluster, 4)
        assert (await asyncio.to_thread(cluster.wait_for_leader)) is node
        for each in old:
            assert each.running is not None
            assert each.running.poll() is None, each.log.read_text()
            assert "node 4 leads, and is none of this node's `nodes`" in each.log.read_text()
            await restart(cluster, each)
        confirmed = len(sender.confirmed)
        # The second one goes; the others keep their numbers.
        second = cluster.nodes[1]
        await asyncio.to_thread(second.end)
        cluster.nodes.remove(second)
        addresses[1] = ""
        for each in cluster.nodes:
            know(each, addresses)
        for each in cluster.nodes:
            await restart(cluster, each)
        await hand_over(cluster, 3)
        late = await connected(*cluster.nodes)
        assert set(late._server_info["connect_urls"]) == set(filter(None, addresses))
        await asyncio.to_thread(until, lambda: len(sender.confirmed) > confirmed + 100, node)
        sender.stop()
        await sending
        await asyncio.to_thread(agree, cluster)
        found = await contents(late, "box")
        assert not set(sender.confirmed) - set(found)
        assert len(found) == len(set(found))
        await late.close()
        await client.close()
        for each in (*cluster.nodes, second):
            assert "Traceback" not in each.log.read_text()
    finally:
        made.stop()
