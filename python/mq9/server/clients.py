"""The clients of a server: those connected, and a bounded memory of those that left.

Owns what is known about a client beside its connection. Knows nothing of JSON or sockets.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterator

    from mq9._core import ConnectionStats
    from mq9.server.session import Session

# nats-server's `max_closed_clients`.
_REMEMBERED = 10_000


@dataclass(slots=True)
class ClientFacts:
    """What a client said of itself and how it came in."""

    ip: str
    port: int
    started_ms: int
    cid: int = 0
    name: str = ""
    lang: str = ""
    version: str = ""
    protocol: int = 0
    user: str = ""
    tls_version: str = ""
    tls_cipher: str = ""


@dataclass(frozen=True, slots=True)
class Figures:
    """The counters of a connection; times in Unix milliseconds, 0 if unknown."""

    in_msgs: int = 0
    out_msgs: int = 0
    in_bytes: int = 0
    out_bytes: int = 0
    pending_bytes: int = 0
    subscriptions: int = 0
    rtt_us: int = 0
    last_activity_ms: int = 0

    @classmethod
    def of(cls, stats: ConnectionStats | None) -> Figures:
        """Those of a connection; zeros if it has none."""
        if stats is None:
            return cls()
        return cls(**{name: getattr(stats, name) for name in cls.__slots__})


class ClientRecord(Protocol):
    """A client, whether it is still connected or not."""

    @property
    def facts(self) -> ClientFacts: ...
    @property
    def stop_ms(self) -> int | None: ...
    @property
    def reason(self) -> str: ...
    @property
    def last(self) -> Figures: ...


@dataclass(frozen=True, slots=True)
class ClosedClient:
    """A client that left, with its last figures."""

    facts: ClientFacts
    last: Figures
    stop_ms: int
    reason: str


class Clients:
    """All clients of a server; parts of the broker that connect to it are open, and no clients."""

    def __init__(self, remembered: int = _REMEMBERED) -> None:
        self.open: dict[int, Session] = {}
        self.closed: deque[ClosedClient] = deque(maxlen=remembered)
        self.reasons: Counter[str] = Counter()
        self._own: set[int] = set()
        self._nobody: asyncio.Event | None = None

    def __len__(self) -> int:
        return len(self.open) - len(self._own)

    def __iter__(self) -> Iterator[Session]:
        return iter(tuple(self.open.values()))

    def add(self, session: Session) -> None:
        """A client has come."""
        self.open[session.facts.cid] = session

    def set_own(self, session: Session, own: bool) -> None:
        """It is a part of the broker, or it is a client."""
        if own:
            self._own.add(session.facts.cid)
        else:
            self._own.discard(session.facts.cid)

    def listed(self) -> list[Session]:
        """The clients that are connected."""
        return [session for cid, session in self.open.items() if cid not in self._own]

    def remove(self, session: Session, left: ClosedClient) -> None:
        """A client has left."""
        if self.open.pop(session.facts.cid, None) is None:
            return
        if session.facts.cid in self._own:
            self._own.remove(session.facts.cid)
        else:
            self.closed.append(left)
            self.reasons[left.reason] += 1
        if not self.open and self._nobody is not None:
            self._nobody.set()
            self._nobody = None

    async def gone(self) -> None:
        """Wait until nobody is connected."""
        # Imported here: clients are greeted before there is an event loop.
        import asyncio

        while self.open:
            if self._nobody is None:
                self._nobody = asyncio.Event()
            await self._nobody.wait()
