"""Files as the queue needs them: a line appended whole or not at all, a file replaced at once.

Everything is a call of `os` by its name, so that tests can stop a process before and behind each.
"""

import errno
import os
from collections.abc import Iterator

_BINARY = getattr(os, "O_BINARY", 0)
READ = os.O_RDONLY | _BINARY
APPEND = os.O_RDWR | os.O_APPEND | os.O_CREAT | _BINARY
WRITE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _BINARY
OVERWRITE = os.O_WRONLY | os.O_CREAT | _BINARY
WRITE_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY

BLOCK_BYTES = 1 << 18


def append_line(fd: int, line: bytes) -> tuple[int, int]:
    """Appends with a single write; returns where the file ended before, and what was written.

    If it fails the file is as before. A line that somebody left torn is ended first, so that this
    one does not become part of it. The caller has the lock.
    """
    end = os.lseek(fd, 0, os.SEEK_END)
    if end:
        os.lseek(fd, end - 1, os.SEEK_SET)
        if os.read(fd, 1) != b"\n":
            line = b"\n" + line
    written = os.write(fd, line)
    if written != len(line):
        take_back(fd, end, written)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return end, written


def take_back(fd: int, end: int, written: int) -> None:
    """Removes what was appended, unless a program that knows no lock has appended since."""
    if os.fstat(fd).st_size == end + written:
        os.ftruncate(fd, end)


def read_at(fd: int, offset: int, count: int) -> bytes:
    """Up to so many bytes from there."""
    os.lseek(fd, offset, os.SEEK_SET)
    return os.read(fd, count)


def lines(fd: int, start: int) -> Iterator[tuple[int, bytes]]:
    """Complete lines from an offset on, each with the offset behind it."""
    os.lseek(fd, start, os.SEEK_SET)
    end = start
    pieces: list[bytes] = []
    while True:
        block = os.read(fd, BLOCK_BYTES)
        *complete, rest = block.split(b"\n")
        for piece in complete:
            line = b"".join([*pieces, piece]) if pieces else piece
            pieces.clear()
            end += len(line) + 1
            yield end, line
        if rest:
            pieces.append(rest)
        # A file gives less than what was asked for only at its end.
        if len(block) < BLOCK_BYTES:
            return


def read_whole(path: str) -> bytes | None:
    """All of a file; None if it is not there."""
    try:
        fd = os.open(path, READ)
    except FileNotFoundError:
        return None
    try:
        blocks = [os.read(fd, BLOCK_BYTES)]
        while len(blocks[-1]) == BLOCK_BYTES:
            blocks.append(os.read(fd, BLOCK_BYTES))
        return b"".join(blocks)
    finally:
        os.close(fd)


def write_whole(path: str, content: bytes, flags: int = WRITE, *, sync: bool) -> None:
    """Writes a file that nobody looks at before this returns."""
    fd = os.open(path, flags, 0o666)
    try:
        write_all(fd, content)
        if sync:
            os.fsync(fd)
    finally:
        os.close(fd)


def overwrite(path: str, content: bytes, *, sync: bool) -> None:
    """Like `write_whole`, into the blocks on the disk that the file has already."""
    fd = os.open(path, OVERWRITE, 0o666)
    try:
        write_all(fd, content)
        if os.fstat(fd).st_size > len(content):
            os.ftruncate(fd, len(content))
        if sync:
            os.fsync(fd)
    finally:
        os.close(fd)


def link(path: str, new: str) -> bool:
    """Gives a file a second name; False if there is no such file, or it cannot have one."""
    try:
        os.link(path, new)
    except FileExistsError:
        # Left by a process that died.
        os.unlink(new)
        os.link(path, new)
    except OSError:
        return False
    return True


def write_all(fd: int, content: bytes) -> None:
    """Writes all of it, in as many calls as it takes."""
    left = memoryview(content)
    while left:
        left = left[os.write(fd, left) :]


def remove(path: str) -> bool:
    """Removes a file; False if it was not there."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return False
    return True


def exists(path: str) -> bool:
    """Whether there is something of this name."""
    try:
        os.stat(path)
    except FileNotFoundError:
        return False
    return True


def sync_folder(path: str) -> None:
    """Makes the names in a folder survive a power cut."""
    if os.name == "nt":  # pragma: no cover - a folder cannot be opened there
        return
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def lines_backwards(fd: int) -> Iterator[bytes]:
    """Complete lines, the last first."""
    start = os.fstat(fd).st_size
    pieces: list[bytes] = []
    torn = True
    while start:
        size = min(BLOCK_BYTES, start)
        start -= size
        block = b""
        os.lseek(fd, start, os.SEEK_SET)
        while len(block) < size:
            # Less than it had at first: somebody shortens it. What is there is whole all the same.
            if not (more := os.read(fd, size - len(block))):
                break
            block += more
        first, *others = block.split(b"\n")
        for position in range(len(others) - 1, -1, -1):
            pieces.append(others[position])
            if not torn:
                yield b"".join(reversed(pieces))
            torn = False
            pieces.clear()
        pieces.append(first)
    if not torn:
        yield b"".join(reversed(pieces))
