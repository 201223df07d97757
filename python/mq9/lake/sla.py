"""`sla`: whether important messages were picked up in time."""

from collections.abc import Mapping
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from mq9.lake.hourly import HourTable, Summary, count_if, earliest, ones, plain, took_ms

TARGETS_MS: Mapping[str, int] = {"critical": 1_000, "urgent": 5_000}
"""How long a message of a priority may wait for its first delivery."""

_SUMMARY = Summary(
    ("hour_of", "mailbox", "priority", "target_ms"),
    sums=("messages", "within", "late", "lost", "open"),
    most=("longest_ms",),
)


def _rows(lives: pa.Table, targets_ms: Mapping[str, int]) -> pa.Table:
    target = target_ms(lives, targets_ms)
    wanted = pc.and_(lives["counts"], pc.is_valid(target))
    messages, target = lives.filter(wanted), target.filter(wanted)
    reached = pc.is_valid(messages["reached"])
    waited = took_ms(messages["visible"], messages["reached"])
    over = pc.is_valid(earliest(messages["settled"], messages["mailbox_gone"]))
    lost = pc.and_(pc.invert(reached), over)
    return pa.table(
        {
            "hour_of": messages["hour_of"],
            "mailbox": messages["mailbox"],
            "priority": messages["priority"],
            "target_ms": target,
            "messages": ones(messages),
            "within": count_if(pc.less_equal(waited, target)),
            "late": count_if(pc.greater(waited, target)),
            "lost": count_if(lost),
            "open": count_if(pc.invert(pc.or_(reached, lost))),
            "longest_ms": waited,
        }
    )


def target_ms(lives: pa.Table, targets_ms: Mapping[str, int]) -> pa.ChunkedArray:
    """The target of each message's priority; null if it has none."""
    names = pa.array(list(targets_ms), pa.string())
    targets = pa.array(list(targets_ms.values()), pa.int64())
    return targets.take(pc.index_in(lives["priority"], names))


def sla(targets_ms: Mapping[str, int] = TARGETS_MS) -> HourTable:
    """One row per hour of sending, mailbox and priority that has a target.

    `within`, `late` and `lost` (removed before anybody was given it) are what is known; `open` has
    not been delivered yet.
    """
    return plain("sla", _SUMMARY, partial(_rows, targets_ms=targets_ms))
