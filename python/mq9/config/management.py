"""The blocks `management` and `dead_letters`: what `mq9 serve` starts beside itself, and what for.

Owns their settings. What they mean, `mq9 manage` knows.
"""

from mq9.config.options import DeadLetters, Management
from mq9.config.reading import Notes, Setting, at, filled, integer, items, path, read_block
from mq9.config.tree import Value


def _listen(value: Value, notes: Notes) -> str:
    text = filled(value, notes)
    host, colon, port = text.rpartition(":")
    if not colon or not host or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise at(
            value.place, f'expected a host and a port such as "127.0.0.1:8055", found "{text}"'
        )
    return text


def _hosts(value: Value, notes: Notes) -> tuple[str, ...]:
    return tuple(filled(item, notes).lower() for item in items(value, "host names"))


def _series(value: Value, notes: Notes) -> tuple[str, ...]:
    return tuple(filled(item, notes) for item in items(value, "names of queues and groups"))


MANAGEMENT_SETTINGS = {
    "listen": Setting("listen", _listen),
    "metrics_port": Setting("metrics_port", integer(1, 65535)),
    "hosts": Setting("hosts", _hosts),
    "probe_hosts": Setting("probe_hosts", _hosts),
    "series": Setting("series", _series),
    "audit_file": Setting("audit_file", path),
}
"""Every name in the block."""


def read_management(value: Value, notes: Notes) -> Management | bool:
    """The `management` block; `off` is no management at all."""
    if isinstance(value.data, bool):
        return value.data
    found = read_block(value, "management", MANAGEMENT_SETTINGS, {}, notes).values
    return Management(**found)


def _postgres(value: Value, notes: Notes) -> str:
    text = filled(value, notes)
    if not text.startswith(("postgres://", "postgresql://")):
        raise at(value.place, 'expected a URL such as "postgres://user:password@host/database"')
    return text


DEAD_LETTERS_SETTINGS = {
    "postgres": Setting("postgres", _postgres),
    "broker": Setting("broker", filled),
}
"""Every name in that block."""


def read_dead_letters(value: Value, notes: Notes) -> DeadLetters:
    """The `dead_letters` block."""
    found = read_block(value, "dead_letters", DEAD_LETTERS_SETTINGS, {}, notes).values
    if "postgres" not in found:
        raise at(value.place, "dead_letters needs postgres, the URL of a database")
    return DeadLetters(**found)
