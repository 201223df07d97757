"""Agents as DISCOVER shows them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

Card = dict[str, Any]


@dataclass(frozen=True, slots=True)
class AgentStatus:
    """How an agent is; times in Unix seconds."""

    registered: int
    last_seen: int
    """When it last reported, or was registered."""
    alive: bool
    report: Card | None
    """What it last reported, as it came."""


@dataclass(frozen=True, slots=True)
class AgentPage:
    """A page of agents, best match first."""

    cards: tuple[Card, ...]
    """As they were registered."""
    total: int
    """How many there are on all pages."""
    pending: int
    """Agents that could not be looked at yet: the broker is still reading their cards."""
    more: bool
    """Whether the page was cut because the reply would have been too large."""
    statuses: tuple[AgentStatus, ...]
    """One for each card, if they were asked for."""

    @classmethod
    def from_answer(cls, answer: Mapping[str, Any]) -> Self:
        """From a reply to AGENT.DISCOVER."""
        known = AgentStatus.__slots__
        return cls(
            cards=tuple(answer["agents"]),
            total=answer["total"],
            pending=answer.get("pending", 0),
            more=answer.get("more", False),
            statuses=tuple(
                AgentStatus(**{name: status[name] for name in known})
                for status in answer.get("statuses", ())
            ),
        )
