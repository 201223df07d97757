"""The export folder as a source: whole, or as a stream that follows its manifest.

The offset of the stream is the place in the broker's log up to which the manifest says the export
goes. Files before it never change, so a micro-batch that is done again reads the same rows.
"""

import datetime
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
from pyspark.sql.datasource import (
    DataSourceReader,
    DataSourceStreamReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from mq9.spark import manifest
from mq9.spark.filters import expression
from mq9.spark.manifest import Position
from mq9.spark.places import opened

ROWS_PER_BATCH = 16_384

# What the folders of an hour are made from.
TIME_COLUMN = {"messages": "sent", "events": "time"}

# What a dataset is made of; `files` lists those of both.
_INSIDE = {"messages": ("messages",), "events": ("events",), "files": ("messages", "events")}

_FILE = re.compile(r"date=(\d{4}-\d{2}-\d{2})/hour=(\d{2})/part-(\d{10})-(\d{10})\.parquet$")


@dataclass
class ExportFiles(InputPartition):
    """Files that one task reads."""

    paths: list[str]


@dataclass(frozen=True)
class ExportFile:
    """A file of a dataset, where in the log its rows begin, its hour and its bytes."""

    path: str
    position: Position
    hour: datetime.datetime
    size: int


@dataclass
class Export:
    """One dataset of an export folder; picklable."""

    folder: str
    dataset: str
    schema: StructType

    @property
    def arrow_schema(self) -> pa.Schema:
        return to_arrow_schema(self.schema, timezone="UTC")

    def _open(self) -> tuple[pafs.FileSystem, str]:
        return opened(self.folder)

    def end(self) -> Position:
        """Up to where the export goes."""
        system, folder = self._open()
        try:
            with system.open_input_stream(f"{folder}/{manifest.NAME}") as stream:
                text = stream.read()
        except FileNotFoundError:
            raise FileNotFoundError(
                f"{self.folder} has no {manifest.NAME}: it is not a folder that mq9 export wrote"
            ) from None
        return manifest.end(self.folder, text)

    def files(self, start: Position, end: Position) -> list[ExportFile]:
        """The files whose rows begin from `start` on and before `end`, in the order of the log."""
        system, folder = self._open()
        listed = [
            info
            for dataset in _INSIDE[self.dataset]
            for info in system.get_file_info(
                pafs.FileSelector(f"{folder}/{dataset}", allow_not_found=True, recursive=True)
            )
        ]
        found = []
        for info in listed:
            match = _FILE.search(info.path)
            if match is None or info.type != pafs.FileType.File:
                continue
            position = int(match[3]), int(match[4])
            if start <= position < end:
                hour = datetime.datetime.fromisoformat(f"{match[1]}T{match[2]}:00:00+00:00")
                found.append(ExportFile(info.path, position, hour, info.size))
        return sorted(found, key=lambda file: (file.position, file.path))

    def uri(self, path: str) -> str:
        """The name that any process can open a file by, also Spark: Hadoop's for S3 is `s3a`."""
        scheme = re.match(r"[a-z0-9]+://", self.folder)
        if scheme is None or scheme[0] == "file://":
            return path
        if scheme[0].startswith("s3"):
            return f"{scheme[0]}{path}"
        authority = self.folder.split("/")[2]
        return f"{scheme[0]}{authority}{path}"

    def rows(self, paths: Sequence[str], wanted: pc.Expression | None) -> Iterator[pa.RecordBatch]:
        """The rows of files; columns that a file does not have are null."""
        system, _ = self._open()
        if self.dataset == "files":
            found = system.get_file_info(list(paths))
            uris, sizes = [self.uri(info.path) for info in found], [info.size for info in found]
            whole = pa.table({"path": uris, "size": sizes}).select(self.schema.names)
            if wanted is not None:
                whole = whole.filter(wanted)
            yield from whole.cast(self.arrow_schema).to_batches()
            return
        # It brings pandas with it, which takes longer to load than all the rest: those who only
        # plan, in a process of their own each time, do without.
        import pyarrow.dataset as ds

        schema = self.arrow_schema
        data = ds.dataset(list(paths), schema=schema, format="parquet", filesystem=system)
        scan = data.scanner(filter=wanted, batch_size=ROWS_PER_BATCH, use_threads=False)
        for batch in scan.to_batches():
            if batch.num_rows:
                yield batch if batch.schema.equals(schema) else batch.cast(schema)


def in_bundles(files: Sequence[ExportFile], tasks: int) -> list[InputPartition]:
    """The files dealt out to tasks, neighbours together."""
    size = max(1, -(-len(files) // tasks))
    paths = [file.path for file in files]
    return [ExportFiles(paths[at : at + size]) for at in range(0, len(paths), size)]


def hour_may_have(hour: datetime.datetime, one: Filter) -> bool:
    """Whether rows of an hour can pass a filter on the time that the hour is of."""
    end = hour + datetime.timedelta(hours=1)
    match one:
        case EqualTo(value=datetime.datetime() as time):
            return hour <= time < end
        case GreaterThan(value=datetime.datetime() as time):
            return end > time
        case GreaterThanOrEqual(value=datetime.datetime() as time):
            return end > time
        case LessThan(value=datetime.datetime() as time):
            return hour < time
        case LessThanOrEqual(value=datetime.datetime() as time):
            return hour <= time
    return True


class ExportReader(DataSourceReader):
    """Reads what the export holds now."""

    def __init__(self, export: Export, tasks: int) -> None:
        self.export, self.tasks = export, tasks
        self.taken: list[Filter] = []

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Takes all filters that Arrow can evaluate while it reads."""
        schema = self.export.arrow_schema
        left: list[Filter] = []
        for one in filters:
            (left if expression(one, schema) is None else self.taken).append(one)
        return left

    def partitions(self) -> Sequence[InputPartition]:
        """Files of the hours that can have rows."""
        column = (TIME_COLUMN.get(self.export.dataset),)
        timed = [one for one in self.taken if getattr(one, "attribute", None) == column]
        files = [
            file
            for file in self.export.files((0, 0), self.export.end())
            if all(hour_may_have(file.hour, one) for one in timed)
        ]
        return in_bundles(files, self.tasks)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a partition that pass the filters."""
        # Without any file Spark makes up one partition of its own.
        if not isinstance(partition, ExportFiles):
            return
        wanted: pc.Expression | None = None
        for one in self.taken:
            term = expression(one, self.export.arrow_schema)
            wanted = term if wanted is None else wanted & term
        yield from self.export.rows(partition.paths, wanted)


class ExportStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows the export."""

    def __init__(self, export: Export, tasks: int, max_files: int | None) -> None:
        self.export, self.tasks, self.max_files = export, tasks, max_files
        self.target: Position | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        """The beginning of the log."""
        return {"segment": 0, "offset": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """What the option maxFilesPerTrigger says."""
        return ReadMaxFiles(self.max_files) if self.max_files else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """What is exported later is for the next run."""
        self.target = self.export.end()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        """The end of the export, or of as many files as one micro-batch may have."""
        begin = start["segment"], start["offset"]
        end = max(begin, self.target or self.export.end())
        if isinstance(limit, ReadMaxFiles) and end > begin:
            files = self.export.files(begin, end)
            if len(files) > limit.max_files:
                # Files of one piece of the log have the same place, and go together.
                last = files[limit.max_files - 1].position
                end = next((file.position for file in files if file.position > last), end)
        return {"segment": end[0], "offset": end[1]}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """The files between two offsets."""
        begin, until = (start["segment"], start["offset"]), (end["segment"], end["offset"])
        return in_bundles(self.export.files(begin, until), self.tasks)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a partition."""
        if isinstance(partition, ExportFiles):
            yield from self.export.rows(partition.paths, None)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing to do: files stay as long as somebody wants them."""
