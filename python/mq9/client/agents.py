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


class Cards(list[Card]):
    """Cards of agents, best match first, and how much of all that is."""

    def __init__(self, page: "AgentPage") -> None:
        """The cards of a page."""
        super().__init__(page.cards)
        self.total = page.total
        """How many there are on all pages."""
        self.pending = page.pending
        """Agents that could not be looked at yet: ask again if one is missing."""
        self.more = page.more
        """Whether the list was cut because the reply would have been too large."""


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
    scores: tuple[float, ...]
    """One for each card, if they were asked for: greater is better, within one search."""

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
            scores=tuple(answer.get("scores", ())),
        )
