"""ADMIN.DEAD.RESOLVE and ADMIN.DEAD.RESOLVED: dead letters that somebody has dealt with.

Owns the list of them, which lies in a mailbox of the broker's own. To send a letter back is an
ordinary SEND, which whoever resolves it makes first.
"""

from __future__ import annotations

import json
import time
from base64 import b64encode
from typing import TYPE_CHECKING, Annotated

from mq9.commands.address import check_address
from mq9.commands.dispatcher import Call, Command
from mq9.commands.permission import user_of
from mq9.commands.reply import Reply
from mq9.commands.request import MAX_ID, Refusal, Request, between, read, shown
from mq9.commands.watch import check_operator
from mq9.errors import MailboxNotFound, MessageNotFound

if TYPE_CHECKING:
    from mq9.commands.context import ServerContext
    from mq9.store import Message, Store

RESOLVED = "$resolved"
_KEPT_MS = 7 * 24 * 3600 * 1000
_MAX_LISTED = 1000
_MAX_REPLY_BYTES = 768 << 10
# Of a longer payload the list keeps the beginning.
_MAX_PAYLOAD = 16 << 10
_DEAD = "mq9-dead-"


class ResolveRequest(Request):
    """Why it is resolved: `replayed`, or a word of the operator's own."""

    how: str | None = None


class ResolveReply(Reply):
    """Whether the letter is resolved."""

    resolved: bool = False


class ResolvedRequest(Request):
    """Which part of the list: those before the one numbered `before`, newest first."""

    after: Annotated[int, between(0, MAX_ID)] | None = None
    limit: Annotated[int, between(1, _MAX_LISTED)] | None = None


class ResolvedReply(Reply):
    """Letters as JSON; without `next` it is the last part."""

    next: int | None = None
    last: int | None = None
    """The number of the last letter of this part, to go on behind it when there are more."""
    newest: int | None = None
    """The number of the newest letter there ever was."""
    letters: tuple[bytes, ...] = ()

    def json_bytes(self) -> bytes:
        """The reply as it is sent."""
        head = self.model_dump_json(exclude={"letters"}).removesuffix("}").encode()
        return head + b',"letters":[' + b",".join(self.letters) + b"]}"


class DeadLetters:
    """Carries out the commands about dead letters."""

    def __init__(self, server: ServerContext) -> None:
        self._server = server
        self._store: Store = server.store
        self.resolve = Command("ADMIN.DEAD.RESOLVE.>", self._answer_resolve)
        self.resolved = Command("ADMIN.DEAD.RESOLVED", self._answer_resolved)

    def _answer_resolve(self, call: Call) -> ResolveReply:
        check_operator(self._server, call)
        request = read(ResolveRequest, call.payload)
        address, dot, last = call.tail.rpartition(".")
        if not dot or not (last.isascii() and last.isdigit() and len(last) < 20):
            raise Refusal("the subject must end in the mail_address and the msg_id")
        check_address(address)
        msg_id = int(last)
        message = self._message(address, msg_id)
        if message is None:
            if self._note_of(address, msg_id):
                return ResolveReply(resolved=True)
            raise MessageNotFound("message not found")
        headers = read_headers(message.headers)
        if f"{_DEAD}mailbox" not in headers:
            raise Refusal(f"message {msg_id} of {shown(address)} is no dead letter")
        note = _note(address, message, headers)
        client = self._server.clients.open.get(call.cid)
        note["by"] = user_of(client, self._server.options)
        note["how"] = (request.how or "resolved")[:200]
        self._keep(f"{address}:{msg_id}", json.dumps(note, ensure_ascii=False).encode())
        self._store.delete(address, msg_id)
        return ResolveReply(resolved=True)

    def _answer_resolved(self, call: Call) -> ResolvedReply:
        check_operator(self._server, call)
        request = read(ResolvedRequest, call.payload)
        limit = request.limit or 100
        try:
            found = self._store.query(
                RESOLVED, after_id=request.after, limit=limit, max_bytes=_MAX_REPLY_BYTES
            )
        except MailboxNotFound:
            found = []
        # Cut by number or by size, there may be more: only an empty part is the last for sure.
        following = found[-1].msg_id if found else None
        return ResolvedReply(
            next=following,
            last=found[-1].msg_id if found else None,
            newest=self._newest(),
            letters=tuple(bytes(each.payload) for each in found),
        )

    def _newest(self) -> int | None:
        try:
            return self._store.mailbox(RESOLVED).next_id - 1
        except MailboxNotFound:
            return None

    def _message(self, address: str, msg_id: int) -> Message | None:
        after = msg_id - 1 if msg_id else None
        found = self._store.query(address, after_id=after, limit=1)
        return found[0] if found and found[0].msg_id == msg_id else None

    def _note_of(self, address: str, msg_id: int) -> bool:
        try:
            return bool(self._store.query(RESOLVED, key=f"{address}:{msg_id}", limit=1))
        except MailboxNotFound:
            return False

    def _keep(self, key: str, note: bytes) -> None:
        try:
            self._store.send(RESOLVED, note, key=key, ttl_ms=_KEPT_MS)
        except MailboxNotFound:
            self._store.create_mailbox(RESOLVED)
            self._store.send(RESOLVED, note, key=key, ttl_ms=_KEPT_MS)


def read_headers(block: bytes) -> dict[str, str]:
    """Headers as they are stored: lines of a name and a value; the first of a name counts."""
    found: dict[str, str] = {}
    for line in bytes(block).decode("utf-8", "replace").split("\r\n"):
        name, colon, value = line.partition(":")
        if colon:
            found.setdefault(name.strip().lower(), value.strip())
    return found


def _note(address: str, message: Message, headers: dict[str, str]) -> dict[str, object]:
    payload = bytes(message.payload[:_MAX_PAYLOAD])
    try:
        text: dict[str, object] = {"payload": payload.decode()}
    except UnicodeDecodeError:
        text = {"payload": b64encode(payload).decode(), "encoding": "base64"}
    return {
        "id": f"{address}:{message.msg_id}",
        "original_id": headers.get(f"{_DEAD}msg-id", ""),
        "subject": headers[f"{_DEAD}mailbox"],
        "group": headers.get(f"{_DEAD}group", ""),
        **text,
        "bytes": len(message.payload),
        "error": headers.get(f"{_DEAD}reason", ""),
        "attempts": headers.get(f"{_DEAD}deliveries", "0"),
        "first_seen": message.sent_ms // 1000,
        "last_failed": message.create_ms // 1000,
        "resolved_at": int(time.time()),
    }
