"""Mailboxes as lists show them."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class MailboxSummary:
    """One mailbox of a list; times in Unix seconds. Of a public list, only what is for everyone."""

    address: str
    desc: str
    created: int
    expires: int | None
    """None is never."""
    messages: int
    type: str = "standard"
    public: bool = True
    delayed: int = 0
    bytes: int = 0
    groups: int = 0

    @classmethod
    def from_entry(cls, entry: Mapping[str, Any]) -> Self:
        """From an entry of ADMIN.MAILBOX.LIST or PUBLIC.LIST."""
        fields = {name: entry[name] for name in cls.__slots__ if name in entry}
        fields["address"] = entry.get("mail_address") or entry["mail_id"]
        fields["expires"] = entry["expires"] or None
        return cls(**fields)


@dataclass(frozen=True, slots=True)
class GroupDetails:
    """A group: messages given out and not acknowledged, and messages not given out yet."""

    name: str
    pending: int
    lag: int


@dataclass(frozen=True, slots=True)
class MailboxDetails:
    """All that an operator is told of a mailbox."""

    address: str
    desc: str
    created: int
    expires: int | None
    messages: int
    delayed: int
    bytes: int
    next_id: int
    policy: Mapping[str, Any]
    groups: tuple[GroupDetails, ...]

    @classmethod
    def from_entry(cls, entry: Mapping[str, Any]) -> Self:
        """From the reply of ADMIN.MAILBOX.SHOW."""
        simple = ("desc", "created", "messages", "delayed", "bytes", "next_id")
        known = GroupDetails.__slots__
        return cls(
            address=entry["mail_address"],
            expires=entry["expires"] or None,
            policy=MappingProxyType(dict(entry["policy"])),
            groups=tuple(
                GroupDetails(**{name: group[name] for name in known}) for group in entry["groups"]
            ),
            **{name: entry[name] for name in simple},
        )
