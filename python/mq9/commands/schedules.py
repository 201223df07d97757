"""ADMIN.SCHEDULE.FIRE, NOTE and LIST: what schedules send, and how far each has come.

Owns the notes, which lie in a mailbox of the broker's own. That a message was sent is noted in one
step with the message: a crash leaves both or none. `mq9 manage` knows what a schedule is and when
it is due.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Annotated, Any

from mq9._core import send_noted
from mq9.commands.address import check_address
from mq9.commands.dispatcher import PREFIX, Call, Command
from mq9.commands.permission import check_may_send
from mq9.commands.reply import Reply
from mq9.commands.request import MAX_ID, Nothing, Refusal, Request, between, read, shown
from mq9.commands.watch import check_operator
from mq9.errors import MailboxNotFound

if TYPE_CHECKING:
    from mq9.commands.context import ServerContext
    from mq9.store import Store

SCHEDULES = "$schedules"
_MAX_NAME = 64
_MAX_SPEC = 512
_MAX_LISTED = 1000
_HEADER = re.compile(r"[!-9;-~]+")
_VALUE = re.compile(r"[ -~]*")


class NoteRequest(Request):
    """Everything up to `due` has been seen to, by the schedule that is written as `spec`."""

    name: str | None = None
    spec: str = ""
    due: Annotated[int, between(0, MAX_ID)] | None = None
    fired: Annotated[int, between(0, MAX_ID)] | None = None


class FireRequest(Request):
    """What is sent for the time `due`, to a mailbox or to a subject of a stream."""

    name: str | None = None
    spec: str = ""
    due: Annotated[int, between(0, MAX_ID)] | None = None
    mailbox: str | None = None
    subject: str | None = None
    headers: dict[str, str] | None = None
    payload: str = ""


class FireReply(Reply):
    """Whether it had been sent before."""

    duplicate: bool = False


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
        self.fire = Command("ADMIN.SCHEDULE.FIRE", self._answer_fire, limit="max_payload")
        self.note = Command("ADMIN.SCHEDULE.NOTE", self._answer_note)
        self.list = Command("ADMIN.SCHEDULE.LIST", self._answer_list)

    def _answer_note(self, call: Call) -> Reply:
        check_operator(self._server, call)
        request = read(NoteRequest, call.payload)
        name, due = _checked(request)
        self._known(name)
        self._store.send(SCHEDULES, _note(name, request.spec, due, request.fired), key=name)
        return Reply()

    def _answer_fire(self, call: Call) -> FireReply:
        check_operator(self._server, call)
        request = read(FireRequest, call.payload)
        name, due = _checked(request)
        subject = self._subject(call, request)
        known = self._known(name)
        if known is not None and known["spec"] == request.spec and known["due"] >= due:
            return FireReply(duplicate=True)
        refused = send_noted(
            *(self._store, subject, _block(request.headers or {}), request.payload.encode()),
            address=SCHEDULES,
            key=name,
            note=_note(name, request.spec, due, due),
        )
        if refused is not None:
            kind, text = refused
            raise Refusal(text, kind)
        return FireReply()

    def _subject(self, call: Call, request: FireRequest) -> str:
        broker, address, subject = self._server.broker, request.mailbox, request.subject
        if (address is None) == (subject is None):
            raise Refusal("expected either mailbox, or subject for a subject of a stream")
        if address is not None:
            check_address(address)
            check_may_send(broker, call.cid, address, "a schedule")
            return f"{PREFIX}MSG.SEND.{address}"
        if not subject or subject.startswith("$"):
            raise Refusal(f"subject is {shown(subject or '')}: it must be one of a stream")
        if not broker.may_publish(call.cid, subject):
            raise Refusal(
                "permission denied: a schedule needs the permission to publish to "
                f"{shown(subject)}",
                "access_denied",
            )
        return subject

    def _known(self, name: str) -> dict[str, Any] | None:
        """The note of a schedule; there is a mailbox for it from now on."""
        try:
            found = self._store.query(SCHEDULES, key=name, limit=1)
        except MailboxNotFound:
            self._store.create_mailbox(SCHEDULES)
            return None
        known: dict[str, Any] | None = json.loads(bytes(found[0].payload)) if found else None
        return known

    def _answer_list(self, call: Call) -> ListReply:
        check_operator(self._server, call)
        read(Nothing, call.payload)
        try:
            found = self._store.query(SCHEDULES, limit=_MAX_LISTED)
        except MailboxNotFound:
            found = []
        return ListReply(schedules=tuple(bytes(each.payload) for each in found))


def _checked(request: NoteRequest | FireRequest) -> tuple[str, int]:
    name = request.name
    if not name or len(name) > _MAX_NAME or len(request.spec) > _MAX_SPEC:
        raise Refusal(f"name must have 1 to {_MAX_NAME} characters, spec at most {_MAX_SPEC}")
    if request.due is None:
        raise Refusal("due is missing: up to when the schedule has been seen to")
    return name, request.due


def _note(name: str, spec: str, due: int, fired: int | None) -> bytes:
    return json.dumps({"name": name, "spec": spec, "due": due, "fired": fired}).encode()


def _block(headers: dict[str, str]) -> bytes:
    for name, value in headers.items():
        if not _HEADER.fullmatch(name) or not _VALUE.fullmatch(value):
            raise Refusal(f"header {shown(name)} cannot be sent")
    lines = (f"{name}: {value}\r\n" for name, value in headers.items())
    return f"NATS/1.0\r\n{''.join(lines)}\r\n".encode()
