"""Values that describe a queue or a group.

Knows neither where they come from nor who is shown them.
"""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["mailbox", "stream"]
# A rate that nothing has confirmed for so long is over.
RATE_S = 6.0
IDLE_S = 60.0
"""A group that nobody has asked for so long is alone."""


@dataclass(slots=True)
class Group:
    """A group of a mailbox, or a consumer of a stream."""

    name: str
    queue: str
    kind: Kind
    lag: int
    ack_pending: int
    members: int
    used_ms: int
    oldest_ms: int
    """When the oldest message was created that it has not done with; 0 without one."""
    delivered: int
    redelivered: int
    acked: int
    returned: int
    dead: int
    durations: list[int]
    dead_letters: str = ""
    """What subjects of its dead letters begin with, if it is a consumer that has some."""
    rate: float = 0.0
    rated: float = 0.0
    """When that was its rate of acknowledgements."""
    alone_since: float | None = None
    """Since when nobody has asked for its messages, though there are some."""
    at: int = -1
    """Where it is kept."""

    @property
    def pending(self) -> int:
        """What is not done: not given out yet, or not acknowledged."""
        return self.lag + self.ack_pending

    def lag_s(self, now: float) -> float:
        """Age of the oldest message that is not done; 0 without one."""
        return max(now - self.oldest_ms / 1000, 0.0) if self.pending and self.oldest_ms else 0.0

    def ack_rate(self, now: float) -> float:
        """Acknowledgements a second; 0 if there was none for a while."""
        return self.rate if now - self.rated < RATE_S else 0.0

    def is_alone(self, now: float) -> bool:
        """Whether nobody has asked for its messages for a minute, though there are some."""
        return self.alone_since is not None and (
            now - max(self.alone_since, self.used_ms / 1000) > IDLE_S
        )


@dataclass(slots=True, frozen=True)
class Row:
    """A mailbox or stream as a list shows it."""

    name: str
    kind: Kind
    depth: int
    in_flight: int
    delayed: int
    consumers: int
    oldest_s: float | None
    bytes: int
    rate_in: float
    rate_out: float
    lag: int
    outlook: str
    outlook_s: float | None
    levels: dict[int, int]
