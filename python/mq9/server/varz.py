"""`/varz`: the server as a whole, with nats-server's field names.

Fields of what mq9 does not have (clusters, gateways, JetStream) are there and empty.
"""

import os
import resource
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mq9 import __version__
from mq9.server.clock import now_ms, timestamp, uptime
from mq9.server.info import info_fields
from mq9.server.jsz import summary
from mq9.server.running import Running

_PAGE_BYTES = resource.getpagesize()
_KINDS = ("clients", "routes", "gateways", "leafs")


class Usage:
    """What the process uses of the machine."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.monotonic(), time.process_time()
        self._percent = 0.0

    def cpu_percent(self) -> float:
        """Share of one core since it was last asked for, at least a second ago."""
        wall, cpu = time.monotonic(), time.process_time()
        if wall - self._wall >= 1:
            self._percent = round(100 * (cpu - self._cpu) / (wall - self._wall), 1)
            self._wall, self._cpu = wall, cpu
        return self._percent

    @staticmethod
    def memory_bytes() -> int:
        """Memory of the process that is not swapped out."""
        try:
            return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * _PAGE_BYTES
        except (OSError, ValueError, IndexError):
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def varz(running: Running, usage: Usage, requests: Mapping[str, int]) -> dict[str, Any]:
    """The document."""
    options, settings, now = running.options, running.settings, now_ms()
    stats = running.broker.stats()
    stale = running.clients.reasons["Stale Connection"]
    auth_required = settings.authenticator.required
    info = info_fields(running.identity, options, auth_required=auth_required)
    about = ("server_id", "server_name", "version", "proto", "go", "host", "port")
    rules = ("auth_required", "tls_required", "tls_verify")
    return {
        **{name: info[name] for name in about},
        **{name: info[name] for name in rules if name in info},
        "max_connections": options.max_connections,
        **({"max_subscriptions": options.max_subscriptions} if options.max_subscriptions else {}),
        "ping_interval": options.ping_interval_ms * 1_000_000,
        "ping_max": options.ping_max,
        "http_host": options.http_host or options.host,
        "http_port": options.http_port or 0,
        "http_base_path": options.http_base_path.rstrip("/"),
        "https_port": 0,
        "auth_timeout": _seconds(settings.auth_timeout_ms),
        "max_control_line": options.max_control_line,
        "max_payload": options.max_payload,
        "max_pending": options.max_pending,
        **{name: {} for name in ("cluster", "gateway", "leaf", "mqtt", "websocket")},
        "jetstream": summary(running),
        "tls_timeout": _seconds(options.tls.timeout_ms if options.tls else 2000),
        "write_deadline": options.write_deadline_ms * 1_000_000,
        "start": timestamp(running.started_ms),
        "now": timestamp(now),
        "uptime": uptime(now - running.started_ms),
        "mem": usage.memory_bytes(),
        "cores": os.cpu_count() or 1,
        "gomaxprocs": 1,
        "cpu": usage.cpu_percent(),
        "connections": len(running.clients),
        "total_connections": stats.total_connections,
        "routes": 0,
        "remotes": 0,
        "leafnodes": 0,
        "in_msgs": stats.in_msgs,
        "in_bytes": stats.in_bytes,
        "in_client_msgs": stats.in_msgs,
        "in_client_bytes": stats.in_bytes,
        "out_msgs": stats.out_msgs,
        "out_bytes": stats.out_bytes,
        "out_client_msgs": stats.out_msgs,
        "out_client_bytes": stats.out_bytes,
        "slow_consumers": stats.slow_consumers,
        "stale_connections": stale,
        "stalled_clients": 0,
        "subscriptions": stats.subscriptions,
        "http_req_stats": dict(sorted(requests.items())),
        "config_load_time": timestamp(running.loaded_ms),
        "config_digest": "",
        "system_account": "$SYS",
        "slow_consumer_stats": dict.fromkeys(_KINDS, 0) | {"clients": stats.slow_consumers},
        "stale_connection_stats": dict.fromkeys(_KINDS, 0) | {"clients": stale},
        "mq9": {
            "version": __version__,
            "sync": options.sync,
            "damage": {
                "found": running.watch.found,
                "set_aside_files": running.watch.set_aside.files,
                "set_aside_bytes": running.watch.set_aside.bytes,
            },
            "refused": stats.refused,
            **({} if running.cluster_health is None else {"cluster": running.cluster_health()}),
            **({"export": dict(running.export)} if running.export else {}),
        },
    }


def _seconds(ms: int) -> int | float:
    whole, rest = divmod(ms, 1000)
    return whole if not rest else ms / 1000
