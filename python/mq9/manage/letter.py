"""A dead letter, and what is read from the message that it is.

Owns the headers of dead letters. Knows neither which letters there are nor what is done with them.
"""

import base64
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from mq9.manage.letter_places import STREAM, LetterPlace
from mq9.manage.link import Link, RefusedError

DEAD = "mq9-dead-"


@dataclass(slots=True)
class Letter:
    """A dead letter, without its payload."""

    address: str
    """Of its mailbox; of a stream its name behind `stream:`."""
    msg_id: int
    subject: str
    """The mailbox or the subject that it came from."""
    original_id: str
    group: str
    reason: str
    attempts: int
    first_seen: int
    last_failed: int
    bytes: int
    priority: str
    created_ms: int = 0
    """When its mailbox or stream was made: another one of the same name has other letters."""
    detail: str = ""
    """What its consumer said of it."""

    @property
    def id(self) -> str:
        """What it is called here."""
        return f"{self.address}:{self.msg_id}"

    def is_in(self, entry: dict[str, Any]) -> bool:
        """Whether this message is the letter, and not one of a mailbox made later."""
        found = read_letter(self.address, entry)
        return found is not None and (found.id, found.last_failed, found.original_id) == (
            *(self.id, self.last_failed, self.original_id),
        )


async def read_entry(link: Link, letter: Letter) -> dict[str, Any]:
    """The message of a letter; RefusedError if it is not there any more."""
    page, _ = await LetterPlace(letter.address).page(link, letter.msg_id, 1)
    if not page or not letter.is_in(page[0]):
        raise RefusedError("message not found", "message_not_found")
    return page[0]


def payload_of(entry: dict[str, Any]) -> bytes:
    """The bytes of a message."""
    text = str(entry["payload"])
    return (
        base64.b64decode(text, validate=True)
        if entry.get("encoding") == "base64"
        else text.encode()
    )


def previewed(entry: dict[str, Any], most: int | None) -> dict[str, Any]:
    """A message with no more of its payload than wanted, and how large that is."""
    if most is None:
        return entry
    text = str(entry["payload"])
    is_base64 = entry.get("encoding") == "base64"
    if is_base64:
        size, most = len(text) // 4 * 3 - text[-2:].count("="), most // 4 * 4
    else:
        size = len(text.encode("utf-8", "replace"))
    cut = {"payload": text[:most], "cut": True} if len(text) > most else {}
    return {**entry, "bytes": size, **cut}


def read_letter(address: str, entry: dict[str, Any], created_ms: int = 0) -> Letter | None:
    """A message of a place that was made then, as a letter; None if it is an ordinary one."""
    is_stream = address.startswith(STREAM)
    source = header(entry, f"{DEAD}subject" if is_stream else f"{DEAD}mailbox")
    if not source:
        return None
    attempts, failed = header(entry, f"{DEAD}deliveries"), int(entry["create_time"])
    return Letter(
        address=address,
        msg_id=int(entry["msg_id"]),
        subject=source,
        original_id=header(entry, f"{DEAD}sequence" if is_stream else f"{DEAD}msg-id"),
        group=header(entry, f"{DEAD}consumer" if is_stream else f"{DEAD}group"),
        reason=header(entry, f"{DEAD}reason"),
        attempts=int(attempts) if attempts.isascii() and attempts.isdigit() else 0,
        first_seen=_seconds(header(entry, f"{DEAD}first-time"), failed),
        last_failed=failed,
        bytes=len(str(entry["payload"])),
        priority=str(entry.get("priority", "")),
        created_ms=created_ms,
        detail=header(entry, f"{DEAD}error"),
    )


def attempts_of(note: dict[str, Any]) -> int:
    """How often a letter was delivered that somebody has dealt with; 0 if that is no number."""
    attempts = str(note.get("attempts", "0"))
    return int(attempts) if attempts.isascii() and attempts.isdigit() else 0


def _seconds(text: str, otherwise: int) -> int:
    try:
        return int(datetime.fromisoformat(text).timestamp())
    except ValueError:
        return otherwise


def header(entry: dict[str, Any], name: str) -> str:
    """The first value of a header; empty without one."""
    values = entry.get("headers", {}).get(name)
    return str(values[0]) if values else ""
