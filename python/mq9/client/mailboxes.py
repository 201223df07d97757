"""Mailboxes: what they can be asked to be, and how lists show them."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, Self, TypedDict

from mq9.client.spans import Span, wire_field
from mq9.errors import InvalidAddress


class MailboxPolicy(TypedDict, total=False):
    """What a mailbox can be asked to be; what is left out, or None, is as it was or the default."""

    ttl: Span | None
    desc: str | None
    type: Literal["standard", "latest"] | None
    public: bool | None
    retention: Literal["limits", "work_queue"] | None
    ack_wait: Span | None
    max_deliver: int | None
    dead_letter: str | None
    max_ack_pending: int | None
    group_ttl: int | None
    max_msgs: int | None
    max_bytes: int | None
    max_age: Span | None
    max_msg_size: int | None
    message_ttls: Mapping[str, int] | None
    """Seconds that a message of a priority lives which says nothing of it itself."""
    discard: Literal["old", "new"] | None
    dedup_window: int | None


def checked_address(address: str) -> str:
    """The address, unless it would make a subject another one; the broker checks the rest."""
    if not address or any(c.isspace() or c in "*>" for c in address):
        raise InvalidAddress(
            f"invalid mail_address {address!r}: it must be lowercase letters, digits and dots"
        )
    return address


_SPANS = ("ttl", "ack_wait", "max_age")


def policy_fields(policy: MailboxPolicy) -> dict[str, Any]:
    """The fields of a request that ask for this."""
    given: dict[str, Any] = dict(policy)
    if unknown := given.keys() - MailboxPolicy.__annotations__.keys():
        raise TypeError(f"a mailbox has no {', '.join(sorted(unknown))}")
    spans = {name: given.pop(name) for name in _SPANS if given.get(name) is not None}
    return given | dict(wire_field(name, "_", span) for name, span in spans.items())


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
