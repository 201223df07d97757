"""The manifest of an export, as readers need it: up to where the export goes, what of it is gone.

Knows the text of the file; where it lies and how it is fetched is up to the reader.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mq9.errors import InvalidField

NAME = "manifest.json"
NEWEST_VERSION = 1

Position = tuple[int, int]


@dataclass(frozen=True)
class Manifest:
    """What readers need to know of an export."""

    end: Position
    """Segment and offset up to which the export goes."""
    forgotten: Position | None
    """The highest position of a file that was removed because it was old."""
    since: tuple[tuple[Position, str], ...]
    """By position the folder of the oldest hour that has rows from there on; sorted by both."""

    def oldest_hour(self, start: Position) -> str:
        """The oldest hour with rows from a position on, as its folder; "" if that is not known."""
        hours = [hour for position, hour in self.since if position <= start]
        return hours[-1] if hours else ""


def parsed(folder: str, text: str | bytes) -> Manifest:
    """The manifest of a folder, if it is sound."""
    try:
        manifest: dict[str, Any] = json.loads(text)
        version = manifest["version"]
        if version <= NEWEST_VERSION:
            written = manifest.pop("crc32c", None)
            if checksum(manifest) == written:
                return Manifest(
                    _position(manifest),
                    _position(manifest["forgotten"]) if "forgotten" in manifest else None,
                    tuple((_position(each), each["hour"]) for each in manifest.get("since", ())),
                )
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise InvalidField(f"{_damaged(folder)}: {error!r}") from error
    if version > NEWEST_VERSION:
        raise InvalidField(
            f"{folder} has an export of version {version}, and this mq9 knows version "
            f"{NEWEST_VERSION}: install a newer one"
        )
    raise InvalidField(
        f"{_damaged(folder)}: its checksum does not match. A wrong number in it would lose rows or "
        "double them: put the old file back, or export to an empty folder"
    )


def _position(found: Mapping[str, int]) -> Position:
    return found["segment"], found["offset"]


def checksum(manifest: Mapping[str, Any]) -> str:
    """The member `crc32c` of a manifest with these other members."""
    crc = 0xFFFFFFFF
    for byte in json.dumps(manifest, separators=(",", ":")).encode():
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 0xFF]
    return f"{crc ^ 0xFFFFFFFF:08x}"


def _damaged(folder: str) -> str:
    return f"{folder}: {NAME} is damaged"


def _shifted(byte: int) -> int:
    """What a byte does to a CRC32C."""
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    return byte


_TABLE = tuple(_shifted(byte) for byte in range(256))
