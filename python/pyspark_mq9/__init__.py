"""Lets Spark find the data source `mq9` by itself: it looks into modules named `pyspark_*`.

Spark imports all of them whenever any Python data source is used, so this one must not fail with
a Spark that is too old for mq9: the format is then unknown, and others are not harmed.
"""

try:
    from pyspark.sql.datasource import Filter as _Filter  # noqa: F401
except ImportError:
    pass
else:
    from mq9.spark.source import Mq9DataSource as DefaultSource

    __all__ = ["DefaultSource"]
