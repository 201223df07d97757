"""What push takes of the broker's memory: a long history, many subscribers, many mailboxes.

Everything goes over sockets, and what is given is counted: each message must come once to each.
Owns what happens and what is printed. How the broker is started is in mailbox_servers.py.
"""

import argparse
import os
import re
import selectors
import socket
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import nats_runs
import peer_commands
from mailbox_servers import NAME, Mq9
from nats_core import progress
from nats_runs import ROOT, BenchError, Server

PREFIX = b"$mq9.AI."
SIZE = 128
CHUNK = 1 << 20
SILENCE_SECONDS = 120.0
PAUSE_SECONDS = 5.0
MESSAGES = 20
PER_CONNECTION = 1000
# What the load generator begins payloads with, and what this does.
NUMBERED = re.compile(rb"\r\n\r\n([0-9a-f]{12})x")
TOLD = re.compile(rb"#(\d{6})#")
PRIORITIES = (b"", b".urgent", b"", b".critical")


def rss(pid: int) -> int:
    """The memory of a process, in bytes."""
    for line in Path(f"/proc/{pid}/status").read_text("ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise BenchError(f"nobody says how much memory {pid} has")


def mib(size: float) -> str:
    """For people."""
    return f"{size / (1 << 20):,.0f} MiB"


class Client:
    """A connection that keeps what it is given."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), SILENCE_SECONDS)
        self.received = bytearray()
        self.pongs = 0
        self.send(b'CONNECT {"verbose":false,"headers":true}\r\n')

    def send(self, data: bytes) -> None:
        """All of it, however long it takes."""
        self.socket.sendall(data)

    def receive(self) -> bytes:
        """What has arrived; questions of the broker are answered."""
        chunk = self.socket.recv(CHUNK)
        if not chunk:
            raise BenchError(f"the broker closed a connection: {bytes(self.received[-200:])!r}")
        if b"PING\r\n" in chunk:
            self.send(b"PONG\r\n")
        if b"-ERR" in chunk:
            raise BenchError(f"the broker refused: {chunk[:200]!r}")
        self.pongs += chunk.count(b"PONG\r\n")
        return chunk

    def told(self) -> list[int]:
        """The numbers of the messages that came."""
        return [int(number) for number in TOLD.findall(self.received)]


def settle(clients: Sequence[Client], count: int) -> None:
    """Returns when each has that many messages, and has been answered behind them."""
    with selectors.DefaultSelector() as selector:
        for client in clients:
            selector.register(client.socket, selectors.EVENT_READ, client)
        # What comes twice comes before the answer to a question that is asked then.
        missing, expected = set(clients), dict[Client, int]()
        last = time.monotonic()
        ready = list(clients)
        while missing or expected:
            for client in ready:
                if client in missing and client.received.count(b"#") >= 2 * count:
                    missing.remove(client)
                    expected[client] = client.pongs + 1
                    client.send(b"PING\r\n")
                elif client.pongs >= expected.get(client, sys.maxsize):
                    del expected[client]
            ready = [key.data for key, _ in selector.select(1.0)]
            for client in ready:
                client.received += client.receive()
                last = time.monotonic()
            if time.monotonic() - last > SILENCE_SECONDS:
                raise BenchError(f"{len(missing)} wait in vain for what they were to be given")


def told_once(clients: Iterable[Client], expected: Sequence[Sequence[int]]) -> None:
    """Each was given each message once."""
    for client, numbers in zip(clients, expected, strict=True):
        if (told := sorted(client.told())) != list(numbers):
            raise BenchError(f"given {len(told)} instead of {len(numbers)} messages: {told[:50]}")


def publish(sender: Client, messages: Iterable[tuple[bytes, int]]) -> None:
    """Sends numbers to subjects, and returns when the broker has taken them."""
    for subject, number in messages:
        sender.send(b"PUB %s%s 8\r\n#%06d#\r\n" % (PREFIX, subject, number))
    expected = sender.pongs + 1
    sender.send(b"PING\r\n")
    while sender.pongs < expected:
        sender.receive()


def history(server: Server, load: Path, count: int, cpu: int) -> None:
    """A subscriber of a long history stops reading, and reads then."""
    words = [*Mq9([]).send_arguments(), "--window", "1024", "--size", str(SIZE)]
    words += ["--count", str(count), "--warmup", "0"]
    nats_runs.run_load(load, words, server, cpu, 3600.0)
    before = rss(server.pid)
    client = Client(server.address)
    client.send(b"SUB %sMAILBOX.MSG.%s.* 1\r\n" % (PREFIX, NAME.encode()))
    waiting, over = before, time.monotonic() + PAUSE_SECONDS
    while time.monotonic() < over:
        waiting = max(waiting, rss(server.pid))
        time.sleep(0.05)
    begin, most, came, rest = time.monotonic(), waiting, 0, b""
    while came < count:
        # A number may have come in two parts.
        rest += client.receive()
        found = NUMBERED.findall(rest)
        for number in found:
            if int(number, 16) != came:
                raise BenchError(f"message {number!r} came where {came} is next")
            came += 1
        if found:
            rest = rest[rest.rindex(found[-1]) + len(found[-1]) :]
        if came // 100_000 != (came - len(found)) // 100_000:
            most = max(most, rss(server.pid))
    took = time.monotonic() - begin
    client.send(b"PING\r\n")
    while not client.pongs:
        if NUMBERED.search(client.receive()):
            raise BenchError("something came twice")
    progress(
        f"HISTORY of {count:,}: the broker has {mib(before)} before, {mib(waiting)} while a "
        f"subscriber does not read, at most {mib(most)} while it reads; all came once, in order, "
        f"on one connection, in {took:.0f} s"
    )


def readers(server: Server, count: int) -> None:
    """Many subscribers of one mailbox."""
    sender = Client(server.address)
    before = rss(server.pid)
    clients = [Client(server.address) for _ in range(count)]
    settle(clients, 0)
    connected = rss(server.pid)
    for client in clients:
        client.send(b"SUB %sMAILBOX.MSG.%s.* 1\r\n" % (PREFIX, NAME.encode()))
    settle(clients, 0)
    subscribed = rss(server.pid)
    subjects = [PRIORITIES[number % 4] for number in range(MESSAGES)]
    begin = time.monotonic()
    publish(
        sender,
        ((b"MAILBOX.MSG.%s%s" % (NAME.encode(), end), n) for n, end in enumerate(subjects)),
    )
    settle(clients, MESSAGES)
    took, most = time.monotonic() - begin, rss(server.pid)
    told_once(clients, [range(MESSAGES)] * count)
    progress(
        f"READERS: {count:,} connections take {(connected - before) / count:,.0f} bytes each, "
        f"subscribed {(subscribed - before) / count:,.0f}, after {MESSAGES} messages "
        f"{(most - before) / count:,.0f}; each came once to each, in {took:.1f} s"
    )


def mailboxes(server: Server, count: int) -> None:
    """Many mailboxes with a subscription each."""
    sender = Client(server.address)
    sender.send(b"SUB made 1\r\n")
    for number in range(count):
        body = b'{"name":"m.%06d"}' % number
        sender.send(b"PUB %sMAILBOX.CREATE made %d\r\n%s\r\n" % (PREFIX, len(body), body))
        if number % 200 == 199:
            made = number + 1
            while sender.received.count(b'"error":""') < made:
                sender.received += sender.receive()
    before = rss(server.pid)
    clients = [Client(server.address) for _ in range(0, count, PER_CONNECTION)]
    shares = [range(at, min(at + PER_CONNECTION, count)) for at in range(0, count, PER_CONNECTION)]
    for client, share in zip(clients, shares, strict=True):
        line = b"SUB %sMAILBOX.MSG.m.%06d %d\r\n"
        client.send(b"".join(line % (PREFIX, number, number + 1) for number in share))
    settle(clients, 0)
    subscribed = rss(server.pid)
    begin = time.monotonic()
    publish(sender, ((b"MAILBOX.MSG.m.%06d" % number, number) for number in range(count)))
    settle(clients, PER_CONNECTION)
    took = time.monotonic() - begin
    told_once(clients, shares)
    progress(
        f"MAILBOXES: {count:,} subscriptions to one each, on {len(clients)} connections, take "
        f"{(subscribed - before) / count:,.0f} bytes each; each message came once, in {took:.1f} s"
    )


def parse(words: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="What push takes of the broker's memory.")
    parser.add_argument("what", nargs="*", metavar="history|readers|mailboxes", help="all of them")
    parser.add_argument("--history", type=int, default=10_000_000, help="%(default)s messages")
    parser.add_argument("--readers", type=int, default=10_000, help="%(default)s connections")
    parser.add_argument("--mailboxes", type=int, default=100_000, help="%(default)s of them")
    parser.add_argument("--mq9-cmd", help="mq9's command, without options: '... -m mq9 serve'")
    parser.add_argument("--load-cmd", type=Path, help="a built mq9-load; otherwise cargo builds it")
    cpu = max(os.sched_getaffinity(0))
    parser.add_argument("--cpu", type=int, default=cpu, help="the core of the load generator")
    parser.add_argument("--data", type=Path, default=ROOT / ".build/bench-push", help="a folder")
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> int:
    """Does what was asked for, each with a broker of its own."""
    options = parse(words)
    chosen = options.what or ["history", "readers", "mailboxes"]
    options.data.mkdir(parents=True, exist_ok=True)
    command = peer_commands.mq9_command(options)
    for what in chosen:
        with (
            tempfile.TemporaryDirectory(prefix="data-", dir=options.data) as name,
            Mq9(command).run(Path(name), "interval") as server,
        ):
            Mq9(command).create(server.address)
            if what == "history":
                load = options.load_cmd or nats_runs.build_load()
                history(server, load, options.history, options.cpu)
            elif what == "readers":
                readers(server, options.readers)
            elif what == "mailboxes":
                mailboxes(server, options.mailboxes)
            else:
                raise BenchError(f"there is no {what}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BenchError as error:
        progress(f"push_memory: {error}")
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
