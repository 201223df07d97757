"""`mq9 cluster` moves data folders and leads: copies, from one server to three and back."""

import asyncio
import json
import shutil
import subprocess
import sys
from pathlib import Path

import nats
import pytest
from tests.cluster.links import config_of
from tests.cluster.test_nodes import agree, ask, ask_until_done, connected, stored
from tests.peers import until

from mq9.cluster.local import LocalCluster, Process

pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)


def mq9(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """One command."""
    command = [sys.executable, "-m", "mq9", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def done(*words: str | Path) -> str:
    """One that must succeed; what it said."""
    found = mq9(*words)
    assert found.returncode == 0, found.stderr
    return found.stdout


def data(node: Process) -> Path:
    """A node's data folder."""
    return config_of(node).parent / "data"


async def filled(cluster: LocalCluster, count: int, mailbox: str = "box") -> None:
    client = await connected(*cluster.nodes)
    await ask_until_done(client, "MAILBOX.CREATE", json.dumps({"name": mailbox}).encode())
    for number in range(count):
        await ask_until_done(client, f"MSG.SEND.{mailbox}", str(number).encode())
    await client.close()


async def holds(node: Process, mailbox: str) -> list[str]:
    client = await nats.connect(f"nats://127.0.0.1:{node.port}", connect_timeout=10)
    found = await stored(client, mailbox)
    await client.close()
    return found


async def test_a_lead_is_given_to_the_node_that_is_asked_for(cluster: LocalCluster) -> None:
    await asyncio.to_thread(agree, cluster)
    leader = await asyncio.to_thread(cluster.wait_for_leader)
    first = cluster.nodes.index(leader) + 1
    wanted = first % 3 + 1
    url = f"nats://127.0.0.1:{leader.port}"
    said = await asyncio.to_thread(done, "-s", url, "cluster", "yield", "--to", str(wanted))
    assert said.startswith(f"Node {first} led; node {wanted} leads now")
    led = await asyncio.to_thread(cluster.wait_for_leader)
    assert led is cluster.nodes[wanted - 1]
    await asyncio.to_thread(agree, cluster)
    again = await asyncio.to_thread(done, "-s", url, "cluster", "yield")
    assert again.startswith(f"Node {wanted} led; node ")
    refused = await asyncio.to_thread(mq9, "-s", url, "cluster", "yield", "--to", "9")
    assert refused.returncode == 1
    assert "node 9 does not follow" in refused.stderr


async def test_a_node_that_lost_its_folder_joins_with_a_copy(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    await filled(cluster, 50)
    await asyncio.to_thread(agree, cluster)
    leader = await asyncio.to_thread(cluster.wait_for_leader)
    lost, source = (node for node in cluster.nodes if node is not leader)
    lost.end()
    shutil.rmtree(data(lost))
    # While the node it is copied from, and the leader, go on.
    sending = asyncio.create_task(filled(cluster, 100, "more"))
    backup = tmp_path / "backup"
    said = await asyncio.to_thread(done, "cluster", "backup", data(source), backup)
    assert "It holds the log up to message " in said
    joined = await asyncio.to_thread(
        done, "--json", "cluster", "join", data(lost), "--from", backup
    )
    assert json.loads(joined)["sequence"] > 50
    assert (data(lost) / "token.secret").read_bytes() == (
        data(leader) / "token.secret"
    ).read_bytes()
    await sending
    lost.start()
    await asyncio.to_thread(agree, cluster)
    refused = await asyncio.to_thread(mq9, "cluster", "join", data(lost), "--from", backup)
    assert "is not empty" in refused.stderr
    # It can lead with what it has.
    url = f"nats://127.0.0.1:{leader.port}"
    number = str(cluster.nodes.index(lost) + 1)
    yields = ("-s", url, "cluster", "yield", "--to", number)
    # On a busy machine it may be a while until the leader has heard of it.
    await asyncio.to_thread(
        until,
        lambda: lost.health().get("role") == "leading" or mq9(*yields).returncode == 0,
        "it leads",
        60,
    )
    assert len(await holds(lost, "box")) == 50
    assert len(await holds(lost, "more")) == 100


def alone(node: Process, folder: Path) -> Process:
    """A single server on a node's port."""
    file = folder / "alone.conf"
    file.write_text(
        f'listen: "127.0.0.1:{node.port}"\nmq9 {{ data: "{data(node)}", management: off }}\n'
    )
    command = [sys.executable, "-m", "mq9", "serve", "-c", str(file)]
    return Process("alone", node.port, command, folder / "alone.log")


async def alone_holds(server: Process, *, send: str | None = None) -> list[str]:
    client = None
    while client is None:
        assert server.running is not None
        assert server.running.poll() is None, server.log.read_text()
        try:
            client = await nats.connect(
                f"nats://127.0.0.1:{server.port}", allow_reconnect=False, connect_timeout=10
            )
        except OSError:
            await asyncio.sleep(0.05)
    if send is not None:
        await ask_until_done(client, "MAILBOX.CREATE", b'{"name": "box"}') if send == "0" else None
        assert not (await ask(client, "MSG.SEND.box", send.encode()))["error"]
    found = await stored(client, "box")
    await client.close()
    return found


async def test_one_server_becomes_three_nodes_and_one_again(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path / "cluster", lease_ms=1_500)
    first, *others = cluster.nodes
    server = alone(first, tmp_path)
    try:
        server.start()
        assert await alone_holds(server, send="0") == ["0"]
        server.end()
        # It is not taken for a node's.
        for process in cluster.servers:
            process.start()
        first.start()
        assert first.running is not None
        assert await asyncio.to_thread(first.running.wait, 30) == 1
        said = first.log.read_text()
        assert "mq9 cluster seed" in said
        assert "Traceback" not in said
        await asyncio.to_thread(done, "cluster", "seed", data(first))
        for node in others:
            shutil.rmtree(data(node))
            await asyncio.to_thread(done, "cluster", "join", data(node), "--from", data(first))
        for node in cluster.nodes:
            node.start()
        await asyncio.to_thread(cluster.wait_for_leader)
        await asyncio.to_thread(agree, cluster)
        client = await connected(*cluster.nodes)
        await ask_until_done(client, "MSG.SEND.box", b"1")
        assert await stored(client, "box") == ["0", "1"]
        await client.close()
        await asyncio.to_thread(agree, cluster)
        await asyncio.to_thread(cluster.stop)
        # It is not taken for a single server's either, and goes on as one after it left.
        server.start()
        assert server.running is not None
        assert await asyncio.to_thread(server.running.wait, 30) == 1
        assert "mq9 cluster leave" in server.log.read_text()
        await asyncio.to_thread(done, "cluster", "leave", data(first))
        server.start()
        assert await alone_holds(server, send="2") == ["0", "1", "2"]
    finally:
        server.end()
        cluster.stop()


async def test_a_stream_that_is_gone_is_begun_anew(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path, lease_ms=1_500)
    try:
        cluster.start()
        await filled(cluster, 20)
        await asyncio.to_thread(agree, cluster)
        await asyncio.to_thread(cluster.stop)
        for server in cluster.servers:
            shutil.rmtree(config_of(server).parent / "data")
        first, *others = cluster.nodes
        said = await asyncio.to_thread(done, "cluster", "reseed", data(first))
        assert "begins a new stream" in said
        for node in others:
            shutil.rmtree(data(node))
            await asyncio.to_thread(done, "cluster", "join", data(node), "--from", data(first))
        await asyncio.to_thread(cluster.start)
        await asyncio.to_thread(agree, cluster)
        client = await connected(*cluster.nodes)
        assert await stored(client, "box") == [str(number) for number in range(20)]
        await client.close()
    finally:
        cluster.stop()


async def test_a_node_without_data_begins_no_stream_while_others_hold_the_last_one(
    tmp_path: Path,
) -> None:
    cluster = LocalCluster(tmp_path, lease_ms=1_500)
    try:
        cluster.start()
        await filled(cluster, 20)
        await asyncio.to_thread(agree, cluster)
        await asyncio.to_thread(cluster.stop)
        empty, *others = cluster.nodes
        for node in cluster.nodes:
            node.log.unlink()
        for server in cluster.servers:
            shutil.rmtree(config_of(server).parent / "data")
        secret = (data(empty) / "token.secret").read_bytes()
        shutil.rmtree(data(empty))
        data(empty).mkdir(mode=0o700)
        (data(empty) / "token.secret").write_bytes(secret)
        (data(empty) / "token.secret").chmod(0o600)
        # It is there before those that hold something.
        for process in (*cluster.servers, empty):
            process.start()
        alone = "there is no stream yet: it is made once 2 of the 3 nodes are here"
        await asyncio.to_thread(until, lambda: alone in empty.log.read_text(), alone, 60)
        for node in others:
            node.start()
        told = "makes no new one"
        await asyncio.to_thread(until, lambda: told in empty.log.read_text(), told, 60)
        held = "the stream is gone, but this node holds what was in it"
        for node in others:
            await asyncio.to_thread(until, lambda n=node: held in n.log.read_text(), held, 60)
        for node in cluster.nodes:
            assert node.health()["stream"] is False
            assert "This node leads" not in node.log.read_text()
    finally:
        cluster.stop()
