"""A message as one line of JSON: makes it, reads it, and says for whom and until when it counts.

Must not know files.
"""

import json
import re
import secrets
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from mq9.local.settings import EVERYONE, LEVELS, is_name

Record = dict[str, Any]

_OWN_ID = re.compile(r"([0-9a-f]{12})-[0-9a-f]{16}")
_SIDE_FILE = "@file:"
_json = json.JSONEncoder(ensure_ascii=False)


def new_id(now_ms: int) -> str:
    """An id that nobody else has. It begins with the millisecond, since `ts` has only seconds."""
    return f"{now_ms:012x}-{secrets.token_hex(8)}"


def is_own_id(text: str) -> bool:
    """Whether `new_id` could have made this."""
    return _OWN_ID.fullmatch(text) is not None


def timestamp(now_ms: int) -> str:
    """An instant as `2026-06-10T00:00:00Z`."""
    return _second(now_ms // 1000)


@lru_cache(maxsize=2)
def _second(unix: int) -> str:
    return datetime.fromtimestamp(unix, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def encoded(entry: Record) -> bytes:
    """One line. Text stays readable for `cat`; line breaks inside it are escaped by JSON."""
    return _json.encode(entry).encode() + b"\n"


def parsed(line: bytes) -> Record | None:
    """The message of a line; None if the line is none."""
    try:
        found = json.loads(line.decode())
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    texts = (found.get("msg_id"), found.get("topic"), found.get("body"))
    return found if all(isinstance(text, str) for text in texts) else None


def is_for(record: Record, agent_id: str) -> bool:
    """Whether an agent is among the recipients."""
    to = record.get("to")
    return to == agent_id or to is None or (isinstance(to, str) and to in EVERYONE)


def is_expired(record: Record, now_ms: int) -> bool:
    """Whether its lifetime is over."""
    end = expires_ms(record)
    return end is not None and now_ms >= end


def expires_ms(record: Record) -> float | None:
    """When its lifetime is over. What cannot be read as a lifetime does not end."""
    ttl_s = record.get("ttl_s")
    if not isinstance(ttl_s, int | float) or isinstance(ttl_s, bool):
        return None
    sent = sent_ms(record)
    return None if sent is None else sent + ttl_s * 1000


def level(record: Record) -> int:
    """Its priority from 1, the highest, to 10; normal if it has none."""
    found = record.get("priority")
    return found if isinstance(found, int) else LEVELS["normal"]


def side_file_mark(msg_id: str) -> str:
    """The body of a message whose real body lies in a file of its own."""
    return f"{_SIDE_FILE}{msg_id}.txt"


def side_file(record: Record) -> str | None:
    """The name of the file its body lies in; only ever its own, whatever its text says."""
    msg_id = record["msg_id"]
    if record["body"] != side_file_mark(msg_id) or not is_name(msg_id):
        return None
    return f"{msg_id}.txt"


def sent_ms(record: Record) -> int | None:
    """When it was sent; None if that cannot be read."""
    ts = record.get("ts")
    if not isinstance(ts, str):
        return None
    try:
        moment = datetime.fromisoformat(ts)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    ts_ms = round(moment.timestamp() * 1000)
    own = _OWN_ID.fullmatch(record["msg_id"])
    id_ms = int(own[1], 16) if own else ts_ms
    # An id that does not fit its time says nothing.
    return id_ms if id_ms // 1000 == ts_ms // 1000 else ts_ms
