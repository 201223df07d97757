"""`first_delivery`: how long messages of each priority waited for anybody, against targets."""

from collections.abc import Mapping
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from mq9.lake.hourly import (
    MAIN,
    QUANTILES,
    HourTable,
    Summaries,
    Summary,
    count_if,
    earliest,
    ones,
    took_ms,
    valued,
    values,
    with_spread,
)
from mq9.lake.sla import TARGETS_MS, target_ms

_KEYS = ("hour_of", "priority")
_SUMMARY = Summary(
    _KEYS,
    sums=("messages", "delivered", "open", "lost", "within", "late"),
    most=("target_ms", "longest_ms"),
)
_SUMMARIES = {MAIN: _SUMMARY, "waited": values(_KEYS)}


def _rows(lives: pa.Table, targets_ms: Mapping[str, int]) -> Summaries:
    messages = lives.filter(lives["counts"])
    target = target_ms(messages, targets_ms)
    reached = pc.is_valid(messages["reached"])
    waited = pc.max_element_wise(
        took_ms(messages["visible"], messages["reached"]), 0, skip_nulls=False
    )
    over = pc.is_valid(earliest(messages["settled"], messages["mailbox_gone"]))
    lost = pc.and_(pc.invert(reached), over)
    has_target = pc.is_valid(target)
    none = pa.scalar(None, pa.int64())
    rows = pa.table(
        {
            "hour_of": messages["hour_of"],
            "priority": messages["priority"],
            "target_ms": target,
            "messages": ones(messages),
            "delivered": count_if(reached),
            "lost": count_if(lost),
            "open": count_if(pc.invert(pc.or_(reached, lost))),
            "within": pc.if_else(has_target, count_if(pc.less_equal(waited, target)), none),
            "late": pc.if_else(has_target, count_if(pc.greater(waited, target)), none),
            "longest_ms": waited,
        }
    )
    return {MAIN: rows, "waited": valued(rows, _KEYS, waited)}


def _finish(summaries: Summaries) -> pa.Table:
    rows = with_spread(summaries[MAIN], summaries["waited"], _KEYS, "{}_ms")
    names = ("target_ms", "messages", "delivered", "open", "lost", "within", "late")
    return rows.select([*_KEYS, *names, *(f"{name}_ms" for name in QUANTILES), "longest_ms"])


def first_delivery(targets_ms: Mapping[str, int] = TARGETS_MS) -> HourTable:
    """One row per hour of sending and priority, whatever the mailbox.

    `target_ms`, `within` and `late` are null where the priority has no target.
    """
    rows = partial(_rows, targets_ms=targets_ms)
    return HourTable("first_delivery", _SUMMARIES, rows, _finish)
