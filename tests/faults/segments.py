"""Reads and rewrites records of a segment, from the tables of docs/formats.md alone.

Only as far as a test needs it to damage a record so that its checksum does not tell.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

FIRST_RECORD = 80
FRAME = struct.Struct("<IIHBBQ")
MESSAGE = 4
MESSAGE_HEAD = struct.Struct("<QQQQBBHHI")
WORD = 1 << 64


def _table() -> list[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


TABLE = _table()


def crc32c(data: bytes, start: int = 0) -> int:
    """CRC32C, going on from `start`."""
    crc = ~start & 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ TABLE[(crc ^ byte) & 0xFF]
    return ~crc & 0xFFFFFFFF


@dataclass(frozen=True)
class Record:
    """Where a record lies, and what it is."""

    offset: int
    length: int
    kind: int


def _seed(segment: bytes, offset: int) -> int:
    number: int = struct.unpack_from("<I", segment, 12)[0]
    salt: int = struct.unpack_from("<Q", segment, 20)[0]
    position = number << 32 | offset
    x = salt ^ position * 0x9E3779B97F4A7C15 % WORD
    x = (x ^ x >> 31) * 0xBF58476D1CE4E5B9 % WORD
    return x ^ x >> 29


def checksum(segment: bytes, record: Record) -> int:
    """What the checksum of a record should be."""
    start = _seed(segment, record.offset) & 0xFFFFFFFF
    return crc32c(segment[record.offset + 4 : record.offset + record.length], start)


def records(segment: bytes) -> Iterator[Record]:
    """The sound records of a segment, in order."""
    offset = FIRST_RECORD
    while offset + FRAME.size <= len(segment):
        crc, length, _mark, kind, _flags, _mailbox = FRAME.unpack_from(segment, offset)
        record = Record(offset, length, kind)
        if length < FRAME.size or checksum(segment, record) != crc:
            return
        yield record
        offset += length


def payload(segment: bytes, record: Record) -> bytes:
    """The payload of a message."""
    *_, address, key, tags, headers = MESSAGE_HEAD.unpack_from(segment, record.offset + FRAME.size)
    start = record.offset + FRAME.size + MESSAGE_HEAD.size + address + key + tags + headers
    return segment[start : record.offset + record.length]


def with_sound_checksum(segment: bytearray, record: Record) -> None:
    """Makes the checksum of a record right again."""
    struct.pack_into("<I", segment, record.offset, checksum(bytes(segment), record))
