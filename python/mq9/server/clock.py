"""Wall time and how Go writes it: monitoring and system replies are read by Go programs."""

import time
from datetime import UTC, datetime


def now_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def timestamp(ms: int) -> str:
    """A time as Go's JSON has it: RFC 3339 without trailing zeros."""
    whole, rest = divmod(ms, 1000)
    text = datetime.fromtimestamp(whole, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    fraction = f"{rest:03}".rstrip("0")
    return f"{text}.{fraction}Z" if fraction else f"{text}Z"


def uptime(ms: int) -> str:
    """A span as nats-server shows it: years, days, hours, minutes and seconds, `1d2h3m4s`."""
    seconds = max(ms, 0) // 1000
    units = (("y", 365 * 86400), ("d", 86400), ("h", 3600), ("m", 60), ("s", 1))
    shown = ""
    for name, length in units:
        count, seconds = divmod(seconds, length)
        if shown or count or name == "s":
            shown += f"{count}{name}"
    return shown


def duration(us: int) -> str:
    """A short span as Go's `Duration` writes itself: `754µs`, `8.997ms`, `1.5s`."""
    if us <= 0:
        return "0s"
    if us < 1000:
        return f"{us}µs"
    if us < 1_000_000:
        return f"{_decimal(us / 1000)}ms"
    minutes, seconds = divmod(us / 1_000_000, 60)
    hours, minutes = divmod(int(minutes), 60)
    return f"{f'{hours}h' if hours else ''}{f'{minutes}m' if hours or minutes else ''}" + (
        f"{_decimal(seconds)}s"
    )


def _decimal(value: float) -> str:
    return f"{value:.6f}".rstrip("0").rstrip(".")
