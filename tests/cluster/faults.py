"""Random faults of nodes and nats-servers under load, and a table of what they came to.

`make faults-cluster N=100`. Clients keep a ledger of what they were told; at the end all of it
must be true.
"""

import argparse
import asyncio
import contextlib
import json
import logging
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nats
from nats.aio.client import Client
from nats.errors import Error as NatsError

from mq9.cluster.local import LocalCluster, Process

_SENDERS = 4
_WORKERS = 2
_QUIET_S = 1.5
_CREATE = b'{"name": "box", "ack_wait": 5}'


@dataclass
class Ledger:
    """What clients were told."""

    sent: set[str] = field(default_factory=set)
    confirmed_acks: set[str] = field(default_factory=set)
    got: set[str] = field(default_factory=set)
    again: list[str] = field(default_factory=list)
    last_confirmed: float = 0.0
    gap_s: float = 0.0

    def confirm(self, uid: str) -> None:
        now = time.monotonic()
        if self.last_confirmed:
            self.gap_s = max(self.gap_s, now - self.last_confirmed)
        self.last_confirmed = now
        self.sent.add(uid)


class Load:
    """Clients that send, fetch and acknowledge until they are told to stop."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self._stop = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self.ledger = Ledger()

    async def client(self) -> Client:
        return await nats.connect(
            servers=[f"nats://127.0.0.1:{node.port}" for node in self._cluster.nodes],
            reconnect_time_wait=0.1,
            max_reconnect_attempts=-1,
            connect_timeout=1,
            ping_interval=1,
            max_outstanding_pings=2,
        )

    async def start(self) -> None:
        first = await self.client()
        await _until_done(first, "MAILBOX.CREATE", _CREATE)
        await _until_done(first, "MSG.FETCH.box", _fetch(0))
        await first.close()
        work = [self._send(number) for number in range(_SENDERS)]
        work += [self._work() for _ in range(_WORKERS)]
        self._tasks = [asyncio.create_task(one) for one in work]

    async def stop(self) -> None:
        self._stop.set()
        await asyncio.gather(*self._tasks)

    async def _send(self, sender: int) -> None:
        client, number = await self.client(), 0
        while not self._stop.is_set():
            number += 1
            uid = f"{sender}-{number}"
            answer = await _ask(client, "MSG.SEND.box", uid.encode())
            if answer is not None and not answer.get("error"):
                self.ledger.confirm(uid)
            else:
                await asyncio.sleep(0.02)
        await client.close()

    async def _work(self) -> None:
        client = await self.client()
        while not self._stop.is_set():
            await self._take(client, 200)
        await client.close()

    async def _take(self, client: Client, wait_ms: int) -> int:
        """Fetch, and acknowledge each by itself; how many there were."""
        ledger = self.ledger
        known = set(ledger.confirmed_acks)
        answer = await _ask(client, "MSG.FETCH.box", _fetch(wait_ms))
        if answer is None or answer.get("error"):
            await asyncio.sleep(0.02)
            return -1
        messages = answer["messages"]
        if not messages:
            return 0
        uids = [message["payload"] for message in messages]
        ledger.again += [uid for uid in uids if uid in known]
        ledger.got.update(uids)
        ids = [message["msg_id"] for message in messages]
        body = {"group_name": "g", "msg_ids": ids, "only": True}
        acked = await _ask(client, "MSG.ACK.box", json.dumps(body).encode())
        if acked is not None and not acked.get("error"):
            ledger.confirmed_acks.update(uids)
        return len(messages)

    async def check(self) -> list[str]:
        """What was promised and is not so."""
        client, ledger = await self.client(), self.ledger
        until, idle = time.monotonic() + 60, 0
        while idle < 2 and time.monotonic() < until:
            # Twice as long as what somebody held and did not acknowledge may take to come back.
            idle = idle + 1 if await self._take(client, 5_500) == 0 else 0
        found: list[str] = []
        after = 0
        while True:
            body = {
                "deliver": "from_id",
                "from_id": after,
                "config": {"num_msgs": 5000, "max_wait_ms": 0},
            }
            page = await _until_done(client, "MSG.FETCH.box", json.dumps(body).encode())
            if not page["messages"]:
                break
            found += [message["payload"] for message in page["messages"]]
            after = page["messages"][-1]["msg_id"] + 1
        await client.close()
        wrong = []
        if lost := ledger.sent - set(found):
            wrong.append(f"{len(lost)} confirmed messages are gone, such as {min(lost)}")
        if len(found) != len(set(found)):
            wrong.append(f"{len(found) - len(set(found))} messages are there twice")
        if kept := ledger.sent - ledger.got:
            wrong.append(f"{len(kept)} confirmed messages were not delivered, such as {min(kept)}")
        if ledger.again:
            wrong.append(f"{len(ledger.again)} came again after their ACK was confirmed")
        order: dict[str, int] = defaultdict(int)
        for uid in found:
            sender, number = uid.split("-")
            if int(number) < order[sender]:
                wrong.append(f"{uid} lies behind a later one of its sender")
            order[sender] = int(number)
        return wrong


def _fetch(wait_ms: int) -> bytes:
    config = {"num_msgs": 50, "max_wait_ms": wait_ms}
    return json.dumps({"group_name": "g", "deliver": "earliest", "config": config}).encode()


async def _ask(client: Client, command: str, body: bytes) -> dict[str, Any] | None:
    try:
        answer = await client.request(
            f"$mq9.AI.{command}", body, timeout=1.0 if command.startswith("MSG.SEND") else 8.0
        )
    except (TimeoutError, NatsError, ConnectionError):
        return None
    found: dict[str, Any] = json.loads(answer.data)
    return found


async def _until_done(client: Client, command: str, body: bytes) -> dict[str, Any]:
    for _ in range(600):
        answer = await _ask(client, command, body)
        if answer is not None and not answer.get("error"):
            return answer
        await asyncio.sleep(0.05)
    raise RuntimeError(f"{command} was never done")


Fault = Callable[[LocalCluster, random.Random], "asyncio.Future[None] | Any"]


async def _kill(process: Process) -> None:
    os.kill(process.pid, signal.SIGKILL)
    await asyncio.to_thread(process.end)
    await asyncio.sleep(_QUIET_S)
    process.start()


async def _pause(process: Process, seconds: float) -> None:
    os.kill(process.pid, signal.SIGSTOP)
    await asyncio.sleep(seconds)
    os.kill(process.pid, signal.SIGCONT)


async def _leader(cluster: LocalCluster) -> Process:
    return await asyncio.to_thread(cluster.wait_for_leader, 40.0)


async def _follower(cluster: LocalCluster, dice: random.Random) -> Process:
    leader = await _leader(cluster)
    return dice.choice([node for node in cluster.nodes if node is not leader])


async def kill_leader(cluster: LocalCluster, _dice: random.Random) -> None:
    await _kill(await _leader(cluster))


async def pause_leader(cluster: LocalCluster, dice: random.Random) -> None:
    await _pause(await _leader(cluster), dice.uniform(4.5, 6.0))


async def stop_leader(cluster: LocalCluster, _dice: random.Random) -> None:
    leader = await _leader(cluster)
    await asyncio.to_thread(leader.end)
    await asyncio.sleep(_QUIET_S)
    leader.start()


async def kill_follower(cluster: LocalCluster, dice: random.Random) -> None:
    await _kill(await _follower(cluster, dice))


async def kill_server(cluster: LocalCluster, dice: random.Random) -> None:
    await _kill(dice.choice(cluster.servers))


async def pause_server(cluster: LocalCluster, dice: random.Random) -> None:
    await _pause(dice.choice(cluster.servers), dice.uniform(3.0, 8.0))


FAULTS = {
    "kill -9 of the leader": kill_leader,
    "SIGSTOP of the leader, longer than its lease": pause_leader,
    "SIGTERM of the leader": stop_leader,
    "kill -9 of a follower": kill_follower,
    "kill -9 of a nats-server": kill_server,
    "SIGSTOP of a nats-server, 3 to 8 s": pause_server,
}


async def run(folder: Path, count: int, seed: int) -> int:
    """So many faults, one after the other; 1 if a promise was broken."""
    dice = random.Random(seed)
    cluster = LocalCluster(folder)
    gaps: dict[str, list[float]] = defaultdict(list)
    try:
        await asyncio.to_thread(cluster.start)
        load = Load(cluster)
        await load.start()
        for number in range(count):
            name = (
                list(FAULTS)[number % len(FAULTS)]
                if count >= len(FAULTS)
                else dice.choice(list(FAULTS))
            )
            await _settle(load, len(load.ledger.sent))
            load.ledger.gap_s, before = 0.0, len(load.ledger.sent)
            await FAULTS[name](cluster, dice)
            await _leader(cluster)
            await _settle(load, before)
            gaps[name].append(load.ledger.gap_s)
            _say(
                f"{number + 1}: {name}: {load.ledger.gap_s:.2f} s",
            )
        await load.stop()
        wrong = await load.check()
        wrong += await asyncio.to_thread(_differences, cluster)
    finally:
        await asyncio.to_thread(cluster.stop)
    _say("| fault | runs | gap in writes, p50 | max |\n| --- | ---: | ---: | ---: |")
    for name, found in gaps.items():
        _say(f"| {name} | {len(found)} | {statistics.median(found):.2f} s | {max(found):.2f} s |")
    ledger = load.ledger
    _say(
        f"\n{len(ledger.sent)} confirmed, {len(ledger.confirmed_acks)} acknowledged, seed {seed}: "
        + ("; ".join(wrong) if wrong else "nothing lost, nothing twice, order kept, digests equal")
    )
    return 1 if wrong else 0


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


async def _settle(load: Load, before: int) -> None:
    """Until messages are confirmed again, and a little longer."""
    for _ in range(800):
        if len(load.ledger.sent) >= before + 20:
            break
        await asyncio.sleep(0.05)
    now = time.monotonic()
    load.ledger.gap_s = max(load.ledger.gap_s, now - load.ledger.last_confirmed)
    await asyncio.sleep(_QUIET_S)


def _differences(cluster: LocalCluster) -> list[str]:
    """Nodes that hold something else at the same place of the log, or do not catch up."""
    digests: dict[int, set[str]] = defaultdict(set)
    until = time.monotonic() + 20
    while time.monotonic() < until:
        healths = [node.health() for node in cluster.nodes]
        for health in healths:
            if health.get("sequence"):
                digests[health["sequence"]].add(health["digest"])
        shared = {health.get("sequence") for health in healths}
        if any(len(found) > 1 for found in digests.values()):
            return ["digests differ"]
        if len(shared) == 1 and None not in shared:
            return []
        time.sleep(0.02)
    return [f"nodes do not meet: {healths}"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mq9-faults-")))
        return asyncio.run(run(folder, arguments.faults, arguments.seed))


if __name__ == "__main__":
    sys.exit(main())
