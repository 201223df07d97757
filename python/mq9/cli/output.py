"""Output of commands: tables for people, JSON for programs.

Whatever comes from somebody else is made visible first: nothing in a name, a key or a payload can
move the cursor, ring the bell, turn the direction of writing or look like another row.
"""

import base64
import json
import shutil
import sys
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mq9.client import DelayedMessage, Message

_GAP = "  "


def print_json(value: object) -> None:
    """One JSON document on one line, with what a terminal would act on escaped."""
    written = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    print("".join(c if c.isprintable() else _json_escape(c) for c in written), flush=True)


def _json_escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def visible(text: str) -> str:
    """A text of somebody else's on one line, with everything written out that is no glyph."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Aligned columns; numbers to the right. The last column is cut to what a terminal shows."""
    cells = [[visible(str(cell)) for cell in row] for row in rows]
    numeric = [all(_is_number(row[at]) for row in cells) for at in range(len(heads))]
    widths = [max(_columns(row[at]) for row in [heads, *cells]) for at in range(len(heads))]
    for row in [list(heads), *cells]:
        padded = [
            _padded(cell, width, right=right)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        ]
        print(_fitting(_GAP.join(padded).rstrip()))


def pairs(values: Mapping[str, object]) -> None:
    """Names and values, one pair on a line."""
    shown = {visible(name): visible(str(value)) for name, value in values.items()}
    width = max(map(_columns, shown))
    for name, value in shown.items():
        print(f"{_padded(name, width, right=False)}{_GAP}{value}".rstrip())


def when(unix_seconds: int | None, never: str = "never") -> str:
    """An instant in local time, with its zone."""
    if not unix_seconds:
        return never
    local = datetime.fromtimestamp(unix_seconds, UTC).astimezone()
    return local.isoformat(sep=" ", timespec="seconds")


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
    return visible(text)


def print_payload(payload: bytes) -> None:
    """A payload as it is, a line break behind it; on a terminal nothing in it is acted on."""
    if sys.stdout.isatty():
        lines = payload.decode(errors="backslashreplace").split("\n")
        print("\n".join(visible(line).replace("\\t", "\t") for line in lines), flush=True)
    else:
        sys.stdout.buffer.write(payload + b"\n")
        sys.stdout.buffer.flush()


def entry(message: "Message") -> dict[str, Any]:
    """A message as the protocol has it in JSON."""
    fields = {"msg_id": message.msg_id, **_fields(message)}
    if message.deliveries:
        fields["deliveries"] = message.deliveries
    if message.last_delivery:
        fields["last_delivery"] = True
    return fields


def delayed_entry(message: "DelayedMessage") -> dict[str, Any]:
    """A message that is not due yet, as the protocol has it in JSON."""
    return {"delay_id": message.delay_id, "due_time": message.due_time, **_fields(message)}


def _fields(message: "Message | DelayedMessage") -> dict[str, Any]:
    fields: dict[str, Any] = {}
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


DELAYED_HEADS = ("ID", "PRIORITY", "DUE", "KEY", "TAGS", "PAYLOAD")


def delayed_row(message: "DelayedMessage") -> tuple[object, ...]:
    """A message that is not due yet, as a row of a table; by its ID it can be deleted."""
    return (
        f"d{message.delay_id}",
        message.priority,
        when(message.due_time),
        message.key or "",
        ",".join(message.tags),
        one_line(message.payload),
    )


def _is_number(cell: str) -> bool:
    return cell.isdecimal()


def _columns(text: str) -> int:
    """Columns of a terminal: East Asian characters take two, marks on others none."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return len(text) + wide - sum(unicodedata.combining(c) > 0 for c in text)


def _padded(cell: str, width: int, *, right: bool) -> str:
    filling = " " * (width - _columns(cell))
    return filling + cell if right else cell + filling


def _fitting(line: str) -> str:
    if not sys.stdout.isatty():
        return line
    columns = shutil.get_terminal_size().columns
    if _columns(line) <= columns:
        return line
    while _columns(line) > columns - 1:
        line = line[: max(0, len(line) - max(1, (_columns(line) - columns) // 2))]
    return f"{line}…"
