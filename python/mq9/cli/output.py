"""What commands print: tables for people, JSON for programs."""

import base64
import json
import shutil
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mq9.client import Message

_GAP = "  "


def print_json(value: object) -> None:
    """One JSON document on one line."""
    print(json.dumps(value, ensure_ascii=False, separators=(",", ":")), flush=True)


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Aligned columns; numbers to the right. The last column is cut to what a terminal shows."""
    cells = [[str(cell) for cell in row] for row in rows]
    numeric = [all(_is_number(row[at]) for row in cells) for at in range(len(heads))]
    widths = [max(len(row[at]) for row in [heads, *cells]) for at in range(len(heads))]
    for row in [list(heads), *cells]:
        padded = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        ]
        print(_fitting(_GAP.join(padded).rstrip()))


def pairs(values: Mapping[str, object]) -> None:
    """Names and values, one pair on a line."""
    width = max(map(len, values))
    for name, value in values.items():
        print(f"{name.ljust(width)}{_GAP}{value}".rstrip())


def when(unix_seconds: int | None, never: str = "never") -> str:
    """An instant in local time."""
    if not unix_seconds:
        return never
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(unix_seconds))


def size(count: int) -> str:
    """A number of bytes as people say it."""
    amount = float(count)
    for unit in ("B", "KiB", "MiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} GiB"


def one_line(payload: bytes) -> str:
    """A payload for a table: text as it is, with line breaks written out; else its first bytes."""
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        shown = payload[:16].hex(" ")
        return f"<{len(payload)} bytes: {shown}{' ...' if len(payload) > 16 else ''}>"
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def entry(message: "Message") -> dict[str, Any]:
    """A message as the protocol has it in JSON."""
    fields: dict[str, Any] = {"msg_id": message.msg_id}
    try:
        fields["payload"] = message.text
    except UnicodeDecodeError:
        fields["payload"] = base64.b64encode(message.payload).decode()
        fields["encoding"] = "base64"
    fields |= {"priority": message.priority, "create_time": message.create_time}
    optional: dict[str, Any] = {
        "key": message.key,
        "tags": list(message.tags),
        "headers": dict(message.headers),
        "expires_at": message.expires_at,
        "deliveries": message.deliveries,
    }
    return fields | {name: value for name, value in optional.items() if value}


MESSAGE_HEADS = ("ID", "PRIORITY", "SENT", "KEY", "TAGS", "PAYLOAD")


def message_row(message: "Message") -> tuple[object, ...]:
    """A message as a row of a table."""
    return (
        message.msg_id,
        message.priority,
        when(message.create_time),
        message.key or "",
        ",".join(message.tags),
        one_line(message.payload),
    )


def _is_number(cell: str) -> bool:
    return cell.isdecimal()


def _fitting(line: str) -> str:
    if not sys.stdout.isatty():
        return line
    columns = shutil.get_terminal_size().columns
    return line if len(line) <= columns else f"{line[: columns - 1]}…"
