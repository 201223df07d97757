"""One session on disk: its lock, its messages, its cursors, its side-files.

Owns the names of files and what each operation does to them. Must not know the environment.
Every change is made with the lock. A process that takes the lock first finishes what a process that
died has left (`compaction.recover`).
"""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from mq9.local import compaction, files, locking
from mq9.local.errors import QueueError
from mq9.local.record import Record, is_expired, parsed, side_file
from mq9.local.settings import is_name

_CURSOR = ".cursor"


class Session:
    """The folder of a session."""

    def __init__(self, root: str, name: str, *, durable: bool) -> None:
        self.name = name
        self.folder = os.path.join(root, "sessions", name)
        self.messages = os.path.join(self.folder, "messages.jsonl")
        self.bodies = os.path.join(self.folder, "bodies")
        self.cursors = os.path.join(self.folder, "cursors")
        self._root = root
        self._lock = os.path.join(self.folder, ".lock")
        self._durable = durable
        self._seen = False
        self._holder: int | None = None

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else uses the session meanwhile; it is whole when this begins."""
        if self._holder == threading.get_ident():
            raise QueueError(
                f"session {self.name!r} is in use by this very thread: a signal handler or "
                "finalizer must not use a queue, since it may have interrupted one"
            )
        fd = self._acquire()
        self._holder = threading.get_ident()
        try:
            compaction.recover(self)
            if not self._seen:
                self._first_look()
                self._seen = True
            yield
        finally:
            self._holder = None
            # What was done is done: closing the file gives the lock back as well.
            with suppress(OSError):
                locking.release(fd)
            os.close(fd)

    def create(self) -> None:
        """Makes the folder, and all above it."""
        self._make(self.folder)

    # ---- messages

    @contextmanager
    def appended(self, line: bytes) -> Iterator[None]:
        """Appends a message; takes it back if what comes with it fails. Needs the lock."""
        fd = os.open(self.messages, files.APPEND, 0o666)
        try:
            if not os.lseek(fd, 0, os.SEEK_END):
                # Somebody may have emptied the file: nothing that comes now has been read.
                self._limit_cursors(0)
            end, written = files.append_line(fd, line)
            try:
                if self._durable:
                    os.fsync(fd)
                    files.sync_folder(self.folder)
                yield
            except BaseException:
                files.take_back(fd, end, written)
                raise
        finally:
            os.close(fd)

    def scan(self, start: int, visit: Callable[[Record], None]) -> int:
        """Visits the messages from an offset on; returns the offset behind the last whole line."""
        try:
            fd = os.open(self.messages, files.READ)
        except FileNotFoundError:
            return 0
        try:
            size = os.fstat(fd).st_size
            if start > size:
                return size
            # From the byte before, to see that a line begins here. Inside of one (somebody has
            # changed the file) the next is where to go on.
            begun = start == 0
            end = start
            for behind, line in files.lines(fd, max(start - 1, 0)):
                if begun and (record := parsed(line)) is not None:
                    visit(record)
                begun = True
                end = behind
            return end
        finally:
            os.close(fd)

    # ---- bodies

    def write_body(self, msg_id: str, body: bytes) -> None:
        """Puts a long body into a file of its own, before the message that names it."""
        path = os.path.join(self.bodies, f"{msg_id}.txt")
        try:
            files.write_whole(path, body, files.WRITE_NEW, sync=self._durable)
        except FileNotFoundError:
            self._make(self.bodies)
            files.write_whole(path, body, files.WRITE_NEW, sync=self._durable)
        if self._durable:
            files.sync_folder(self.bodies)

    def has_body(self, msg_id: str) -> bool:
        """Whether there is a long body of this id."""
        return files.exists(os.path.join(self.bodies, f"{msg_id}.txt"))

    def remove_body(self, msg_id: str) -> None:
        """Removes the body of a message that was not sent."""
        files.remove(os.path.join(self.bodies, f"{msg_id}.txt"))

    def with_body(self, record: Record) -> Record:
        """The message as it is delivered: with the body that was sent."""
        if (name := side_file(record)) is None:
            return record
        try:
            body = files.read_whole(os.path.join(self.bodies, name))
            if body is None:
                return record | {"_body_error": f"side-file {name} is not there"}
            return record | {"body": body.decode(), "_body_source": "side-file"}
        except (OSError, UnicodeDecodeError) as error:
            return record | {"_body_error": f"side-file {name} cannot be read: {error}"}

    # ---- cursors

    def cursor(self, agent_id: str) -> int | None:
        """How far an agent has read; None if it has never read."""
        path = self.cursor_path(agent_id)
        content = files.read_whole(path)
        if content is None:
            return None
        if (offset := _offset(content)) is None:
            raise QueueError(
                f"{path} is damaged: it holds {content[:40]!r} and no offset. Write the number of "
                "bytes of messages.jsonl that it has read into it, or remove it to begin anew"
            )
        return offset

    def prepare_cursor(self, agent_id: str, offset: int) -> Callable[[], None]:
        """Does everything for a new position that can fail; what it returns puts it in place."""
        try:
            draft = self.draft_cursor(agent_id, offset, sync=self._durable)
        except FileNotFoundError:
            self._make(self.cursors)
            draft = self.draft_cursor(agent_id, offset, sync=self._durable)

        def commit() -> None:
            self.replace_cursor(agent_id, draft)
            if self._durable:
                files.sync_folder(self.cursors)

        return commit

    def draft_cursor(self, agent_id: str, offset: int, *, sync: bool) -> str:
        """Writes what is to take the place of a cursor; the path of it."""
        draft = os.path.join(self.cursors, f".{agent_id}{_CURSOR}.tmp")
        files.overwrite(draft, b"%d\n" % offset, sync=sync)
        return draft

    def replace_cursor(self, agent_id: str, draft: str) -> None:
        """Puts a draft in the place of a cursor, and keeps what was there for the next draft.

        ext4 has a file that was never on the disk written out before it replaces another: a
        hundred times the cost of one that was.
        """
        path = self.cursor_path(agent_id)
        spare = os.path.join(self.cursors, f".{agent_id}{_CURSOR}.old")
        kept = files.link(path, spare)
        os.replace(draft, path)
        if kept:
            # The cursor has moved: nothing may fail any more.
            with suppress(OSError):
                os.replace(spare, draft)

    def all_cursors(self) -> dict[str, int]:
        """How far everybody has read; files that are no cursors are left alone."""
        try:
            names = sorted(os.listdir(self.cursors))
        except (FileNotFoundError, NotADirectoryError):
            return {}
        found = {}
        for name in names:
            agent_id = name.removesuffix(_CURSOR)
            if agent_id == name or not is_name(agent_id):
                continue
            try:
                offset = _offset(files.read_whole(self.cursor_path(agent_id)) or b"")
            except IsADirectoryError:
                continue
            if offset is not None:
                found[agent_id] = offset
        return found

    def cursor_path(self, agent_id: str) -> str:
        """The file that holds how far an agent has read."""
        return os.path.join(self.cursors, agent_id + _CURSOR)

    # ---- what an outsider sees, without the lock

    def newest(self, count: int, now_ms: int, *, include_expired: bool) -> list[Record]:
        """The last messages, oldest first; reads no more of the file than it takes."""
        try:
            fd = os.open(self.messages, files.READ)
        except FileNotFoundError:
            return []
        try:
            found: list[Record] = []
            for line in files.lines_backwards(fd):
                if len(found) >= count:
                    break
                record = parsed(line)
                if record is not None and (include_expired or not is_expired(record, now_ms)):
                    found.append(self.with_body(record))
            return found[::-1]
        finally:
            os.close(fd)

    # ---- inside

    def _acquire(self) -> int:
        while True:
            try:
                fd = os.open(self._lock, os.O_RDWR | os.O_CREAT, 0o666)
            except FileNotFoundError:
                self.create()
                continue
            try:
                locking.acquire(fd)
                # Somebody may have removed the file: then the others lock another one.
                if os.fstat(fd).st_nlink:
                    return fd
            except BaseException:
                os.close(fd)
                raise
            os.close(fd)

    def _first_look(self) -> None:
        """After a power cut a file can be shorter than what was read of it.

        No process outlives that: if each looks before it appends, no new message comes to lie
        where a cursor has been already.
        """
        try:
            size = os.stat(self.messages).st_size
        except FileNotFoundError:
            size = 0
        self._limit_cursors(size)
        if self._durable:
            # Somebody who does not sync may have made them.
            for folder in (self.folder, os.path.dirname(self.folder), self._root):
                files.sync_folder(folder)

    def _make(self, folder: str) -> None:
        missing = []
        while not files.exists(folder):
            missing.append(folder)
            folder = os.path.dirname(folder)
        for folder in reversed(missing):
            with suppress(FileExistsError):
                os.mkdir(folder)
            if self._durable:
                files.sync_folder(os.path.dirname(folder))

    def _limit_cursors(self, size: int) -> None:
        for agent_id, offset in self.all_cursors().items():
            if offset > size:
                self.prepare_cursor(agent_id, size)()


def _offset(content: bytes) -> int | None:
    written = content.strip()
    return int(written) if written.isdigit() and len(written) < 20 else None
