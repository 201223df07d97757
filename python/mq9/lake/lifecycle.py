"""The life of each message, from files to files: the one step that brings rows together.

Three stages, whose tasks hand each other blobs: facts are read and dealt out by message, lives are
made of them and dealt out by hour of sending, and each hour is written. Files have the same names
and rows however often a task runs.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from mq9.lake import deal, facts, fold, summed
from mq9.lake.hourly import HourTable
from mq9.lake.output import hour_folder, write_file
from mq9.spark.places import opened

HOUR_MS = 3_600_000
# What a task is given, in bytes of the export: some hundred thousand facts.
BYTES_PER_TASK = 8 << 20
# Into how many buckets the end of any mailbox may be copied.
FEW_BUCKETS = 8
# Of how many messages or facts a mailbox is dealt into many buckets, if there are more than those.
CROWD = 16_384
# What a file holds at most, in bytes of the export.
BYTES_PER_FILE = 64 << 20


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
    folder: str | None = None
    """Where the folders of tables go that follow from single hours."""
    tables: tuple[HourTable, ...] = ()


def write(spark: SparkSession, files: Sequence[File], into: Into, layout: Layout) -> None:
    """Writes the lives of all messages in files of facts, and the tables of their hours."""
    # Neighbours in time go to different tasks, so that all have as much to do.
    bundles = [(number % layout.readers, file.path) for number, file in enumerate(files)]
    named = spark.createDataFrame(bundles, "bucket int, path string")
    crowded = _crowded(named, layout) if layout.buckets > FEW_BUCKETS else None
    # Lives and facts are written by tasks of their own, and orphans by one more.
    writers = layout.writers if into.facts is None else 2 * layout.writers + 1
    written = (
        named.repartitionById(layout.readers, "bucket")
        .mapInArrow(partial(read_facts, buckets=layout.buckets, crowded=crowded), deal.BLOBS)
        .repartitionById(layout.buckets, "bucket")
        .mapInArrow(partial(make_lives, into=into, layout=layout), deal.BLOBS)
        .repartitionById(writers, "bucket")
        .mapInArrow(partial(write_hours, into=into, layout=layout), deal.BLOBS)
    )
    if into.folder is not None and layout.slices > 1:
        written = written.repartitionById(layout.writers, "bucket").mapInArrow(
            partial(write_tables, into=into), deal.BLOBS
        )
    written.write.format("noop").mode("overwrite").save()


def _crowded(named: DataFrame, layout: Layout) -> frozenset[str]:
    """The mailboxes with so many messages that one bucket should not have all of them."""
    counted = named.repartitionById(layout.readers, "bucket").mapInArrow(
        count_mailboxes, "mailbox string, facts long"
    )
    sums = counted.groupBy("mailbox").agg(F.sum("facts").alias("facts"))
    return frozenset(row["mailbox"] for row in sums.where(F.col("facts") >= CROWD).collect())


def count_mailboxes(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """How many messages, or facts that were kept, files have of each mailbox."""
    for batch in batches:
        for path in batch.column("path").to_pylist():
            if "/events/date=" in path:
                continue
            system, inside = opened(path)
            names = facts.mailboxes(system, inside)
            counts = names.group_by("mailbox").aggregate([([], "count_all")])
            yield from counts.rename_columns(["mailbox", "facts"]).to_batches()


def read_facts(
    batches: Iterator[pa.RecordBatch], buckets: int, crowded: frozenset[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """Stage one: facts of files by message; those of whole mailboxes for all who may need them."""
    for batch in batches:
        for path in batch.column("path").to_pylist():
            system, inside = opened(path)
            for table in facts.read(system, inside):
                yield from deal_facts(table, buckets, crowded)


def deal_facts(
    table: pa.Table, buckets: int, crowded: frozenset[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """Facts in blobs by message; an end goes wherever messages of its mailbox may be."""
    whole = pc.is_null(table["msg_id"])
    ends = table.filter(whole)
    table = table.filter(pc.invert(whole))
    if crowded is not None and ends.num_rows:
        # Nearly all mailboxes are in one bucket, where their ends go with their messages.
        many = pc.is_in(ends["mailbox"], pa.array(crowded, pa.string()))
        table = pa.concat_tables([table, ends.filter(pc.invert(many))])
        ends = ends.filter(many)
    if ends.num_rows:
        everywhere = np.repeat(np.arange(buckets), ends.num_rows)
        copies = pa.concat_tables([ends] * buckets)
        yield from deal.dealt(copies, everywhere)
    if table.num_rows:
        yield from deal.dealt(table, deal.by_message(table, buckets, crowded))


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
    return (np.asarray(rows["msg_id"]) >> 5) % slices


def write_hours(
    batches: Iterator[pa.RecordBatch], into: Into, layout: Layout
) -> Iterator[pa.RecordBatch]:
    """Stage three: the files of some hours, rows of a mailbox side by side; and their tables."""
    rows = deal.unpacked(batches)
    if rows is None:
        return
    if "seq" in rows.column_names:
        _write_facts(rows, into, layout.slices)
        return
    rows = rows.take(_in_order(rows, "group")).combine_chunks()
    if into.folder is not None:
        if layout.slices == 1:
            summed.write(into.tables, rows, into.folder)
        else:
            yield from summed.hand_on(into.tables, rows, layout.writers)
    _write_hours(rows, into.lives, layout.slices)


def write_tables(batches: Iterator[pa.RecordBatch], into: Into) -> Iterator[pa.RecordBatch]:
    """Stage four, if hours are several files: their tables."""
    if into.folder is not None:
        summed.put_together(batches, into.tables, fold.schema(), into.folder)
    yield from ()


def _write_facts(rows: pa.Table, into: Into, slices: int) -> None:
    # A fact that came again is still one.
    rows = rows.group_by(rows.column_names).aggregate([])
    rows = rows.take(_in_order(rows, "seq")).combine_chunks()
    if rows["hour_of"].null_count:
        write_file(rows.drop_columns("hour_of"), f"{into.orphans}/part-00000.parquet")
    elif into.facts is not None:
        _write_hours(rows, into.facts, slices)


def _in_order(rows: pa.Table, last: str) -> pa.Array:
    """By hour, mailbox and message: numbers are compared, not names."""
    mailbox, group = (
        _ranked(rows[name]) if pa.types.is_string(rows[name].type) else np.asarray(rows[name])
        for name in ("mailbox", last)
    )
    hour = np.asarray(pc.fill_null(rows["hour_of"], -1))
    ids, position = (np.asarray(rows[name]) for name in ("msg_id", "position"))
    return pa.array(np.lexsort((group, position, ids, mailbox, hour)))


def _ranked(names: pa.ChunkedArray) -> deal.Buckets:
    """The place of each name among all of them, sorted; null comes first."""
    code = pc.dictionary_encode(names).combine_chunks()
    if isinstance(code, pa.ChunkedArray):
        code = code.chunk(0)
    ranks = np.empty(len(code.dictionary) + 1, np.int64)
    ranks[np.asarray(pc.sort_indices(code.dictionary))] = np.arange(len(code.dictionary))
    ranks[-1] = -1
    ranked: deal.Buckets = ranks[np.asarray(pc.fill_null(code.indices, -1))]
    return ranked


def _write_hours(rows: pa.Table, folder: str, slices: int) -> None:
    places = np.asarray(rows["hour_of"]) * slices + _slices(rows, slices)
    if slices > 1:
        order = np.argsort(places, kind="stable")
        rows, places = rows.take(pa.array(order)), places[order]
    found, first = np.unique(places, return_index=True)
    rows = rows.drop_columns("hour_of")
    for place, start, end in zip(found, first, [*first[1:], len(places)], strict=True):
        hour, part = divmod(int(place), slices)
        path = f"{folder}/{hour_folder(hour)}/part-{part:05d}.parquet"
        write_file(rows.slice(start, end - start), path)
