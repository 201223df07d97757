"""A small disk below the data of a node, or of a nats-server, which a test can fill."""

import contextlib
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import nats
from nats.errors import Error as NatsError
from tests.cluster.links import config_of
from tests.faults.room import Room

from mq9.cluster.local import LocalCluster, Process

_PIECE = b"x" * 100_000


@dataclass
class SmallDisk:
    """The disk of the last node, or of the last nats-server."""

    node: Process
    room: Room
    folder: Path

    @staticmethod
    def of(cluster: LocalCluster, size_bytes: int = 1 << 30) -> "SmallDisk":
        """Before the cluster starts; NoRoomError where this machine lets nobody mount one."""
        node = cluster.nodes[-1]
        folder = config_of(node).parent / "data"
        secret = (folder / "token.secret").read_bytes()
        room = Room(folder, size_bytes)
        file = config_of(node).parent / "secret"
        file.write_bytes(secret)
        room.run("cp", str(file), str(folder / "token.secret"))
        room.run("chmod", "-R", "go=", str(folder))
        node.command = [*room.around, *node.command]
        return SmallDisk(node, room, folder)

    @staticmethod
    def of_server(cluster: LocalCluster, size_bytes: int = 512 << 20) -> "SmallDisk":
        """The same for a nats-server."""
        server = cluster.servers[-1]
        folder = config_of(server).parent / "data"
        room = Room(folder, size_bytes)
        server.command = [*room.around, *server.command]
        return SmallDisk(server, room, folder)

    def fill(self) -> None:
        """Nothing is left."""
        # It ends when there is no more room.
        with contextlib.suppress(subprocess.CalledProcessError):
            self.room.run("dd", "if=/dev/zero", f"of={self.folder / 'filler'}", "bs=1M")

    def empty(self) -> None:
        """There is room again."""
        self.room.run("rm", str(self.folder / "filler"))

    def is_noticed(self) -> bool:
        """Whether the node says that it does not follow because of it."""
        return "No space left" in str(self.node.health().get("error"))

    def copied(self) -> Path:
        """Where what lies on it can be looked at, without the node."""
        copy = config_of(self.node).parent / "copied"
        self.room.run("cp", "-r", str(self.folder), str(copy))
        return copy

    def close(self) -> None:
        """The disk goes, with what is on it."""
        self.room.holder.communicate()


async def send_until(urls: str, is_enough: Callable[[], bool], timeout_s: float = 30.0) -> int:
    """Send large messages to the mailbox `bulk` until that is so; how many were confirmed."""
    client = await nats.connect(urls.split(","), max_reconnect_attempts=-1, connect_timeout=5)
    confirmed = 0
    until = time.monotonic() + timeout_s
    while not is_enough():
        assert time.monotonic() < until, f"{confirmed} large messages, and nothing happened"
        with contextlib.suppress(TimeoutError, NatsError, ConnectionError):
            await client.request("$mq9.AI.MAILBOX.CREATE", b'{"name": "bulk"}', timeout=2)
            answer = await client.request("$mq9.AI.MSG.SEND.bulk", _PIECE, timeout=2)
            confirmed += b'"error":""' in answer.data
    await client.close()
    return confirmed
