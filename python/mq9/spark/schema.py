"""Rows as Spark sees them: the two datasets of the export, and the messages of a live mailbox.

The first two must agree with what `mq9 export` writes. A column that a file of an older version
does not have is null, one that a newer version adds is ignored.
"""

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

_HEADER = StructType([StructField("name", StringType()), StructField("value", StringType())])

MESSAGES = StructType(
    [
        StructField("mailbox", StringType()),
        StructField("msg_id", LongType()),
        StructField("level", IntegerType()),
        StructField("priority", StringType()),
        StructField("key", StringType()),
        StructField("tags", ArrayType(StringType())),
        StructField("headers", ArrayType(_HEADER)),
        StructField("payload", BinaryType()),
        StructField("size", LongType()),
        StructField("sent", TimestampType()),
        StructField("visible", TimestampType()),
        StructField("expires", TimestampType()),
        StructField("segment", LongType()),
        StructField("offset", LongType()),
    ]
)

EVENTS = StructType(
    [
        StructField("kind", StringType()),
        StructField("mailbox", StringType()),
        StructField("msg_id", LongType()),
        StructField("level", IntegerType()),
        StructField("group", StringType()),
        StructField("member", StringType()),
        StructField("time", TimestampType()),
        StructField("count", IntegerType()),
        StructField("target", StringType()),
        StructField("size", LongType()),
        StructField("segment", LongType()),
        StructField("offset", LongType()),
        StructField("seq", IntegerType()),
        StructField("cause", StringType()),
    ]
)

# What a broker tells of a message; the same names as in the export mean the same.
MAILBOX = StructType(
    [
        *(MESSAGES[name] for name in MESSAGES.names if name not in {"sent", "segment", "offset"}),
    ]
)

# The files of both, for those who read them by themselves.
FILES = StructType([StructField("path", StringType()), StructField("size", LongType())])

DATASETS = {"messages": MESSAGES, "events": EVENTS, "files": FILES}
