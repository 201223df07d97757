"""AGENT.DISCOVER: agents by words, by meaning, by tags, alive ones or all.

Owns the request, the reply and how a reply is cut. What is found is the registry's.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic, time
from typing import TYPE_CHECKING, Annotated, Any

from pydantic_core import to_json

from mq9.commands.agent_card import with_fields
from mq9.commands.dispatcher import Call, Command
from mq9.commands.reply import Reply
from mq9.commands.request import Refusal, Request, between, read
from mq9.registry.link import SearchRefusedError, WorkerLostError
from mq9.registry.registry import STEP_AGENTS

if TYPE_CHECKING:
    from collections.abc import Generator

    from mq9.commands.context import Clients
    from mq9.commands.dispatcher import Steps
    from mq9.commands.scheduler import Pause
    from mq9.registry.link import Page
    from mq9.registry.registry import Registry
    from mq9.registry.roster import Agent

_LIMIT = 20
_MAX_LIMIT = 1000
_MAX_PAGE = 1_000_000
_MAX_QUERY_CHARS = 4096
_MAX_TAGS = 64
_MAX_FIELDS = 256
# Where a reply is cut, unless its first card is larger.
_MAX_REPLY_BYTES = 1 << 20


class DiscoverRequest(Request):
    """What to look for; all that is given must hold."""

    text: str | None = None
    semantic: str | None = None
    limit: Annotated[int, between(1, _MAX_LIMIT)] | None = None
    page: Annotated[int, between(1, _MAX_PAGE)] | None = None
    alive: bool | None = None
    tags: list[str] | None = None
    fields: list[str] | None = None
    status: bool | None = None
    scores: bool | None = None


class DiscoverReply(Reply):
    """Cards as they were registered; with `pending`, so many were not looked at yet."""

    agents: tuple[bytes, ...] = ()
    total: int = 0
    statuses: tuple[bytes, ...] | None = None
    scores: tuple[float, ...] | None = None
    pending: int = 0
    more: bool = False

    def json_bytes(self) -> bytes:
        """The reply as it is sent."""
        error = to_json(self.error)
        parts = [b'{"error":', error, b',"agents":[', b",".join(self.agents)]
        parts.append(b'],"total":%d' % self.total)
        if self.statuses is not None:
            parts += [b',"statuses":[', b",".join(self.statuses), b"]"]
        if self.scores is not None:
            parts += [b',"scores":', to_json(self.scores)]
        if self.pending:
            parts.append(b',"pending":%d' % self.pending)
        if self.more:
            parts.append(b',"more":true')
        return b"".join([*parts, b"}"])


@dataclass(frozen=True, slots=True)
class _Found:
    """Agents of a page, each with its score; how many on all pages; how many not looked at yet."""

    agents: list[tuple[Agent, float]]
    total: int
    missing: int = 0


class Discover:
    """Carries out AGENT.DISCOVER."""

    def __init__(self, clients: Clients, registry: Registry) -> None:
        self._clients = clients
        self._registry = registry
        self.command = Command(
            "AGENT.DISCOVER",
            self._answer,
            # It tells of agents alone: it need not wait for messages on their way to the disk.
            is_durable=lambda: registry.is_durable,
        )

    def _answer(self, call: Call) -> Steps:
        request = read(DiscoverRequest, call.payload)
        _check(request)
        return self._discover(call.cid, request)

    def _discover(self, cid: int, request: DiscoverRequest) -> Steps:
        registry = self._registry
        registry.wake()
        if loading := registry.loading:
            yield loading
            if error := loading.exception():
                raise Refusal(f"the agents cannot be loaded: {error}")
        yield from registry.expire()
        count = request.limit or _LIMIT
        first = ((request.page or 1) - 1) * count
        if not (request.text or "").strip() and not (request.semantic or "").strip():
            found = yield from self._listed(request, first, count)
        else:
            found = yield from self._found(cid, request, first, count)
        return (yield from self._reply(request, found))

    def _listed(
        self, request: DiscoverRequest, first: int, count: int
    ) -> Generator[Pause, None, _Found]:
        roster = self._registry.roster
        now_ms = int(time() * 1000)
        choice = roster.chosen(request.tags or (), alive=bool(request.alive), now_ms=now_ms)
        agents: list[Agent] = []
        total = yield from choice.steps(first, count, agents)
        # Nothing was looked for: no one is better than another.
        return _Found([(agent, 0.0) for agent in agents], total)

    def _found(
        self, cid: int, request: DiscoverRequest, first: int, count: int
    ) -> Generator[Pause, None, _Found]:
        asked: dict[str, Any] = {
            "text": request.text or "",
            # Blank is as if it were left out.
            "semantic": request.semantic if (request.semantic or "").strip() else None,
            "tags": request.tags or [],
            "alive_ms": int(time() * 1000) if request.alive else None,
            "first": first,
            "count": count,
            "scores": bool(request.scores),
        }
        link = self._registry.link
        until_s = link.patience_ends_s()
        page: Page | None = None
        while page is None:
            search = link.search(cid, asked, until_s, lambda: cid in self._clients.open)
            yield search
            try:
                page = search.result()
            except SearchRefusedError as error:
                raise Refusal(str(error)) from None
            except WorkerLostError:
                # The next worker is asked, if it comes in time.
                page = link.unsearched() if monotonic() >= until_s else None
        find = self._registry.roster.order.find
        pairs = zip(page.numbers, page.scores or [0.0] * len(page.numbers), strict=True)
        # One may have gone meanwhile.
        found = [(agent, score) for number, score in pairs if (agent := find(number)) is not None]
        return _Found(found, page.total, page.missing)

    def _reply(self, request: DiscoverRequest, found: _Found) -> Steps:
        cards: list[bytes] = []
        statuses: list[bytes] | None = [] if request.status else None
        scores: list[float] | None = [] if request.scores else None
        kept = [*request.fields, "mailbox"] if request.fields is not None else None
        size, more, at = 0, False, 0
        while at < len(found.agents) and not more:
            if at:
                yield None
            some = found.agents[at : at + STEP_AGENTS]
            read = self._registry.cards([agent for agent, _ in some])
            told = self._statuses(some[: len(read)]) if request.status else [b""] * len(read)
            at += len(told)
            for (_, score), card, status in zip(some, read, told, strict=False):
                if card is None:
                    continue
                shown = card if kept is None else with_fields(card, kept)
                size += len(shown) + len(status) + 2
                if size > _MAX_REPLY_BYTES and cards:
                    more = True
                    break
                cards.append(shown)
                if statuses is not None:
                    statuses.append(status)
                if scores is not None:
                    scores.append(score)
        return DiscoverReply(
            agents=tuple(cards),
            total=found.total,
            statuses=None if statuses is None else tuple(statuses),
            scores=None if scores is None else tuple(scores),
            pending=found.missing,
            more=more,
        )

    def _statuses(self, found: list[tuple[Agent, float]]) -> list[bytes]:
        """What is known of the first of these agents, beside their cards."""
        now_ms = int(time() * 1000)
        agents = [agent for agent, _ in found]
        pairs = zip(agents, self._registry.reports(agents), strict=False)
        return [_status(agent, report, now_ms) for agent, report in pairs]


def _status(agent: Agent, report: bytes | None, now_ms: int) -> bytes:
    head = to_json(
        {
            "registered": agent.registered_ms // 1000,
            "last_seen": agent.seen_ms // 1000,
            "alive": agent.alive_until_ms > now_ms,
        }
    )
    return head[:-1] + b',"report":' + (report if report and agent.reported_ms else b"null") + b"}"


def _check(request: DiscoverRequest) -> None:
    for name in ("text", "semantic"):
        query = getattr(request, name)
        if query is not None and len(query) > _MAX_QUERY_CHARS:
            raise Refusal(
                f"{name} has {len(query)} characters: at most {_MAX_QUERY_CHARS} are allowed"
            )
    for name, given, most in (
        ("tags", request.tags, _MAX_TAGS),
        ("fields", request.fields, _MAX_FIELDS),
    ):
        if given is not None and len(given) > most:
            raise Refusal(f"there are {len(given)} {name}: at most {most} are allowed")
