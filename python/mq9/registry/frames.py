"""Frames between the broker and its search worker: a small JSON head and raw bytes.

A frame is two little-endian u32, the length of the head and that of the body, then both. Knows
nothing of what is said.
"""

import json
import struct
from array import array
from collections.abc import Iterable
from typing import Any, NamedTuple

_LENGTHS = struct.Struct("<II")
MAX_BYTES = 1 << 30
"""More than this in a frame is not ours."""


class Frame(NamedTuple):
    """One thing said."""

    head: dict[str, Any]
    body: bytes


class BrokenFrameError(Exception):
    """What came is no frame."""


def encode(head: dict[str, Any], body: bytes = b"") -> bytes:
    """A frame as it is sent."""
    written = json.dumps(head, separators=(",", ":")).encode()
    return _LENGTHS.pack(len(written), len(body)) + written + body


class Decoder:
    """Cuts what was received into frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """All frames that are whole by now."""
        self._buffer += data
        found = []
        at = 0
        while len(self._buffer) - at >= _LENGTHS.size:
            head, body = _LENGTHS.unpack_from(self._buffer, at)
            if head + body > MAX_BYTES:
                raise BrokenFrameError(f"a frame of {head + body} bytes")
            start = at + _LENGTHS.size
            if len(self._buffer) < start + head + body:
                break
            at = start + head + body
            said = json.loads(self._buffer[start : start + head])
            found.append(Frame(said, bytes(self._buffer[start + head : at])))
        del self._buffer[:at]
        return found


def pack(numbers: Iterable[int]) -> bytes:
    """Numbers as a body."""
    return array("q", numbers).tobytes()


def unpack(body: bytes) -> "array[int]":
    """The numbers of a body."""
    found = array("q")
    found.frombytes(body)
    return found
