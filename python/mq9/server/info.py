"""INFO: what the server tells a client about itself, with its name, identity and address.

Owns the fields and their order, which is nats-server's.
"""

import json
import socket
from dataclasses import dataclass, field
from typing import Any

from mq9 import __version__
from mq9.config import Options
from mq9.server import nkeys

# Clients switch features on by this number: it is the newest nats-server whose client protocol
# is spoken here in full. The version of mq9 is in a field of its own.
NATS_VERSION = "2.15.1"
PROTOCOL = 1
# Of JetStream's API, which clients look at besides the version: the first.
_API_LEVEL = 0


@dataclass
class Identity:
    """Who this server is; the address is known once it listens."""

    name: str = ""
    server_id: str = field(default_factory=nkeys.server_id)
    host: str = ""
    port: int = 0

    def __post_init__(self) -> None:
        self.name = self.name or self.server_id

    def listens(self, options: Options, port: int) -> None:
        """Take the address that clients are told: the advertised one, if there is one."""
        self.host, self.port = options.host, port
        if options.client_advertise:
            self.host, self.port = split_address(options.client_advertise, port)


@dataclass(frozen=True)
class Peer:
    """What INFO says about the connection it is sent on."""

    client_id: int
    client_ip: str
    nonce: str = ""


def info_fields(
    identity: Identity,
    options: Options,
    *,
    auth_required: bool,
    peer: Peer | None = None,
    lame_duck: bool = False,
) -> dict[str, Any]:
    """The fields of INFO, without those that are false or empty."""
    tls, cluster = options.tls, options.replication
    optional = {
        "jetstream": options.jetstream,
        "auth_required": auth_required,
        "tls_required": tls is not None and not options.allow_non_tls,
        "tls_verify": tls is not None and (tls.verify or tls.verify_and_map),
        "tls_available": tls is not None and options.allow_non_tls,
    }
    return {
        "server_id": identity.server_id,
        "server_name": identity.name,
        "version": NATS_VERSION,
        "proto": PROTOCOL,
        "go": "",
        "host": identity.host,
        "port": identity.port,
        "headers": True,
        **{name: True for name, value in optional.items() if value},
        "max_payload": options.max_payload,
        **({"connect_urls": [*cluster.members.values()]} if cluster else {}),
        **({"client_id": peer.client_id, "client_ip": peer.client_ip} if peer else {}),
        **({"nonce": peer.nonce} if peer and peer.nonce else {}),
        **({"ldm": True} if lame_duck else {}),
        "api_lvl": _API_LEVEL,
        "mq9": __version__,
    }


def info_line(fields: dict[str, Any]) -> bytes:
    """INFO as it goes over the wire, with nats-server's space before the line's end."""
    return b"INFO %b \r\n" % json.dumps(fields, separators=(",", ":")).encode()


def split_address(text: str, default_port: int) -> tuple[str, int]:
    """`host`, `host:port`, `[v6]:port` or a bare IPv6 address."""
    if text.count(":") > 1 and not text.startswith("["):
        return text, default_port
    host, colon, port = text.rpartition(":")
    if not colon or port.endswith("]"):
        return text.strip("[]"), default_port
    return host.strip("[]"), int(port)


def plain_ip(address: str) -> str:
    """An IPv4 address that came in on an IPv6 socket, as IPv4."""
    mapped = "::ffff:"
    if address.startswith(mapped):
        try:
            socket.inet_pton(socket.AF_INET, address[len(mapped) :])
        except OSError:
            return address
        return address[len(mapped) :]
    return address.partition("%")[0]


def network_of(address: str) -> str:
    """An IPv4 address, or the 64 bits of an IPv6 address that its owner cannot choose."""
    if ":" not in address:
        return address
    return socket.inet_pton(socket.AF_INET6, address)[:8].hex()


def is_loopback(ip: str) -> bool:
    """Whether an address, as `plain_ip` has it, belongs to this machine's loopback interface."""
    return ip == "::1" or ip.startswith("127.")
