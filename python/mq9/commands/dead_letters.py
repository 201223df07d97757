"""ADMIN.DEAD.REPLAY, RESOLVE and RESOLVED: dead letters that somebody deals with.

Owns the list of those that are dealt with, which lies in a mailbox of the broker's own. A letter is
noted there before it goes: after a crash in between it is still there, and can be replayed.
"""

from __future__ import annotations

import json
import time
from base64 import b64encode
from typing import TYPE_CHECKING, Annotated, NamedTuple

from mq9._core import send_back
from mq9.commands.address import check_address
from mq9.commands.dispatcher import Call, Command
from mq9.commands.permission import check_may_send, user_of
from mq9.commands.reply import Reply
from mq9.commands.request import MAX_ID, Refusal, Request, between, read, shown
from mq9.commands.watch import check_operator
from mq9.errors import MailboxNotFound, MessageNotFound, StoreError

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
_NEVER_SENT = {b"mq9-id", b"nats-msg-id"}


class LetterRequest(Request):
    """When the mailbox was made: a letter of one made later has the same number and is another."""

    created_ms: Annotated[int, between(0, MAX_ID)] | None = None


class ReplayReply(Reply):
    """The `msg_id` where it came from; none if it was replayed or resolved before."""

    resolved: bool = False
    msg_id: int | None = None


class ResolveRequest(LetterRequest):
    """Why it is resolved: a word of the operator's own."""

    how: str | None = None


class ResolveReply(Reply):
    """Whether the letter is resolved."""

    resolved: bool = False


class ResolvedRequest(Request):
    """Which part of the list: the first behind `after`, or the last before `before`."""

    after: Annotated[int, between(0, MAX_ID)] | None = None
    before: Annotated[int, between(0, MAX_ID)] | None = None
    limit: Annotated[int, between(1, _MAX_LISTED)] | None = None


class ResolvedReply(Reply):
    """Letters as JSON, the oldest first; without `next` it is the last part."""

    next: int | None = None
    """The `after` of the next part, or its `before` if that was given."""
    total: int = 0
    """How many there are in all parts."""
    last: int | None = None
    """The number of the last letter of this part, to go on behind it when there are more."""
    newest: int | None = None
    """The number of the newest letter there ever was."""
    letters: tuple[bytes, ...] = ()

    def json_bytes(self) -> bytes:
        """The reply as it is sent."""
        head = self.model_dump_json(exclude={"letters"}).removesuffix("}").encode()
        return head + b',"letters":[' + b",".join(self.letters) + b"]}"


class _Letter(NamedTuple):
    """A dead letter, where it lies and what is told of it."""

    address: str
    message: Message
    headers: dict[str, str]


class DeadLetters:
    """Carries out the commands about dead letters."""

    def __init__(self, server: ServerContext) -> None:
        self._server = server
        self._store: Store = server.store
        self.replay = Command("ADMIN.DEAD.REPLAY.>", self._answer_replay)
        self.resolve = Command("ADMIN.DEAD.RESOLVE.>", self._answer_resolve)
        self.resolved = Command("ADMIN.DEAD.RESOLVED", self._answer_resolved)

    def _answer_replay(self, call: Call) -> ReplayReply:
        check_operator(self._server, call)
        request = read(LetterRequest, call.payload)
        letter = self._letter(call, request)
        if letter is None:
            return ReplayReply(resolved=True)
        source = letter.headers[f"{_DEAD}mailbox"]
        check_address(source)
        check_may_send(self._server.broker, call.cid, source, "replaying")
        message = letter.message
        note = self._note(call, letter, "replayed")
        try:
            msg_id = send_back(
                *(self._store, letter.address, message.msg_id, source, message.payload),
                level=message.level,
                key=letter.headers.get(f"{_DEAD}key", ""),
                tags=message.tags,
                headers=own_headers(message.headers),
            )
        except StoreError:
            # It lies where it lay: nobody has dealt with it.
            self._store.delete(RESOLVED, note)
            raise
        return ReplayReply(resolved=True, msg_id=msg_id)

    def _answer_resolve(self, call: Call) -> ResolveReply:
        check_operator(self._server, call)
        request = read(ResolveRequest, call.payload)
        letter = self._letter(call, request)
        if letter is not None:
            self._note(call, letter, request.how or "resolved")
            self._store.delete(letter.address, letter.message.msg_id)
        return ResolveReply(resolved=True)

    def _letter(self, call: Call, request: LetterRequest) -> _Letter | None:
        """The letter that a subject names; None if somebody has dealt with it before."""
        address, dot, last = call.tail.rpartition(".")
        if not dot or not (last.isascii() and last.isdigit() and len(last) < 20):
            raise Refusal("the subject must end in the mail_address and the msg_id")
        check_address(address)
        msg_id, created_ms = int(last), request.created_ms
        if created_ms is not None and self._store.mailbox(address).created_ms != created_ms:
            raise MessageNotFound("message not found")
        message = self._message(address, msg_id)
        if message is None:
            if self._note_of(address, msg_id):
                return None
            raise MessageNotFound("message not found")
        headers = read_headers(message.headers)
        if f"{_DEAD}mailbox" not in headers:
            raise Refusal(f"message {msg_id} of {shown(address)} is no dead letter")
        return _Letter(address, message, headers)

    def _note(self, call: Call, letter: _Letter, how: str) -> int:
        note = _note(letter)
        client = self._server.clients.open.get(call.cid)
        note["by"] = user_of(client, self._server.options)
        note["how"] = how[:200]
        key = f"{letter.address}:{letter.message.msg_id}"
        return self._keep(key, json.dumps(note, ensure_ascii=False).encode())

    def _answer_resolved(self, call: Call) -> ResolvedReply:
        check_operator(self._server, call)
        request = read(ResolvedRequest, call.payload)
        before = request.before
        try:
            known = self._store.mailbox(RESOLVED)
            found = self._store.query(
                RESOLVED,
                after_id=request.after,
                before_id=before,
                limit=request.limit or 100,
                max_bytes=_MAX_REPLY_BYTES,
                newest=before is not None,
            )
        except MailboxNotFound:
            return ResolvedReply()
        # Cut by number or by size, there may be more: only an empty part is the last for sure.
        last = found[-1].msg_id if found else None
        return ResolvedReply(
            next=last if before is None or not found else found[0].msg_id,
            total=known.messages,
            last=last,
            newest=known.next_id - 1,
            letters=tuple(bytes(each.payload) for each in found),
        )

    def _message(self, address: str, msg_id: int) -> Message | None:
        after = msg_id - 1 if msg_id else None
        found = self._store.query(address, after_id=after, limit=1)
        return found[0] if found and found[0].msg_id == msg_id else None

    def _note_of(self, address: str, msg_id: int) -> bool:
        try:
            return bool(self._store.query(RESOLVED, key=f"{address}:{msg_id}", limit=1))
        except MailboxNotFound:
            return False

    def _keep(self, key: str, note: bytes) -> int:
        try:
            return self._store.send(RESOLVED, note, key=key, ttl_ms=_KEPT_MS)
        except MailboxNotFound:
            self._store.create_mailbox(RESOLVED)
            return self._store.send(RESOLVED, note, key=key, ttl_ms=_KEPT_MS)


def own_headers(block: bytes) -> bytes:
    """What its sender gave it; the id of the first sending is not that of the next."""
    lines = bytes(block).split(b"\r\n")
    kept = [line for line in lines if line and not _is_ours(line.partition(b":")[0])]
    return b"".join(line + b"\r\n" for line in kept)


def _is_ours(name: bytes) -> bool:
    known = name.strip().lower()
    return known in _NEVER_SENT or known.startswith(_DEAD.encode())


def read_headers(block: bytes) -> dict[str, str]:
    """Headers as they are stored: lines of a name and a value; the first of a name counts."""
    found: dict[str, str] = {}
    for line in bytes(block).decode("utf-8", "replace").split("\r\n"):
        name, colon, value = line.partition(":")
        if colon:
            found.setdefault(name.strip().lower(), value.strip())
    return found


def _note(letter: _Letter) -> dict[str, object]:
    address, message, headers = letter.address, letter.message, letter.headers
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
