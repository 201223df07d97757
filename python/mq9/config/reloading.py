"""Reading the configuration again while the server runs.

Owns which settings may change under a running server.
"""

import os
from dataclasses import replace

from mq9.config.errors import ConfigError
from mq9.config.flags import from_flags
from mq9.config.options import Options

NEEDS_RESTART = (
    "host",
    "port",
    "server_name",
    "http_host",
    "http_port",
    "http_base_path",
    "log_file",
    "pid_file",
    "ports_file_dir",
    "data_dir",
    "sync",
    "sync_interval_ms",
    "segment_bytes",
    "checkpoint_bytes",
    "upkeep_ms",
    "payload_encoding",
    "max_mailboxes",
    "max_mailboxes_per_user",
    "max_store_bytes",
    "max_bytes_per_user",
    "max_groups",
    "max_waiting_fetches",
    "max_waiting_fetches_per_user",
    "max_waiting_fetches_per_connection",
    "group_ttl_ms",
    "max_broadcasts",
    "max_broadcast_bytes",
    "broadcast_ttl_ms",
    "embedder",
    "export",
    "management",
    "dead_letters",
    "schedules",
    "replication",
    "jetstream",
)
"""Options that are fixed when the server starts; all others may change."""


# The nats-servers that keep the log are asked at the start whether they take as much.
_OF_A_CLUSTER = ("max_payload",)


def reload(old: Options) -> Options:
    """Read the file of `old` again, with the same flags.

    What needs a restart keeps its old value, and a warning says so. If the file cannot be used,
    `ConfigError` says why and `old` goes on.
    """
    if old.config_file is None:
        raise ConfigError("there is nothing to reload: the server was started without -c")
    flags = dict(old.flags) | {"config": str(old.config_file)}
    new = from_flags(flags, os.environ)
    fixed = {
        name: getattr(old, name)
        for name in (*NEEDS_RESTART, *(_OF_A_CLUSTER if old.replication is not None else ()))
        if getattr(old, name) != getattr(new, name)
    }
    warnings = tuple(
        f"{new.config_file}: {name} changed: restart the server for it to take effect"
        for name in fixed
    )
    return replace(new, **fixed, warnings=(*new.warnings, *warnings))
