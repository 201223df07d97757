"""A dead letter, and what is read from the message that it is.

Owns the headers of dead letters. Knows neither which letters there are nor what is done with them.
"""

import base64
from dataclasses import dataclass
from typing import Any

from mq9.manage.link import Link, RefusedError

DEAD = "mq9-dead-"


@dataclass(slots=True)
class Letter:
    """A dead letter, without its payload."""

    address: str
    msg_id: int
    subject: str
    original_id: str
    group: str
    reason: str
    attempts: int
    first_seen: int
    last_failed: int
    bytes: int
    priority: str
    created_ms: int = 0
    """When its mailbox was made: another one of the same address has other letters."""

    @property
    def id(self) -> str:
        """What it is called here."""
        return f"{self.address}:{self.msg_id}"

    def is_in(self, entry: dict[str, Any]) -> bool:
        """Whether this message is the letter, and not one of a mailbox made later."""
        return (int(entry["msg_id"]), int(entry["create_time"])) == (
            *(self.msg_id, self.last_failed),
        ) and header(entry, f"{DEAD}msg-id") == self.original_id


async def read_entry(link: Link, letter: Letter) -> dict[str, Any]:
    """The message of a letter; RefusedError if it is not there any more."""
    fields: dict[str, Any] = {"limit": 1, "since": 0}
    if letter.msg_id:
        fields["after_id"] = letter.msg_id - 1
    page = (await link.request(f"MSG.QUERY.{letter.address}", fields))["messages"]
    if not page or not letter.is_in(page[0]):
        raise RefusedError("message not found", "message_not_found")
    entry: dict[str, Any] = page[0]
    return entry


def payload_of(entry: dict[str, Any]) -> bytes:
    """The bytes of a message."""
    text = str(entry["payload"])
    return base64.b64decode(text) if entry.get("encoding") == "base64" else text.encode()


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
    """A message of a mailbox of dead letters that was made then; None if it is an ordinary one."""
    source = header(entry, f"{DEAD}mailbox")
    if not source:
        return None
    attempts = header(entry, f"{DEAD}deliveries")
    return Letter(
        address=address,
        msg_id=int(entry["msg_id"]),
        subject=source,
        original_id=header(entry, f"{DEAD}msg-id"),
        group=header(entry, f"{DEAD}group"),
        reason=header(entry, f"{DEAD}reason"),
        attempts=int(attempts) if attempts.isdigit() else 0,
        first_seen=int(entry["create_time"]),
        last_failed=int(entry["create_time"]),
        bytes=len(str(entry["payload"])),
        priority=str(entry["priority"]),
        created_ms=created_ms,
    )


def header(entry: dict[str, Any], name: str) -> str:
    """The first value of a header; empty without one."""
    values = entry.get("headers", {}).get(name)
    return str(values[0]) if values else ""
