"""The configuration of a server: NATS's configuration syntax and nats-server's flags."""

from typing import TYPE_CHECKING

from mq9.config.errors import ConfigError
from mq9.config.flags import add_flags, from_arguments, from_namespace
from mq9.config.options import (
    Authorization,
    Consumer,
    Export,
    Management,
    Monitoring,
    Options,
    PermissionRules,
    Replication,
    Schedule,
    Stream,
    Tls,
    User,
)
from mq9.config.reloading import reload

if TYPE_CHECKING:
    from mq9.config.file import load, loads

__all__ = [
    "Authorization",
    "ConfigError",
    "Consumer",
    "Export",
    "Management",
    "Monitoring",
    "Options",
    "PermissionRules",
    "Replication",
    "Schedule",
    "Stream",
    "Tls",
    "User",
    "add_flags",
    "from_arguments",
    "from_namespace",
    "load",
    "loads",
    "reload",
]


def __getattr__(name: str) -> object:
    # Imported on first use: a server without a file starts without what reads one.
    if name in {"load", "loads"}:
        from mq9.config import file

        return getattr(file, name)
    raise AttributeError(f"module 'mq9.config' has no attribute {name!r}")
