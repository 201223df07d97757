"""Messages as a program sees them: those it sends, those it was given.

Knows the two forms in which a broker gives messages out, JSON entries and NATS messages with
headers; knows nothing of connections.
"""

import base64
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Self

from mq9.client.spans import Span, wire_field
from mq9.errors import InvalidField

LEVELS: Mapping[str, int] = MappingProxyType({"critical": 1, "urgent": 3, "normal": 5, "notify": 9})
"""The levels that have names; 1 is the highest and 10 the lowest."""

_NONE: Mapping[str, str] = MappingProxyType({})


class _Missing:
    """What was not given, where None is a value."""

    def __repr__(self) -> str:
        return "<not given>"


MISSING: Any = _Missing()
_METADATA = "mq9-"
_WISHES = frozenset(
    f"{_METADATA}{name}"
    for name in ("priority", "key", "tags", "delay", "delay-ms", "ttl", "ttl-ms", "id")
)
_HEADER_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")


@dataclass(frozen=True, slots=True)
class Message:
    """A message that a broker gave out."""

    address: str
    msg_id: int
    payload: bytes
    priority: str
    create_time: int
    """In Unix seconds."""
    key: str | None = None
    tags: tuple[str, ...] = ()
    headers: Mapping[str, str] = field(default_factory=lambda: _NONE, hash=False)
    """The sender's own; of a header that was given more than once, the last."""
    expires_at: int | None = None
    """In Unix seconds."""
    deliveries: int = 0
    """How often the group was given it, this time included; 0 without a group."""
    group: str | None = None
    """The group that was given it."""
    last_delivery: bool = False
    """Whether the group is not given it again: after this it is a dead letter."""

    @property
    def level(self) -> int:
        """The priority as a number from 1, the highest, to 10."""
        return LEVELS.get(self.priority) or int(self.priority)

    @property
    def text(self) -> str:
        """The payload as UTF-8."""
        return self.payload.decode()

    def json(self) -> Any:  # noqa: ANN401
        """The payload as JSON."""
        return parse_json(self.payload)

    @classmethod
    def from_entry(cls, address: str, group: str | None, entry: Mapping[str, Any]) -> Self:
        """From an entry of a JSON reply."""
        written: str = entry["payload"]
        encoded = entry.get("encoding") == "base64"
        return cls(
            address=address,
            msg_id=entry["msg_id"],
            payload=base64.b64decode(written) if encoded else written.encode(),
            priority=entry["priority"],
            create_time=entry["create_time"],
            key=entry.get("key"),
            tags=tuple(entry.get("tags", ())),
            headers=_own({name: values[-1] for name, values in entry.get("headers", {}).items()}),
            expires_at=entry.get("expires_at"),
            deliveries=entry.get("deliveries", 0),
            group=group,
            last_delivery=entry.get("last_delivery", False),
        )

    @classmethod
    def from_raw(
        cls, address: str, group: str | None, headers: Mapping[str, str], payload: bytes
    ) -> Self:
        """From a NATS message of the raw format."""
        return cls(
            address=address,
            msg_id=_number(headers["mq9-msg-id"]),
            payload=payload,
            priority=headers["mq9-priority"],
            create_time=_number(headers["mq9-create-time"]),
            key=headers.get("mq9-key"),
            tags=tuple(headers["mq9-tags"].split(",")) if "mq9-tags" in headers else (),
            headers=_own(own_headers(headers)),
            expires_at=_number(headers.get("mq9-expires-at", "")) or None,
            deliveries=_number(headers.get("mq9-deliveries", "")),
            group=group,
            last_delivery="mq9-last-delivery" in headers,
        )


@dataclass(frozen=True, slots=True)
class DelayedMessage:
    """A message that is not due yet; times in Unix seconds."""

    address: str
    delay_id: int
    """What `cancel_delayed` takes."""
    payload: bytes
    priority: str
    create_time: int
    due_time: int
    key: str | None = None
    tags: tuple[str, ...] = ()
    headers: Mapping[str, str] = field(default_factory=lambda: _NONE, hash=False)
    expires_at: int | None = None

    @property
    def text(self) -> str:
        """The payload as UTF-8."""
        return self.payload.decode()

    @classmethod
    def from_entry(cls, address: str, entry: Mapping[str, Any]) -> Self:
        """From an entry of QUERY with `delayed`."""
        message = Message.from_entry(address, None, {"msg_id": 0, **entry})
        names = ("payload", "priority", "create_time", "key", "tags", "headers", "expires_at")
        return cls(
            address=address,
            delay_id=entry["delay_id"],
            due_time=entry["due_time"],
            **{name: getattr(message, name) for name in names},
        )


_RAW_METADATA = frozenset(
    f"{_METADATA}{name}"
    for name in (
        *("msg-id", "priority", "create-time", "key", "tags", "expires-at", "deliveries"),
        "last-delivery",
    )
)


def own_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Those of the sender, without what the broker says of a message."""
    return {name: value for name, value in headers.items() if name not in _RAW_METADATA}


def stored_key(headers: Mapping[str, str]) -> tuple[int, int] | None:
    """What tells a stored message from any other, its number and time; None if it is not stored."""
    if "mq9-msg-id" not in headers:
        return None
    return _number(headers["mq9-msg-id"]), _number(headers.get("mq9-create-time", ""))


@dataclass(frozen=True, slots=True)
class NewMessage:
    """A message to send, with what the broker is to know of it."""

    payload: bytes | str = MISSING
    priority: str | int | None = None
    """`critical`, `urgent`, `normal`, `notify`, or a level from 1 (the highest) to 10."""
    key: str | None = None
    """A newer message with the same key takes the place of this one."""
    tags: Iterable[str] = ()
    delay: Span = 0
    """Seconds until it can be fetched."""
    ttl: Span = 0
    """Seconds until it is removed, 0 for never."""
    headers: Mapping[str, str] = field(default_factory=lambda: _NONE, hash=False)
    json: Any = MISSING
    """Instead of a payload: a value that is sent as JSON."""
    id: str | None = None
    """Sent again with the same id, within the `dedup_window` of the mailbox, it is stored once."""

    def encoded(self) -> tuple[bytes, dict[str, str] | None]:
        """The payload and the headers of the request that sends it."""
        wishes: dict[str, str] = {}
        for name, value in self.headers.items():
            if name.lower() in _WISHES:
                argument = name.lower().removeprefix(_METADATA).removesuffix("-ms")
                raise InvalidField(f"header {name!r}: use the argument {argument}")
            if not _HEADER_NAME.fullmatch(name):
                raise InvalidField(
                    f"header {name!r}: a name is made of letters, digits and marks, without spaces "
                    "and colons"
                )
            wishes[name] = value
        if self.priority is not None:
            wishes["mq9-priority"] = str(self.priority)
        if self.key is not None:
            wishes["mq9-key"] = self.key
        if self.id is not None:
            wishes["mq9-id"] = self.id
        if isinstance(self.tags, str):
            raise InvalidField(f"tags is {self.tags!r}: it must be a list of texts")
        if tags := tuple(self.tags):
            if comma := next((tag for tag in tags if "," in tag), None):
                raise InvalidField(f"tag {comma!r}: a tag cannot hold a comma")
            wishes["mq9-tags"] = ",".join(tags)
        for name, span in (("delay", self.delay), ("ttl", self.ttl)):
            in_unit, number = wire_field(name, "-", span)
            if number:
                wishes[f"{_METADATA}{in_unit}"] = str(number)
        for name, value in wishes.items():
            # Spaces at the ends would be lost on the way, a line break would end the header.
            if not value or value != value.strip() or not value.isprintable():
                raise InvalidField(
                    f"header {name!r} is {value!r}: it must be text in one line, neither empty "
                    "nor with spaces at its ends"
                )
        return self._bytes(), wishes or None

    def _bytes(self) -> bytes:
        payload = self.payload
        if self.json is not MISSING:
            if payload is not MISSING:
                raise InvalidField("payload and json are both given: a message has one of them")
            return _json(self.json)
        if isinstance(payload, str):
            return payload.encode()
        if isinstance(payload, bytes | bytearray | memoryview):
            return bytes(payload)
        if payload is MISSING:
            raise InvalidField("the message has no payload: give bytes or str, or json=")
        kind = type(payload).__name__
        raise InvalidField(f"payload is of type {kind}: give bytes or str, or send it as json=")


def parse_json(payload: bytes) -> Any:  # noqa: ANN401
    """What a payload says as JSON."""
    return json.loads(payload)


def _json(value: object) -> bytes:
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidField(f"json cannot be written as JSON: {error}") from error


def _number(written: str) -> int:
    # A header of the sender may stand in the place of the broker's, and must not stop the reader.
    return int(written) if written.isascii() and written.isdecimal() and len(written) < 20 else 0


def _own(headers: dict[str, str]) -> Mapping[str, str]:
    return MappingProxyType(headers) if headers else _NONE
