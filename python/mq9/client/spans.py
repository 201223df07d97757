"""Spans of time as callers give them: seconds, as a number or a `timedelta`."""

from datetime import timedelta
from typing import TypeAlias

from mq9.errors import InvalidField

Span: TypeAlias = float | timedelta
"""Seconds, whole or not, or a `timedelta`."""


def seconds(name: str, span: Span) -> float:
    """How many seconds a span has; it must be a number, finite and not negative."""
    if isinstance(span, timedelta):
        span = span.total_seconds()
    if isinstance(span, bool) or not isinstance(span, int | float):
        raise InvalidField(f"{name} is {span!r}: it must be a number of seconds or a timedelta")
    if not 0 <= span < float("inf"):
        raise InvalidField(f"{name} is {span!r}: it must not be negative, and finite")
    return span


def milliseconds(name: str, span: Span) -> int:
    """The same in whole milliseconds; more than nothing is at least one."""
    exact = seconds(name, span) * 1000
    return max(1, round(exact)) if exact else 0


def wire_field(name: str, separator: str, span: Span) -> tuple[str, int]:
    """The field that says it to the broker: in seconds where they are whole, else `<name>_ms`."""
    span_ms = milliseconds(name, span)
    if span_ms % 1000 == 0:
        return name, span_ms // 1000
    return f"{name}{separator}ms", span_ms
