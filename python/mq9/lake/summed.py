"""Tables that follow from single hours, and their files beside the lives.

The task that writes all lives of an hour writes its tables too. Where the lives of an hour are
several files, their tasks hand on summaries, and one task puts those together.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from mq9.lake import deal
from mq9.lake.agent_graph import AGENT_GRAPH
from mq9.lake.circles import CIRCLES
from mq9.lake.first_delivery import first_delivery
from mq9.lake.hourly import HourTable, Summaries
from mq9.lake.output import hour_folder, write_file
from mq9.lake.parts import COHORTS, DEAD_LETTERS, FLOWS
from mq9.lake.retries import RETRIES
from mq9.lake.sla import TARGETS_MS, sla
from mq9.lake.spending import SPENDING
from mq9.lake.waits import ASKS

_NAME = b"mq9.table"
_PART = b"mq9.summary"


def hour_tables(targets_ms: Mapping[str, int] = TARGETS_MS) -> tuple[HourTable, ...]:
    """Everything that follows from the lives of single hours."""
    return (
        *(COHORTS, FLOWS, DEAD_LETTERS, ASKS, first_delivery(targets_ms), AGENT_GRAPH),
        *(sla(targets_ms), RETRIES, SPENDING, CIRCLES),
    )


def schema(table: HourTable, lives: pa.Schema) -> pa.Schema:
    """What the files of a table look like, besides the day and the hour that name its folder."""
    empty = lives.append(pa.field("hour_of", pa.int64())).empty_table()
    made = table.of(empty).drop_columns("hour_of")
    return made.schema


def write(tables: Sequence[HourTable], lives: pa.Table, folder: str) -> None:
    """Writes the tables of lives whose hours are complete."""
    for table in tables:
        _write(table, [table.summed(lives)], folder)


def hand_on(tables: Sequence[HourTable], lives: pa.Table, buckets: int) -> Iterator[pa.RecordBatch]:
    """Summaries of lives whose hours are not complete, by the task that puts them together."""
    for table in tables:
        for part, rows in table.summed(lives).items():
            if rows.num_rows:
                named = rows.replace_schema_metadata({_NAME: table.name, _PART: part})
                yield from deal.dealt(named, np.asarray(rows["hour_of"]) % buckets)


def put_together(
    batches: Iterator[pa.RecordBatch], tables: Sequence[HourTable], lives: pa.Schema, folder: str
) -> None:
    """Writes the tables of hours from all summaries of them."""
    found: dict[tuple[str, str], list[pa.Table]] = {}
    for rows in deal.tables(batches):
        metadata = rows.schema.metadata
        key = metadata[_NAME].decode(), metadata[_PART].decode()
        found.setdefault(key, []).append(rows.replace_schema_metadata(None))
    empty = lives.append(pa.field("hour_of", pa.int64())).empty_table()
    for table in tables:
        if any(name == table.name for name, _ in found):
            none: Summaries = table.summed(empty)
            parts = {
                part: pa.concat_tables([rows, *found.get((table.name, part), ())])
                for part, rows in none.items()
            }
            _write(table, [parts, none], folder)


def _write(table: HourTable, parts: Sequence[Summaries], folder: str) -> None:
    """A file for each hour, with its rows in an order of their own."""
    rows = table.made(parts)
    if not rows.num_rows:
        return
    order = [(name, "ascending") for name in rows.column_names if _sorts(rows, name)]
    rows = rows.sort_by(order).combine_chunks()
    hours, first = np.unique(np.asarray(rows["hour_of"]), return_index=True)
    rows = rows.drop_columns("hour_of")
    for hour, start, end in zip(hours, first, [*first[1:], rows.num_rows], strict=True):
        path = f"{folder}/{table.name}/{hour_folder(int(hour))}/part-00000.parquet"
        write_file(rows.slice(start, end - start), path)


def _sorts(rows: pa.Table, name: str) -> bool:
    kind = rows.schema.field(name).type
    return name == "hour_of" or pa.types.is_string(kind)
