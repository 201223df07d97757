"""Builds and controls `shim.c`, the disk and the clock that fail on demand.

Also takes back what was not synced. The shim is put between a broker and its data directory with
LD_PRELOAD. It needs a C compiler and Linux; tests that use it are skipped elsewhere.
"""

import atexit
import functools
import mmap
import random
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(__file__).with_name("shim.c")
NUMBERS = (
    "clock_offset_ns",
    "write_errno",
    "read_errno",
    "sync_errno",
    "open_errno",
    "lose_writes",
    "lie_about_syncs",
    "hits",
    "overlong_writes",
)
SIZE_BYTES = 8 * len(NUMBERS)
HEADER_BYTES = 8
RECORD_BYTES = 16


def missing() -> str | None:
    """Why the shim cannot be used here; None if it can."""
    if not sys.platform.startswith("linux"):
        return "needs Linux: the shim replaces calls of glibc"
    return None if shutil.which("cc") else "needs a C compiler (cc) to build the shim with"


@functools.cache
def build() -> Path:
    """Compiles the shim, once for this process."""
    folder = Path(tempfile.mkdtemp(prefix="mq9-shim-"))
    atexit.register(shutil.rmtree, folder)
    library = folder / "shim.so"
    options = ["-O2", "-shared", "-fPIC", "-Wall", "-Wextra"]
    done = subprocess.run(
        ["cc", *options, "-o", str(library), str(SOURCE), "-ldl", "-lpthread"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"cc could not build {SOURCE.name}:\n{done.stderr}")
    return library


class Shim:
    """The faults of one data directory; they outlive a broker that is killed."""

    def __init__(
        self, folder: Path, data: Path, *, undo: bool = False, clock: bool = False
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.data = data
        self.undo = folder / "undo"
        self.undo.mkdir(exist_ok=True)
        control = folder / "control"
        control.write_bytes(bytes(SIZE_BYTES))
        with control.open("r+b") as file:
            self._numbers = mmap.mmap(file.fileno(), SIZE_BYTES)
        settings = {
            "LD_PRELOAD": build(),
            "MQ9_SHIM_CONTROL": control,
            "MQ9_SHIM_DATA": data,
        }
        if undo:
            settings["MQ9_SHIM_UNDO"] = self.undo
        if clock:
            settings["MQ9_SHIM_CLOCK"] = Path("1")
        self.around = ("env", *(f"{name}={value}" for name, value in settings.items()))

    def set(self, name: str, value: int) -> None:
        """Begins a fault, or ends it with 0; it holds from the next call on."""
        struct.pack_into("=q", self._numbers, 8 * NUMBERS.index(name), value)

    def get(self, name: str) -> int:
        found: int = struct.unpack_from("=q", self._numbers, 8 * NUMBERS.index(name))[0]
        return found

    def cut_power(self, choose: random.Random) -> int:
        """Undoes what was not synced when the broker was killed: all of it, or any part.

        Returns how many changes were undone.
        """
        strict = choose.random() < 0.5
        undone = self._roll_back_names(choose, strict=strict)
        inodes = {file.stat().st_ino: file for file in self.data.iterdir()}
        for log in self.undo.iterdir():
            if log.name.isdigit():
                file = inodes.get(int(log.name))
                if file is not None:
                    undone += _roll_back(file, log.read_bytes(), choose, strict=strict)
        for log in self.undo.iterdir():
            log.unlink()
        return undone

    def _roll_back_names(self, choose: random.Random, *, strict: bool) -> int:
        log = self.undo / "names"
        text = log.read_text() if log.exists() else ""
        lines = [line.split() for line in text[: text.rfind("\n") + 1].splitlines()]
        changes = [line for line in lines if line[0] != "D"]
        durable = max((int(line[1]) for line in lines if line[0] == "D"), default=0)
        # File systems keep the order of names: some of the last changes are lost.
        kept = durable if strict else choose.randint(durable, len(changes))
        for kind, *names in reversed(changes[kept:]):
            path = self.data / names[0]
            if kind == "C":
                path.unlink(missing_ok=True)
            elif kind == "U":
                (self.undo / names[1]).rename(path)
            elif (self.data / names[1]).exists():
                (self.data / names[1]).rename(path)
        return len(changes) - kept


def _roll_back(file: Path, log: bytes, choose: random.Random, *, strict: bool) -> int:
    # The kill may have come before the log was begun, or in the middle of its last record: then
    # what it was to undo has not been done.
    at: int = struct.unpack_from("=Q", log)[0] if len(log) >= HEADER_BYTES else len(log)
    changes = []
    while at + RECORD_BYTES <= len(log):
        offset, length = struct.unpack_from("=QQ", log, at)
        at += RECORD_BYTES
        if at + length > len(log):
            break
        changes.append((offset, log[at : at + length]))
        at += length
    keep = 0.0 if strict else choose.random()
    undone = 0
    with file.open("r+b") as bytes_of:
        for offset, old in reversed(changes):
            if choose.random() >= keep:
                bytes_of.seek(offset)
                bytes_of.write(old)
                undone += 1
    return undone
