"""`Queue`: mail between processes of one machine, in plain files and without a broker.

Checks what it is told, decides in which order things happen, and leaves files to the session.
The order is the promise: a message counts from the moment its line is whole, a cursor moves
before its messages are returned, and what cannot be audited does not happen.
"""

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from mq9.local import audit, compaction, files
from mq9.local.errors import QueueDisabledError, QueueError, QueueStorageError
from mq9.local.record import (
    Record,
    encoded,
    is_expired,
    is_for,
    level,
    new_id,
    parsed,
    side_file_mark,
    timestamp,
)
from mq9.local.session import Session
from mq9.local.settings import (
    body_threshold,
    checked_level,
    checked_name,
    checked_topic,
    checked_topics,
    checked_ttl,
    disabled,
    is_name,
    root_folder,
    sender_name,
    session_name,
)
from mq9.local.waiting import Watch

# With the default threshold a line stays within 4096 bytes, whatever JSON has to escape.
_LINE_BYTES_ABOVE_THRESHOLD = 512
# Shorter bodies are not what makes a line long.
_SHORT_BODY_BYTES = 64
_MAX_REPLY_TO = 255


class Queue:
    """A folder of sessions, each a queue that any process can write to and read from.

    With `durable`, a call that has returned survives a power cut. Without, it survives the end of
    any process.
    """

    def __init__(
        self, root: str | os.PathLike[str] | None = None, *, durable: bool = False
    ) -> None:
        self.root: Path = root_folder(root)
        self.body_threshold: int = body_threshold()
        self._durable = durable
        self._sessions: dict[str, Session] = {}

    @property
    def audit_path(self) -> Path:
        """The file that says who did what and when."""
        return self.root / "audit.jsonl"

    def send(
        self,
        topic: str,
        body: str,
        to: str | None = None,
        ttl_s: float | None = None,
        session: str | None = None,
        *,
        sender: str | None = None,
        reply_to: str | None = None,
        priority: str | int | None = None,
    ) -> str:
        """Send a message and return its `msg_id`; if this raises, nothing was sent.

        `to` is an agent; None, `all` and `broadcast` are every agent. After `ttl_s` seconds nobody
        gets it. `poll(by_priority=True)` sorts by `priority`.
        """
        now_ms = _now_ms()
        if to is not None:
            checked_name("to", to)
        record: Record = {
            "msg_id": new_id(now_ms),
            "ts": timestamp(now_ms),
            "from": sender_name(sender),
            "to": to,
            "topic": checked_topic(topic),
            "body": body,
            "in_reply_to": _checked_reply_to(reply_to),
            "ttl_s": checked_ttl(ttl_s),
        }
        if (chosen := checked_level(priority)) is not None:
            record["priority"] = chosen
        _checked_body(body)
        self.append_record(self._session(session), record)
        return str(record["msg_id"])

    def poll(
        self,
        agent_id: str,
        topics: str | Iterable[str] | None = None,
        session: str | None = None,
        *,
        by_priority: bool = False,
    ) -> list[Record]:
        """Return the messages for an agent since its last poll, each once.

        Before this returns, the agent's cursor moves past them, and past everything else that was
        read: messages of other agents, other topics, and expired ones.
        """
        checked_name("agent_id", agent_id)
        chosen = checked_topics(topics)
        place = self._session(session)
        if disabled():
            return []
        matched: list[Record] = []
        now_ms = _now_ms()

        def visit(record: Record) -> None:
            if (
                is_for(record, agent_id)
                and (chosen is None or record["topic"] in chosen)
                and not is_expired(record, now_ms)
            ):
                matched.append(place.with_body(record))

        with _storage("poll", place), place.locked():
            cursor = place.cursor(agent_id)
            start = cursor or 0
            end = place.scan(start, visit)
            # The first time also at 0: who has polled can be seen.
            commit = place.prepare_cursor(agent_id, end) if end != cursor else None
            details = {
                "agent_id": agent_id,
                "topics": None if chosen is None else sorted(chosen),
                "matched": len(matched),
                "cursor_from": start,
                "cursor_to": end,
            }
            self._audit("poll", place, now_ms, details)
            if commit is not None:
                commit()
        return sorted(matched, key=level) if by_priority else matched

    def wait(
        self,
        agent_id: str,
        timeout: float | None = None,
        topics: str | Iterable[str] | None = None,
        session: str | None = None,
        *,
        by_priority: bool = False,
    ) -> list[Record]:
        """Like `poll`, but sleeps until there is a message; an empty list after `timeout` seconds.

        Without a timeout it sleeps until there is one.
        """
        if timeout is not None and not timeout >= 0:
            raise ValueError(
                f"timeout is {timeout!r}: it must be a number of seconds >= 0, or None"
            )
        checked_name("agent_id", agent_id)
        filters = checked_topics(topics)
        place = self._session(session)
        end = None if timeout is None else time.monotonic() + timeout
        with _storage("wait", place):
            place.create()
            watch = Watch(place.folder, place.messages)
        with watch:
            while True:
                found = self.poll(agent_id, filters, place.name, by_priority=by_priority)
                left = None if end is None else end - time.monotonic()
                if found or (left is not None and left <= 0):
                    return found
                watch.wait(left)

    def tail(
        self, n: int = 10, session: str | None = None, include_expired: bool = False
    ) -> list[Record]:
        """The last `n` messages that live, oldest first; moves no cursor and is not audited."""
        if type(n) is not int or n < 0:
            raise ValueError(f"n is {n!r}: it must be a whole number >= 0")
        place = self._session(session)
        with _storage("tail", place):
            return place.newest(n, _now_ms(), include_expired=include_expired)

    def expire(self, session: str | None = None) -> int:
        """Take the messages whose time is over out of the files; returns how many that were."""
        place = self._session(session)
        if disabled():
            return 0
        now_ms = _now_ms()

        def note(dropped: int) -> None:
            self._audit("expire", place, now_ms, {"dropped": dropped})

        with _storage("expire", place), place.locked():
            return compaction.expire(place, now_ms, note)

    def status(self, session: str | None = None) -> dict[str, Record]:
        """By session: counts of messages, bytes of the queue, and how far everybody has read."""
        with _storage("status", None):
            names = self._all_sessions() if session is None else [session_name(session)]
            return {name: self._counts(self._session(name)) for name in names}

    def append_record(self, place: Session, record: Record) -> None:
        """Appends a message that is complete already; for those who bring it from elsewhere."""
        if disabled():
            raise QueueDisabledError("nothing is sent while ZOS_MQ_DISABLED=1 is set")
        content = record["body"].encode()
        msg_id, body_bytes = record["msg_id"], len(content)
        line = encoded(record)
        too_long = len(line) > self.body_threshold + _LINE_BYTES_ABOVE_THRESHOLD
        aside = (
            body_bytes > self.body_threshold
            or (too_long and body_bytes > _SHORT_BODY_BYTES)
            or record["body"] == side_file_mark(msg_id)
        )
        if aside:
            line = encoded(record | {"body": side_file_mark(msg_id)})
        details = {
            "msg_id": msg_id,
            "topic": record["topic"],
            "to": record["to"],
            "from": record["from"],
            "body_bytes": body_bytes,
            "externalized": aside,
            "ttl_s": record["ttl_s"],
        }
        with _storage("send", place), place.locked():
            try:
                if aside:
                    place.write_body(msg_id, content)
                with place.appended(line):
                    self._audit("send", place, _now_ms(), details)
            except BaseException:
                if aside:
                    place.remove_body(msg_id)
                raise

    def _session(self, session: str | None) -> Session:
        name = session_name(session)
        if (found := self._sessions.get(name)) is None:
            found = Session(str(self.root), name, durable=self._durable)
            self._sessions[name] = found
        return found

    def _audit(self, operation: str, place: Session, now_ms: int, details: Record) -> None:
        audit.write(f"{self.root}/audit.jsonl", operation, place.name, now_ms, details)

    def _all_sessions(self) -> list[str]:
        folder = self.root / "sessions"
        try:
            names = os.listdir(folder)
        except FileNotFoundError:
            return []
        return sorted(name for name in names if is_name(name) and (folder / name).is_dir())

    def _counts(self, place: Session) -> Record:
        now_ms = _now_ms()
        messages = expired = unparseable = size = 0
        by_topic: dict[str, int] = {}
        try:
            fd = os.open(place.messages, files.READ)
        except FileNotFoundError:
            pass
        else:
            try:
                size = os.fstat(fd).st_size
                for _, line in files.lines(fd, 0):
                    if (record := parsed(line)) is None:
                        unparseable += bool(line)
                        continue
                    messages += 1
                    expired += is_expired(record, now_ms)
                    by_topic[record["topic"]] = by_topic.get(record["topic"], 0) + 1
            finally:
                os.close(fd)
        return {
            "messages": messages,
            "expired": expired,
            "unparseable": unparseable,
            "by_topic": dict(sorted(by_topic.items())),
            "queue_bytes": size,
            "cursors": place.all_cursors(),
        }


@contextmanager
def _storage(operation: str, place: Session | None) -> Iterator[None]:
    """Errors of files as errors of the queue that say what could not be done."""
    try:
        yield
    except QueueError:
        raise
    except OSError as error:
        where = "" if place is None else f" in session {place.name!r}"
        text = f"cannot {operation}{where}: {error.strerror or error}"
        path = error.filename or (None if place is None else place.folder)
        raise QueueStorageError(error.errno, text, path) from error


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _checked_body(body: object) -> None:
    if not isinstance(body, str):
        raise TypeError(f"body is {type(body).__name__}: it must be str")
    try:
        body.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"body is no text: {error}") from None


def _checked_reply_to(reply_to: object) -> str | None:
    if reply_to is None:
        return None
    if not isinstance(reply_to, str) or not 0 < len(reply_to) <= _MAX_REPLY_TO:
        raise ValueError(f"reply_to is {reply_to!r}: it must be the msg_id of a message")
    if not reply_to.isprintable():
        raise ValueError(f"reply_to is {reply_to!r}: it must be the msg_id of a message")
    return reply_to
