"""mq9 for Spark: a session on any machine, and the data source `mq9`.

Needs the extra `spark`: pip install 'mq9[spark]'.
"""

try:
    import pyspark as _pyspark  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "mq9.spark needs Spark: pip install 'mq9[spark]'", name=error.name
    ) from error

from mq9.spark.java import JavaNotFound
from mq9.spark.session import SETTINGS, session
from mq9.spark.source import Mq9DataSource

__all__ = ["SETTINGS", "JavaNotFound", "Mq9DataSource", "session"]
