"""The export folder as a source: whole, or as a stream that follows its manifest.

The offset of the stream is the place in the broker's log up to which the manifest says the export
goes. Files before it never change, so a micro-batch that is done again reads the same rows.
"""

import datetime
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
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

from mq9.errors import InvalidField
from mq9.spark import manifest
from mq9.spark.filters import expression
from mq9.spark.manifest import Manifest, Position
from mq9.spark.places import opened

ROWS_PER_BATCH = 16_384

BEGIN: Position = (0, 0)

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

    def manifest(self) -> Manifest:
        """What the export says of itself."""
        system, folder = self._open()
        try:
            with system.open_input_stream(f"{folder}/{manifest.NAME}") as stream:
                text = stream.read()
        except FileNotFoundError:
            raise FileNotFoundError(
                f"{self.folder} has no {manifest.NAME}: it is not a folder that mq9 export wrote"
            ) from None
        return manifest.parsed(self.folder, text)

    def files(self, start: Position, end: Position, oldest_hour: str = "") -> list[ExportFile]:
        """The files whose rows begin from `start` on and before `end`, in the order of the log.

        Folders of hours before `oldest_hour` are not looked into.
        """
        system, folder = self._open()
        listed = [
            info
            for dataset in _INSIDE[self.dataset]
            for hour in hours(system, f"{folder}/{dataset}", oldest_hour)
            for info in system.get_file_info(
                pafs.FileSelector(hour, allow_not_found=True, recursive=True)
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


def hours(system: pafs.FileSystem, dataset: str, oldest: str) -> list[str]:
    """The folders of a dataset from an hour on; the dataset itself if all are asked for."""
    if not oldest:
        return [dataset]

    def inside(folder: str) -> list[str]:
        listed = system.get_file_info(pafs.FileSelector(folder, allow_not_found=True))
        return [info.base_name for info in listed if info.type == pafs.FileType.Directory]

    # Names of days and hours are in the order of time.
    days = [day for day in inside(dataset) if day >= oldest.partition("/")[0]]
    found = [f"{day}/{hour}" for day in days for hour in inside(f"{dataset}/{day}")]
    return [f"{dataset}/{hour}" for hour in found if hour >= oldest]


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
            for file in self.export.files(BEGIN, self.export.manifest().end)
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
        return _offset(BEGIN)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """What the option maxFilesPerTrigger says."""
        return ReadMaxFiles(self.max_files) if self.max_files else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """What is exported later is for the next run."""
        self.target = self.export.manifest().end

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        """The end of the export, or of as many files as one micro-batch may have."""
        begin, now = _position(start), self.export.manifest()
        self._miss_nothing(begin, now)
        end = max(begin, self.target or now.end)
        if isinstance(limit, ReadMaxFiles) and end > begin:
            files = self.export.files(begin, end, now.oldest_hour(begin))
            if len(files) > limit.max_files:
                # Files of one piece of the log have the same place, and go together. What was gone
                # before the first micro-batch is not missed: that one ends behind it.
                last = max(files[limit.max_files - 1].position, now.forgotten or BEGIN)
                end = next((file.position for file in files if file.position > last), end)
        return _offset(end)

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """The files between two offsets."""
        begin, until = _position(start), _position(end)
        files = self.export.files(begin, until, self.export.manifest().oldest_hour(begin))
        # Asked for after the list was made: files go only when the manifest says so.
        self._miss_nothing(begin, self.export.manifest())
        return in_bundles(files, self.tasks)

    def _miss_nothing(self, begin: Position, now: Manifest) -> None:
        """Raises if files are gone that a stream has not read; a new one takes what is there."""
        if begin != BEGIN and now.forgotten is not None and now.forgotten >= begin:
            raise InvalidField(
                f"{self.export.folder} has lost files that this stream has not read: they were "
                "removed because they were older than keep_days. Remove the checkpoint of the "
                "stream and what it made (of `mq9 lake stream` the tables), and run it again: it "
                "begins with the files that are left. Choose keep_days longer than a stream stops"
            )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a partition."""
        if isinstance(partition, ExportFiles):
            yield from self.export.rows(partition.paths, None)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing to do: files stay as long as somebody wants them."""


def _offset(position: Position) -> dict[str, int]:
    return {"segment": position[0], "offset": position[1]}


def _position(offset: Mapping[str, int]) -> Position:
    return offset["segment"], offset["offset"]
