"""The life of each message, from files to files: the one step that brings rows together.

Three stages, whose tasks hand each other blobs: facts are read and dealt out by message, lives are
made of them and dealt out by hour of sending, and each hour is written. Files have the same names
and rows however often a task runs.
"""

import datetime
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from mq9.lake import deal, facts, fold
from mq9.spark.places import opened

HOUR_MS = 3_600_000
# What a task is given, in bytes of the export: some hundred thousand facts.
BYTES_PER_TASK = 8 << 20
# What a file holds at most, in bytes of the export.
BYTES_PER_FILE = 64 << 20
_FEW_VALUES = (
    *("mailbox", "group", "level", "priority", "sender", "reply_to", "member", "outcome"),
    *("dead_letter_to", "dead_letter_cause", "deliveries", "returns"),
)
_WRITTEN = pa.schema({"path": pa.string(), "rows": pa.int64()})
_WRITTEN_SQL = "path string, rows long"


@dataclass(frozen=True)
class File:
    """A file with facts, and its size."""

    path: str
    size: int


@dataclass(frozen=True)
class Layout:
    """Into how many tasks and files rows are dealt."""

    readers: int
    buckets: int
    writers: int
    slices: int

    @classmethod
    def of(cls, files: Sequence[File], tasks: int, hours: int) -> "Layout":
        """What suits some files, of so many hours, on a Spark that does so many tasks at once."""
        size = sum(file.size for file in files)
        enough = -(-size // BYTES_PER_TASK)
        slices = max(1, -(-size // (max(hours, 1) * BYTES_PER_FILE)))
        return cls(
            readers=max(1, min(len(files), max(2 * tasks, enough // 2))),
            buckets=max(tasks, enough),
            writers=max(1, min(hours * slices, max(2 * tasks, enough))),
            slices=slices,
        )


@dataclass(frozen=True)
class Into:
    """Where lives go: all of them, or those of some hours with the facts that they are made of."""

    lives: str
    facts: str | None = None
    """Where facts go, by hour as well; each is with every life that it may be of."""
    orphans: str | None = None
    """Where facts go whose message is not known yet, if they are not too old."""
    orphans_since_ms: int = 0
    hours: frozenset[int] | None = None


def write(spark: SparkSession, files: Sequence[File], into: Into, layout: Layout) -> int:
    """Writes the lives of all messages in files of facts; how many rows."""
    # Neighbours in time go to different tasks, so that all have as much to do.
    bundles = [(number % layout.readers, file.path) for number, file in enumerate(files)]
    named = spark.createDataFrame(bundles, "bucket int, path string")
    # Lives and facts are written by tasks of their own, and orphans by one more.
    writers = layout.writers if into.facts is None else 2 * layout.writers + 1
    written = (
        named.repartitionById(layout.readers, "bucket")
        .mapInArrow(partial(read_facts, buckets=layout.buckets), deal.BLOBS)
        .repartitionById(layout.buckets, "bucket")
        .mapInArrow(partial(make_lives, into=into, layout=layout), deal.BLOBS)
        .repartitionById(writers, "bucket")
        .mapInArrow(partial(write_hours, into=into, slices=layout.slices), _WRITTEN_SQL)
    )
    return sum(row["rows"] for row in written.collect())


def read_facts(batches: Iterator[pa.RecordBatch], buckets: int) -> Iterator[pa.RecordBatch]:
    """Stage one: facts of files by message; those of whole mailboxes for everybody."""
    for batch in batches:
        for path in batch.column("path").to_pylist():
            system, inside = opened(path)
            for table in facts.read(system, inside):
                yield from deal_facts(table, buckets)


def deal_facts(table: pa.Table, buckets: int) -> Iterator[pa.RecordBatch]:
    """Facts in blobs by message."""
    whole = pc.is_null(table["msg_id"])
    ends = table.filter(whole)
    if ends.num_rows:
        everywhere = np.repeat(np.arange(buckets), ends.num_rows)
        copies = pa.concat_tables([ends] * buckets)
        yield from deal.dealt(copies, everywhere)
        table = table.filter(pc.invert(whole))
    if table.num_rows:
        yield from deal.dealt(table, deal.by_message(table, buckets))


def make_lives(
    batches: Iterator[pa.RecordBatch], into: Into, layout: Layout
) -> Iterator[pa.RecordBatch]:
    """Stage two: lives of messages by the task that writes their hour; their facts too."""
    found = deal.unpacked(batches)
    if found is None:
        return
    rows = fold.lives(found)
    if into.facts is not None:
        yield from _facts_by_hour(found, rows, into, layout)
    rows = rows.append_column("hour_of", pa.array(_hours(rows["sent"])))
    if into.hours is not None:
        rows = rows.filter(pc.is_in(rows["hour_of"], pa.array(sorted(into.hours), pa.int64())))
    places = np.asarray(rows["hour_of"]) * layout.slices + _slices(rows, layout.slices)
    yield from deal.dealt(rows, places % layout.writers)


def _facts_by_hour(
    found: pa.Table, rows: pa.Table, into: Into, layout: Layout
) -> Iterator[pa.RecordBatch]:
    """Facts with the hours of all messages of their id; those of no known message by themselves."""
    found = found.filter(pc.is_valid(found["msg_id"]))
    key = ["mailbox", "msg_id"]
    hours = pa.table(
        {**{name: rows[name] for name in key}, "hour_of": pa.array(_hours(rows["sent"]))}
    )
    hours = hours.group_by([*key, "hour_of"]).aggregate([])
    names = [*found.column_names, "hour_of"]
    joined = found.join(hours, key).select(names)
    recent = pc.greater_equal(joined["time"].cast(pa.int64()), into.orphans_since_ms)
    orphans = joined.filter(pc.and_(pc.is_null(joined["hour_of"]), recent))
    if orphans.num_rows:
        yield from deal.dealt(orphans, np.full(orphans.num_rows, 2 * layout.writers))
    wanted = pc.is_in(joined["hour_of"], pa.array(sorted(into.hours or ()), pa.int64()))
    known = joined.filter(wanted)
    if known.num_rows:
        places = np.asarray(known["hour_of"]) * layout.slices + _slices(known, layout.slices)
        yield from deal.dealt(known, layout.writers + places % layout.writers)


def _hours(sent: pa.ChunkedArray) -> deal.Buckets:
    """Hours of times, counted from 1970."""
    return np.asarray(sent.cast(pa.int64())) // HOUR_MS


def _slices(rows: pa.Table, slices: int) -> deal.Buckets:
    """Which of the files of an hour a row goes to; neighbours go to the same."""
    return (np.asarray(rows["msg_id"]) >> 10) % slices


def write_hours(
    batches: Iterator[pa.RecordBatch], into: Into, slices: int
) -> Iterator[pa.RecordBatch]:
    """Stage three: the files of some hours, rows of a mailbox side by side."""
    rows = deal.unpacked(batches)
    if rows is None:
        return
    are_facts = "seq" in rows.column_names
    if are_facts:
        # A fact that came again is still one.
        rows = rows.group_by(rows.column_names).aggregate([])
    keys = ("mailbox", "msg_id", "position", "seq" if are_facts else "group")
    rows = rows.sort_by([(name, "ascending") for name in keys])
    if are_facts and rows["hour_of"].null_count:
        yield _write(rows.drop_columns("hour_of"), f"{into.orphans}/part-00000.parquet")
        return
    places = np.asarray(rows["hour_of"]) * slices + _slices(rows, slices)
    order = np.argsort(places, kind="stable")
    found, first = np.unique(places[order], return_index=True)
    rows = rows.take(pa.array(order)).drop_columns("hour_of")
    folder = into.facts if are_facts else into.lives
    for place, start, end in zip(found, first, [*first[1:], len(order)], strict=True):
        hour, part = divmod(int(place), slices)
        path = f"{folder}/{hour_folder(hour)}/part-{part:05d}.parquet"
        yield _write(rows.slice(start, end - start), path)


def _write(rows: pa.Table, path: str) -> pa.RecordBatch:
    write_file(rows, path)
    return pa.RecordBatch.from_pydict({"path": [path], "rows": [rows.num_rows]}, schema=_WRITTEN)


def hour_folder(hour: int) -> str:
    """`date=2026-05-02/hour=7` of an hour counted from 1970."""
    begin = datetime.datetime.fromtimestamp(hour * 3600, datetime.UTC)
    return f"date={begin:%Y-%m-%d}/hour={begin.hour}"


def write_file(rows: pa.Table, path: str) -> None:
    """Writes a file of Parquet that is there with all of its rows or not at all."""
    system, inside = opened(path)
    above, _, name = inside.rpartition("/")
    system.create_dir(above, recursive=True)
    unfinished = f"{above}/_{name}.unfinished"
    dictionary = [column for column in _FEW_VALUES if column in rows.column_names]
    with system.open_output_stream(unfinished) as stream:
        pq.write_table(rows, stream, compression="zstd", use_dictionary=dictionary)
    system.move(unfinished, inside)
