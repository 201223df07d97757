"""`expire`: takes the messages whose time is over out of a session, and survives any crash.

Several files change: the messages, every cursor, side-files. Before the first of them does, a
journal says what is to become of all. The messages are replaced at once; from then on the next
process with the lock can finish the rest from the journal, and before that nothing has happened.
"""

import json
import os
import re
from bisect import bisect_left
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING

from mq9.local import files
from mq9.local.errors import QueueError
from mq9.local.record import is_expired, is_own_id, parsed, side_file

if TYPE_CHECKING:
    from collections.abc import Callable

    from mq9.local.session import Session

_MENTIONED = re.compile(rb"@file:([\w.-]+\.txt)")


@dataclass
class Plan:
    """What is to go."""

    dropped: int = 0
    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    """Bytes of the messages, as ranges in order."""
    bodies: list[str] = field(default_factory=list)

    def drop(self, start: int, end: int) -> None:
        """Takes a line out."""
        self.dropped += 1
        if self.ends and self.ends[-1] == start:
            self.ends[-1] = end
        else:
            self.starts.append(start)
            self.ends.append(end)

    def moved(self, offsets: dict[str, int]) -> dict[str, int]:
        """Where offsets are to be afterwards, if it is elsewhere."""
        gone = [0, *accumulate(e - s for s, e in zip(self.starts, self.ends, strict=True))]
        after = {}
        for name, offset in offsets.items():
            count = bisect_left(self.starts, offset)
            # One that lies inside of a range goes to where the range was.
            inside = max(self.ends[count - 1] - offset, 0) if count else 0
            if count:
                after[name] = offset - gone[count] + inside
        return after


def expire(session: "Session", now_ms: int, audit: "Callable[[int], None]") -> int:
    """Drops what has expired and returns how many messages that were. Needs the lock."""
    try:
        fd = os.open(session.messages, files.READ)
    except FileNotFoundError:
        audit(0)
        return 0
    try:
        plan = _plan(session, fd, now_ms)
        if not plan.dropped:
            audit(0)
            _remove_bodies(session, plan.bodies)
            return 0
        draft = _draft(session)
        try:
            _write_draft(draft, fd, plan)
            audit(plan.dropped)
            moved = plan.moved(session.all_cursors())
            journal = json.dumps({"cursors": moved, "bodies": plan.bodies}).encode()
            path = _journal(session)
            files.write_whole(f"{path}.tmp", journal, sync=True)
            os.replace(f"{path}.tmp", path)
        except BaseException:
            # In this order, as in `recover`.
            files.remove(_journal(session))
            files.remove(draft)
            raise
        files.sync_folder(session.folder)
        os.replace(draft, session.messages)
    finally:
        os.close(fd)
    _finish(session, moved, plan.bodies)
    return plan.dropped


def recover(session: "Session") -> None:
    """Brings to an end what a process that died had begun. Needs the lock."""
    path = _journal(session)
    if not files.exists(path):
        return
    draft = _draft(session)
    if files.exists(draft):
        # The messages have not been replaced. The journal goes first: without the draft it would
        # say that they have.
        files.remove(path)
        files.sync_folder(session.folder)
        files.remove(draft)
        return
    try:
        journal = json.loads(files.read_whole(path) or b"")
        moved, bodies = dict(journal["cursors"]), list(journal["bodies"])
    except (ValueError, TypeError, KeyError) as error:
        raise QueueError(
            f"{path} is damaged: it should say where cursors belong after `expire`. Look whether "
            "the files in cursors/ are the offsets of lines, then remove it"
        ) from error
    _finish(session, moved, bodies)


def _plan(session: "Session", fd: int, now_ms: int) -> Plan:
    plan = Plan()
    start = 0
    kept: set[str] = set()
    for end, line in files.lines(fd, 0):
        record = parsed(line)
        if record is not None and is_expired(record, now_ms):
            plan.drop(start, end)
            if (name := side_file(record)) is not None:
                plan.bodies.append(name)
        elif b"@file:" in line:
            # Also of a line that cannot be read: who repairs it will need its body.
            kept.update(found.decode() for found in _MENTIONED.findall(line))
        start = end
    torn = files.read_at(fd, start, files.BLOCK_BYTES)
    kept.update(found.decode() for found in _MENTIONED.findall(torn))
    # Left by senders that died before their message was there.
    plan.bodies += [name for name in _own_bodies(session) if name not in {*kept, *plan.bodies}]
    return plan


def _own_bodies(session: "Session") -> list[str]:
    try:
        names = os.listdir(session.bodies)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [name for name in names if name.endswith(".txt") and is_own_id(name[:-4])]


def _write_draft(draft: str, source: int, plan: Plan) -> None:
    state = os.fstat(source)
    target = os.open(draft, files.WRITE, 0o600)
    try:
        size = state.st_size
        for start, end in zip([0, *plan.ends], [*plan.starts, size], strict=True):
            os.lseek(source, start, os.SEEK_SET)
            while start < end:
                block = os.read(source, min(files.BLOCK_BYTES, end - start))
                if not block:
                    raise OSError(f"{draft}: the messages became shorter while they were read")
                files.write_all(target, block)
                start += len(block)
        # Those who could append before must be able to afterwards.
        os.chmod(target, state.st_mode & 0o7777)
        made = os.fstat(target)
        if (made.st_uid, made.st_gid) != (state.st_uid, state.st_gid):
            os.chown(target, state.st_uid, state.st_gid)
        os.fsync(target)
    finally:
        os.close(target)


def _finish(session: "Session", moved: dict[str, int], bodies: list[str]) -> None:
    """The part that can be done twice: nobody moves a cursor while there is a journal."""
    files.sync_folder(session.folder)
    for agent_id, offset in moved.items():
        draft = session.draft_cursor(agent_id, offset, sync=True)
        session.replace_cursor(agent_id, draft)
    if moved:
        files.sync_folder(session.cursors)
    _remove_bodies(session, bodies)
    files.remove(_journal(session))
    # If it came back after a power cut, it would move cursors back.
    files.sync_folder(session.folder)


def _remove_bodies(session: "Session", bodies: list[str]) -> None:
    for name in bodies:
        files.remove(os.path.join(session.bodies, name))


def _draft(session: "Session") -> str:
    return os.path.join(session.folder, ".expire.messages")


def _journal(session: "Session") -> str:
    return os.path.join(session.folder, ".expire")
