"""Filters that Spark hands down, as the two kinds of source can carry them out.

An export evaluates any comparison by itself. A broker knows a range of ids, a key and a time, so
`Wanted` is what a QUERY can say.
"""

import datetime
from collections.abc import Iterable
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

Comparison = EqualTo | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual


def expression(wanted: Filter, schema: pa.Schema) -> pc.Expression | None:
    """The filter for Arrow; None if it has to be left to Spark."""
    if isinstance(wanted, Not):
        child = wanted.child
        # SQL leaves a row out if the column is null, whether the comparison is turned or not.
        inner = expression(child, schema) if isinstance(child, Comparison | In) else None
        return None if inner is None else ~inner
    path: tuple[str, ...] = getattr(wanted, "attribute", ())
    if len(path) != 1 or path[0] not in schema.names:
        return None
    kind = schema.field(path[0]).type
    if pa.types.is_nested(kind) or pa.types.is_binary(kind):
        return None
    column = pc.field(path[0])
    match wanted:
        case IsNull():
            return column.is_null()
        case IsNotNull():
            return column.is_valid()
        case StringStartsWith(value=value):
            return pc.starts_with(column, value)
        case In(value=values):
            return column.isin(pa.array([v for v in values if v is not None], kind))
        case EqualTo(value=value):
            return column == pa.scalar(value, kind)
        case GreaterThan(value=value):
            return column > pa.scalar(value, kind)
        case GreaterThanOrEqual(value=value):
            return column >= pa.scalar(value, kind)
        case LessThan(value=value):
            return column < pa.scalar(value, kind)
        case LessThanOrEqual(value=value):
            return column <= pa.scalar(value, kind)
    return None


@dataclass(frozen=True)
class Wanted:
    """Which messages of which mailboxes: ids from `first` to `last`, a key, not before a time."""

    mailboxes: tuple[str, ...]
    first: int = 0
    last: int | None = None
    key: str | None = None
    since_s: int | None = None

    def narrowed(self, filters: Iterable[Filter]) -> "tuple[Wanted, list[Filter]]":
        """With filters taken in, as far as QUERY has words for them; the rest is for Spark."""
        wanted, left = self, []
        for one in filters:
            taken, exact = wanted._with(one)
            if taken is not None:
                wanted = taken
            if not exact:
                left.append(one)
        return wanted, left

    def _with(self, one: Filter) -> "tuple[Wanted | None, bool]":
        """What is left with one more filter, and whether that says all of it."""
        match one:
            case EqualTo(attribute=("mailbox",), value=str(name)):
                return self._only({name}), True
            case In(attribute=("mailbox",), value=names):
                return self._only({name for name in names if name is not None}), True
            case EqualTo(attribute=("msg_id",), value=int(msg_id)):
                return self._ids(msg_id, msg_id), True
            case GreaterThan(attribute=("msg_id",), value=int(msg_id)):
                return self._ids(msg_id + 1, None), True
            case GreaterThanOrEqual(attribute=("msg_id",), value=int(msg_id)):
                return self._ids(msg_id, None), True
            case LessThan(attribute=("msg_id",), value=int(msg_id)):
                return self._ids(0, msg_id - 1), True
            case LessThanOrEqual(attribute=("msg_id",), value=int(msg_id)):
                return self._ids(0, msg_id), True
            case EqualTo(attribute=("key",), value=str(key)) if self.key in {None, key}:
                return replace(self, key=key), True
            case IsNotNull(attribute=("mailbox" | "msg_id",)):
                return None, True
            case (
                GreaterThan(attribute=("visible",), value=datetime.datetime() as time)
                | GreaterThanOrEqual(attribute=("visible",), value=datetime.datetime() as time)
            ):
                # The broker counts in whole seconds: Spark has the last word.
                since_s = max(int(time.timestamp()), self.since_s or 0)
                return replace(self, since_s=since_s), False
        return None, False

    def _only(self, names: set[str]) -> "Wanted":
        return replace(self, mailboxes=tuple(name for name in self.mailboxes if name in names))

    def _ids(self, first: int, last: int | None) -> "Wanted":
        lasts = [limit for limit in (self.last, last) if limit is not None]
        return replace(self, first=max(self.first, first), last=min(lasts) if lasts else None)
