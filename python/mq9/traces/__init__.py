"""The life of messages as spans of OpenTelemetry, made of an export while it grows."""

from mq9.traces.follow import Follower, follow
from mq9.traces.spans import Spans

__all__ = ["Follower", "Spans", "follow"]
