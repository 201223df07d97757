"""The manifest of an export, as readers need it: up to where the export goes, checked.

Knows the text of the file; where it lies and how it is fetched is up to the reader.
"""

import json
from collections.abc import Mapping
from typing import Any

from mq9.errors import InvalidField

NAME = "manifest.json"
NEWEST_VERSION = 1

Position = tuple[int, int]


def end(folder: str, text: str | bytes) -> Position:
    """Segment and offset up to which the folder's manifest says that the export goes."""
    try:
        manifest: dict[str, Any] = json.loads(text)
        version = manifest["version"]
        if version <= NEWEST_VERSION:
            written = manifest.pop("crc32c", None)
            if checksum(manifest) == written:
                return manifest["segment"], manifest["offset"]
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
