"""Permissions in all of NATS's spellings.

Owns what an allow or deny list may hold and what `allow_responses` means.
"""

import re

from mq9.config.errors import quoted
from mq9.config.options import PermissionRules
from mq9.config.reading import (
    DEFAULT,
    Default,
    Fields,
    Notes,
    Setting,
    at,
    duration,
    integer,
    mismatch,
    read_block,
)
from mq9.config.tree import Map, Value

RESPONSES_MAX = 1
RESPONSES_TTL_MS = 120_000
NO_RESPONSE_LIMIT = 2**31 - 1
"""For nats-server's -1: no bound that a client could reach."""

_SPACE = re.compile(r"[ \t\n\r\f]")


def read_permissions(value: Value, notes: Notes) -> PermissionRules:
    """The rules of a `permissions` block."""
    fields = read_block(value, "permissions", _SETTINGS, {}, notes).values
    if "responses_max" in fields:
        # Who may only answer is not to publish anything else.
        fields.setdefault("publish_allow", ())
    return PermissionRules(**fields)


def is_subject(written: str) -> bool:
    """Whether NATS takes it for a subject, wildcards included."""
    tokens = written.split(".")
    return all(tokens) and not _SPACE.search(written) and ">" not in tokens[:-1]


def _subject(value: Value, with_queue: bool) -> str:
    if not isinstance(value.data, str):
        raise mismatch(value, "a subject, a string")
    parts = value.data.split()
    if not with_queue or len(parts) != 2:
        parts = [value.data]
    if not is_subject(parts[0]):
        expected = "`subject` or `subject queue`" if with_queue else "a subject"
        raise at(value.place, f"expected {expected}, found {quoted(value.data)}")
    if not is_subject(parts[-1]):
        raise at(value.place, f"{quoted(parts[-1])} is not a valid queue name")
    return " ".join(parts)


def _lists(kind: str, with_queue: bool) -> Setting:
    def denied(value: Value, _notes: Notes) -> tuple[str, ...]:
        written = value.data if isinstance(value.data, list) else [value]
        return tuple(_subject(item, with_queue) for item in written)

    def allowed(value: Value, notes: Notes) -> tuple[str, ...]:
        found = denied(value, notes)
        if not found:
            notes.warn(
                value.place,
                f"an empty list allows to {kind} nothing (to nats-server it allows everything)",
            )
        return found

    lists = {
        "allow": Setting(f"{kind}_allow", allowed),
        "deny": Setting(f"{kind}_deny", denied),
    }

    def read(value: Value, notes: Notes) -> Fields:
        if isinstance(value.data, Map):
            return read_block(value, f"{kind} permissions", lists, {}, notes)
        return Fields({f"{kind}_allow": allowed(value, notes)})

    return Setting("", read)


def _response_max(value: Value, notes: Notes) -> int | Default:
    found = integer(-(2**63), NO_RESPONSE_LIMIT, zero_is_default=True)(value, notes)
    return found if found is DEFAULT or found > 0 else NO_RESPONSE_LIMIT


def _response_ttl(value: Value, notes: Notes) -> int | Default:
    found = duration(low_ms=-(2**63), zero_is_default=True)(value, notes)
    return found if found is DEFAULT or found > 0 else NO_RESPONSE_LIMIT


def _responses(value: Value, notes: Notes) -> Fields:
    if value.data is False:
        return Fields()
    found = Fields({"responses_max": RESPONSES_MAX, "responses_ttl_ms": RESPONSES_TTL_MS})
    if value.data is True:
        return found
    if not isinstance(value.data, Map):
        raise mismatch(value, "true, false or a block { max, expires }")
    found.values |= read_block(value, "allow_responses", _RESPONSES, {}, notes).values
    return found


_RESPONSES = {
    **dict.fromkeys(
        ("max", "max_msgs", "max_messages", "max_responses"),
        Setting("responses_max", _response_max),
    ),
    **dict.fromkeys(("expires", "expiration", "ttl"), Setting("responses_ttl_ms", _response_ttl)),
}
_SETTINGS = {
    **dict.fromkeys(("publish", "pub", "import"), _lists("publish", with_queue=False)),
    **dict.fromkeys(("subscribe", "sub", "export"), _lists("subscribe", with_queue=True)),
    **dict.fromkeys(("allow_responses", "publish_allow_responses"), Setting("", _responses)),
}
