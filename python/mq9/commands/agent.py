"""AGENT.REGISTER, UNREGISTER and REPORT: who is there, and how they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mq9.commands.agent_card import read_address, read_card, read_report
from mq9.commands.desk import Call, Command
from mq9.commands.reply import Reply
from mq9.commands.request import Refusal

if TYPE_CHECKING:
    from mq9.registry.registry import Registry


class Agents:
    """Carries out the commands that change the registry."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self.commands = (
            Command("AGENT.REGISTER", self._register, _failure, limit="max_card"),
            # It may be given the whole card.
            Command("AGENT.UNREGISTER", self._unregister, _failure, limit="max_card"),
            Command("AGENT.REPORT", self._report, _failure),
        )

    def _register(self, call: Call) -> Reply:
        card = read_card(call.payload)
        self._registry.register(card.address, card.body, card.ttl_s, card.tags)
        return Reply()

    def _unregister(self, call: Call) -> Reply:
        address = read_address(call.payload)
        if not self._registry.unregister(address):
            raise _unknown(address)
        return Reply()

    def _report(self, call: Call) -> Reply:
        address, body = read_report(call.payload)
        if not self._registry.report(address, body):
            raise _unknown(address)
        return Reply()


def _failure(error: str) -> Reply:
    return Reply(error=error)


def _unknown(address: str) -> Refusal:
    return Refusal(f"agent {address} is not registered")
