"""MAILBOX.QUERY: gives the messages of an inbox that nobody has read, so that they are read.

Owns who may ask. The broker's thread reads, answers and has them read, in one step.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Literal

from mq9.commands.address import check_address
from mq9.commands.dispatcher import Call, Command
from mq9.commands.remove import OwnerRequest
from mq9.commands.request import read

if TYPE_CHECKING:
    from mq9.commands.context import ServerContext
    from mq9.commands.dispatcher import Passed
    from mq9.commands.owner import Owners


class UnreadRequest(OwnerRequest):
    """Who asks, and for which form."""

    encoding: Literal["base64"] | None = None


class Unread:
    """Carries out MAILBOX.QUERY."""

    def __init__(self, server: ServerContext, owners: Owners) -> None:
        self._broker = server.broker
        self._owners = owners
        self.command = Command("MAILBOX.QUERY.>", self._answer)

    def _answer(self, call: Call) -> Passed:
        request = read(UnreadRequest, call.payload)
        address = call.tail
        check_address(address)
        mailbox = self._owners.check(call, address, request.token)
        return partial(
            self._broker.give_unread,
            address=address,
            created_ms=mailbox.created_ms,
            always_base64=request.encoding is not None,
        )
