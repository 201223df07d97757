"""Facts in messages: their sender, reply address, conversation and cost.

Agents say so in headers or, if the payload is a JSON object, in its fields. Headers come first.
Columns of Arrow in, columns of Arrow out.
"""

import hashlib
import json
import re
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

MOVED_HEADER = "mq9-dead-mailbox"

# By what is said: headers, in lower case, and fields of a payload. The first that is there counts.
HEADERS = {
    "sender": ("from", "mq9-from", "sender", "x-from"),
    "reply_to": ("reply-to", "mq9-reply-to"),
    "correlation": ("mq9-correlation-id", "correlation-id", "x-correlation-id"),
    "conversation": ("mq9-conversation-id", "conversation-id", "x-conversation-id"),
    "tokens": ("mq9-tokens", "x-tokens"),
    "cost": ("mq9-cost", "x-cost"),
}
FIELDS = {
    "sender": ("from", "sender"),
    "reply_to": ("reply_to", "replyTo"),
    "correlation": ("correlation_id", "correlationId"),
    "conversation": ("conversation_id", "conversationId"),
    "tokens": ("tokens",),
    "cost": ("cost",),
}
SAID = tuple(HEADERS)

LONGEST = 256
"""How many bytes of a name are kept: it is in many rows, and payloads may be large."""
_CUT = 192
MOST_TOKENS = 10**12
MOST_COST = 10**9
MILLIONTHS = 1_000_000

_MENTIONED = "|".join(sorted({re.escape(name) for names in FIELDS.values() for name in names}))
_MENTIONS = rf'^\s*\{{(?s:.*)"(?:{_MENTIONED})"'
_FIELD_OF = {field: name for name, fields in FIELDS.items() for field in fields}
_WANTED = pa.array([name for names in HEADERS.values() for name in names] + [MOVED_HEADER])

Texts = list[str | None]


def said(headers: pa.Array, payloads: pa.Array) -> dict[str, pa.Array]:
    """A column for everything that is said; null where it is not."""
    told, moved = _in_headers(headers)
    _in_payloads(payloads, told)
    # Nobody sent what the broker moved to a dead-letter mailbox, waits for it or pays it again.
    for name in ("sender", "reply_to", "tokens", "cost"):
        told[name] = pc.if_else(pa.array(moved), pa.scalar(None, pa.string()), told[name])
    for name in ("sender", "reply_to", "correlation", "conversation"):
        told[name] = _bounded(told[name])
    return {
        "sender": pc.coalesce(told["sender"], told["reply_to"]),
        "reply_to": told["reply_to"],
        "correlation": told["correlation"],
        "conversation": pc.coalesce(told["conversation"], told["correlation"]),
        "tokens": _numbers(told["tokens"], MOST_TOKENS, 1),
        # In millionths: sums of whole numbers do not depend on their order.
        "cost": _numbers(told["cost"], MOST_COST, MILLIONTHS),
    }


def _in_headers(headers: pa.Array) -> tuple[dict[str, pa.Array], Any]:
    """What headers say, and which messages were moved."""
    rows = len(headers)
    flat = headers.flatten()
    lengths = np.asarray(pc.fill_null(pc.list_value_length(headers), 0))
    of_row = np.repeat(np.arange(rows), lengths)
    names = pc.utf8_lower(flat.field(0)) if len(flat) else pa.array([], pa.string())
    code = np.asarray(pc.fill_null(pc.index_in(names, _WANTED), -1))
    moved = np.zeros(rows, bool)
    moved[of_row[code == len(_WANTED) - 1]] = True
    told, start = {}, 0
    for name, wanted in HEADERS.items():
        found = np.flatnonzero((code >= start) & (code < start + len(wanted)))
        start += len(wanted)
        # The last to be written is the one that counts: the first header of the first name.
        order = found[np.lexsort((-found, -code[found]))]
        at = np.full(rows, -1)
        at[of_row[order]] = order
        values = flat.field(1).take(pa.array(at, mask=at < 0)) if len(flat) else None
        told[name] = _texts(values, rows)
    return told, moved


def _texts(values: pa.Array | None, rows: int) -> pa.Array:
    """Names without spaces around them; nothing where there are only spaces."""
    if values is None or values.null_count == rows:
        return pa.nulls(rows, pa.string())
    trimmed = pc.utf8_trim_whitespace(values)
    return pc.if_else(pc.equal(trimmed, ""), pa.scalar(None, pa.string()), trimmed)


def _bounded(names: pa.Array) -> pa.Array:
    """Names that are too long, cut; different ones stay different."""
    if (pc.max(pc.binary_length(names)).as_py() or 0) <= LONGEST:
        return names
    encoded = pc.dictionary_encode(names)
    cut = pa.array(map(_cut, encoded.dictionary.to_pylist()), pa.string())
    return cut.take(encoded.indices)


def _cut(name: str) -> str:
    written = name.encode()
    if len(written) <= LONGEST:
        return name
    begin = written[:_CUT].decode("utf-8", "ignore")
    return f"{begin}…{hashlib.blake2b(written, digest_size=16).hexdigest()}"


def _in_payloads(payloads: pa.Array, told: dict[str, pa.Array]) -> None:
    """Adds what JSON objects say where headers say nothing."""
    if pa.types.is_null(payloads.type):
        return
    mentioned = pc.fill_null(pc.match_substring_regex(payloads, _MENTIONS), False)
    rows = np.flatnonzero(np.asarray(mentioned))
    if not len(rows):
        return
    # Equal payloads are read once.
    encoded = pc.dictionary_encode(payloads.take(pa.array(rows)))
    distinct = encoded.dictionary.to_pylist()
    texts: dict[str, Texts] = {}
    for nth, payload in enumerate(distinct):
        found = _object(payload)
        for field in found.keys() & _FIELD_OF.keys():
            name = _FIELD_OF[field]
            if name not in texts:
                texts[name] = [None] * len(distinct)
            # The first field that says it counts.
            fields = [text for each in FIELDS[name] if (text := _text(found.get(each)))]
            texts[name][nth] = fields[0] if fields else None
    which = np.full(len(payloads), -1)
    which[rows] = np.asarray(encoded.indices)
    at = pa.array(which, mask=which < 0)
    for name, column in texts.items():
        told[name] = pc.coalesce(told[name], pa.array(column, pa.string()).take(at))


def _object(payload: bytes) -> dict[str, object]:
    try:
        # What was found to begin like an object in UTF-8 can be in no other encoding.
        found = json.loads(payload.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _text(value: object) -> str | None:
    if isinstance(value, str):
        # JSON may name halves of characters, which no text can have.
        return value.strip().encode("utf-8", "replace").decode()
    if isinstance(value, int | float) and not isinstance(value, bool):
        return repr(value)
    return None


def _numbers(texts: pa.Array, most: int, times: int) -> pa.Array:
    """Numbers that are not negative; nothing of what is none, or too large to be one of these."""
    if texts.null_count == len(texts):
        return pa.nulls(len(texts), pa.int64())
    encoded = pc.dictionary_encode(texts)
    numbers = [_number(text, most, times) for text in encoded.dictionary.to_pylist()]
    return pa.array(numbers, pa.int64()).take(encoded.indices)


def _number(text: str, most: int, times: int) -> int | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return round(number * times) if 0 <= number <= most else None
