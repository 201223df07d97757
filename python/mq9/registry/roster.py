"""The registered agents: a small entry for each, and the sets that filters need.

Owns when an agent counts as alive and when it expires. Cards are not here. Reads no clock, no
store.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import chain, islice
from typing import TYPE_CHECKING

from mq9.registry.order import Order

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Iterator, Sequence

ALIVE_MS = 90_000
"""How long an agent without a ttl counts as alive after it was last heard of."""
MAX_NAME_CHARS = 512
"""Who has a longer name is not known by it."""
# A set that is much smaller than all is sorted; otherwise all are gone through in order.
_FEW = 8
# Agents heard of within so long are sorted at once.
_SPAN_MS = 10
# Agents looked at before others have their turn.
_STEP = 500


@dataclass(slots=True, eq=False)
class Agent:
    """One agent; `number` is the `msg_id` of its card."""

    address: str
    number: int
    registered_ms: int
    ttl_ms: int
    """0: it never expires."""
    tags: tuple[str, ...]
    reported_ms: int = 0
    """When it last reported; 0 is never."""
    name: str = ""
    owner: str = ""
    """The user who registered it; empty where nobody had to say who they are."""
    card_bytes: int = 0
    report_bytes: int = 0

    @property
    def size(self) -> int:
        """What its card and its last report take."""
        return self.card_bytes + self.report_bytes

    @property
    def seen_ms(self) -> int:
        """When it was last heard of."""
        return max(self.registered_ms, self.reported_ms)

    @property
    def alive_until_ms(self) -> int:
        """When it no longer counts as alive, unless it is heard of."""
        return self.seen_ms + (self.ttl_ms or ALIVE_MS)

    def is_gone(self, now_ms: int) -> bool:
        """Whether its ttl is over."""
        return self.ttl_ms > 0 and now_ms >= self.alive_until_ms


class Roster:
    """All agents, by address, by number, by tag and by when they were last heard of."""

    def __init__(self) -> None:
        self.order: Order[Agent] = Order()
        self._by_address: dict[str, Agent] = {}
        self._by_tag: dict[str, set[Agent]] = {}
        # Most names are those of one agent, which needs no sets; the others are by owner.
        self._by_name: dict[str, Agent | dict[str, set[Agent]]] = {}
        self._by_owner: Counter[str] = Counter()
        self._bytes_by_owner: Counter[str] = Counter()
        self.size = 0
        # Those with a ttl are alive while they are here.
        self._with_ttl: set[Agent] = set()
        # The others, by when they were last heard of; those that were not for long are left out.
        self._recent: dict[Agent, None] = {}
        self._deadlines: list[tuple[int, int, Agent]] = []
        self._settled = False
        self._late: list[Agent] = []

    def __len__(self) -> int:
        return len(self._by_address)

    def get(self, address: str) -> Agent | None:
        """The agent at this address."""
        return self._by_address.get(address)

    def put(self, agent: Agent) -> Agent | None:
        """An agent was registered; the one whose place it takes."""
        old = self.pop(agent.address)
        self._add(agent)
        self._heard_of(agent)
        return old

    def _add(self, agent: Agent) -> None:
        self._by_address[agent.address] = agent
        self.order.add(agent)
        for tag in agent.tags:
            self._by_tag.setdefault(tag, set()).add(agent)
        if agent.name:
            self._keep_name(agent)
        if agent.owner:
            self._by_owner[agent.owner] += 1
        self._count_bytes(agent, agent.size)

    def _count_bytes(self, agent: Agent, more: int) -> None:
        self.size += more
        if agent.owner:
            self._bytes_by_owner[agent.owner] += more

    def _keep_name(self, agent: Agent) -> None:
        others = self._by_name.setdefault(agent.name, agent)
        if others is agent:
            return
        if isinstance(others, Agent):
            others = self._by_name[agent.name] = {others.owner: {others}}
        others.setdefault(agent.owner, set()).add(agent)

    def named(self, name: str, owner: str | None = None) -> Iterator[Agent]:
        """Those with this name, or those of them that a user registered, while nothing changes."""
        found = self._by_name.get(name)
        if isinstance(found, Agent):
            return iter((found,) if owner in (None, found.owner) else ())
        if found is None or owner is not None:
            return iter((found or {}).get(owner or "", ()))
        return chain.from_iterable(found.values())

    def count_of(self, owner: str) -> int:
        """How many a user has registered."""
        return self._by_owner[owner]

    def size_of(self, owner: str) -> int:
        """What the cards and reports take of those that a user has registered."""
        return self._bytes_by_owner[owner]

    def pop(self, address: str) -> Agent | None:
        """An agent is gone."""
        agent = self._by_address.pop(address, None)
        if agent is None:
            return None
        self.order.remove(agent.number)
        for tag in agent.tags:
            holders = self._by_tag[tag]
            holders.discard(agent)
            if not holders:
                del self._by_tag[tag]
        self._forget_name(agent)
        if agent.owner:
            self._by_owner[agent.owner] -= 1
            if not self._by_owner[agent.owner]:
                del self._by_owner[agent.owner]
        self._count_bytes(agent, -agent.size)
        if agent.owner not in self._by_owner:
            self._bytes_by_owner.pop(agent.owner, None)
        self._with_ttl.discard(agent)
        self._recent.pop(agent, None)
        # Entries of agents that are gone may become the most, if many come and go.
        if len(self._deadlines) > 2 * len(self._with_ttl) + 1000:
            self._deadlines = [each for each in self._deadlines if self._is_here(each[2])]
            heapify(self._deadlines)
        return agent

    def _forget_name(self, agent: Agent) -> None:
        others = self._by_name.get(agent.name)
        if isinstance(others, dict):
            others[agent.owner].discard(agent)
            if not others[agent.owner]:
                del others[agent.owner]
        if not others or others is agent:
            self._by_name.pop(agent.name, None)

    def reported(self, agent: Agent, now_ms: int, size: int) -> None:
        """An agent was heard of, by a report of this size."""
        agent.reported_ms = now_ms
        self._keep_report(agent, size)
        self._heard_of(agent)

    def load_report(self, agent: Agent, reported_ms: int, size: int) -> None:
        """A report from before the start, or from meanwhile; until `settle`."""
        agent.reported_ms = max(agent.reported_ms, reported_ms)
        self._keep_report(agent, size)

    def _keep_report(self, agent: Agent, size: int) -> None:
        self._count_bytes(agent, size - agent.report_bytes)
        agent.report_bytes = size

    def load(self, agent: Agent) -> None:
        """An agent that was registered before the start; until `settle`."""
        known = self._by_address.get(agent.address)
        # It may have been registered anew meanwhile.
        if known is None:
            self._add(agent)

    def settle(self, now_ms: int) -> Iterator[None]:
        """All are loaded: brings them into the order of when they were heard of, in steps."""
        by_time: dict[int, list[Agent]] = {}
        number = -1
        while some := list(islice(self.order.behind(number), _STEP)):
            number = some[-1].number
            for agent in some:
                if agent.ttl_ms:
                    self._expect(agent)
                elif agent.alive_until_ms > now_ms:
                    by_time.setdefault(agent.seen_ms // _SPAN_MS, []).append(agent)
            yield
        sorted_now = 0
        for time in sorted(by_time):
            for agent in sorted(by_time[time], key=lambda agent: agent.seen_ms):
                self._recent[agent] = None
            sorted_now += len(by_time[time])
            if sorted_now >= _STEP:
                sorted_now = 0
                yield
        self._settled = True
        for agent in self._late:
            if self._is_here(agent):
                self._heard_of(agent)
        self._late.clear()

    def _heard_of(self, agent: Agent) -> None:
        if not self._settled:
            self._late.append(agent)
        elif agent.ttl_ms:
            self._expect(agent)
        else:
            self._recent.pop(agent, None)
            self._recent[agent] = None

    def _expect(self, agent: Agent) -> None:
        # One entry is enough: when its time comes, it is seen whether that has moved.
        if agent not in self._with_ttl:
            self._with_ttl.add(agent)
            heappush(self._deadlines, (agent.alive_until_ms, agent.number, agent))

    def overdue(self, now_ms: int) -> Agent | None:
        """One whose ttl is over, if there is one."""
        while self._deadlines and self._deadlines[0][0] <= now_ms:
            _, _, agent = heappop(self._deadlines)
            if not self._is_here(agent):
                continue
            if agent.is_gone(now_ms):
                return agent
            heappush(self._deadlines, (agent.alive_until_ms, agent.number, agent))
        return None

    def next_deadline_ms(self) -> int | None:
        """When to look for overdue agents; there may be none yet."""
        return self._deadlines[0][0] if self._deadlines else None

    def chosen(self, tags: Sequence[str], *, alive: bool, now_ms: int) -> Choice:
        """Those with all these tags, and only those alive if asked for."""
        if alive:
            self._drop_silent(now_ms)
        sets: list[Collection[Agent]] = [self._by_tag.get(tag, ()) for tag in set(tags)]
        return Choice(self, sets, alive=alive)

    def count_alive(self) -> int:
        """How many are alive, as of the last `chosen`."""
        return len(self._with_ttl) + len(self._recent)

    def alive(self) -> Iterator[Agent]:
        """All who are alive, as of the last `chosen`."""
        yield from self._with_ttl
        yield from self._recent

    def is_alive(self, agent: Agent) -> bool:
        """Whether one is alive, as of the last `chosen`."""
        return agent in self._with_ttl or agent in self._recent

    def _drop_silent(self, now_ms: int) -> None:
        silent = []
        for agent in self._recent:
            if agent.alive_until_ms > now_ms:
                break
            silent.append(agent)
        for agent in silent:
            del self._recent[agent]

    def _is_here(self, agent: Agent) -> bool:
        return self._by_address.get(agent.address) is agent


class Choice:
    """The agents that a filter lets through; `total` and `part` cost what has to be looked at."""

    def __init__(self, roster: Roster, sets: list[Collection[Agent]], *, alive: bool) -> None:
        self._roster = roster
        self._alive = alive
        self._sets = sorted(sets, key=len)
        self.is_all = not sets and not alive

    def steps(self, first: int, count: int, found: list[Agent]) -> Generator[None, None, int]:
        """Finds a part of them, in steps, and returns how many there are in all."""
        roster = self._roster
        if self.is_all:
            found += roster.order.part(first, count)
            return len(roster)
        smallest = len(self._sets[0]) if self._sets else roster.count_alive()
        if len(self._sets) + self._alive == 1 and smallest * _FEW > len(roster):
            yield from self._walk(first, count, found)
            return smallest
        pool = list(self._sets[0] if self._sets else roster.alive())
        fitting = []
        for start in range(0, len(pool), _STEP):
            fitting += [agent for agent in pool[start : start + _STEP] if self._fits(agent)]
            yield
        fitting.sort(key=lambda agent: agent.number)
        found += fitting[first : first + count]
        return len(fitting)

    def _walk(self, first: int, count: int, found: list[Agent]) -> Generator[None, None, None]:
        number = -1
        while len(found) < count:
            some = list(islice(self._roster.order.behind(number), _STEP))
            if not some:
                return
            number = some[-1].number
            fitting = [agent for agent in some if self._fits(agent)]
            found += fitting[first : first + count - len(found)]
            first = max(0, first - len(fitting))
            yield

    def _fits(self, agent: Agent) -> bool:
        return all(agent in each for each in self._sets) and (
            not self._alive or self._roster.is_alive(agent)
        )
