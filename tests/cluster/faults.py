"""Random faults of nodes, nats-servers, links and disks under load, and a table of what came of it.

`make faults-cluster N=100`, with `ARGS=--report` for the table in the guide. Clients keep a ledger
of what they were told; at the end all of it must be true, and all nodes must hold the same.
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
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import nats
from nats.errors import Error as NatsError
from tests.cluster.disks import SmallDisk, send_until
from tests.cluster.links import Links, config_of
from tests.cluster.load import Load, Verdict
from tests.cluster.machines import Machines, NoMachinesError
from tests.faults.room import NoRoomError

from mq9._core import cluster_place, cluster_state
from mq9.cluster.local import LocalCluster, Process

_QUIET_S = 1.0
_PAGE = Path(__file__).parents[2] / "docs/guides/cluster.md"
_BEGIN, _END = "<!-- faults: written by make faults-cluster -->", "<!-- end of faults -->"
_LAST_WORDS = 5_000
# What a nats-server says when its disk takes nothing more.
_OUT_OF_SPACE = "will be DISABLED"
_INFO = "$JS.API.STREAM.INFO.MQ9_LOG_local"
# Nats-servers elect another leader of the stream after 4 to 10 s of silence.
_LONGER_THAN_ELECTION_S = (11.0, 14.0)


@dataclass
class Scene:
    """What faults happen to."""

    cluster: LocalCluster
    links: Links
    dice: random.Random
    disk: SmallDisk | None
    """Below one node's data, where this machine lets us mount one."""
    server_disk: SmallDisk | None
    """The same below a nats-server's."""
    machines: Machines | None
    """Networks of their own, where this machine lets us make them."""

    async def leader(self) -> Process:
        """The node that leads, once there is one."""
        return await asyncio.to_thread(self.cluster.wait_for_leader, 60.0)

    async def follower(self) -> Process:
        """One that does not."""
        leader = await self.leader()
        return self.dice.choice([node for node in self.cluster.nodes if node is not leader])

    async def stream_leader(self) -> Process:
        """The nats-server that leads the stream."""
        servers = self.cluster.servers
        client = await nats.connect([each.url for each in servers], max_reconnect_attempts=-1)
        try:
            for _ in range(600):
                with contextlib.suppress(TimeoutError, NatsError):
                    answer = await client.request(_INFO, b"", timeout=1)
                    named = json.loads(answer.data).get("cluster", {}).get("leader")
                    if named:
                        return servers[int(named.removeprefix("s")) - 1]
                await asyncio.sleep(0.1)
        finally:
            await client.close()
        raise RuntimeError("no nats-server leads the stream")

    async def stream_follower(self) -> Process:
        """One that does not."""
        leader = await self.stream_leader()
        return self.dice.choice([each for each in self.cluster.servers if each is not leader])


async def _kill(process: Process) -> None:
    os.kill(process.pid, signal.SIGKILL)
    await asyncio.to_thread(process.end)
    await asyncio.sleep(_QUIET_S)
    process.start()


async def _pause(process: Process, seconds: float) -> None:
    os.kill(process.pid, signal.SIGSTOP)
    await asyncio.sleep(seconds)
    os.kill(process.pid, signal.SIGCONT)


async def _cut(scene: Scene, node: Process, seconds: float) -> None:
    scene.links.cut(node)
    await asyncio.sleep(seconds)
    scene.links.mend(node)


async def _part(scene: Scene, node: Process, seconds: float) -> None:
    machines = scene.machines
    assert machines is not None
    machines.cut(node)
    await asyncio.sleep(seconds)
    machines.mend(node)


async def kill_leader(scene: Scene) -> None:
    """Its lease has to pass."""
    await _kill(await scene.leader())


async def pause_leader(scene: Scene) -> None:
    """Longer than its lease: it still believes that it leads."""
    await _pause(await scene.leader(), scene.dice.uniform(4.5, 6.0))


async def cut_leader(scene: Scene) -> None:
    """It reaches its clients, and no nats-server."""
    await _cut(scene, await scene.leader(), scene.dice.uniform(4.5, 8.0))


async def part_leader(scene: Scene) -> None:
    """It reaches nobody at all, and nobody reaches it."""
    await _part(scene, await scene.leader(), scene.dice.uniform(4.5, 8.0))


async def stop_leader(scene: Scene) -> None:
    """In order."""
    leader = await scene.leader()
    await asyncio.to_thread(leader.end)
    await asyncio.sleep(_QUIET_S)
    leader.start()


async def kill_follower(scene: Scene) -> None:
    """Nobody else waits for it."""
    await _kill(await scene.follower())


async def pause_follower(scene: Scene) -> None:
    """Its clients wait, and it has much to apply afterwards."""
    await _pause(await scene.follower(), scene.dice.uniform(3.0, 6.0))


async def cut_follower(scene: Scene) -> None:
    """It wants to lead and cannot."""
    await _cut(scene, await scene.follower(), scene.dice.uniform(3.0, 8.0))


async def part_follower(scene: Scene) -> None:
    """The same, of one that does not lead."""
    await _part(scene, await scene.follower(), scene.dice.uniform(3.0, 8.0))


async def kill_stream_leader(scene: Scene) -> None:
    """The others have to elect another one."""
    await _kill(await scene.stream_leader())


async def kill_stream_follower(scene: Scene) -> None:
    """The other two are enough."""
    await _kill(await scene.stream_follower())


async def pause_stream_leader(scene: Scene) -> None:
    """When it goes on, another leads."""
    await _pause(await scene.stream_leader(), scene.dice.uniform(*_LONGER_THAN_ELECTION_S))


async def pause_server(scene: Scene) -> None:
    """Perhaps the one that leads the stream, and perhaps it still does afterwards."""
    await _pause(scene.dice.choice(scene.cluster.servers), scene.dice.uniform(3.0, 8.0))


async def fill_disk(scene: Scene) -> None:
    """Of a follower: it goes on when there is room again."""
    disk = scene.disk
    assert disk is not None
    while await scene.leader() is disk.node:
        # A leader whose disk is full refuses messages, and goes on leading.
        await asyncio.to_thread(disk.node.end)
        disk.node.start()
    await asyncio.to_thread(disk.fill)
    await send_until(scene.cluster.urls, disk.is_noticed)
    await asyncio.sleep(scene.dice.uniform(1.0, 3.0))
    await asyncio.to_thread(disk.empty)


async def fill_leader(scene: Scene) -> None:
    """It leaves the lead to a node that has room, and follows when it has room itself."""
    disk, cluster = scene.disk, scene.cluster
    assert disk is not None
    while (leader := await scene.leader()) is not disk.node:
        # It gives its lead to one of the others.
        await asyncio.to_thread(leader.end)
        leader.start()
    await asyncio.to_thread(disk.fill)
    others = [node for node in cluster.nodes if node is not disk.node]
    await send_until(
        cluster.urls, lambda: any(each.health().get("role") == "leading" for each in others)
    )
    await asyncio.sleep(scene.dice.uniform(1.0, 3.0))
    await asyncio.to_thread(disk.empty)


async def fill_server(scene: Scene) -> None:
    """It keeps no stream any more until it is started again with room on its disk."""
    disk = scene.server_disk
    assert disk is not None
    before = disk.node.log.read_text().count(_OUT_OF_SPACE)
    await asyncio.to_thread(disk.fill)
    await send_until(
        scene.cluster.urls, lambda: disk.node.log.read_text().count(_OUT_OF_SPACE) > before
    )
    await asyncio.sleep(scene.dice.uniform(1.0, 3.0))
    await asyncio.to_thread(disk.empty)
    await asyncio.to_thread(disk.node.end)
    disk.node.start()


async def part_stream_leader(scene: Scene) -> None:
    """It believes that it leads, and confirms nothing."""
    server = await scene.stream_leader()
    await _part(scene, server, scene.dice.uniform(*_LONGER_THAN_ELECTION_S))


Fault = Callable[[Scene], Awaitable[None]]
FAULTS: dict[str, Fault] = {
    "kill -9 of the leader": kill_leader,
    "SIGSTOP of the leader, longer than its lease": pause_leader,
    "the leader's links to all nats-servers cut": cut_leader,
    "the leader's network namespace cut off": part_leader,
    "SIGTERM of the leader": stop_leader,
    "kill -9 of a follower": kill_follower,
    "SIGSTOP of a follower, 3 to 6 s": pause_follower,
    "a follower's links to all nats-servers cut": cut_follower,
    "a follower's network namespace cut off": part_follower,
    "the disk of a follower full": fill_disk,
    "the disk of the leader full": fill_leader,
    "the disk of a nats-server full": fill_server,
    "network namespace of the stream's leading nats-server cut off, 11 to 14 s": part_stream_leader,
    "kill -9 of the stream's leading nats-server": kill_stream_leader,
    "kill -9 of another nats-server": kill_stream_follower,
    "SIGSTOP of the stream's leading nats-server, 11 to 14 s": pause_stream_leader,
    "SIGSTOP of a nats-server, 3 to 8 s": pause_server,
}


@dataclass
class Result:
    """What a run came to."""

    names: list[str] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)
    verdict: Verdict = field(default_factory=Verdict)
    confirmed: int = 0
    acked: int = 0
    pushes: int = 0
    pushed_twice: int = 0

    def table(self) -> str:
        """A row per kind of fault."""
        lines = [
            "| fault | runs | gap in writes, p50 | max | lost | doubled |",
            "| --- | ---: | ---: | ---: | ---: | ---: |",
        ]
        of: dict[str, list[int]] = defaultdict(list)
        for number, name in enumerate(self.names):
            of[name].append(number)
        for name, numbers in of.items():
            gaps = [self.gaps[number] for number in numbers]
            # What is confirmed before the next fault is put down to this one.
            lost = sum(self.verdict.lost[number + 1] for number in numbers)
            doubled = sum(self.verdict.doubled[number + 1] for number in numbers)
            lines.append(
                f"| {name} | {len(gaps)} | {statistics.median(gaps):.1f} s | {max(gaps):.1f} s "
                f"| {lost} | {doubled} |"
            )
        return "\n".join(lines)


def _chosen(scene: Scene, count: int | None) -> list[str]:
    """Every kind about equally often, in any order; each once without a count."""
    missing: set[Fault] = set()
    if scene.disk is None:
        missing |= {fill_disk, fill_leader, fill_server}
    if scene.machines is None:
        missing |= {part_leader, part_follower, part_stream_leader}
    kinds, dice = [name for name, fault in FAULTS.items() if fault not in missing], scene.dice
    if count is None:
        return dice.sample(kinds, len(kinds))
    names: list[str] = []
    while len(names) < count:
        names += dice.sample(kinds, len(kinds))
    return names[:count]


async def run(folder: Path, count: int | None, seed: int, *, insists: bool = False) -> Result:
    """So many faults, one after the other; without a count, each kind once."""
    dice, result = random.Random(seed), Result()
    cluster = LocalCluster(folder)
    disk = server_disk = None
    try:
        disk = SmallDisk.of(cluster)
        server_disk = SmallDisk.of_server(cluster)
    except NoRoomError as error:
        if insists:
            raise
        _say(f"no full disks: {error}")
    machines = None
    try:
        machines = Machines(cluster)
    except NoMachinesError as error:
        if insists:
            raise
        _say(f"no networks of their own: {error}")
    links = Links(cluster, "127.0.0.1" if machines is None else machines.host)
    scene = Scene(cluster, links, dice, disk, server_disk, machines)
    try:
        await asyncio.to_thread(cluster.start)
        load = Load(cluster)
        await load.start()
        await _settle(load, 0)
        for name in _chosen(scene, count):
            ledger = load.ledger
            ledger.gap_s, before = 0.0, len(ledger.sent["box"])
            ledger.fault, began = ledger.fault + 1, time.monotonic()
            await FAULTS[name](scene)
            await scene.leader()
            await _settle(load, before)
            result.names.append(name)
            result.gaps.append(ledger.gap_s)
            took = time.monotonic() - began
            _say(f"{ledger.fault}: {name}: {ledger.gap_s:.2f} s (took {took:.0f} s)")
        await load.stop()
        result.verdict = await load.check()
        await load.close()
        result.confirmed, result.acked = load.ledger.confirmed(), len(load.ledger.acked)
        result.pushes, result.pushed_twice = load.pushes()
        result.verdict.wrong += await asyncio.to_thread(_differences, scene)
    except Exception:
        # The files are gone afterwards.
        for process in (*cluster.servers, *cluster.nodes):
            if process.running is not None and process.running.poll() is not None:
                _say(f"{process.name} has ended:\n{process.log.read_text()[-_LAST_WORDS:]}")
        raise
    finally:
        await asyncio.to_thread(cluster.stop)
        links.close()
        if machines is not None:
            machines.close()
        for each in (disk, server_disk):
            if each is not None:
                each.close()
    return result


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


async def _settle(load: Load, before: int) -> None:
    """Until messages are confirmed again, and a little longer."""
    for _ in range(1200):
        if len(load.ledger.sent["box"]) >= before + 20:
            break
        await asyncio.sleep(0.05)
    now = time.monotonic()
    load.ledger.gap_s = max(load.ledger.gap_s, now - load.ledger.last_confirmed)
    await asyncio.sleep(_QUIET_S)


def _differences(scene: Scene) -> list[str]:
    """Nodes that hold something else at the same place of the log, or do not catch up."""
    cluster = scene.cluster
    digests: dict[int, set[str]] = defaultdict(set)
    until, met = time.monotonic() + 60, False
    while time.monotonic() < until and not met:
        healths = [node.health() for node in cluster.nodes]
        for health in healths:
            if health.get("sequence"):
                digests[health["sequence"]].add(health["digest"])
        shared = {health.get("sequence") for health in healths}
        met = len(shared) == 1 and None not in shared
        time.sleep(0.02)
    if any(len(found) > 1 for found in digests.values()):
        return ["digests of the log differ"]
    if not met:
        return [f"nodes do not meet: {healths}"]
    return _states_differ(scene)


def _states_differ(scene: Scene) -> list[str]:
    """What the stores hold, behind the last message that all of them have."""
    # All at once: none takes anything that the others did not.
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for node in scene.cluster.nodes:
            os.kill(node.pid, number)
    for node in scene.cluster.nodes:
        node.end()
    folders = [config_of(node).parent / "data" for node in scene.cluster.nodes]
    if scene.disk is not None:
        folders[-1] = scene.disk.copied()
    last = min(cluster_place(folder)[0] for folder in folders)
    states = {cluster_state(folder, last) for folder in folders}
    return [] if len(states) == 1 else [f"stores differ behind message {last}: {states}"]


def main() -> int:
    """The command line of `make faults-cluster`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", type=int, help="how many (default: each kind once)")
    parser.add_argument("--insist", action="store_true", help="fail if a kind cannot be had here")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--report", action="store_true", help="write the table into the guide")
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory(prefix="mq9-faults-") as folder:
        result = asyncio.run(
            run(Path(folder), arguments.faults, arguments.seed, insists=arguments.insist)
        )
    told = f"{result.table()}\n\n{_summary(result, arguments.seed)}"
    _say(told)
    if arguments.report:
        before, _, rest = _PAGE.read_text("utf-8").partition(_BEGIN)
        _, _, after = rest.partition(_END)
        _PAGE.write_text(f"{before}{_BEGIN}\n\n{told}\n\n{_END}{after}", "utf-8")
    return 1 if result.verdict.wrong else 0


def _summary(result: Result, seed: int) -> str:
    wrong = result.verdict.wrong
    busy, cores = os.getloadavg()[2], os.cpu_count()
    verdict = (
        "; ".join(wrong) if wrong else "none lost, none twice, all pushed, order kept, stores equal"
    )
    return (
        f"{time.strftime('%Y-%m-%d')}, seed {seed}, {cores} cores at a load of {busy:.0f}: "
        f"{result.confirmed:,} confirmed messages, {result.acked:,} acknowledged:\n"
        f"{verdict}.\nOf {result.pushes:,} to an inbox {result.pushed_twice} were pushed twice."
    )


if __name__ == "__main__":
    sys.exit(main())
