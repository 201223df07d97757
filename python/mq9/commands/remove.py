"""MAILBOX.REMOVE and MAILBOX.PURGE: a mailbox with all that is in it, or only that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from mq9.commands.address import check_address
from mq9.commands.dispatcher import Call, Command
from mq9.commands.reply import Reply
from mq9.commands.request import Request, between, read

if TYPE_CHECKING:
    from mq9.commands.owner import Owners
    from mq9.store import Store


_MAX_COUNT = 2**63 - 1


class OwnerRequest(Request):
    """Who asks."""

    token: str | None = None


class GoneRequest(OwnerRequest):
    """Who asks, and how many messages they know of: with more than these, nothing goes."""

    expected: Annotated[int, between(0, _MAX_COUNT)] | None = None


class RemoveReply(Reply):
    """Whether the mailbox is gone by this request."""

    removed: bool = False


class Remove:
    """Carries out MAILBOX.REMOVE."""

    def __init__(self, store: Store, owners: Owners) -> None:
        self._store = store
        self._owners = owners
        self.command = Command("MAILBOX.REMOVE.>", self._answer)

    def _answer(self, call: Call) -> RemoveReply:
        request = read(GoneRequest, call.payload)
        check_address(call.tail)
        self._owners.check(call, call.tail, request.token)
        self._store.remove_mailbox(call.tail, expected=request.expected)
        return RemoveReply(removed=True)


class PurgeReply(Reply):
    """How many messages are gone by this request, delayed ones included."""

    purged: int = 0


class Purge:
    """Carries out MAILBOX.PURGE."""

    def __init__(self, store: Store, owners: Owners) -> None:
        self._store = store
        self._owners = owners
        self.command = Command("MAILBOX.PURGE.>", self._answer)

    def _answer(self, call: Call) -> PurgeReply:
        request = read(GoneRequest, call.payload)
        check_address(call.tail)
        self._owners.check(call, call.tail, request.token)
        return PurgeReply(purged=self._store.purge(call.tail, expected=request.expected))
