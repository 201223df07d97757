"""A message in a JSON reply: the same bytes that the core writes for FETCH."""

import base64

from pydantic_core import to_json

from mq9.store import Message

_NAMES = {1: "critical", 3: "urgent", 5: "normal", 9: "notify"}
_SPACE = b" \t\n\x0c\r"


def entry(message: Message, *, always_base64: bool) -> bytes:
    """One entry of `messages`; fields that the message does not have are left out."""
    fields: dict[str, object] = {"msg_id": message.msg_id}
    try:
        if always_base64:
            raise UnicodeError
        fields["payload"] = message.payload.decode()
    except UnicodeError:
        fields["payload"] = base64.b64encode(message.payload).decode()
        fields["encoding"] = "base64"
    fields["priority"] = _NAMES.get(message.level) or str(message.level)
    fields["create_time"] = message.create_ms // 1000
    if message.key:
        fields["key"] = message.key
    if message.tags:
        fields["tags"] = message.tags.split(",")
    if message.headers and (headers := _headers(message.headers)):
        fields["headers"] = headers
    if message.expires_ms:
        fields["expires_at"] = -(-message.expires_ms // 1000)
    if message.deliveries:
        fields["deliveries"] = message.deliveries
    return to_json(fields)


def _headers(block: bytes) -> dict[str, list[str]]:
    """Values by name, in the order they came."""
    found: dict[str, list[str]] = {}
    for line in block.split(b"\n"):
        name, colon, value = line.removesuffix(b"\r").partition(b":")
        if colon:
            text = value.strip(_SPACE).decode(errors="replace")
            found.setdefault(name.decode(errors="replace"), []).append(text)
    return found
