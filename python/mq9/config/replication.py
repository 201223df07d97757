"""The `replication` block: this server as one of several that hold the same.

Owns its settings. What a cluster is, the server and the core know.
"""

import re
from urllib.parse import urlsplit

from mq9.config.options import Replication
from mq9.config.reading import Notes, Setting, at, duration, filled, integer, items, read_block
from mq9.config.tree import Value

_NAME = re.compile(r"[A-Za-z0-9_-]{1,32}")
_MOST_NODES = 16


def _name(value: Value, notes: Notes) -> str:
    text = filled(value, notes)
    if not _NAME.fullmatch(text):
        raise at(value.place, f'expected letters, digits, "-" and "_", found "{text}"')
    return text


def _nodes(value: Value, notes: Notes) -> tuple[str, ...]:
    found = tuple(filled(item, notes) for item in items(value, "addresses of nodes"))
    for text in found:
        host, _, port = text.rpartition(":")
        if not host or not (port.isascii() and port.isdigit()):
            raise at(value.place, f'expected an address such as "10.0.0.1:4222", found "{text}"')
    if not 1 <= len(found) <= _MOST_NODES:
        raise at(value.place, f"expected 1 to {_MOST_NODES} nodes, found {len(found)}")
    return found


def _servers(value: Value, notes: Notes) -> tuple[str, ...]:
    found = tuple(filled(item, notes) for item in items(value, "URLs of nats-servers"))
    for text in found:
        url = urlsplit(text)
        if url.scheme != "nats" or not url.hostname:
            raise at(value.place, 'expected URLs such as "nats://10.0.0.1:4222"')
    if not found:
        raise at(value.place, "no servers: the log needs at least one nats-server")
    return found


REPLICATION_SETTINGS = {
    "name": Setting("name", _name),
    "node": Setting("node", integer(1, _MOST_NODES)),
    "nodes": Setting("nodes", _nodes),
    "servers": Setting("servers", _servers),
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
    if found["node"] > len(found["nodes"]):
        raise at(value.place, f"node {found['node']} of {len(found['nodes'])}")
    return Replication(**found)
