"""Between files and a broker: a session's messages go to mailboxes, and answers come back.

The only part of `mq9.local` that needs a broker's client. Each message crosses once. On the way up
its id makes the send idempotent, and what is in doubt after a crash is looked for in the mailbox
first, since another may have made the mailbox with a short memory. On the way down every line says
which message of which mailbox it is, and a message is acknowledged when its line is there.
"""

import base64
import math
import os
import re
import secrets
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from mq9.client import Client, Message, NewMessage
from mq9.errors import (
    InvalidField,
    InvalidRequest,
    MailboxExists,
    MessageTooLarge,
    PartlySent,
)
from mq9.local import files, locking
from mq9.local.errors import QueueError
from mq9.local.queue import Queue
from mq9.local.record import Record, expires_ms, is_expired, level, parsed, sent_ms, timestamp
from mq9.local.session import Session
from mq9.local.settings import EVERYONE, LEVELS, TOPICS, disabled, is_name, session_name

CURSOR = "mq9-forward"
"""The cursor of what has been sent to the broker."""
ORIGIN = "forwarded"
"""The field of a line that came from a broker: the mailbox and the number there."""

_GROUP = "files"
_EVERYONE = "all"
_BETWEEN = "mail"
_BATCH = 500
_MAX_ADDRESS = 128
_CLOCKS_DIFFER_S = 3600
_REMEMBER_S = 7 * 24 * 3600
_ESCAPE = re.compile(r"x[0-9a-f]{2}|" + _BETWEEN)


def address(session: str, agent: str) -> str:
    """The mailbox of an agent: `build.mail.boss`. No two agents share one."""
    found = f"{_tokens(session)}.{_BETWEEN}.{_tokens(agent)}"
    if len(found) > _MAX_ADDRESS:
        raise ValueError(
            f"session {session!r} and agent {agent!r} make an address of {len(found)} characters; "
            f"a broker takes {_MAX_ADDRESS}"
        )
    return found


def _tokens(name: str) -> str:
    """A name in the letters of an address; what it does not have is written as `x2d`."""
    tokens = []
    for run in re.findall(r"[a-z0-9]+|.", name):
        plain = run.isalnum() and run.isascii() and run == run.lower()
        if plain and not _ESCAPE.fullmatch(run):
            tokens.append(run)
        else:
            tokens += [f"x{ord(run[0]):02x}", *([run[1:]] if run[1:] else [])]
    return ".".join(tokens)


@dataclass
class Forwarder:
    """Carries messages of one session; `agents` are those that live in its files."""

    client: Client
    queue: Queue
    session: str
    agents: tuple[str, ...] = ()
    refused: list[str] = field(default_factory=list)
    """What could not cross, and why."""

    def __post_init__(self) -> None:
        self.session = session_name(self.session)
        # What is acknowledged to a broker must not be lost with the power.
        self._place = Session(str(self.queue.root), self.session, durable=True)
        self._known: set[str] = set()
        self._seen: set[str] | None = None
        self._in_doubt = True
        self._site = ""

    @contextmanager
    def alone(self) -> Iterator[None]:
        """One forwarder for a session at a time; gives this place the name that it keeps."""
        self._place.create()
        fd = os.open(os.path.join(self._place.folder, ".forward"), files.APPEND, 0o666)
        try:
            if not locking.try_acquire(fd):
                raise QueueError(f"session {self.session!r} is being forwarded by somebody else")
            os.lseek(fd, 0, os.SEEK_SET)
            self._site = os.read(fd, 64).decode("ascii", "replace").strip()
            if not self._site:
                self._site = secrets.token_hex(8)
                files.append_line(fd, f"{self._site}\n".encode())
            yield
        finally:
            os.close(fd)

    def here(self) -> tuple[str, ...]:
        """The agents that live in the files: those named, or whoever has polled."""
        return self.agents or tuple(a for a in self._place.all_cursors() if a != CURSOR)

    # ---- up

    async def up(self) -> int:
        """Sends what is new to the mailboxes of its recipients; how many messages that were."""
        sent = 0
        while batch := self._batch():
            sent += await self._send(batch.records)
            self._in_doubt = False
            self._advance(batch)
        return sent

    async def _send(self, records: list[Record]) -> int:
        here = set(self.here())
        letters: dict[str, list[tuple[str, NewMessage]]] = {}
        for record in records:
            to = record.get("to")
            if to is None or to in EVERYONE:
                to = _EVERYONE
            elif not is_name(to) or to in here:
                continue
            if (letter := self._letter(record)) is not None:
                target = address(self.session, to)
                letters.setdefault(target, []).append((record["msg_id"], letter))
        count = 0
        for target, all_ in letters.items():
            await self._ensure(target)
            there = await self._there(target, records) if self._in_doubt else set()
            missing = [(msg_id, letter) for msg_id, letter in all_ if msg_id not in there]
            count += await self._send_to(target, missing)
        return count

    async def _send_to(self, target: str, letters: list[tuple[str, NewMessage]]) -> int:
        self._in_doubt = True
        try:
            await self.client.send_many(target, [letter for _, letter in letters])
        except PartlySent as partly:
            for number, error in partly.errors.items():
                if not isinstance(error, MessageTooLarge | InvalidRequest | InvalidField):
                    raise error from partly
                self._refuse(f"message {letters[number][0]} was not forwarded: {error}")
            return len(letters) - len(partly.errors)
        return len(letters)

    async def _there(self, target: str, records: list[Record]) -> set[str]:
        """The ids of those that an earlier attempt has brought there already."""
        # A broker's clock may be behind; it was not asked before the oldest of them was written.
        oldest = min((m for m in map(sent_ms, records) if m is not None), default=0)
        since = max(oldest // 1000 - _CLOCKS_DIFFER_S, 0)
        found = await self.client.query(target, since=since)
        ids = {record["msg_id"] for record in records}
        return {m.headers.get("agent-msg-id", "") for m in found} & ids

    def _letter(self, record: Record) -> NewMessage | None:
        now_ms = time.time_ns() // 1_000_000
        if ORIGIN in record or is_expired(record, now_ms):
            return None
        whole = self._place.with_body(record)
        if "_body_error" in whole:
            self._refuse(f"message {record['msg_id']} was not forwarded: {whole['_body_error']}")
            return None
        sender = record.get("from")
        headers = {
            "agent-msg-id": record["msg_id"],
            "agent-from": sender,
            "agent-to": record.get("to"),
            "agent-topic": record["topic"],
            "agent-in-reply-to": record.get("in_reply_to"),
            "agent-reply-mailbox": address(self.session, sender) if is_name(sender) else None,
            "agent-site": self._site,
        }
        end_ms = expires_ms(record)
        return NewMessage(
            whole["body"],
            priority=level(record),
            ttl=0 if end_ms is None else max(math.ceil((end_ms - now_ms) / 1000), 1),
            headers={n: value for n, value in headers.items() if isinstance(value, str) and value},
            id=record["msg_id"],
        )

    def _batch(self) -> "_Batch | None":
        if disabled():
            return None
        with self._place.locked():
            start = self._place.cursor(CURSOR) or 0
            try:
                fd = os.open(self._place.messages, files.READ)
            except FileNotFoundError:
                return None
        try:
            batch = _Batch(start, start, os.fstat(fd).st_ino)
            for end, line in files.lines(fd, start):
                batch.end = end
                if (record := parsed(line)) is not None:
                    batch.records.append(record)
                if len(batch.records) == _BATCH:
                    break
            return batch if batch.end > start else None
        finally:
            os.close(fd)

    def _advance(self, batch: "_Batch") -> None:
        """Moves the cursor; not if `expire` has moved the lines meanwhile: then they come again."""
        place = self._place
        with place.locked():
            same = os.stat(place.messages).st_ino == batch.inode
            if same and (place.cursor(CURSOR) or 0) == batch.start:
                place.prepare_cursor(CURSOR, batch.end)()
            else:
                self._in_doubt = True

    # ---- down

    async def down(self, agents: Iterable[str] | None = None, *, wait_s: float = 0) -> int:
        """Brings what is in the mailboxes of agents, and in that for everyone, into the files."""
        here = self.here() if agents is None else tuple(agents)
        count = 0
        for agent in (*here, _EVERYONE):
            count += await self.down_one(agent, wait_s=wait_s)
        return count

    async def down_one(self, agent: str, *, wait_s: float = 0) -> int:
        """Brings what is in one mailbox into the files."""
        if disabled():
            return 0
        source = address(self.session, agent)
        # Every place reads what is for everyone; what is for an agent only one of them.
        group = f"{_GROUP}.{self._site}" if agent == _EVERYONE else _GROUP
        await self._ensure(source)
        count = 0
        while True:
            found = await self.client.fetch(
                source,
                group=group,
                member=self._site,
                deliver="earliest",
                max_msgs=_BATCH,
                max_wait=0 if count else wait_s,
            )
            if not found:
                return count
            for message in found:
                count += self._write(agent, message)
            await self.client.ack(*found)
            self._seen_before().difference_update(_origin(m) for m in found)

    def _write(self, agent: str, message: Message) -> bool:
        headers = message.headers
        if headers.get("agent-site") == self._site or _origin(message) in self._seen_before():
            return False
        topic = headers.get("agent-topic", "answer")
        if topic not in TOPICS:
            self._refuse(f"message {_origin(message)} was not written: topic is {topic!r}")
            return False
        msg_id, sender = headers.get("agent-msg-id"), headers.get("agent-from")
        # Nobody may give a message the long body of another.
        usable = is_name(msg_id) and not self._place.has_body(msg_id)
        record: Record = {
            "msg_id": msg_id if usable else f"{message.address}.{message.msg_id}",
            "ts": timestamp(message.create_time * 1000),
            "from": sender if is_name(sender) else "broker",
            "to": None if agent == _EVERYONE else agent,
            "topic": topic,
            "body": "",
            "in_reply_to": headers.get("agent-in-reply-to"),
            "ttl_s": message.expires_at and message.expires_at - message.create_time,
        }
        if message.level != LEVELS["normal"]:
            record["priority"] = message.level
        try:
            record["body"] = message.text
        except UnicodeDecodeError:
            record["body"] = base64.b64encode(message.payload).decode()
            record["encoding"] = "base64"
        record[ORIGIN] = _origin(message)
        self.queue.append_record(self._place, record)
        self._seen_before().add(_origin(message))
        return True

    def _seen_before(self) -> set[str]:
        """What has a line but may not have been acknowledged."""
        if self._seen is None:
            self._seen = set()
            self._place.scan(0, self._remember)
        return self._seen

    def _remember(self, record: Record) -> None:
        assert self._seen is not None
        if isinstance(origin := record.get(ORIGIN), str):
            self._seen.add(origin)

    async def _ensure(self, target: str) -> None:
        if target not in self._known:
            # One that is there may have been made by its agent, in any way.
            with suppress(MailboxExists):
                await self.client.create_mailbox(target, dedup_window=_REMEMBER_S)
            self._known.add(target)

    def _refuse(self, text: str) -> None:
        self.refused.append(text)
        print(f"mq9 local: {text}", file=sys.stderr)


@dataclass
class _Batch:
    start: int
    end: int
    inode: int
    records: list[Record] = field(default_factory=list)


def _origin(message: Message) -> str:
    return f"{message.address}:{message.msg_id}"
