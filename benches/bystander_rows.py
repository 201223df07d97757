"""What a SEND is measured beside: how a broker is filled for it, and how the trouble is made.

Knows brokers and what is asked of them, and nothing of rounds, ratios or pages.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from bystander_noise import NICE
from nats_runs import BenchError, Server, process_s, running
from plain_client import Client
from registry import register

Process: TypeAlias = subprocess.Popen[str]

BENCHES = Path(__file__).parent
BOX = "bench"
PIPELINED = 500
READY_S = 120.0
# More than enough to be asked for at any pace: what is not taken waits with the client.
CREATE_CONNECTIONS, CREATE_WINDOW = 4, 64


@dataclass(frozen=True)
class Scale:
    """How much there is of everything."""

    connections: int
    subscriptions: int
    mailboxes: int
    agents: int
    creates_per_second: int
    objects: int


FULL = Scale(1500, 20, 50_000, 5000, 10_000, 2_000_000)
QUICK = Scale(50, 4, 300, 100, 1000, 50_000)


@dataclass
class Noise:
    """What went on beside a measurement."""

    count: float = 0
    seconds: float = 0.0
    # The longest of them, where that was measured.
    longest_s: float = 0.0
    cpu_s: float = 0.0


@dataclass
class Site:
    """A broker of one installation with what a row needs."""

    server: Server
    folder: Path
    load: Path
    scale: Scale
    # Connections that stay open.
    held: list[Client] = field(default_factory=list)
    created: int = 0
    # Its SENDs are measured with priority over everything else.
    first: bool = False

    @property
    def monitoring(self) -> str:
        """Where it answers over HTTP."""
        ports = next(self.folder.glob(f"*{self.server.pid}.ports"))
        return str(json.loads(ports.read_text("utf-8"))["monitoring"][0]).removeprefix("http://")


def fill_connections(site: Site) -> None:
    """Clients that listen to subjects that nobody sends to."""
    for number in range(site.scale.connections):
        client = Client(site.server.address)
        subjects = range(site.scale.subscriptions)
        lines = [f"SUB quiet.place{number}.subject{at} {at + 2}\r\n" for at in subjects]
        client.socket.sendall("".join([*lines, "PING\r\n"]).encode())
        if client.input.readline() != b"PONG\r\n":
            raise BenchError("a client that subscribes was not answered")
        site.held.append(client)


def fill_mailboxes(site: Site) -> None:
    """Public mailboxes."""
    client = Client(site.server.address)
    for start in range(0, site.scale.mailboxes, PIPELINED):
        some = range(start, min(start + PIPELINED, site.scale.mailboxes))
        for number in some:
            request = {"name": f"public.n{number}", "public": True, "desc": f"place {number}"}
            client.send("MAILBOX.CREATE", json.dumps(request).encode())
        for _ in some:
            client.answer()
    client.close()


def fill_agents(site: Site) -> None:
    """Agents, all of which can be found."""
    client = Client(site.server.address)
    register(client, site.scale.agents)
    deadline = time.monotonic() + READY_S
    while not client.ask("AGENT.DISCOVER", {"text": "invoice", "limit": 1})["agents"]:
        if time.monotonic() > deadline:
            raise BenchError("no agent is found")
    client.close()


def fill_heap(site: Site) -> None:
    """Objects for the garbage collector, made when it is called for the first time."""
    with troubling(site, "collect"):
        pass


def nothing(_site: Site) -> None:
    """There is nothing to prepare."""


@contextmanager
def asking(kind: str, address: str) -> Iterator[Noise]:
    """A process that asks without pause while the block runs."""
    command = [sys.executable, str(BENCHES / "bystander_noise.py"), kind, address]
    with started(command, stdin=subprocess.PIPE) as process:
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise BenchError(process.communicate()[1].strip() or f"{kind}: nothing was asked")
        noise = Noise()
        cpu_s = process_s(process.pid)
        yield noise
        noise.cpu_s = process_s(process.pid) - cpu_s
        report = last_words(process, "end\n")
        noise.count, noise.seconds = report["count"], report["seconds"]


@contextmanager
def creating(site: Site, seconds: float) -> Iterator[Noise]:
    """Mailboxes at a pace; if the broker takes fewer, as many as it takes."""
    site.created += 1
    words = ["create", "--what", "mailbox", "--prefix", f"round{site.created}.n"]
    words += ["--rate", str(site.scale.creates_per_second), "--seconds", str(seconds)]
    words += ["--connections", str(CREATE_CONNECTIONS), "--window", str(CREATE_WINDOW)]
    command = ["nice", "-n", str(NICE), str(site.load), *words, "--server", site.server.address]
    with started(command) as process:
        noise = Noise()
        cpu_s = process_s(process.pid)
        yield noise
        noise.cpu_s = process_s(process.pid) - cpu_s
        report = last_words(process)
        noise.count, noise.seconds = report["messages"], report["seconds"]


@contextmanager
def started(command: Sequence[str], stdin: int = subprocess.DEVNULL) -> Iterator[Process]:
    """A process that is gone in the end."""
    output = subprocess.PIPE
    process = subprocess.Popen(command, stdin=stdin, stdout=output, stderr=output, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def last_words(process: Process, told: str | None = None) -> dict[str, Any]:
    """What a process says in the end, in JSON."""
    said, complaint = process.communicate(told, timeout=READY_S)
    if process.returncode != 0:
        raise BenchError(complaint.strip())
    report: dict[str, Any] = json.loads(said)
    return report


@contextmanager
def troubling(site: Site, kind: str) -> Iterator[Noise]:
    """Trouble in the interpreter of the broker itself, once a second."""
    told, wanted = site.folder / "troubled", site.folder / "trouble"
    told.unlink(missing_ok=True)
    wanted.write_text(kind, "utf-8")
    noise, began = Noise(), time.monotonic()
    try:
        while not told.exists():
            if time.monotonic() > began + READY_S:
                raise BenchError(f"{kind}: the broker was not troubled")
            time.sleep(0.02)
        yield noise
        noise.seconds = time.monotonic() - began
    finally:
        wanted.unlink()
    times = [float(line) for line in told.read_text("utf-8").splitlines()]
    noise.count, noise.longest_s = len(times), max(times, default=0.0)


@dataclass(frozen=True)
class Row:
    """One kind of trouble."""

    name: str
    title: str
    unit: str
    fill: Callable[[Site], None]
    """Prepares a broker, once."""
    disturb: Callable[[Site, float], AbstractContextManager[Noise]]
    """Makes trouble while the block runs, and for so many seconds at least."""
    inside: bool = False
    """The trouble is in the broker's own process."""

    def describe(self, scale: Scale) -> str:
        """The title with its numbers."""
        return self.title.format(**vars(scale))

    @contextmanager
    def site(
        self, python: str, folder: Path, load: Path, scale: Scale, sync: str
    ) -> Iterator[Site]:
        """A broker of the installation of this interpreter, filled."""
        settings = folder / "mq9.conf"
        # Clients that only hold a connection do not answer pings.
        settings.write_text('ping_interval: "1h"\nmq9 { embedder: none }\n', "utf-8")
        troubled = [str(BENCHES / "bystander_broker.py"), str(folder), str(scale.objects)]
        command = [python, *(troubled if self.inside else ["-m", "mq9"]), "serve"]
        command += ["-c", str(settings), "--data", str(folder / "data"), "--sync", sync, "-m", "-1"]
        with running(command, folder) as server:
            site = Site(server, folder, load, scale)
            client = Client(server.address)
            client.ask("MAILBOX.CREATE", {"name": BOX})
            client.close()
            self.fill(site)
            try:
                yield site
            finally:
                for held in site.held:
                    held.close()


ROWS = (
    Row(
        "connz",
        "`/connz?subs=1` in a loop, {connections:,} connections x {subscriptions} subscriptions",
        "documents",
        fill_connections,
        lambda site, _: asking("connz", site.monitoring),
    ),
    Row(
        "list",
        "`PUBLIC.LIST` in a loop, all pages of {mailboxes:,} mailboxes",
        "pages of 1,000",
        fill_mailboxes,
        lambda site, _: asking("list", site.server.address),
    ),
    Row(
        "discover",
        "`DISCOVER` in a loop, {agents:,} agents",
        "searches",
        fill_agents,
        lambda site, _: asking("discover", site.server.address),
    ),
    Row("create", "`CREATE`, {creates_per_second:,} a second", "mailboxes", nothing, creating),
    Row(
        "collect",
        "a full garbage collection each second, {objects:,} objects",
        "collections",
        fill_heap,
        lambda site, _: troubling(site, "collect"),
        inside=True,
    ),
    Row(
        "block",
        "the interpreter blocked for 100 ms each second",
        "blocks",
        nothing,
        lambda site, _: troubling(site, "block"),
        inside=True,
    ),
    Row(
        "spin",
        "for comparison: another process keeps one core busy",
        "spins of 10 ms",
        nothing,
        lambda _site, _: asking("spin", ""),
    ),
)
