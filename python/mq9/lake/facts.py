"""All that is known of messages and mailboxes, in one shape: a fact is a row of the export.

A fact is a message, or something that happened to one, or to a whole mailbox (`msg_id` is null).
Tables of Arrow in, tables of Arrow out; what becomes of a message is for `fold` to say.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from mq9._core import crc32c
from mq9.lake.said import said

MESSAGE, DELIVERY, ACK, NAK, DEAD, END = range(6)

_KINDS = {
    "deliver": DELIVERY,
    "redeliver": DELIVERY,
    "ack": ACK,
    "nak": NAK,
    "dead_letter": DEAD,
    "expire": END,
    "delete": END,
    "purge": END,
}
_NAMES = pa.array(list(_KINDS))
_CODES = np.array([*_KINDS.values(), -1], np.int8)
_EXPIRE = list(_KINDS).index("expire")

TIME = pa.timestamp("ms", "UTC")
SCHEMA = pa.schema(
    {
        "mailbox": pa.string(),
        "msg_id": pa.int64(),
        "kind": pa.int8(),
        "position": pa.int64(),
        "seq": pa.int32(),
        "time": TIME,
        "group": pa.string(),
        "member": pa.string(),
        "target": pa.string(),
        "cause": pa.string(),
        "visible": TIME,
        "expires": TIME,
        "level": pa.int32(),
        "priority": pa.string(),
        "size": pa.int64(),
        "sender": pa.string(),
        "reply_to": pa.string(),
        "correlation": pa.string(),
        "conversation": pa.string(),
        "tokens": pa.int64(),
        "cost": pa.int64(),
    }
)
_OF_MESSAGES = ("level", "priority", "headers", "payload", "size", "sent", "visible", "expires")
_OF_EVENTS = ("kind", "group", "member", "time", "seq", "target", "cause")
COLUMNS = {
    "messages": ("mailbox", "msg_id", "segment", "offset", *_OF_MESSAGES),
    "events": ("mailbox", "msg_id", "segment", "offset", *_OF_EVENTS),
}


# Bytes from the beginning, and their CRC32C.
_CHECK = b"mq9.crc32c"
_REMEDY = (
    "If it is damaged, remove it together with the files of the same name in the other hours, or "
    "export to an empty folder again"
)


class Damaged(Exception):  # noqa: N818
    """A file of an export is not as it was written."""


def read(system: pafs.FileSystem, path: str) -> Iterator[pa.Table]:
    """The facts in a file: of an export, of either dataset, or one that holds facts already."""
    try:
        with system.open_input_file(path) as stream:
            whole = stream.read_buffer()
            file = pq.ParquetFile(pa.BufferReader(whole), page_checksum_verification=True)
            _check(path, whole, file.metadata.metadata or {})
            names = file.schema_arrow.names
            dataset = _dataset(names)
            wanted = None if dataset is None else [n for n in COLUMNS[dataset] if n in names]
            for rows in range(file.num_row_groups):
                table = file.read_row_group(rows, columns=wanted)
                yield _facts(table) if dataset is None else of(dataset, table)
    except (pa.ArrowException, OSError) as error:
        raise Damaged(f"{path} cannot be read: {error}. {_REMEDY}") from error


def mailboxes(system: pafs.FileSystem, path: str) -> pa.Table:
    """The mailbox of each row of a file, and nothing else of it."""
    try:
        with system.open_input_file(path) as stream:
            return pq.ParquetFile(stream).read(columns=["mailbox"])
    except (pa.ArrowException, OSError) as error:
        raise Damaged(f"{path} cannot be read: {error}. {_REMEDY}") from error


def _check(path: str, whole: pa.Buffer, said: Mapping[bytes, bytes]) -> None:
    """Holds the pages of a file against what it says they sum up to, if it does."""
    if _CHECK not in said:
        return
    length, _, crc = said[_CHECK].partition(b":")
    if crc32c(whole.slice(0, int(length)).to_pybytes()) != int(crc, 16):
        raise Damaged(f"{path} is damaged: its checksum does not match. {_REMEDY}")


def _facts(rows: pa.Table) -> pa.Table:
    return _table({name: _column(rows, name) for name in rows.column_names}, rows.num_rows)


def _dataset(names: Sequence[str]) -> str | None:
    if "position" in names:
        return None
    return "messages" if "headers" in names else "events"


def of(dataset: str, rows: pa.Table) -> pa.Table:
    """Facts from rows of `messages` or `events`."""
    return of_messages(rows) if dataset == "messages" else of_events(rows)


def of_messages(rows: pa.Table) -> pa.Table:
    """The time of a message is when it was sent."""
    rows = rows.combine_chunks()
    count = rows.num_rows
    columns = {name: _column(rows, name) for name in ("mailbox", "msg_id", "level", "priority")}
    columns |= {name: _column(rows, name) for name in ("size", "visible", "expires")}
    columns |= {
        "kind": pa.array(np.full(count, MESSAGE, np.int8)),
        "position": _positions(rows),
        "seq": pa.array(np.full(count, -1, np.int32)),
        "time": _column(rows, "sent"),
    }
    return _table(columns | said(_column(rows, "headers"), _column(rows, "payload")), count)


def of_events(rows: pa.Table) -> pa.Table:
    """Events that say what became of messages; the cause of an end is the outcome it brings."""
    rows = rows.combine_chunks()
    code = np.asarray(pc.fill_null(pc.index_in(_column(rows, "kind"), _NAMES), -1))
    whole = np.asarray(pc.is_null(_column(rows, "msg_id")))
    wanted = (code >= 0) & (~whole | (_CODES[code] == END))
    rows, code = rows.filter(pa.array(wanted)).combine_chunks(), code[wanted]
    kind = _CODES[code]
    cause = pc.if_else(pa.array(code == _EXPIRE), "expired", _column(rows, "cause"))
    names = ("mailbox", "msg_id", "seq", "time", "group", "member", "target")
    columns = {name: _column(rows, name) for name in names} | {
        "kind": pa.array(kind),
        "position": _positions(rows),
        "cause": pc.if_else(pa.array(kind == END), pc.fill_null(cause, "deleted"), cause),
    }
    return _table(columns, rows.num_rows)


def _column(rows: pa.Table, name: str) -> pa.Array:
    if name not in rows.column_names:
        # Written by an mq9 that did not have it.
        return pa.nulls(rows.num_rows)
    column = rows[name]
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _positions(rows: pa.Table) -> pa.Array:
    """The place in the log as one number."""
    segment = np.asarray(_column(rows, "segment"), np.int64)
    return pa.array((segment << 32) + np.asarray(_column(rows, "offset"), np.int64))


def _table(columns: dict[str, pa.Array], count: int) -> pa.Table:
    arrays = [
        columns[field.name].cast(field.type)
        if field.name in columns
        else pa.nulls(count, field.type)
        for field in SCHEMA
    ]
    return pa.table(arrays, schema=SCHEMA)
