"""The export folder: how far it goes, and which files belong to it.

A file belongs to the export once the manifest is past the place in its name; one that is not may
still be replaced.
"""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from mq9.lake.files import Files
from mq9.lake.lifecycle import File
from mq9.spark import manifest
from mq9.spark.export_source import Export
from mq9.spark.manifest import Position
from mq9.spark.schema import DATASETS


class NoExport(Exception):  # noqa: N818
    """The folder is not one that `mq9 export` wrote."""


def bound(folder: str) -> str:
    """The name that the first file would have that is not part of the export yet."""
    files = Files(folder)
    if not files.exists(manifest.NAME):
        raise NoExport(f"{folder} has no {manifest.NAME}: it is not a folder that mq9 export wrote")
    segment, offset = manifest.parsed(folder, files.read_text(manifest.NAME)).end
    return f"part-{segment:010d}-{offset:010d}"


def dataset(spark: SparkSession, folder: str, name: str) -> DataFrame:
    """All rows of `messages` or `events`."""
    limit = bound(folder)
    schema = DATASETS[name]
    if not Files(folder).exists(name):
        return spark.createDataFrame([], schema)
    rows = spark.read.schema(schema).parquet(f"{folder.rstrip('/')}/{name}")
    return rows.where(F.col("_metadata.file_name") < limit).select(*schema.names)


def files(folder: str) -> tuple[list[File], int]:
    """All files that belong to the export, and of how many hours messages are."""
    export = Export(folder, "files", DATASETS["files"])
    inside = export.files((0, 0), end(folder))
    hours = {file.hour for file in inside if "/messages/date=" in file.path}
    return [File(export.uri(file.path), file.size) for file in inside], len(hours)


def end(folder: str) -> Position:
    """Up to where the export goes."""
    try:
        return Export(folder, "files", DATASETS["files"]).manifest().end
    except FileNotFoundError as error:
        raise NoExport(str(error)) from error
