"""Nodes on real nats-servers: any of them serves, and what was confirmed outlives any of them."""

import asyncio
import json
import os
import signal
import socket
import time
from typing import Any

import nats
import pytest
from nats.aio.client import Client
from nats.errors import Error as NatsError
from tests.cluster.links import config_of

from mq9.cluster.local import LocalCluster, Process

# The client of these tests leaves sockets behind when a server that it tries is gone.
pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)


async def connected(*nodes: Process) -> Client:
    """A client that knows these nodes."""
    return await nats.connect(
        servers=[f"nats://127.0.0.1:{node.port}" for node in nodes],
        reconnect_time_wait=0.1,
        max_reconnect_attempts=-1,
        connect_timeout=1,
        dont_randomize=True,
    )


async def ask(client: Client, command: str, body: bytes, patience_s: float = 2.0) -> dict[str, Any]:
    """One request; its answer."""
    answer = await client.request(f"$mq9.AI.{command}", body, timeout=patience_s)
    found: dict[str, Any] = json.loads(answer.data)
    return found


async def ask_until_done(client: Client, command: str, body: bytes) -> dict[str, Any]:
    """The same, again and again until it is not refused."""
    for _ in range(200):
        try:
            answer = await ask(client, command, body)
        except (TimeoutError, NatsError):
            await asyncio.sleep(0.05)
            continue
        if not answer.get("error"):
            return answer
        await asyncio.sleep(0.05)
    raise AssertionError(f"{command} was never done")


def agree(cluster: LocalCluster, timeout_s: float = 20.0) -> None:
    """Wait until all nodes stand at one place, and hold the same."""
    until = time.monotonic() + timeout_s
    seen: dict[int, set[str]] = {}
    while time.monotonic() < until:
        healths = [node.health() for node in cluster.nodes]
        for health in healths:
            if health.get("sequence"):
                seen.setdefault(health["sequence"], set()).add(health["digest"])
        if all(health.get("sequence") for health in healths):
            assert all(len(digests) == 1 for digests in seen.values()), seen
            if max(h["sequence"] for h in healths) - min(h["sequence"] for h in healths) <= 1:
                return
        time.sleep(0.05)
    raise AssertionError(f"the nodes do not meet: {[node.health() for node in cluster.nodes]}")


async def stored(client: Client, mailbox: str) -> list[str]:
    """The payloads in a mailbox, in order, however many pages that takes."""
    found: list[dict[str, Any]] = []
    while True:
        where = {"after_id": found[-1]["msg_id"]} if found else {"since": 0}
        page = json.dumps(where | {"limit": 1000}).encode()
        answer = await ask_until_done(client, f"MSG.QUERY.{mailbox}", page)
        if not answer["messages"]:
            return [message["payload"] for message in found]
        found += answer["messages"]


class Sender:
    """Sends numbers one after the other, and keeps those that were confirmed."""

    def __init__(self, client: Client, mailbox: str) -> None:
        self._client, self._mailbox = client, mailbox
        self.confirmed: list[str] = []
        self.gap_s = 0.0
        self._stop = False

    async def run(self) -> None:
        number, last = 0, time.monotonic()
        while not self._stop:
            number += 1
            try:
                answer = await ask(
                    self._client, f"MSG.SEND.{self._mailbox}", str(number).encode(), 1.0
                )
            except (TimeoutError, NatsError):
                await asyncio.sleep(0.02)
                continue
            if answer.get("error"):
                await asyncio.sleep(0.02)
                continue
            now = time.monotonic()
            self.gap_s, last = max(self.gap_s, now - last), now
            self.confirmed.append(str(number))

    def stop(self) -> None:
        self._stop = True


async def test_every_node_serves_and_tells_of_the_others(cluster: LocalCluster) -> None:
    first = await connected(*cluster.nodes)
    await ask_until_done(first, "MAILBOX.CREATE", b'{"name": "shared"}')
    addresses = {f"127.0.0.1:{node.port}" for node in cluster.nodes}
    for index, node in enumerate(cluster.nodes):
        client = await connected(node)
        assert set(client._server_info["connect_urls"]) == addresses
        answer = await ask_until_done(client, "MSG.SEND.shared", str(index).encode())
        assert answer["msg_id"] == index
        await client.close()
    assert await stored(first, "shared") == ["0", "1", "2"]
    # What is published reaches clients of all nodes.
    listener = await connected(cluster.nodes[2])
    heard = await listener.subscribe("plain")
    await listener.flush()
    await first.publish("plain", b"hello")
    assert (await heard.next_msg(2)).data == b"hello"
    await listener.close()
    await first.close()
    agree(cluster)
    roles = sorted(node.health()["role"] for node in cluster.nodes)
    assert roles == ["following", "following", "leading"]


async def fail_over(cluster: LocalCluster, fault: str) -> Sender:
    client = await connected(*cluster.nodes)
    await ask_until_done(client, "MAILBOX.CREATE", b'{"name": "box"}')
    sender = Sender(client, "box")
    sending = asyncio.create_task(sender.run())
    await asyncio.sleep(1.0)
    leader = await asyncio.to_thread(cluster.wait_for_leader)
    before = len(sender.confirmed)
    if fault == "kill":
        os.kill(leader.pid, signal.SIGKILL)
        leader.end()
    elif fault == "stop":
        os.kill(leader.pid, signal.SIGSTOP)
    else:
        leader.end()
    until = time.monotonic() + 15
    while len(sender.confirmed) < before + 200 and time.monotonic() < until:
        if fault == "stop" and cluster_has_new_leader(cluster, leader):
            os.kill(leader.pid, signal.SIGCONT)
            fault = "continued"
        await asyncio.sleep(0.05)
    if leader.running is None:
        leader.start()
    else:
        os.kill(leader.pid, signal.SIGCONT)
    sender.stop()
    await sending
    assert len(sender.confirmed) > before, "nothing was confirmed after the fault"
    await asyncio.to_thread(agree, cluster)
    found = await stored(client, "box")
    missing = set(sender.confirmed) - set(found)
    assert not missing, f"{len(missing)} of {len(sender.confirmed)} are gone"
    assert len(found) == len(set(found))
    numbers = [int(payload) for payload in found]
    assert numbers == sorted(numbers)
    await client.close()
    return sender


def cluster_has_new_leader(cluster: LocalCluster, old: Process) -> bool:
    """Whether another node says that it leads."""
    others = [node for node in cluster.nodes if node is not old]
    return any(node.health().get("role") == "leading" for node in others)


async def test_what_was_confirmed_outlives_a_leader_that_is_killed(cluster: LocalCluster) -> None:
    sender = await fail_over(cluster, "kill")
    # A lease, its spread, and a client that finds its way, beside whatever the machine does. The
    # benchmark says how long that takes.
    assert sender.gap_s < 20.0


async def test_a_leader_that_was_stopped_for_a_while_follows(cluster: LocalCluster) -> None:
    await fail_over(cluster, "stop")


async def test_a_leader_that_ends_in_order_gives_its_lead_away(cluster: LocalCluster) -> None:
    sender = await fail_over(cluster, "end")
    assert sender.gap_s < 2.0


async def test_a_client_that_reads_nothing_does_not_keep_the_lead_from_the_next_node(
    made: LocalCluster,
) -> None:
    for node in made.nodes:
        file = config_of(node)
        # So long a leader that ends waits for its clients to take what they were told.
        patient = 'write_deadline: "60s"\nmq9 {\n  drain_time: "60s"'
        file.write_text(file.read_text().replace("mq9 {", patient))
    try:
        await asyncio.to_thread(made.start)
        leader = await asyncio.to_thread(made.wait_for_leader)
        with socket.create_connection(("127.0.0.1", leader.port)) as silent:
            silent.sendall(b'CONNECT {"verbose":false}\r\nSUB much 1\r\nPING\r\n')
            said = b""
            while b"PONG\r\n" not in said:
                said += silent.recv(65_536)
            client = await connected(leader)
            for _ in range(24):
                await client.publish("much", bytes(1 << 20))
            await client.flush(30)
            await client.close()
            assert leader.running is not None
            leader.running.terminate()
            leads = await asyncio.to_thread(_next_leader, made, leader)
            assert leads, "nobody leads while a client of the last leader reads nothing"
            assert leader.running.poll() is None
    finally:
        made.stop()


def _next_leader(cluster: LocalCluster, old: Process) -> bool:
    until = time.monotonic() + 15
    while time.monotonic() < until:
        if cluster_has_new_leader(cluster, old):
            return True
        time.sleep(0.05)
    return False
