"""The rows of the comparison of servers that keep messages, and the ratio that each is held to.

Knows neither servers nor how anything is measured.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

Sync = Literal["interval", "always"]

# Connections x requests under way on each.
WINDOWS = tuple((connections, window) for window in (1, 64, 1024) for connections in (1, 8, 64))
SIZES = {"128 B": 128, "1 KiB": 1024}
LARGE_SIZE = ("64 KiB", 65536)
# A thousand large messages under way are more than JetStream lets wait.
LARGE_WINDOWS = ((1, 1), (8, 1), (1, 64), (8, 64))
PRIORITY_WINDOWS = ((1, 64), (8, 64))
TLS_WINDOWS = ((1, 1), (64, 1), (1, 64), (8, 64), (1, 1024))
BATCHES = (1, 10, 100)

# So many requests under way in all share a sync: such a durable row is held to another ratio.
MANY = 512
GOALS = {(1, 1024): 8.0, (8, 64): 8.0, (1, 64): 3.0, (64, 1): 3.0}
DURABLE_GOALS = {(1, 64): 30.0, (64, 1): 20.0}
DURABLE_GOAL_OF_MANY = 100.0
BATCH_GOALS = {100: 4.0}

# With a sync for every message JetStream does not answer a single one of so many in ten seconds.
TOO_MANY_FOR_JETSTREAM = 65536

# Of each server's own peak.
PERCENTS = (20, 50, 80)


@dataclass(frozen=True)
class Send:
    """Messages sent with reply."""

    kind: ClassVar[str] = "send"
    long: ClassVar[bool] = False

    sync: Sync
    connections: int
    window: int
    size: int
    size_name: str
    priorities: bool = False

    @property
    def name(self) -> str:
        """What the row is called."""
        load = f"{self.size_name}, {self.connections} x {self.window}"
        return f"SEND {self.sync}, {load}{', mixed priorities' if self.priorities else ''}"

    @property
    def goal(self) -> float:
        """The least ratio to JetStream."""
        load = (self.connections, self.window)
        if self.priorities or self.size not in SIZES.values():
            return 1.0
        if self.sync == "interval":
            return GOALS.get(load, 1.0)
        many = self.connections * self.window >= MANY
        return DURABLE_GOAL_OF_MANY if many else DURABLE_GOALS.get(load, 1.0)

    @property
    def skips_jetstream(self) -> bool:
        """Whether JetStream cannot be measured with it."""
        return self.sync == "always" and self.connections * self.window >= TOO_MANY_FOR_JETSTREAM


@dataclass(frozen=True)
class SecureSend(Send):
    """The same over TLS, beside nats-server over TLS."""

    kind: ClassVar[str] = "tls"

    @property
    def name(self) -> str:
        """What the row is called."""
        return f"{super().name}, TLS"

    @property
    def goal(self) -> float:
        """The least ratio to JetStream."""
        return 1.0


@dataclass(frozen=True)
class Drain:
    """Stored messages taken in batches, each acknowledged with reply before the next."""

    kind: ClassVar[str] = "drain"
    long: ClassVar[bool] = False
    skips_jetstream: ClassVar[bool] = False

    sync: Sync
    batch: int
    size: int = 128
    priorities: bool = False

    @property
    def name(self) -> str:
        """What the row is called."""
        name = f"FETCH+ACK {self.sync}, batches of {self.batch}"
        return f"{name}{', mixed priorities' if self.priorities else ''}"

    @property
    def goal(self) -> float:
        """The least ratio to JetStream."""
        return 1.0 if self.priorities else BATCH_GOALS.get(self.batch, 1.0)


@dataclass(frozen=True)
class Latency:
    """How long a send takes at parts of the server's own peak, which comes first."""

    kind: ClassVar[str] = "latency"
    long: ClassVar[bool] = False
    goal: ClassVar[None] = None
    skips_jetstream: ClassVar[bool] = False

    sync: Sync
    connections: int = 8
    window: int = 64
    size: int = 128

    @property
    def name(self) -> str:
        """What the row is called."""
        return f"LATENCY {self.sync}, {self.size} B, {self.connections} connections"


@dataclass(frozen=True)
class Create:
    """Mailboxes created, or what the others have instead."""

    kind: ClassVar[str] = "create"
    long: ClassVar[bool] = True
    goal: ClassVar[None] = None
    skips_jetstream: ClassVar[bool] = False

    sync: Sync

    @property
    def name(self) -> str:
        """What the row is called."""
        return f"CREATE {self.sync}"


@dataclass(frozen=True)
class Backlog:
    """Millions of messages: what they take in memory, a restart with them, taking them."""

    kind: ClassVar[str] = "backlog"
    long: ClassVar[bool] = True
    goal: ClassVar[None] = None
    skips_jetstream: ClassVar[bool] = False

    sync: Sync
    size: int = 128
    batch: int = 100

    @property
    def name(self) -> str:
        """What the row is called."""
        return f"BACKLOG {self.sync}, {self.size} B"


@dataclass(frozen=True)
class Wait:
    """Clients that wait for messages: what the server uses meanwhile, and how soon they wake."""

    kind: ClassVar[str] = "wait"
    long: ClassVar[bool] = False
    goal: ClassVar[None] = None
    skips_jetstream: ClassVar[bool] = False

    sync: Sync
    size: int = 128

    @property
    def name(self) -> str:
        """What the row is called."""
        return f"WAIT {self.sync}"


Row = Send | Drain | Latency | Create | Backlog | Wait

SYNCS: tuple[Sync, ...] = ("interval", "always")
LARGE = tuple(
    Send(sync, connections, window, LARGE_SIZE[1], LARGE_SIZE[0])
    for sync in SYNCS
    for connections, window in LARGE_WINDOWS
)
SECURE = tuple(
    SecureSend(sync, connections, window, SIZES[size_name], size_name)
    for sync, size_name in (("interval", "128 B"), ("interval", "1 KiB"), ("always", "128 B"))
    for connections, window in TLS_WINDOWS
)
MIXED: tuple[Row, ...] = (
    *(
        Send(sync, connections, window, 128, "128 B", priorities=True)
        for sync in SYNCS
        for connections, window in PRIORITY_WINDOWS
    ),
    *(Drain(sync, 100, priorities=True) for sync in SYNCS),
)
ROWS: tuple[Row, ...] = (
    *(
        Send(sync, connections, window, size, size_name)
        for sync in SYNCS
        for size_name, size in SIZES.items()
        for connections, window in WINDOWS
    ),
    *LARGE,
    *SECURE,
    *(Drain(sync, batch) for sync in SYNCS for batch in BATCHES),
    *MIXED,
    *(Latency(sync) for sync in SYNCS),
    *(Create(sync) for sync in SYNCS),
    Backlog("interval"),
    Wait("interval"),
)

# One of each kind, to see that everything runs.
QUICK_ROWS: tuple[Row, ...] = (
    Send("interval", 8, 64, 128, "128 B"),
    LARGE[2],
    SECURE[3],
    MIXED[-1],
    Latency("always"),
    Create("interval"),
    Backlog("interval"),
    Wait("interval"),
)


@dataclass(frozen=True)
class Scale:
    """How much there is of everything."""

    stored: int
    """Messages in a mailbox that is drained."""
    created: int
    """Mailboxes, and streams of Redis."""
    created_streams: int
    """Streams of JetStream, each of which takes files, some 50 KiB and milliseconds."""
    backlog: int
    waiting: int
    idle_seconds: float


FULL_SCALE = Scale(400_000, 100_000, 2_000, 5_000_000, 1_000, 10.0)
QUICK_SCALE = Scale(50_000, 1_000, 50, 50_000, 50, 0.3)
