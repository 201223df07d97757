"""Files of tables: where those of an hour lie, and how one is written all or none."""

import datetime

import pyarrow as pa
import pyarrow.parquet as pq

from mq9.spark.places import opened

_FEW_VALUES = (
    *("mailbox", "group", "level", "priority", "sender", "reply_to", "member", "outcome"),
    *("dead_letter_to", "dead_letter_cause", "deliveries", "returns"),
)


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


def rows_in(path: str) -> int:
    """How many rows a file says it has."""
    system, inside = opened(path)
    with system.open_input_file(inside) as stream:
        return int(pq.ParquetFile(stream).metadata.num_rows)
