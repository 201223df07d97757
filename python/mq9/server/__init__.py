"""The NATS server: everything that happens once per connection, never once per message."""

from mq9.server.starting import run

__all__ = ["run"]
