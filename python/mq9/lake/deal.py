"""Rows between tasks: blobs of Arrow, each for one bucket, which Spark never unpacks.

Spark moves few large rows instead of many small ones; all that looks into them is Arrow and numpy.
Runs in Spark's Python workers.
"""

import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

# What Spark sees of a blob.
BLOBS = "bucket int, rows binary"
_BLOBS = pa.schema({"bucket": pa.int32(), "rows": pa.binary()})
_LZ4 = pa.ipc.IpcWriteOptions(compression="lz4")
_MIX = np.uint64(0x9E3779B97F4A7C15)

Buckets = np.ndarray[Any, np.dtype[np.int64]]


def pack(table: pa.Table) -> bytes:
    """A table as bytes."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=_LZ4) as writer:
        writer.write_table(table)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def tables(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The tables of some blobs."""
    for batch in batches:
        for blob in batch.column("rows"):
            yield pa.ipc.open_stream(blob.as_buffer()).read_all()


def unpacked(batches: Iterator[pa.RecordBatch]) -> pa.Table | None:
    """All tables of some blobs in one; None if there is none."""
    found = list(tables(batches))
    return pa.concat_tables(found) if found else None


def dealt(table: pa.Table, bucket: Buckets) -> Iterator[pa.RecordBatch]:
    """The rows of a table in blobs, by bucket."""
    order = np.argsort(bucket, kind="stable")
    found, first = np.unique(bucket[order], return_index=True)
    ordered = table.take(pa.array(order))
    for number, start, end in zip(found, first, [*first[1:], len(order)], strict=True):
        blob = pack(ordered.slice(start, end - start))
        yield pa.RecordBatch.from_pydict({"bucket": [number], "rows": [blob]}, schema=_BLOBS)


def by_message(facts: pa.Table, buckets: int, crowded: frozenset[str] | None = None) -> Buckets:
    """The bucket of each fact of a message: the same for all facts of it, in any file.

    If it is told which mailboxes are `crowded`, all messages of another one have the same bucket.
    """
    names = pc.dictionary_encode(facts["mailbox"]).combine_chunks()
    if isinstance(names, pa.ChunkedArray):
        names = names.chunk(0)
    of_name = np.array([zlib.crc32(name.encode()) for name in names.dictionary.to_pylist()])
    mailbox = of_name.astype(np.uint64)[np.asarray(names.indices)]
    ids = np.asarray(pc.fill_null(facts["msg_id"], 0)).astype(np.uint64)
    if crowded is not None:
        spread = np.asarray(pc.is_in(facts["mailbox"], pa.array(crowded, pa.string())))
        ids = np.where(spread, ids, np.uint64(0))
    mixed = (mailbox * np.uint64(31) + ids) * _MIX
    bucket: Buckets = ((mixed >> np.uint64(33)) % np.uint64(buckets)).astype(np.int64)
    return bucket
