"""ADMIN.ACTIVITY and ADMIN.ACCESS: what happens in mailboxes and streams, and what a client may do.

Owns how rows of the core become pages of a reply. What a row says, the core knows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from mq9._core import list_activity, list_groups, watch_mailboxes
from mq9.commands.dispatcher import PREFIX, Call, Command
from mq9.commands.permission import is_operator, user_of
from mq9.commands.reply import Reply
from mq9.commands.request import MAX_ID, Nothing, Refusal, Request, between, read

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mq9.commands.context import ServerContext
    from mq9.commands.dispatcher import Steps

_LIMIT = 1000
# Rows of one look at the store: it is held meanwhile.
_STEP = 64
_MAX_REPLY_BYTES = 512 << 10
# The address comes second in a row; those of the broker's own mailboxes begin like this.
_OWN = b'"address":"$'
# Of these, the ones that hold streams are the clients' all the same.
_STREAM = b'","stream":"'
_LOOK = "ADMIN.ACTIVITY"
_STEER = "ADMIN.MAILBOX.PURGE.any"


class ActivityRequest(Request):
    """All mailboxes from place `start` on, or those that changed `after` an earlier look."""

    start: Annotated[int, between(0, 2**32 - 1)] | None = None
    after: Annotated[int, between(0, MAX_ID)] | None = None
    limit: Annotated[int, between(1, 10_000)] | None = None
    groups_of: Annotated[int, between(0, 2**32 - 1)] | None = None
    """The place of one mailbox: its groups from number `start` on, instead of mailboxes."""


class ActivityReply(Reply):
    """Rows as the core wrote them, and where to go on."""

    reset: bool = False
    next: int | None = None
    more: bool = False
    gone: tuple[int, ...] = ()
    rows: tuple[bytes, ...] = ()

    def json_bytes(self) -> bytes:
        """The reply as it is sent."""
        head = self.model_dump_json(exclude={"rows"}).removesuffix("}").encode()
        return head + b',"mailboxes":[' + b",".join(self.rows) + b"]}"


class GroupsReply(Reply):
    """Groups of one mailbox as the core wrote them; no address if nothing is in its place."""

    address: str = ""
    next: int = 0
    more: bool = False
    rows: tuple[bytes, ...] = ()

    def json_bytes(self) -> bytes:
        """The reply as it is sent."""
        head = self.model_dump_json(exclude={"rows"}).removesuffix("}").encode()
        return head + b',"groups":[' + b",".join(self.rows) + b"]}"


class AccessReply(Reply):
    """What the client that asks may do."""

    user: str = ""
    look: bool = False
    steer: bool = False
    local: bool = False
    """Whether that is so because nobody has to authenticate and the client is on this machine."""


class Watch:
    """Carries out the commands of those who watch the broker."""

    def __init__(self, server: ServerContext) -> None:
        self._server = server
        self._store = server.store
        self.activity = Command(_LOOK, self._answer_activity, is_durable=lambda: True)
        self.access = Command("ADMIN.ACCESS", self._answer_access, is_durable=lambda: True)

    def _answer_activity(self, call: Call) -> Steps:
        check_operator(self._server, call)
        request = read(ActivityRequest, call.payload)
        limit = request.limit or _LIMIT
        if request.groups_of is not None:
            return self._groups(request.groups_of, request.start or 0, limit)
        if request.after is not None:
            return self._changes(request.after, limit)
        return self._all(request.start or 0, limit)

    def _answer_access(self, call: Call) -> AccessReply:
        read(Nothing, call.payload)
        client = self._server.clients.open.get(call.cid)
        return AccessReply(
            user=user_of(client, self._server.options),
            look=is_operator(client, PREFIX + _LOOK),
            steer=is_operator(client, PREFIX + _STEER),
            local=client is not None and client.is_local_operator,
        )

    def _all(self, start: int, limit: int) -> Steps:
        rows: list[bytes] = []
        at: int | None = start
        size = 0
        while at is not None and len(rows) < limit and size < _MAX_REPLY_BYTES:
            found, at = list_activity(self._store, at, min(limit - len(rows), _STEP))
            rows += _of_clients(found)
            size += sum(map(len, found))
            yield None
        return ActivityReply(next=at, more=at is not None, rows=tuple(rows))

    def _groups(self, place: int, start: int, limit: int) -> Steps:
        rows: list[bytes] = []
        size, address, more = 0, "", True
        while more and len(rows) < limit and size < _MAX_REPLY_BYTES:
            step = min(limit - len(rows), _STEP)
            found = list_groups(self._store, place, start + len(rows), step)
            if found is None:
                more = False
                break
            address, page = found
            more = len(page) == step
            rows += page
            size += sum(map(len, page))
            yield None
        return GroupsReply(address=address, next=start + len(rows), more=more, rows=tuple(rows))

    def _changes(self, after: int, limit: int) -> Steps:
        rows: list[bytes] = []
        gone: list[int] = []
        more, size, seen = True, 0, 0
        while more and seen < limit and size < _MAX_REPLY_BYTES:
            step = min(limit - seen, _STEP)
            reset, after, more, found, free = watch_mailboxes(self._store, after, step)
            if reset:
                return ActivityReply(reset=True, next=after)
            rows += _of_clients(found)
            gone += free
            seen += step
            size += sum(map(len, found))
            yield None
        return ActivityReply(next=after, more=more, gone=tuple(gone), rows=tuple(rows))


def check_operator(server: ServerContext, call: Call) -> None:
    """Refuse whoever is no operator, before anything else is said."""
    if not is_operator(server.clients.open.get(call.cid), call.subject):
        raise Refusal(
            "permission denied: this command is for users whose permissions allow publishing "
            'to "$mq9.AI.ADMIN.>" by that name',
            "access_denied",
        )


def _of_clients(rows: Iterable[bytes]) -> list[bytes]:
    return [row for row in rows if _OWN not in row[:40] or _STREAM in row[:90]]
