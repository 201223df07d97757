"""The servers that keep messages: how each is started, given a mailbox, and put under load.

Knows the words of each server and of the load generator, and nothing of rows, rounds or tables.
"""

import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import ClassVar

import nats_runs
import trustme
from mailbox_rows import Sync
from nats_runs import BenchError, Server
from server_questions import ask, ask_bytes, expect, free_port, redis_answers, redis_ask

# FIRST is a group of its own, which takes one message and leaves all others their order.
NAME, GROUP, FIRST = "bench", "workers", "first"
PRIORITIES = "1359"
CA = "ca.pem"


def certified(folder: Path) -> str:
    """Makes a certificate in `folder`; the settings with which a server uses it."""
    authority = trustme.CA()
    own = authority.issue_cert("127.0.0.1")
    authority.cert_pem.write_to_path(str(folder / CA))
    own.cert_chain_pems[0].write_to_path(str(folder / "cert.pem"))
    own.private_key_pem.write_to_path(str(folder / "key.pem"))
    files = f'cert_file: "{folder / "cert.pem"}", key_file: "{folder / "key.pem"}"'
    return f"tls {{ {files} }}\nallow_non_tls: true\n"


class Contender(ABC):
    """A server with one way of using it."""

    server: ClassVar[str]
    has_priorities: ClassVar[bool] = False

    # What the generator calls that which is created and waited for.
    mailbox: ClassVar[str]
    waits_for: ClassVar[str]

    def __init__(self, command: Sequence[str], variant: str = "", tls: bool = False) -> None:
        self.command = command
        self.variant = variant
        # The load comes in TLS. Single questions, which nobody measures, come without.
        self.tls = tls

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
    def join(self, address: str, group: str = GROUP) -> None:
        """Makes a group or consumer that takes from it."""

    @abstractmethod
    def fetch_first(self, address: str) -> None:
        """Takes one message; the group FIRST is there."""

    @abstractmethod
    def kept(self, address: str) -> int:
        """How many messages it has kept."""

    @abstractmethod
    def send_arguments(self, priorities: bool = False) -> Sequence[str]:
        """The scenario that sends, without its numbers."""

    @property
    @abstractmethod
    def source(self) -> str:
        """What the generator's scenario `drain` calls it."""

    def drain_arguments(self, stored: int, priorities: bool = False) -> list[str]:
        """The scenario that takes, without its numbers."""
        words = ["drain", "--from", self.source, "--name", NAME, "--group", GROUP]
        words += ["--stored", str(stored)]
        if priorities and self.has_priorities:
            words += ["--priorities", str(len(PRIORITIES))]
        return words

    def create_arguments(self, count: int) -> list[str]:
        """The scenario that creates mailboxes, or streams."""
        return ["create", "--what", self.mailbox, "--group", GROUP, "--count", str(count)]

    def prepare_waiting(self, address: str, count: int) -> list[str]:
        """The scenario that creates what clients can wait for."""
        del address
        return self.create_arguments(count)

    def wait_arguments(self, count: int) -> list[str]:
        """The scenario that waits, without its numbers."""
        words = ["wait", "--from", self.waits_for, "--stream", NAME, "--group", GROUP]
        return [*words, "--connections", str(count)]


class Mq9(Contender):
    """Our own: a mailbox."""

    server = "mq9"
    has_priorities = True
    mailbox = waits_for = "mailbox"

    def run(self, folder: Path, sync: Sync) -> AbstractContextManager[Server]:
        command = [*self.command, "--sync", sync]
        if not self.tls:
            return nats_runs.running(command, folder)
        settings = folder / "mq9.conf"
        settings.write_text(certified(folder), "utf-8")
        return nats_runs.running([*command, "-c", str(settings)], folder, folder / CA)

    def create(self, address: str) -> None:
        expect(ask(address, "$mq9.AI.MAILBOX.CREATE", {"name": NAME}), error="")

    def join(self, address: str, group: str = GROUP) -> None:
        """The first FETCH makes the group."""

    def fetch_first(self, address: str) -> None:
        body = {"group_name": FIRST, "deliver": "earliest", "config": {"num_msgs": 1}}
        reply = ask(address, f"$mq9.AI.MSG.FETCH.{NAME}", body)
        if len(reply["messages"]) != 1:
            raise BenchError(f"mq9 answered FETCH with {reply}")

    def kept(self, address: str) -> int:
        found = ask(address, f"$mq9.AI.MSG.QUERY.{NAME}", {"limit": 1})
        return 1 + max(int(message["msg_id"]) for message in found["messages"])

    def send_arguments(self, priorities: bool = False) -> Sequence[str]:
        words = ["request", "--responders", "0", "--subject", f"$mq9.AI.MSG.SEND.{NAME}"]
        words += ["--expect", '{"error":"","msg_id":']
        return [*words, "--priorities", PRIORITIES] if priorities else words

    @property
    def source(self) -> str:
        return f"mailbox-{self.variant or 'raw'}"


class JetStream(Contender):
    """A stream of nats-server in files."""

    server = "JetStream"
    mailbox, waits_for = "stream", "jetstream"
    SUBJECT = "bench.in"

    def run(self, folder: Path, sync: Sync) -> AbstractContextManager[Server]:
        settings = folder / "nats.conf"
        # By default it refuses what is more than 10,000 messages behind.
        words = ['store_dir: "jetstream"', "max_buffered_msgs: 1000000"]
        words += ["sync_interval: always"] if sync == "always" else []
        text = "jetstream {\n" + "\n".join(words) + "\n}\n"
        settings.write_text(text + (certified(folder) if self.tls else ""), "utf-8")
        ca = folder / CA if self.tls else None
        return nats_runs.running([*self.command, "-c", str(settings)], folder, ca)

    def create(self, address: str) -> None:
        self._create(address, self.SUBJECT)

    def _create(self, address: str, subject: str) -> None:
        stream = {"name": NAME, "subjects": [subject], "storage": "file", "num_replicas": 1}
        expect(ask(address, f"$JS.API.STREAM.CREATE.{NAME}", stream), did_create=True)

    def prepare_waiting(self, address: str, count: int) -> list[str]:
        """One stream, of which each consumer sees its own subject: streams are costly here."""
        self._create(address, "bench.*")
        return ["create", "--what", "consumer", "--stream", NAME, "--count", str(count)]

    def join(self, address: str, group: str = GROUP) -> None:
        config = {
            "durable_name": group,
            "ack_policy": "explicit" if self.variant == "each" else "all",
            "deliver_policy": "all",
        }
        reply = ask(
            address,
            f"$JS.API.CONSUMER.DURABLE.CREATE.{NAME}.{group}",
            {"stream_name": NAME, "config": config},
        )
        expect(reply, name=group)

    def fetch_first(self, address: str) -> None:
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{NAME}.{FIRST}"
        if not ask_bytes(address, subject, {"batch": 1, "expires": 5_000_000_000}):
            raise BenchError("JetStream answered MSG.NEXT without a message")

    def kept(self, address: str) -> int:
        return int(ask(address, f"$JS.API.STREAM.INFO.{NAME}", {})["state"]["messages"])

    def send_arguments(self, priorities: bool = False) -> Sequence[str]:
        del priorities
        words = ["request", "--responders", "0", "--subject", self.SUBJECT]
        return [*words, "--expect", '{"stream":"']

    @property
    def source(self) -> str:
        return f"jetstream-{self.variant or 'all'}"


class Redis(Contender):
    """A Redis stream with an append-only file."""

    server = "Redis"
    mailbox, waits_for = "group", "redis"

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
            while not redis_answers(address):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise BenchError(f"{self.command} does not serve:\n{nats_runs.tail(log)}")
                time.sleep(0.01)
            yield Server(process.pid, address)
        finally:
            nats_runs.stop(process)

    def create(self, address: str) -> None:
        """The first XADD makes the stream."""

    def join(self, address: str, group: str = GROUP) -> None:
        if (reply := redis_ask(address, f"XGROUP CREATE {NAME} {group} 0")) != "+OK":
            raise BenchError(f"XGROUP CREATE: {reply}")

    def fetch_first(self, address: str) -> None:
        reply = redis_ask(address, f"XREADGROUP GROUP {FIRST} bench COUNT 1 STREAMS {NAME} >")
        if reply != "*1":
            raise BenchError(f"XREADGROUP: {reply}")

    def kept(self, address: str) -> int:
        return int(redis_ask(address, f"XLEN {NAME}").removeprefix(":"))

    def send_arguments(self, priorities: bool = False) -> Sequence[str]:
        del priorities
        return ["append", "--stream", NAME]

    @property
    def source(self) -> str:
        return "redis"
