"""The configuration of a server: NATS's configuration syntax and nats-server's flags."""

from mq9.config.errors import ConfigError
from mq9.config.file import load, loads
from mq9.config.flags import add_flags, from_arguments, from_namespace
from mq9.config.options import (
    Authorization,
    Export,
    Monitoring,
    Options,
    PermissionRules,
    Tls,
    User,
)
from mq9.config.reloading import reload

__all__ = [
    "Authorization",
    "ConfigError",
    "Export",
    "Monitoring",
    "Options",
    "PermissionRules",
    "Tls",
    "User",
    "add_flags",
    "from_arguments",
    "from_namespace",
    "load",
    "loads",
    "reload",
]
