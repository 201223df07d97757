"""ADMIN.SCHEDULE.NOTE and LIST: how far each schedule has come.

Owns the notes, which lie in a mailbox of the broker's own. `mq9 manage`
knows what a schedule is and when it is due.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

from mq9.commands.dispatcher import Call, Command
from mq9.commands.reply import Reply
from mq9.commands.request import MAX_ID, Nothing, Refusal, Request, between, read
from mq9.commands.watch import check_operator
from mq9.errors import MailboxNotFound

if TYPE_CHECKING:
    from mq9.commands.context import ServerContext
    from mq9.store import Store

SCHEDULES = "$schedules"
_MAX_NAME = 64
_MAX_SPEC = 512
_MAX_LISTED = 1000


class NoteRequest(Request):
    """Everything up to `due` has been seen to, by the schedule that is written as `spec`."""

    name: str | None = None
    spec: str = ""
    due: Annotated[int, between(0, MAX_ID)] | None = None
    fired: Annotated[int, between(0, MAX_ID)] | None = None


class ListReply(Reply):
    """All notes, as JSON."""

    schedules: tuple[bytes, ...] = ()

    def json_bytes(self) -> bytes:
        """The reply as it is sent."""
        head = self.model_dump_json(exclude={"schedules"}).removesuffix("}").encode()
        return head + b',"schedules":[' + b",".join(self.schedules) + b"]}"


class Schedules:
    """Carries out the commands about schedules."""

    def __init__(self, server: ServerContext) -> None:
        self._server = server
        self._store: Store = server.store
        self.note = Command("ADMIN.SCHEDULE.NOTE", self._answer_note)
        self.list = Command("ADMIN.SCHEDULE.LIST", self._answer_list)

    def _answer_note(self, call: Call) -> Reply:
        check_operator(self._server, call)
        request = read(NoteRequest, call.payload)
        if not request.name or len(request.name) > _MAX_NAME or len(request.spec) > _MAX_SPEC:
            raise Refusal(f"name must have 1 to {_MAX_NAME} characters, spec at most {_MAX_SPEC}")
        if request.due is None:
            raise Refusal("due is missing: up to when the schedule has been seen to")
        note = json.dumps(request.model_dump()).encode()
        try:
            self._store.send(SCHEDULES, note, key=request.name)
        except MailboxNotFound:
            self._store.create_mailbox(SCHEDULES)
            self._store.send(SCHEDULES, note, key=request.name)
        return Reply()

    def _answer_list(self, call: Call) -> ListReply:
        check_operator(self._server, call)
        read(Nothing, call.payload)
        try:
            found = self._store.query(SCHEDULES, limit=_MAX_LISTED)
        except MailboxNotFound:
            found = []
        return ListReply(schedules=tuple(bytes(each.payload) for each in found))
