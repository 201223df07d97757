"""The `replication` block: this server as one of several that hold the same.

Owns its settings. What a cluster is, the server and the core know.
"""

import re
from urllib.parse import urlsplit

from mq9.config.options import Options, Replication
from mq9.config.reading import (
    Notes,
    Setting,
    at,
    duration,
    filled,
    integer,
    items,
    read_block,
    text,
)
from mq9.config.tree import Value

_NAME = re.compile(r"[A-Za-z0-9_-]{1,32}")
_MOST_NODES = 16
# As the node's thread counts.
_PROPERTIES_BYTES = 1 << 20
_GATHERED_BYTES = 4 << 20
_HEADER_BYTES = 4096


def _name(value: Value, notes: Notes) -> str:
    name = filled(value, notes)
    if not _NAME.fullmatch(name):
        raise at(value.place, f'expected letters, digits, "-" and "_", found "{name}"')
    return name


def _nodes(value: Value, notes: Notes) -> tuple[str, ...]:
    # A node that was taken out leaves an empty place: the others keep their numbers.
    found = tuple(text(item, notes) for item in items(value, "addresses of nodes"))
    for address in filter(None, found):
        host, _, port = address.rpartition(":")
        if not host or not (port.isascii() and port.isdigit()):
            raise at(value.place, f'expected an address such as "10.0.0.1:4222", found "{address}"')
    if not 1 <= len(found) <= _MOST_NODES:
        raise at(value.place, f"expected 1 to {_MOST_NODES} nodes, found {len(found)}")
    return found


def _servers(value: Value, notes: Notes) -> tuple[str, ...]:
    found = tuple(filled(item, notes) for item in items(value, "URLs of nats-servers"))
    for each in found:
        url = urlsplit(each)
        if url.scheme != "nats" or not url.hostname:
            raise at(value.place, 'expected URLs such as "nats://10.0.0.1:4222"')
    if not found:
        raise at(value.place, "no servers: the log needs at least one nats-server")
    return found


def _monitors(value: Value, notes: Notes) -> tuple[str, ...]:
    found = tuple(filled(item, notes) for item in items(value, "URLs of monitoring ports"))
    for each in found:
        url = urlsplit(each)
        if url.scheme not in {"http", "https"} or not url.hostname:
            raise at(value.place, 'expected URLs such as "http://10.0.0.1:8333"')
    if len(set(found)) < len(found):
        raise at(value.place, "one of the URLs is there twice: each nats-server has its own")
    return found


def _sync(value: Value, notes: Notes) -> bool:
    found = text(value, notes)
    if found not in {"checked", "unchecked"}:
        raise at(value.place, f'expected "checked" or "unchecked", found "{found}"')
    return found == "checked"


REPLICATION_SETTINGS = {
    "name": Setting("name", _name),
    "node": Setting("node", integer(1, _MOST_NODES)),
    "nodes": Setting("nodes", _nodes),
    "servers": Setting("servers", _servers),
    "monitors": Setting("monitors", _monitors),
    "sync": Setting("checks_sync", _sync),
    "replicas": Setting("replicas", integer(1, 5)),
    "lease": Setting("lease_ms", duration(low_ms=1_500)),
}
"""Every name in the block."""


def read_replication(value: Value, notes: Notes) -> Replication:
    """The `replication` block."""
    found = read_block(value, "replication", REPLICATION_SETTINGS, {}, notes).values
    for name in ("node", "nodes", "servers"):
        if name not in found:
            raise at(value.place, f"no {name}: a node needs its number, all nodes and the servers")
    if not found.get("monitors") and found.get("checks_sync", True):
        raise at(
            value.place,
            "no monitors: the nats-servers are asked there whether they sync what they confirm "
            "(sync: unchecked leaves that to you)",
        )
    if found["node"] > len(found["nodes"]):
        raise at(value.place, f"node {found['node']} of {len(found['nodes'])}")
    if not found["nodes"][found["node"] - 1]:
        raise at(value.place, f"node {found['node']} has no address: it was taken out")
    return Replication(**found)


def batch_bytes(max_payload: int) -> int:
    """The most that nodes write into the log as one message: what gathered, or one of a client."""
    return max(max_payload + _PROPERTIES_BYTES, _GATHERED_BYTES)


def conflict(options: Options) -> tuple[str, str] | None:
    """Which other setting does not go together with the block, and why."""
    if options.jetstream:
        return "jetstream", (
            "jetstream and replication do not go together yet: what a client was given would be "
            "unknown to the node that leads next. Serve streams from a server without replication"
        )
    needed = batch_bytes(options.max_payload) + _HEADER_BYTES
    if options.segment_bytes < needed:
        return "segment_bytes", (
            f"segment_size ({options.segment_bytes}) is too small: a node writes up to {needed} "
            "bytes in one piece (max_payload and what belongs to it, at least 4 MB); "
            "raise segment_size or lower max_payload"
        )
    return None
