"""ADMIN.DEAD.REPLAY, RESOLVE and RESOLVED: dead letters that somebody deals with.

Owns the list of those that are dealt with, which lies in a mailbox of the broker's own. A letter is
noted there before it goes: after a crash in between it is still there, and can be replayed.
"""

from __future__ import annotations

import codecs
import json
import secrets
import time
from base64 import b64encode
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, NamedTuple

from mq9._core import query_stream, remove_from_stream, send_back, send_letter_back
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
# A mailbox with what tells this store from all others; replicas and copies of it have the same.
STORE = "$store"
_KEPT_MS = 7 * 24 * 3600 * 1000
_MAX_LISTED = 1000
_MAX_REPLY_BYTES = 768 << 10
# Of a longer payload the list keeps the beginning.
_MAX_PAYLOAD = 16 << 10
_DEAD = "mq9-dead-"
# In the subject of a request, in front of the name of a stream; no mail_address begins like this.
_STREAM = "$stream."
_NEVER_SENT = {b"mq9-id", b"nats-msg-id"}


class LetterRequest(Request):
    """When its mailbox or stream was made: one made later has others of the same numbers."""

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
    store: bool | None = None
    """Whether the reply says which store this is."""


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
    store: str | None = None
    letters: tuple[bytes, ...] = ()

    def json_bytes(self) -> bytes:
        """The reply as it is sent."""
        left_out = {"letters"} if self.store else {"letters", "store"}
        head = self.model_dump_json(exclude=left_out).removesuffix("}").encode()
        return head + b',"letters":[' + b",".join(self.letters) + b"]}"


class _Letter(NamedTuple):
    """A dead letter, where it lies and what is told of it."""

    address: str
    """Of its mailbox; `stream:` and the name of its stream."""
    msg_id: int
    message: Message
    headers: dict[str, str]
    stream: str = ""

    @property
    def origin(self) -> str:
        """The mailbox or the subject that it came from."""
        return self.headers[f"{_DEAD}subject" if self.stream else f"{_DEAD}mailbox"]

    def header(self, name: str) -> str:
        """What the broker says of its death."""
        return self.headers.get(_DEAD + name, "")


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
        if letter.stream:
            return self._replay_to_stream(call, letter)
        source = letter.origin
        check_address(source)
        check_may_send(self._server.broker, call.cid, source, "replaying")
        message = letter.message
        note = self._note(call, letter, "replayed")
        try:
            msg_id = send_back(
                *(self._store, letter.address, message.msg_id, source, message.payload),
                level=message.level,
                key=letter.header("key"),
                tags=message.tags,
                headers=own_headers(message.headers),
            )
        except StoreError:
            # It lies where it lay: nobody has dealt with it.
            self._store.delete(RESOLVED, note)
            raise
        return ReplayReply(resolved=True, msg_id=msg_id)

    def _replay_to_stream(self, call: Call, letter: _Letter) -> ReplayReply:
        subject = letter.origin
        if not self._server.broker.may_publish(call.cid, subject):
            raise Refusal(
                f"permission denied: replaying needs the permission to publish to {shown(subject)}",
                "access_denied",
            )
        note = self._note(call, letter, "replayed")
        try:
            seq = send_letter_back(
                *(self._store, letter.stream, letter.msg_id, subject, letter.message.payload),
                near=letter.header("stream"),
                headers=own_headers(letter.message.headers),
            )
        except StoreError:
            self._store.delete(RESOLVED, note)
            raise
        if seq is None:
            self._store.delete(RESOLVED, note)
            raise Refusal(f"no stream has the subject {shown(subject)}")
        return ReplayReply(resolved=True, msg_id=seq)

    def _answer_resolve(self, call: Call) -> ResolveReply:
        check_operator(self._server, call)
        request = read(ResolveRequest, call.payload)
        letter = self._letter(call, request)
        if letter is not None:
            self._note(call, letter, request.how or "resolved")
            self._remove(letter)
        return ResolveReply(resolved=True)

    def _letter(self, call: Call, request: LetterRequest) -> _Letter | None:
        """The letter that a subject names; None if somebody has dealt with it before."""
        address, dot, last = call.tail.rpartition(".")
        if not dot or not (last.isascii() and last.isdigit() and len(last) < 20):
            raise Refusal("the subject must end in the mail_address and the msg_id")
        msg_id, created_ms = int(last), request.created_ms
        if address.startswith(_STREAM):
            return self._letter_of_stream(address.removeprefix(_STREAM), msg_id, created_ms)
        check_address(address)
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
        return _Letter(address, msg_id, message, headers)

    def _letter_of_stream(self, name: str, seq: int, created_ms: int | None) -> _Letter | None:
        page = query_stream(self._store, name, first=seq, before=seq + 1, limit=1)
        if page is None or created_ms not in (None, page[0]):
            raise MessageNotFound("message not found")
        if not (found := page[3]):
            if self._note_of(f"stream:{name}", seq):
                return None
            raise MessageNotFound("message not found")
        headers = read_headers(found[0].headers)
        if f"{_DEAD}subject" not in headers:
            raise Refusal(f"message {seq} of stream {shown(name)} is no dead letter")
        return _Letter(f"stream:{name}", seq, found[0], headers, name)

    def _remove(self, letter: _Letter) -> None:
        if letter.stream:
            remove_from_stream(self._store, letter.stream, letter.msg_id)
        else:
            self._store.delete(letter.address, letter.msg_id)

    def _note(self, call: Call, letter: _Letter, how: str) -> int:
        note = _note(letter)
        client = self._server.clients.open.get(call.cid)
        note["by"] = user_of(client, self._server.options)
        note["how"] = how[:200]
        key = f"{letter.address}:{letter.msg_id}"
        return self._keep(key, json.dumps(note, ensure_ascii=False).encode())

    def _answer_resolved(self, call: Call) -> ResolvedReply:
        check_operator(self._server, call)
        request = read(ResolvedRequest, call.payload)
        before, store = request.before, self._name_of_store() if request.store else None
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
            return ResolvedReply(store=store)
        # Cut by number or by size, there may be more: only an empty part is the last for sure.
        last = found[-1].msg_id if found else None
        return ResolvedReply(
            next=last if before is None or not found else found[0].msg_id,
            total=known.messages,
            last=last,
            newest=known.next_id - 1,
            store=store,
            letters=tuple(bytes(each.payload) for each in found),
        )

    def _name_of_store(self) -> str:
        """Random, made when it is first asked for."""
        try:
            if found := self._store.query(STORE, limit=1):
                return bytes(found[0].payload).decode()
        except MailboxNotFound:
            self._store.create_mailbox(STORE)
        made = secrets.token_hex(8)
        self._store.send(STORE, made.encode())
        return made

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


def _beginning(payload: bytes, of_bytes: int) -> str:
    """A payload as text; if this is its beginning, without a character that was cut in two."""
    reader = codecs.getincrementaldecoder("utf-8")()
    return reader.decode(payload, final=len(payload) == of_bytes)


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
    message, is_stream = letter.message, bool(letter.stream)
    payload = bytes(message.payload[:_MAX_PAYLOAD])
    try:
        text: dict[str, object] = {"payload": _beginning(payload, len(message.payload))}
    except UnicodeDecodeError:
        text = {"payload": b64encode(payload).decode(), "encoding": "base64"}
    told = {"detail": letter.header("error")} if letter.header("error") else {}
    return {
        "id": f"{letter.address}:{letter.msg_id}",
        "original_id": letter.header("sequence" if is_stream else "msg-id"),
        "subject": letter.origin,
        "group": letter.header("consumer" if is_stream else "group"),
        **text,
        "bytes": len(message.payload),
        "error": letter.header("reason"),
        **told,
        "attempts": letter.header("deliveries") or "0",
        "first_seen": first_seen(letter.header("first-time"), message.sent_ms // 1000),
        "last_failed": message.create_ms // 1000,
        "resolved_at": int(time.time()),
    }


def first_seen(text: str, otherwise: int) -> int:
    """A time that a header tells, in Unix seconds."""
    try:
        return int(datetime.fromisoformat(text).timestamp())
    except ValueError:
        return otherwise
