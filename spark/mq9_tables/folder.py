"""The export folder as Spark's file systems see it: how far it goes, and its two datasets.

A file belongs to the export once the manifest is past the place in its name; one that is not may
still be replaced.
"""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from mq9.spark import manifest
from mq9.spark.schema import DATASETS
from mq9_tables.files import Files


class NoExport(Exception):  # noqa: N818
    """The folder is not one that `mq9 export` wrote."""


def bound(spark: SparkSession, folder: str) -> str:
    """The name that the first file would have that is not part of the export yet."""
    files = Files(spark, folder)
    if not files.exists(manifest.NAME):
        raise NoExport(f"{folder} has no {manifest.NAME}: it is not a folder that mq9 export wrote")
    segment, offset = manifest.end(folder, files.read_text(manifest.NAME))
    return f"part-{segment:010d}-{offset:010d}"


def dataset(spark: SparkSession, folder: str, name: str) -> DataFrame:
    """All rows of `messages` or `events`."""
    limit = bound(spark, folder)
    schema = DATASETS[name]
    if not Files(spark, folder).exists(name):
        return spark.createDataFrame([], schema)
    rows = spark.read.schema(schema).parquet(f"{folder.rstrip('/')}/{name}")
    return rows.where(F.col("_metadata.file_name") < limit).select(*schema.names)
