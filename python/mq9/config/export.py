"""The `export` block: where what went through the broker is written as Parquet files.

Owns its settings. What an export is, the server and the core know.
"""

from mq9.config.options import Export
from mq9.config.reading import Notes, Setting, at, boolean, duration, integer, path, read_block
from mq9.config.tree import Value

EXPORT_SETTINGS = {
    "dir": Setting("dir", path),
    "every": Setting("every_ms", duration(low_ms=100)),
    "payloads": Setting("payloads", boolean),
    "keep": Setting("keep_bytes", integer(1)),
    "keep_days": Setting("keep_days", integer(1)),
}
"""Every name in the block."""


def read_export(value: Value, notes: Notes) -> Export:
    """The `export` block."""
    found = read_block(value, "export", EXPORT_SETTINGS, {}, notes).values
    if "dir" not in found:
        raise at(value.place, "no dir: an export needs a folder to write to")
    return Export(**found)
