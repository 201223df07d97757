"""SIGHUP at a node that follows: it holds once the node leads, in that term and in later ones."""

import asyncio
import functools
import json
import os
import signal
import socket
import time

from tests.cluster.links import config_of
from tests.cluster.test_folders import done
from tests.cluster.test_nodes import agree

from mq9.cluster.local import LocalCluster, Process

_USERS = """
authorization {
  users: [{ user: agent, password: swordfish, permissions: {
    publish: [">", "$mq9.AI.ADMIN.>"], subscribe: ">" } }]
}
"""


def reload(node: Process, text: str, said: str) -> None:
    """Write its configuration, and wait until it says this once more."""
    before = node.log.read_text().count(said)
    config_of(node).write_text(text)
    os.kill(node.pid, signal.SIGHUP)
    until = time.monotonic() + 20
    while node.log.read_text().count(said) == before:
        assert time.monotonic() < until, node.log.read_text()[-2000:]
        time.sleep(0.05)


def enters(node: Process, **credentials: str) -> bool:
    """Whether a client is let in there."""
    with (
        socket.create_connection((node.host, node.port), timeout=20) as client,
        client.makefile("rb") as said,
    ):
        assert said.readline().startswith(b"INFO ")
        options = json.dumps({"verbose": False, **credentials})
        client.sendall(f"CONNECT {options}\r\nPING\r\n".encode())
        return said.readline() == b"PONG\r\n"


async def test_what_followers_reload_holds_once_they_lead(cluster: LocalCluster) -> None:
    first = await asyncio.to_thread(cluster.wait_for_leader)
    assert await asyncio.to_thread(enters, first)
    texts = {node.port: config_of(node).read_text() for node in cluster.nodes}
    for node in cluster.nodes:
        reload(node, texts[node.port] + _USERS, "Reloaded server configuration")
    # What cannot be used changes nothing, at a follower either.
    follower = next(node for node in cluster.nodes if node is not first)
    reload(follower, texts[follower.port] + "authorization {", "Failed to reload")
    config_of(follower).write_text(texts[follower.port])
    led = []
    for _ in range(2):
        # Each node leads once, and the first one again: it was demoted since its reload.
        for number, node in enumerate(cluster.nodes, 1):
            leader = await asyncio.to_thread(cluster.wait_for_leader)
            if node is not leader:
                url = leader.url.replace("nats://", "nats://agent:swordfish@")
                await asyncio.to_thread(done, "-s", url, "cluster", "yield", "--to", str(number))
            led.append(await asyncio.to_thread(cluster.wait_for_leader))
            assert led[-1] is node
            assert not await asyncio.to_thread(enters, node), node.log.read_text()
            known = functools.partial(enters, node, **{"user": "agent", "pass": "swordfish"})
            assert await asyncio.to_thread(known)
            await asyncio.to_thread(agree, cluster)
    assert {node.port for node in led} == {node.port for node in cluster.nodes}
