"""MAILBOX.QUERY: gives the messages of an inbox that nobody has read, so that they are read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from mq9.commands.address import check_address
from mq9.commands.dispatcher import Call, Command
from mq9.commands.query import QueryReply
from mq9.commands.remove import OwnerRequest
from mq9.commands.request import read

if TYPE_CHECKING:
    from mq9.commands.context import ServerContext
    from mq9.commands.dispatcher import Steps
    from mq9.commands.owner import Owners

# Where a reply is cut.
_MAX_REPLY_BYTES = 1 << 20
# What is taken before others have their turn.
_STEP = 128
_STEP_BYTES = 128 << 10


class UnreadRequest(OwnerRequest):
    """Who asks, and for which form."""

    encoding: Literal["base64"] | None = None


class UnreadReply(QueryReply):
    """How many messages were unread, and these: each an entry in JSON already."""

    mail_id: str = ""
    unread: int = 0

    def json_bytes(self) -> bytes:
        """The reply as it is sent."""
        # An address needs no escapes.
        head = f'{{"error":"","mail_id":"{self.mail_id}","unread":{self.unread},"messages":['
        tail = b'],"more":true}' if self.more else b"]}"
        return head.encode() + b",".join(self.messages) + tail


class Unread:
    """Carries out MAILBOX.QUERY."""

    def __init__(self, server: ServerContext, owners: Owners) -> None:
        self._store = server.store
        self._owners = owners
        # As of the start, as for FETCH.
        self._always_base64 = server.options.payload_encoding == "base64"
        self.command = Command("MAILBOX.QUERY.>", self._answer)

    def _answer(self, call: Call) -> Steps:
        request = read(UnreadRequest, call.payload)
        address = call.tail
        check_address(address)
        self._owners.check(call, address, request.token)
        always_base64 = self._always_base64 or request.encoding is not None
        found: list[bytes] = []
        size, before = 0, 0
        while size < _MAX_REPLY_BYTES:
            unread, step = self._store.read_inbox(address, _STEP, _STEP_BYTES)
            before = max(before, len(found) + unread)
            if not step:
                break
            for message in step:
                written = message.entry(always_base64=always_base64)
                size += len(written) + 1
                found.append(written)
            if unread <= len(step):
                break
            yield None
        return UnreadReply(
            mail_id=address, unread=before, messages=tuple(found), more=before > len(found)
        )
