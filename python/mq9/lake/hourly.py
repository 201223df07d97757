"""Tables of single hours, summed up in Arrow where the lives of the hour are written.

A table is some summaries of rows. Summaries of parts of an hour can be summed up again, so an hour
may be cut into any number of files. Sums are of whole numbers, and percentiles come from counts of
values: no result depends on the cut. `hour_of` is an hour of sending, counted from 1970.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
MAIN = "rows"

Summaries = dict[str, pa.Table]


@dataclass(frozen=True)
class Summary:
    """One row per key, with sums, least and greatest values of the rows that have it."""

    keys: tuple[str, ...]
    sums: tuple[str, ...] = ()
    least: tuple[str, ...] = ()
    most: tuple[str, ...] = ()

    def of(self, rows: pa.Table) -> pa.Table:
        """Rows, or summaries of rows, summed up."""
        wanted = [(name, "sum") for name in self.sums]
        wanted += [(name, "min") for name in self.least] + [(name, "max") for name in self.most]
        found = rows.group_by(list(self.keys)).aggregate(wanted)
        names = {f"{name}_{how}": name for name, how in wanted}
        found = found.rename_columns([names.get(name, name) for name in found.column_names])
        # Sums of 32 bits are 64 bits wide, so that they can be summed up again.
        return found.select([*self.keys, *(name for name, _ in wanted)])


@dataclass(frozen=True)
class HourTable:
    """A table by hour of sending: rows for its summaries, and how they become rows for readers."""

    name: str
    summaries: Mapping[str, Summary]
    rows: Callable[[pa.Table], Summaries]
    finish: Callable[[Summaries], pa.Table]

    def summed(self, lives: pa.Table) -> Summaries:
        """The summaries of some lives."""
        rows = self.rows(lives)
        return {name: summary.of(rows[name]) for name, summary in self.summaries.items()}

    def made(self, parts: Sequence[Summaries]) -> pa.Table:
        """The table, from the summaries of all parts of its hours."""
        if len(parts) == 1:
            return self.finish(parts[0])
        return self.finish(
            {
                name: summary.of(pa.concat_tables([part[name] for part in parts]))
                for name, summary in self.summaries.items()
            }
        )

    def of(self, lives: pa.Table) -> pa.Table:
        """The table of lives that are all there."""
        return self.made([self.summed(lives)])


def values(keys: tuple[str, ...]) -> Summary:
    """How often each value is there: what percentiles are read from."""
    return Summary((*keys, "value"), sums=("count",))


def valued(rows: pa.Table, keys: Sequence[str], column: pa.Array) -> pa.Table:
    """Rows for `values`: those that have a value."""
    found = rows.select(list(keys)).append_column("value", column).filter(pc.is_valid(column))
    return found.append_column("count", ones(found))


def with_spread(rows: pa.Table, counted: pa.Table, keys: Sequence[str], form: str) -> pa.Table:
    """Rows with percentiles of the values that were counted under the same keys.

    A percentile that lies between two values is between them in the same proportion.
    """
    spread = _spread(counted, keys, form)
    names = [*rows.column_names, *(form.format(name) for name in QUANTILES)]
    # A join does not find null by null.
    for key in keys:
        if rows[key].null_count:
            raise ValueError(f"{key} must not be null")
    return rows.join(spread, list(keys)).select(names)


def _spread(counted: pa.Table, keys: Sequence[str], form: str) -> pa.Table:
    order = [(name, "ascending") for name in (*keys, "value")]
    counted = counted.sort_by(order).combine_chunks()
    if not counted.num_rows:
        empty = {form.format(name): pa.nulls(0, pa.int64()) for name in QUANTILES}
        return pa.table({**{key: counted[key] for key in keys}, **empty})
    changed = np.zeros(counted.num_rows, bool)
    changed[0] = True
    for key in keys:
        column = counted[key].combine_chunks()
        changed[1:] |= np.asarray(pc.not_equal(column[1:], column[:-1]))
    first = np.flatnonzero(changed)
    value, count = (np.asarray(counted[name], np.int64) for name in ("value", "count"))
    upto = np.cumsum(count)
    before = upto[first] - count[first]
    total = np.add.reduceat(count, first)
    columns: dict[str, Any] = {key: counted[key].take(pa.array(first)) for key in keys}
    for name, share in QUANTILES.items():
        place = (total - 1) * share
        low = np.floor(place).astype(np.int64)
        high = np.ceil(place).astype(np.int64)
        below = value[np.searchsorted(upto, before + low, side="right")]
        above = value[np.searchsorted(upto, before + high, side="right")]
        exact = below + (above - below) * (place - low)
        columns[form.format(name)] = pa.array(np.floor(exact + 0.5).astype(np.int64))
    return pa.table(columns)


def ones(rows: pa.Table) -> pa.Array:
    """1 for each row."""
    return pa.array(np.ones(rows.num_rows, np.int64))


def count_if(condition: Any) -> Any:  # noqa: ANN401
    """1 where it is so, 0 where it is not or not known."""
    return pc.fill_null(condition, False).cast(pa.int64())


def earliest(*columns: Any) -> Any:  # noqa: ANN401
    """The least of some times that are there."""
    least = pc.min_element_wise(*(each.cast(pa.int64()) for each in columns), skip_nulls=True)
    return least.cast(columns[0].type)


def took_ms(start: Any, end: Any) -> Any:  # noqa: ANN401
    """Milliseconds between two times."""
    return pc.subtract(end.cast(pa.int64()), start.cast(pa.int64()))


def plain(name: str, summary: Summary, rows: Callable[[pa.Table], pa.Table]) -> HourTable:
    """A table that is one summary and nothing else."""
    return HourTable(name, {MAIN: summary}, lambda lives: {MAIN: rows(lives)}, lambda s: s[MAIN])
