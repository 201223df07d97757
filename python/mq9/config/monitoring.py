"""The `monitoring` block: who may read the monitoring port.

Owns its settings. The settings of nats-server say where the port is.
"""

from mq9.config.authorization import read_secret
from mq9.config.options import Monitoring
from mq9.config.reading import Notes, Setting, at, filled, items, read_block
from mq9.config.tree import Value


def _hosts(value: Value, notes: Notes) -> tuple[str, ...]:
    return tuple(filled(item, notes).lower() for item in items(value, "host names"))


MONITORING_SETTINGS = {
    "user": Setting("user", filled),
    "password": Setting("password", read_secret),
    "hosts": Setting("hosts", _hosts),
}
"""Every name in the block."""


def read_monitoring(value: Value, notes: Notes) -> Monitoring:
    """The `monitoring` block."""
    found = read_block(value, "monitoring", MONITORING_SETTINGS, {}, notes).values
    if ("user" in found) != ("password" in found):
        missing = "password" if "user" in found else "user"
        raise at(value.place, f"the {missing} is missing: user and password go together")
    return Monitoring(**found)
