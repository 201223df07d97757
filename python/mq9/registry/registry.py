"""The registry of agents in a broker: cards and reports in the store, who is there in memory, and
the worker that finds them.

Owns what is written to the store and in which order. Knows nothing of requests and replies.
"""

from __future__ import annotations

import asyncio
import gc
import json
from itertools import islice
from time import perf_counter, time
from typing import TYPE_CHECKING

from mq9._core import json_select
from mq9.errors import MailboxNotFound, StoreError
from mq9.registry.link import Link
from mq9.registry.roster import MAX_NAME_CHARS, Agent, Roster

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from mq9.registry.link import Log
    from mq9.store import Message, Store

AGENTS = "$agents"
REPORTS = "$reports"
FOLDER = "agents"
"""Where in the data directory the worker keeps its files."""

STEP_AGENTS = 32
"""So many cards are read in one go."""

# What the broker's thread reads in one go. Messages wait meanwhile.
_STEP_MESSAGES = 64
_STEP_BYTES = 64 << 10
# What loading and expiring may take of one round of the loop.
_ROUND_S = 0.001
# No card was ever taken that has more levels.
_MAX_DEPTH = 64
# So many new agents are kept from the garbage collector at a time.
_MANY_NEW = 5000
# The longest sleep until agents are looked for whose time is over.
_MAX_SLEEP_S = 3600.0


class Registry:
    """All agents of a broker; belongs to the event loop."""

    def __init__(self, store: Store, log: Log, embedder: str) -> None:
        self._store = store
        self._log = log
        self.roster = Roster()
        self.link = Link(
            self.roster.order, self.card, folder=store.path / FOLDER, embedder=embedder, log=log
        )
        self._loading: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._expiring: asyncio.Task[None] | None = None
        self._closed = False
        self._new = 0
        # What was there before is durable with all that is in the log by now.
        self._changed_at = store.end()

    def start(self) -> None:
        """Load what is stored, if there is anything."""
        if self._exists(AGENTS):
            self.wake()

    def wake(self) -> None:
        """Load what is stored and start the worker, unless that is done."""
        if not self._is_loaded and self.loading is None and not self._closed:
            self._loading = asyncio.get_running_loop().create_task(self._load())

    def close(self) -> None:
        """Stop the worker and all that is under way."""
        self._closed = True
        self.link.close()
        for task in (self._loading, self._expiring):
            if task is not None:
                task.cancel()
        if self._timer is not None:
            self._timer.cancel()

    @property
    def loading(self) -> asyncio.Task[None] | None:
        """What to wait for until all agents are known; None if they are, or that failed."""
        return None if self._loading is None or self._loading.done() else self._loading

    @property
    def _is_loaded(self) -> bool:
        """Whether the roster has all agents: else the store knows more."""
        done = self._loading
        return done is not None and done.done() and not done.cancelled() and not done.exception()

    def register(
        self,
        address: str,
        body: bytes,
        ttl_s: int,
        tags: tuple[str, ...],
        name: str = "",
        owner: str = "",
    ) -> None:
        """Enter an agent with its card, or replace it; a `ttl_s` of 0 is for ever."""
        self.wake()
        now_ms = _now_ms()
        known = self.find(address, now_ms)
        name = name if len(name) <= MAX_NAME_CHARS else ""
        number = self._send(AGENTS, address, body, _notes(ttl_s, tags, name, owner))
        agent = Agent(address, number, now_ms, ttl_s * 1000, tags, name=name, owner=owner)
        agent.card_bytes = entry_bytes(address, body)
        if known:
            agent.reported_ms, agent.report_bytes = known.reported_ms, known.report_bytes
        self._changed(self.roster.put(agent))
        self._count_new()
        self._watch(agent)

    def unregister(self, address: str) -> bool:
        """Take an agent out; False if it is not there."""
        self.wake()
        agent = self.find(address, _now_ms())
        if agent is None:
            return False
        self._remove(agent)
        return True

    def report(self, address: str, body: bytes) -> bool:
        """An agent is alive; False if it is not there."""
        self.wake()
        now_ms = _now_ms()
        agent = self.find(address, now_ms)
        if agent is None:
            return False
        self._send(REPORTS, address, body)
        # Not in the roster while it is being loaded: then the loading finds the report.
        if known := self.roster.get(address):
            self.roster.reported(known, now_ms, entry_bytes(address, body))
            self.link.seen(known)
        return True

    def known(self, address: str) -> Agent | None:
        """The agent at this address, if it is there now."""
        return self.find(address, _now_ms())

    def named(self, name: str, most: int, owner: str | None = None) -> list[Agent]:
        """Up to `most` agents with this name, of one user if given; only those that are loaded."""
        now_ms = _now_ms()
        found = (agent for agent in self.roster.named(name, owner) if not agent.is_gone(now_ms))
        return list(islice(found, most))

    @property
    def count(self) -> int:
        """How many agents there are."""
        if self._is_loaded:
            return len(self.roster)
        try:
            return self._store.mailbox(AGENTS).messages
        except MailboxNotFound:
            return 0

    def health(self) -> dict[str, int]:
        """How many agents there are, and how far those who search for them are behind."""
        return {
            "agents": self.count,
            "bytes": self.size,
            "unread": self.link.unread,
            "set_aside": self.link.set_aside,
        }

    def count_of(self, owner: str) -> int:
        """How many a user has registered; those that are not loaded yet are left out."""
        return self.roster.count_of(owner)

    @property
    def size(self) -> int:
        """What the cards and reports of all agents take."""
        if self._is_loaded:
            return self.roster.size
        found = self._store.mailboxes_at([AGENTS, REPORTS])
        return sum(mailbox.bytes for mailbox in found if mailbox)

    def size_of(self, owner: str) -> int:
        """The same of those a user has registered; those that are not loaded yet are left out."""
        return self.roster.size_of(owner)

    @property
    def is_durable(self) -> bool:
        """Whether all that is known of agents is; messages may still be under way to the disk."""
        return self._store.acknowledged() >= self._changed_at

    def find(self, address: str, now_ms: int) -> Agent | None:
        """The agent at this address, if its time is not over."""
        agent = self.roster.get(address)
        if agent is None and not self._is_loaded:
            agent = self._stored(address)
        return None if agent is None or agent.is_gone(now_ms) else agent

    def card(self, agent: Agent) -> bytes | None:
        """The card as it was registered; None if it is gone."""
        message = self._newest(AGENTS, agent.address)
        return None if message is None or message.msg_id != agent.number else message.payload

    def cards(self, agents: Sequence[Agent]) -> list[bytes | None]:
        """The cards of up to `STEP_AGENTS`, None where one is gone; ends early after many bytes."""
        messages = self._messages_of(AGENTS, agents)
        return [
            message.payload if message is not None and message.msg_id == agent.number else None
            for agent, message in zip(agents, messages, strict=False)
        ]

    def reports(self, agents: Sequence[Agent]) -> list[bytes | None]:
        """What up to `STEP_AGENTS` last reported; ends early after many bytes."""
        if not any(agent.reported_ms for agent in agents):
            return [None] * len(agents)
        messages = self._messages_of(REPORTS, agents)
        return [None if message is None else message.payload for message in messages]

    def _messages_of(self, mailbox: str, agents: Sequence[Agent]) -> list[Message | None]:
        addresses = [agent.address for agent in agents]
        try:
            return self._store.messages_of(mailbox, addresses, max_bytes=_STEP_BYTES)
        except MailboxNotFound:
            return [None] * len(addresses)

    def expire(self) -> Generator[None, None, None]:
        """Takes out all whose time is over, in steps."""
        end = perf_counter() + _ROUND_S
        while (agent := self.roster.overdue(_now_ms())) is not None:
            try:
                self._remove(agent)
            except StoreError as error:
                # Gone all the same; the next start takes it out of the store.
                self._log.error("an expired agent stays in the store", error=error)
                self._changed(self.roster.pop(agent.address))
            if perf_counter() >= end:
                yield
                end = perf_counter() + _ROUND_S

    def _remove(self, agent: Agent) -> None:
        # The card first: a report without one is removed when agents are loaded.
        for mailbox in (AGENTS, REPORTS):
            if message := self._newest(mailbox, agent.address):
                self._delete(mailbox, message.msg_id)
        self._changed(self.roster.pop(agent.address))

    def _changed(self, old: Agent | None) -> None:
        if old is not None:
            self.link.drop(old)
        self.link.wake()

    def _count_new(self) -> None:
        """Agents are no garbage: to look through a million for some would stop all for 0.3 s."""
        self._new += 1
        if self._new >= _MANY_NEW:
            self._new = 0
            gc.collect(1)
            gc.freeze()

    def _send(self, mailbox: str, address: str, body: bytes, notes: bytes = b"") -> int:
        try:
            return self._store.send(mailbox, body, key=address, headers=notes)
        except MailboxNotFound:
            self._store.create_mailbox(mailbox)
            return self._store.send(mailbox, body, key=address, headers=notes)
        finally:
            self._changed_at = self._store.end()

    def _delete(self, mailbox: str, number: int) -> None:
        try:
            self._store.delete(mailbox, number)
        finally:
            self._changed_at = self._store.end()

    def _exists(self, mailbox: str) -> bool:
        try:
            return self._store.mailbox(mailbox).messages > 0
        except MailboxNotFound:
            return False

    def _newest(self, mailbox: str, address: str) -> Message | None:
        try:
            return next(iter(self._store.query(mailbox, key=address, limit=1)), None)
        except MailboxNotFound:
            return None

    def _stored(self, address: str) -> Agent | None:
        message = self._newest(AGENTS, address)
        if message is None:
            return None
        agent = _agent(message)
        if report := self._newest(REPORTS, address):
            agent.reported_ms = report.create_ms
            agent.report_bytes = _entry_bytes_of(report)
        return agent

    async def _load(self) -> None:
        try:
            await self._load_all()
        except StoreError as error:
            self._log.error("agents cannot be loaded: the next request tries again", error=error)
            raise

    async def _load_all(self) -> None:
        for message in self._messages(AGENTS):
            if message is None:
                await asyncio.sleep(0)
            elif message.key:
                self.roster.load(_agent(message))
                self._count_new()
        for message in self._messages(REPORTS):
            if message is None:
                await asyncio.sleep(0)
            elif agent := self.roster.get(message.key):
                self.roster.load_report(agent, message.create_ms, _entry_bytes_of(message))
            else:
                self._delete(REPORTS, message.msg_id)
        for _ in self.roster.settle(_now_ms()):
            await asyncio.sleep(0)
        await self._expire()
        self.link.start()

    def _messages(self, mailbox: str) -> Generator[Message | None, None, None]:
        """All that a mailbox holds, with None where others should have their turn."""
        after: int | None = None
        end = perf_counter() + _ROUND_S
        while True:
            try:
                some = self._store.query(
                    mailbox, after_id=after, limit=_STEP_MESSAGES, max_bytes=_STEP_BYTES
                )
            except MailboxNotFound:
                return
            if not some:
                return
            after = some[-1].msg_id
            # Nothing may change between the look into the store and what is made of it.
            yield from some
            if perf_counter() >= end:
                yield None
                end = perf_counter() + _ROUND_S

    async def _expire(self) -> None:
        for _ in self.expire():
            await asyncio.sleep(0)
        self._set_timer()

    def _watch(self, agent: Agent) -> None:
        if agent.ttl_ms and (not self._timer_ms or agent.alive_until_ms < self._timer_ms):
            self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self._timer_ms = None, 0
        deadline_ms = self.roster.next_deadline_ms()
        if deadline_ms is None or self._closed:
            return
        sleep_s = min(max((deadline_ms - _now_ms()) / 1000, 0.0), _MAX_SLEEP_S)
        self._timer_ms = deadline_ms
        self._timer = asyncio.get_running_loop().call_later(sleep_s, self._due)

    def _due(self) -> None:
        self._timer, self._timer_ms = None, 0
        self._expiring = asyncio.get_running_loop().create_task(self._expire())


def _now_ms() -> int:
    return int(time() * 1000)


def entry_bytes(address: str, body: bytes) -> int:
    """What a card or report counts."""
    return len(address) + len(body)


def _entry_bytes_of(message: Message) -> int:
    return entry_bytes(message.key, message.payload)


def _notes(ttl_s: int, tags: tuple[str, ...], name: str, owner: str) -> bytes:
    """What the broker has to know of a card, so that it need not be read to load it."""
    notes: dict[str, object] = {"ttl": ttl_s} if ttl_s else {}
    if tags:
        notes["tags"] = tags
    # Also where there is none: cards of before have no such note, and are read for it.
    notes["name"] = name
    if owner:
        notes["owner"] = owner
    return json.dumps(notes, separators=(",", ":"), ensure_ascii=False).encode()


def _agent(message: Message) -> Agent:
    notes = json.loads(message.headers) if message.headers else {}
    name = notes["name"] if "name" in notes else _name(message.payload)
    return Agent(
        message.key,
        message.msg_id,
        message.create_ms,
        notes.get("ttl", 0) * 1000,
        tuple(notes.get("tags", ())),
        name=name,
        owner=notes.get("owner", ""),
        card_bytes=_entry_bytes_of(message),
    )


def _name(body: bytes) -> str:
    try:
        picked = json_select(body, ["name"], max_depth=_MAX_DEPTH, unique=False)
    except ValueError:
        return ""
    name = json.loads(picked).get("name")
    return name if isinstance(name, str) and len(name) <= MAX_NAME_CHARS else ""
