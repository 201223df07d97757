"""Vectors on disk, each under a digest of the text it stands for: a card that comes back, or comes
again, is not computed anew.

The file is a cache: what cannot be read is computed again, never an error. Its bytes are described
in docs/formats.md. Knows nothing of agents.
"""

from __future__ import annotations

import os
import shutil
import struct
import zlib
from hashlib import blake2b
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from pathlib import Path

    from numpy.typing import NDArray

_MAGIC = b"MQ9VECT\0"
_VERSION = 1
_HEADER = struct.Struct("<8sIIH")
_DIGEST_BYTES = 16
_READ_RECORDS = 4096
# Records of texts that nobody has, beyond which it is worth writing the others to a new file.
_SPARE_RECORDS = 1000


def digest(text: str) -> bytes:
    """What a text is known by."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_DIGEST_BYTES).digest()


class VectorFile:
    """The vectors of one embedder, in half precision; those of another are dropped on opening."""

    def __init__(
        self, path: Path, embedder_id: str, dimensions: int, tell: Callable[[str], None]
    ) -> None:
        """Read what is there; `tell` hears of what had to be dropped."""
        self._path = path
        self._header = _header(embedder_id, dimensions)
        self._record = np.dtype(
            [("digest", f"V{_DIGEST_BYTES}"), ("vector", "<f2", dimensions), ("crc", "<u4")]
        )
        self._tell = tell
        self._places: dict[bytes, int] = {}
        self._records = 0
        # Where there is no file, or no room for more.
        self._unwritten: dict[bytes, NDArray[np.float32]] = {}
        self._file: BinaryIO | None = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._read()
            self._open()
        except OSError as error:
            self._give_up(error)

    def __contains__(self, key: bytes) -> bool:
        return key in self._places or key in self._unwritten

    def __len__(self) -> int:
        return len(self._places) + len(self._unwritten)

    def get(self, key: bytes) -> NDArray[np.float32]:
        """The vector of a text that is known."""
        if self._file is None or key in self._unwritten:
            return self._unwritten[key]
        place = self._places[key]
        data = os.pread(self._file.fileno(), self._record.itemsize, self._offset(place))
        # It was sound when the file was opened.
        vector: NDArray[np.float32] = np.frombuffer(data, self._record)["vector"][0].astype("<f4")
        return vector

    def add(self, pairs: Iterable[tuple[bytes, NDArray[np.float32]]]) -> None:
        """Keep vectors; not synced, since they can be computed again."""
        for key, vector in pairs:
            half = vector.astype("<f2").tobytes()
            record = key + half + struct.pack("<I", zlib.crc32(half, zlib.crc32(key)))
            try:
                if self._file is None:
                    self._unwritten[key] = vector
                else:
                    # At its place, so that half a record is overwritten.
                    os.pwrite(self._file.fileno(), record, self._offset(self._records))
                    self._places[key] = self._records
                    self._records += 1
            except OSError as error:
                self._unwritten[key] = vector
                if len(self._unwritten) == 1:
                    self._tell(f"cannot keep the vectors of agents: {error.strerror}")

    def tidy(self, wanted: Collection[bytes]) -> None:
        """Drop the vectors of texts that are not wanted, if they have become many."""
        if self._file is None or self._records <= 2 * len(wanted) + _SPARE_RECORDS:
            return
        kept = [(key, self._places[key]) for key in wanted if key in self._places]
        size = self._record.itemsize
        new = self._path.with_suffix(".tmp")
        try:
            with new.open("wb") as out:
                out.write(self._header)
                for _, place in kept:
                    out.write(os.pread(self._file.fileno(), size, self._offset(place)))
            new.replace(self._path)
        except OSError as error:
            self._tell(f"cannot tidy up the vectors of agents: {error.strerror}")
            return
        self._file.close()
        self._open()
        self._places = {key: at for at, (key, _) in enumerate(kept)}
        self._records = len(kept)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def _open(self) -> None:
        self._file = self._path.open("r+b", buffering=0)

    def _give_up(self, error: OSError) -> None:
        self._tell(f"cannot use the file with the vectors of agents: {error.strerror}")
        self._file = None
        self._places.clear()

    def _offset(self, place: int) -> int:
        return len(self._header) + place * self._record.itemsize

    def _read(self) -> None:
        if self._path.is_dir():
            self._tell("the vectors of agents are a folder: it is removed")
            shutil.rmtree(self._path)
        try:
            with self._path.open("rb") as file:
                found = file.read(len(self._header))
                if found == self._header:
                    if damaged := self._read_records(file.fileno()):
                        self._tell(f"{damaged} vectors of agents were damaged: computed anew")
                    return
            if found:
                self._tell("the vectors of agents are damaged, or not this embedder's: removed")
        except FileNotFoundError:
            pass
        self._path.write_bytes(self._header)

    def _read_records(self, descriptor: int) -> int:
        size, damaged = self._record.itemsize, 0
        body = slice(_DIGEST_BYTES, size - 4)
        while True:
            at = self._offset(self._records)
            data = os.pread(descriptor, size * _READ_RECORDS, at)
            whole = len(data) // size
            for start in range(0, whole * size, size):
                record = data[start : start + size]
                crc = zlib.crc32(record[body], zlib.crc32(record[:_DIGEST_BYTES]))
                if crc == int.from_bytes(record[-4:], "little"):
                    self._places[record[:_DIGEST_BYTES]] = self._records
                else:
                    damaged += 1
                self._records += 1
            if whole < _READ_RECORDS:
                return damaged + bool(len(data) % size)


def _header(embedder_id: str, dimensions: int) -> bytes:
    name = embedder_id.encode()
    header = _HEADER.pack(_MAGIC, _VERSION, dimensions, len(name)) + name
    return header + struct.pack("<I", zlib.crc32(header))
