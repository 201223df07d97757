"""How long nothing is confirmed when the node that leads is killed: a sender that counts."""

import asyncio
import json
import os
import signal
import time

import nats
from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats_runs import BenchError

from mq9.cluster.local import LocalCluster

_BEFORE = 50
_PATIENCE_S = 60.0


class _Sender:
    """Sends one message after the other, each until it is confirmed."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.confirmed = 0
        self.last = time.monotonic()
        self.gap_s = 0.0
        self.over = False
        """Whether to send no more: a request that is cancelled as its answer comes goes on."""

    async def run(self) -> None:
        while not self.over:
            if not await self._send(self.confirmed):
                await asyncio.sleep(0.01)
                continue
            now = time.monotonic()
            self.gap_s, self.last = max(self.gap_s, now - self.last), now
            self.confirmed += 1

    async def _send(self, number: int) -> bool:
        try:
            answer = await self._client.request(
                "$mq9.AI.MSG.SEND.failover",
                b"x",
                timeout=0.5,
                headers={"mq9-id": str(number)},
            )
        except (TimeoutError, NatsError, ConnectionError):
            return False
        return not json.loads(answer.data)["error"]

    async def more(self, count: int) -> None:
        """Wait until so many more are confirmed."""
        wanted, until = self.confirmed + count, time.monotonic() + _PATIENCE_S
        while self.confirmed < wanted:
            if time.monotonic() > until:
                raise BenchError("nothing is confirmed any more after a leader was killed")
            await asyncio.sleep(0.01)


def gaps(cluster: LocalCluster, kills: int) -> list[float]:
    """Seconds without a confirmation, for each leader that is killed; it is started again."""
    return asyncio.run(_gaps(cluster, kills))


async def _gaps(cluster: LocalCluster, kills: int) -> list[float]:
    client = await nats.connect(
        servers=[f"nats://127.0.0.1:{node.port}" for node in cluster.nodes],
        reconnect_time_wait=0.1,
        max_reconnect_attempts=-1,
        connect_timeout=1,
    )
    body = json.dumps({"name": "failover", "dedup_window": 600}).encode()
    await client.request("$mq9.AI.MAILBOX.CREATE", body, timeout=10)
    sender = _Sender(client)
    sending = asyncio.create_task(sender.run())
    found = []
    for _ in range(kills):
        await sender.more(_BEFORE)
        leader = await asyncio.to_thread(cluster.wait_for_leader, _PATIENCE_S)
        # A node that has just come back is no candidate yet.
        await asyncio.sleep(2.0)
        sender.gap_s = 0.0
        os.kill(leader.pid, signal.SIGKILL)
        await asyncio.to_thread(leader.end)
        await sender.more(_BEFORE)
        found.append(sender.gap_s)
        leader.start()
    sender.over = True
    await sending
    await client.close()
    return found
