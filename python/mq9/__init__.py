"""mq9: durable priority mailboxes for agents, reachable with any NATS client."""

from mq9._core import __version__

__all__ = ["__version__"]
