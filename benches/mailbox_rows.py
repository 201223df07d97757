"""The rows of the comparison of mailboxes, and the ratio that each is held to.

Knows neither servers nor how anything is measured.
"""

from dataclasses import dataclass
from typing import Literal

Sync = Literal["interval", "always"]

# Connections x requests under way on each.
WINDOWS = tuple((connections, window) for window in (1, 64, 1024) for connections in (1, 8, 64))
SIZES = {"128 B": 128, "1 KiB": 1024}
BATCHES = (1, 10, 100)

# So many requests under way in all share a sync: such a durable row is held to another ratio.
MANY = 512
GOALS = {(1, 1024): 8.0, (8, 64): 8.0, (1, 64): 3.0, (64, 1): 3.0}
DURABLE_GOALS = {(1, 64): 30.0, (64, 1): 20.0}
DURABLE_GOAL_OF_MANY = 100.0
BATCH_GOALS = {100: 4.0}

# With a sync for every message JetStream does not answer a single one of so many in ten seconds.
TOO_MANY_FOR_JETSTREAM = 65536


@dataclass(frozen=True)
class Send:
    """Messages sent with reply."""

    sync: Sync
    connections: int
    window: int
    size: int
    size_name: str

    @property
    def name(self) -> str:
        """What the row is called."""
        return f"SEND {self.sync}, {self.size_name}, {self.connections} x {self.window}"

    @property
    def goal(self) -> float:
        """The least ratio to JetStream."""
        load = (self.connections, self.window)
        if self.sync == "interval":
            return GOALS.get(load, 1.0)
        many = self.connections * self.window >= MANY
        return DURABLE_GOAL_OF_MANY if many else DURABLE_GOALS.get(load, 1.0)

    @property
    def skips_jetstream(self) -> bool:
        """Whether JetStream cannot be measured with it."""
        return self.sync == "always" and self.connections * self.window >= TOO_MANY_FOR_JETSTREAM


@dataclass(frozen=True)
class Drain:
    """Stored messages taken in batches, each acknowledged with reply before the next."""

    sync: Sync
    batch: int
    size: int = 128

    @property
    def name(self) -> str:
        """What the row is called."""
        return f"FETCH+ACK {self.sync}, batches of {self.batch}"

    @property
    def goal(self) -> float:
        """The least ratio to JetStream."""
        return BATCH_GOALS.get(self.batch, 1.0)


Row = Send | Drain

SYNCS: tuple[Sync, ...] = ("interval", "always")
ROWS: tuple[Row, ...] = (
    *(
        Send(sync, connections, window, size, size_name)
        for sync in SYNCS
        for size_name, size in SIZES.items()
        for connections, window in WINDOWS
    ),
    *(Drain(sync, batch) for sync in SYNCS for batch in BATCHES),
)

# One of each kind, to see that everything runs.
QUICK_ROWS: tuple[Row, ...] = (
    Send("interval", 8, 64, 128, "128 B"),
    Send("always", 1, 64, 128, "128 B"),
    Drain("always", 10),
)
