"""Tells whether an HTTP request comes from this machine, as far as can be told.

Knows headers and the address of the other end. Knows nothing of the server that asks.
"""

import ipaddress
from collections.abc import Mapping

LOOPBACK = {"localhost", "127.0.0.1", "::1", "[::1]"}
"""Names by which a server is asked for on its own machine."""

# What proxies add: the sender is not on this machine, or need not be.
_FORWARDED = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")


def is_local(headers: Mapping[str, str], peer: str) -> bool:
    """Whether the sender, whose end has the address `peer`, is on this machine without a proxy."""
    if any(name in headers for name in _FORWARDED):
        return False
    if host_name(headers.get("host", "")) not in LOOPBACK:
        return False
    try:
        return ipaddress.ip_address(peer).is_loopback
    except ValueError:
        return False


def host_name(host: str) -> str:
    """The name in a Host header, without the port."""
    host = host.lower()
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0]
