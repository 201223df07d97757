"""AGENT.REGISTER, UNREGISTER and REPORT: who is there, how they are, and who may say so.

Owns who may change an agent, how many there may be, and how much they may take.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mq9.commands.agent_card import read_card, read_report, read_who
from mq9.commands.dispatcher import PREFIX, Call, Command
from mq9.commands.permission import is_operator, user_of
from mq9.commands.reply import Reply
from mq9.commands.request import Refusal, shown
from mq9.registry.registry import entry_bytes

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from mq9.commands.agent_card import AgentCard, Who
    from mq9.commands.context import ServerContext
    from mq9.commands.dispatcher import Steps
    from mq9.registry.registry import Registry
    from mq9.registry.roster import Agent


class Agents:
    """Carries out the commands that change the registry."""

    def __init__(self, server: ServerContext, registry: Registry) -> None:
        self._server = server
        self._registry = registry
        self.commands = (
            Command("AGENT.REGISTER", self._register, limit="max_card"),
            # It may be given the whole card.
            Command("AGENT.UNREGISTER", self._unregister, limit="max_card", changes=True),
            Command("AGENT.REPORT", self._report, changes=True),
        )

    def _register(self, call: Call) -> Reply | Steps:
        card = read_card(call.payload)
        return self._when_loaded(lambda: self._enter(call, card), self._users_are_counted())

    def _enter(self, call: Call, card: AgentCard) -> Reply:
        user = self._user(call)
        known = self._registry.known(card.address)
        if known is None:
            self._check_room(user)
        else:
            self._check_owner(call, known)
            # An operator who replaces a card does not take it over.
            user = known.owner or user
        self._check_size(
            user, entry_bytes(card.address, card.body) - (known.card_bytes if known else 0)
        )
        self._registry.register(card.address, card.body, card.ttl_s, card.tags, card.name, user)
        return Reply()

    def _unregister(self, call: Call) -> Reply | Steps:
        return self._act(
            call,
            read_who(call.payload),
            lambda agent: self._registry.unregister(agent.address),
        )

    def _report(self, call: Call) -> Reply | Steps:
        who, body = read_report(call.payload)
        return self._act(call, who, lambda agent: self._keep_report(agent, body))

    def _keep_report(self, agent: Agent, body: bytes) -> bool:
        self._check_size(agent.owner, entry_bytes(agent.address, body) - agent.report_bytes)
        return self._registry.report(agent.address, body)

    def _act(self, call: Call, who: Who, act: Callable[[Agent], bool]) -> Reply | Steps:
        # Who has a name is known when all agents are.
        needed = who.address is None or self._users_are_counted()
        return self._when_loaded(lambda: self._act_now(call, who, act), needed)

    def _users_are_counted(self) -> bool:
        """Whether it matters how much each user has, which is known when all agents are."""
        options = self._server.options
        return options.max_agents_per_user > 0 or options.max_agent_bytes_per_user > 0

    def _when_loaded(self, act: Callable[[], Reply], needed: bool) -> Reply | Steps:
        self._registry.wake()
        loading = self._registry.loading
        return act() if loading is None or not needed else self._later(loading, act)

    def _later(self, loading: asyncio.Task[None], act: Callable[[], Reply]) -> Steps:
        yield loading
        if error := loading.exception():
            raise Refusal(f"the agents cannot be loaded: {error}")
        return act()

    def _act_now(self, call: Call, who: Who, act: Callable[[Agent], bool]) -> Reply:
        agent = self._meant(who, self._user(call))
        self._check_owner(call, agent)
        act(agent)
        return Reply()

    def _meant(self, who: Who, user: str) -> Agent:
        if who.address is not None:
            agent = self._registry.known(who.address)
            if agent is None:
                raise Refusal(f"agent {who.address} is not registered", "agent_not_found")
            return agent
        found = self._registry.named(who.name, 2)
        if not found:
            raise Refusal(f"agent {shown(who.name)} is not registered", "agent_not_found")
        if len(found) > 1 and user:
            # Others cannot take a name away by registering agents of that name.
            found = self._registry.named(who.name, 2, user)
        if len(found) != 1:
            raise Refusal(f"several agents have the name {shown(who.name)}: give mailbox")
        return found[0]

    def _user(self, call: Call) -> str:
        return user_of(call.client, self._server.options)

    def _check_owner(self, call: Call, agent: Agent) -> None:
        if not self._server.options.authorization.required or not agent.owner:
            return
        subject = f"{PREFIX}ADMIN.{call.subject.removeprefix(PREFIX)}"
        if self._user(call) != agent.owner and not is_operator(call.client, subject):
            raise Refusal(
                f"permission denied: agent {agent.address} was registered by another user; "
                "only that user and operators may do this",
                "access_denied",
            )

    def _check_room(self, user: str) -> None:
        options = self._server.options
        if options.max_agents and (count := self._registry.count) >= options.max_agents:
            raise Refusal(
                f"there are {count} agents: no more are allowed (max_agents)", "quota_exceeded"
            )
        most = options.max_agents_per_user
        if user and most and (count := self._registry.count_of(user)) >= most:
            raise Refusal(
                f"user {user} has {count} agents: no more are allowed (max_agents_per_user)",
                "quota_exceeded",
            )

    def _check_size(self, user: str, more: int) -> None:
        """Whatever takes less than before is let through."""
        options = self._server.options
        most = options.max_agent_bytes
        if most and more > 0 and self._registry.size + more > most:
            raise Refusal(
                f"the cards and reports of agents would take more than {most} bytes "
                "(max_agent_bytes)",
                "quota_exceeded",
            )
        most = options.max_agent_bytes_per_user
        if user and most and more > 0 and self._registry.size_of(user) + more > most:
            raise Refusal(
                f"the cards and reports of user {user} would take more than {most} bytes "
                "(max_agent_bytes_per_user)",
                "quota_exceeded",
            )
