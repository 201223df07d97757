"""The `jetstream` block: whether clients of NATS JetStream are served, and where streams are kept.

Owns its settings. What a stream is, the core knows.
"""

from mq9.config.errors import quoted
from mq9.config.reading import Fields, Notes, Setting, at, boolean, path, read_block
from mq9.config.tree import Map, Value

_LIMITS = "streams say themselves what they may hold"
_ONE_SERVER = "an mq9 server stands alone"
_PLAIN = "mq9 writes its log as it is"

JETSTREAM_SETTINGS = {
    **dict.fromkeys(("store_dir", "storedir"), Setting("store_dir", path)),
    **dict.fromkeys(("enabled", "enable"), Setting("jetstream", boolean)),
}
"""Every name in the block that sets an option."""

IGNORED = {
    **dict.fromkeys(
        ("max_memory_store", "max_mem_store", "max_mem", "max_file_store", "max_file"), _LIMITS
    ),
    **dict.fromkeys(("max_buffered_msgs", "max_buffered_size", "request_queue_limit"), _LIMITS),
    **dict.fromkeys(("max_outstanding_catchup", "domain", "unique_tag", "tpm"), _ONE_SERVER),
    **dict.fromkeys(("meta_compact", "meta_compact_size", "meta_compact_sync"), _ONE_SERVER),
    **dict.fromkeys(("cipher", "key", "prev_key", "encryption_key", "ek"), _PLAIN),
    **dict.fromkeys(("sync", "sync_interval", "strict", "limits"), "see sync in the mq9 block"),
}
"""Names of nats-server that do not apply, each with the reason."""

_ON = {"enabled", "enable", "true"}
_OFF = {"disabled", "disable", "false"}


def read_jetstream(value: Value, notes: Notes) -> Fields:
    """The `jetstream` block, or the one word in its place."""
    if isinstance(value.data, Map):
        fields = read_block(value, "jetstream", JETSTREAM_SETTINGS, IGNORED, notes)
        fields.values.setdefault("jetstream", True)
        return fields
    found = value.data
    if isinstance(found, str):
        word = found.lower()
        found = True if word in _ON else False if word in _OFF else found
    if not isinstance(found, bool):
        raise at(value.place, f"expected a block, enabled or disabled, found {quoted(found)}")
    return Fields({"jetstream": found}, {"jetstream": value.place})
