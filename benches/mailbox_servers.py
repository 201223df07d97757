"""The servers that keep messages: how each is started, given a mailbox, filled and put under load.

Knows what a row asks of a server, and nothing of rounds, ratios or tables.
"""

import asyncio
import json
import shutil
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import nats
import nats_runs
from mailbox_rows import Drain, Row, Send, Sync
from nats_runs import BenchError, Server

NAME, GROUP = "bench", "workers"
ASK_SECONDS = 20


class Contender(ABC):
    """A server with one way of using it."""

    server: str
    variant: str

    @property
    def name(self) -> str:
        """The server and, where there are several, the way."""
        return f"{self.server} {self.variant}".strip()

    @abstractmethod
    def run(self, folder: Path, sync: Sync) -> AbstractContextManager[Server]:
        """The server on a free port, with its data in `folder`."""

    @abstractmethod
    def create(self, address: str) -> None:
        """Makes the mailbox or stream."""

    @abstractmethod
    def join(self, address: str) -> None:
        """Makes the group or consumer that takes from it."""

    @abstractmethod
    def kept(self, address: str) -> int:
        """How many messages it has kept."""

    @abstractmethod
    def send_arguments(self) -> Sequence[str]:
        """The scenario that sends, without its numbers."""

    @abstractmethod
    def source(self) -> str:
        """What the generator's scenario `drain` calls it."""

    def arguments(self, row: Row, stored: int) -> list[str]:
        """The load of a row, for the generator."""
        match row:
            case Send():
                words = [*self.send_arguments(), "--connections", row.connections]
                words += ["--window", row.window, "--size", row.size]
            case Drain():
                words = ["drain", "--from", self.source(), "--name", NAME, "--group", GROUP]
                words += ["--batch", row.batch, "--stored", stored, "--size", row.size]
        return [str(word) for word in words]


class Mq9(Contender):
    """Our own: a mailbox."""

    server = "mq9"

    def __init__(self, command: Sequence[str], variant: str = "") -> None:
        self.command = command
        self.variant = variant

    def run(self, folder: Path, sync: Sync) -> AbstractContextManager[Server]:
        return nats_runs.running([*self.command, "--sync", sync], folder)

    def create(self, address: str) -> None:
        expect(ask(address, "$mq9.AI.MAILBOX.CREATE", {"name": NAME}), error="")

    def join(self, address: str) -> None:
        """The first FETCH makes the group."""

    def kept(self, address: str) -> int:
        found = ask(address, f"$mq9.AI.MSG.QUERY.{NAME}", {"limit": 1})
        return 1 + max(int(message["msg_id"]) for message in found["messages"])

    def send_arguments(self) -> Sequence[str]:
        words = ["request", "--responders", "0", "--subject", f"$mq9.AI.MSG.SEND.{NAME}"]
        return [*words, "--expect", '{"error":"","msg_id":']

    def source(self) -> str:
        return f"mailbox-{self.variant}"


class JetStream(Contender):
    """A stream of nats-server in files."""

    server = "JetStream"
    SUBJECT = "bench.in"

    def __init__(self, command: Sequence[str], variant: str = "") -> None:
        self.command = command
        self.variant = variant

    def run(self, folder: Path, sync: Sync) -> AbstractContextManager[Server]:
        settings = folder / "nats.conf"
        # By default it refuses what is more than 10,000 messages behind.
        words = ['store_dir: "jetstream"', "max_buffered_msgs: 1000000"]
        words += ["sync_interval: always"] if sync == "always" else []
        settings.write_text("jetstream {\n" + "\n".join(words) + "\n}\n", "utf-8")
        return nats_runs.running([*self.command, "-c", str(settings)], folder)

    def create(self, address: str) -> None:
        stream = {"name": NAME, "subjects": [self.SUBJECT], "storage": "file", "num_replicas": 1}
        expect(ask(address, f"$JS.API.STREAM.CREATE.{NAME}", stream), did_create=True)

    def join(self, address: str) -> None:
        config = {
            "durable_name": GROUP,
            "ack_policy": "explicit" if self.variant == "each" else "all",
            "deliver_policy": "all",
        }
        reply = ask(
            address,
            f"$JS.API.CONSUMER.DURABLE.CREATE.{NAME}.{GROUP}",
            {"stream_name": NAME, "config": config},
        )
        expect(reply, name=GROUP)

    def kept(self, address: str) -> int:
        return int(ask(address, f"$JS.API.STREAM.INFO.{NAME}", {})["state"]["messages"])

    def send_arguments(self) -> Sequence[str]:
        words = ["request", "--responders", "0", "--subject", self.SUBJECT]
        return [*words, "--expect", '{"stream":"']

    def source(self) -> str:
        return f"jetstream-{self.variant}"


class Redis(Contender):
    """A Redis stream with an append-only file."""

    server = "Redis"
    variant = ""

    def __init__(self, command: Sequence[str]) -> None:
        self.command = command

    def run(self, folder: Path, sync: Sync) -> AbstractContextManager[Server]:
        return self._running(folder, "everysec" if sync == "interval" else "always")

    @contextmanager
    def _running(self, folder: Path, fsync: str) -> Iterator[Server]:
        port = free_port()
        arguments = ["--bind", "127.0.0.1", "--port", str(port), "--dir", str(folder)]
        arguments += ["--save", "", "--appendonly", "yes", "--appendfsync", fsync]
        log = folder / "log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*self.command, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=folder,
            )
        address = f"127.0.0.1:{port}"
        try:
            deadline = time.monotonic() + nats_runs.START_SECONDS
            while not answers(address):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise BenchError(f"{self.command} does not serve:\n{nats_runs.tail(log)}")
                time.sleep(0.01)
            yield Server(process.pid, address)
        finally:
            nats_runs.stop(process)

    def create(self, address: str) -> None:
        """The first XADD makes the stream."""

    def join(self, address: str) -> None:
        if (reply := redis_ask(address, f"XGROUP CREATE {NAME} {GROUP} 0")) != "+OK":
            raise BenchError(f"XGROUP CREATE: {reply}")

    def kept(self, address: str) -> int:
        return int(redis_ask(address, f"XLEN {NAME}").removeprefix(":"))

    def send_arguments(self) -> Sequence[str]:
        return ["append", "--stream", NAME]

    def source(self) -> str:
        return "redis"


class Stores:
    """Folders with messages in them, made once for each server and copied for each measurement."""

    def __init__(self, folder: Path, load: Path, stored: int) -> None:
        self.folder = folder
        self.load = load
        self.stored = stored

    def copy(self, contender: Contender, size: int, to: Path) -> None:
        """Fills the empty folder `to` with messages of a size."""
        original = self.folder / f"{contender.server}-{size}"
        if not original.exists():
            self._fill(contender, size, original)
        shutil.copytree(original, to, dirs_exist_ok=True)

    def _fill(self, contender: Contender, size: int, folder: Path) -> None:
        folder.mkdir()
        words = [*contender.send_arguments(), "--window", "1024", "--size", str(size)]
        words += ["--count", str(self.stored), "--warmup", "0"]
        with contender.run(folder, "interval") as server:
            contender.create(server.address)
            nats_runs.run_load(self.load, words, server, -1)
            if (kept := contender.kept(server.address)) != self.stored:
                raise BenchError(f"{contender.name} kept {kept} of {self.stored} messages")
        for leftover in folder.glob("*.ports"):
            leftover.unlink()


def ask(address: str, subject: str, body: dict[str, Any]) -> dict[str, Any]:
    """The reply to one request over NATS."""

    async def request() -> bytes:
        client = await nats.connect(f"nats://{address}", connect_timeout=ASK_SECONDS)
        try:
            payload = json.dumps(body).encode()
            return (await client.request(subject, payload, timeout=ASK_SECONDS)).data
        finally:
            await client.close()

    reply: dict[str, Any] = json.loads(asyncio.run(request()))
    return reply


def expect(reply: dict[str, Any], **members: Any) -> None:  # noqa: ANN401
    """The reply must have these members."""
    if any(reply.get(name) != value for name, value in members.items()):
        raise BenchError(f"a server answered {reply}, not {members}")


def redis_ask(address: str, command: str) -> str:
    """The first line of the reply to a Redis command."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=ASK_SECONDS) as connection:
        connection.sendall(f"{command}\r\n".encode())
        with connection.makefile("rb") as replies:
            return replies.readline().decode().strip()


def answers(address: str) -> bool:
    """Whether a Redis server serves: it accepts connections before it has read its files."""
    try:
        return redis_ask(address, "PING") == "+PONG"
    except OSError:
        return False


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
