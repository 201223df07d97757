"""Parts of tables from the messages of one hour: small rows that later hours never change.

A cohort is the messages sent in one hour. Everything about it follows from its own rows of
`message_lifecycle`, so when rows of a cohort change only its parts are made again. Sums are of
whole numbers: they do not depend on the order in which rows are added.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mq9.lake.facts import TIME
from mq9.lake.hourly import (
    MAIN,
    HourTable,
    Summaries,
    Summary,
    count_if,
    earliest,
    ones,
    plain,
    took_ms,
    valued,
    values,
    with_spread,
)

COHORT = ("date", "hour")
PRIORITIES = ("critical", "urgent", "normal", "notify")
HOUR_MS = 3_600_000
_OPEN = pa.array(["waiting", "pending"])

_MAILBOX = ("hour_of", "mailbox")
_COHORT = Summary(
    _MAILBOX,
    sums=("sent", "bytes", *PRIORITIES, "other", "redelivered", "open"),
    least=("lowest_id", "first_position"),
    most=("highest_id", "expires"),
)


def _cohort_rows(lives: pa.Table) -> Summaries:
    counts = lives["counts"]
    named = {
        name: count_if(pc.and_(counts, pc.equal(lives["priority"], name))) for name in PRIORITIES
    }
    is_other = pc.invert(pc.is_in(lives["priority"], pa.array(PRIORITIES)))
    again = pc.max_element_wise(pc.subtract(lives["deliveries"], 1), 0)
    rows = pa.table(
        {
            **{name: lives[name] for name in _MAILBOX},
            "sent": count_if(counts),
            "bytes": pc.if_else(counts, lives["size"], 0),
            **named,
            "other": count_if(pc.and_(counts, is_other)),
            "redelivered": again,
            "open": count_if(pc.is_in(lives["outcome"], _OPEN)),
            "lowest_id": lives["msg_id"],
            "highest_id": lives["msg_id"],
            "first_position": lives["position"],
            # Until when events of messages that are there still may come by themselves.
            "expires": pc.if_else(
                pc.is_null(earliest(lives["gone"], lives["mailbox_gone"])),
                lives["expires"],
                pa.scalar(None, TIME),
            ),
        }
    )
    return {
        MAIN: rows,
        "waiting": valued(lives, _MAILBOX, lives["waiting_ms"]),
        "processing": valued(lives, _MAILBOX, lives["processing_ms"]),
    }


def _cohort_finish(summaries: Summaries) -> pa.Table:
    rows = summaries[MAIN]
    for name in ("waiting", "processing"):
        rows = with_spread(rows, summaries[name], _MAILBOX, f"{name}_ms_{{}}")
    return rows


COHORTS = HourTable(
    "part_cohorts",
    {MAIN: _COHORT, "waiting": values(_MAILBOX), "processing": values(_MAILBOX)},
    _cohort_rows,
    _cohort_finish,
)
"""Per hour of sending and mailbox: how many, how large, how important, how long it took."""

_KINDS = ("entered", "settled", "removed", "expired", "delivered", "acked", "finished")
_FLOW_KEYS = ("hour_of", "mailbox", "group", "at")
_FLOWS = Summary(_FLOW_KEYS, sums=_KINDS)
_FIRST = Summary((*_FLOW_KEYS, "visible"), least=("msg_id",))


def _happened(lives: pa.Table) -> dict[str, tuple[bool, Any]]:
    """By name: whether the group is the one that it happened to, and when it did."""
    counts, ended = lives["counts"], lives["ended"]
    none = pa.scalar(None, TIME)
    given = lives["first_delivered"]
    gone = earliest(lives["gone"], lives["mailbox_gone"])
    expired = pc.and_(counts, pc.equal(lives["outcome"], "expired"))
    gone_after = pc.fill_null(pc.greater_equal(gone, given), False)
    return {
        "entered": (False, pc.if_else(counts, lives["visible"], none)),
        "settled": (
            False,
            pc.if_else(counts, earliest(lives["settled"], lives["mailbox_gone"]), none),
        ),
        "removed": (False, pc.if_else(counts, gone, none)),
        "expired": (False, pc.if_else(expired, ended, none)),
        "delivered": (True, given),
        "acked": (True, lives["acked"]),
        "finished": (True, pc.if_else(pc.is_valid(given), ended, none)),
        # Gone for the group too, though it had been given it: not counted as unseen again.
        "removed_seen": (True, pc.if_else(gone_after, gone, none)),
    }


def _flow_rows(lives: pa.Table) -> Summaries:
    happened = _happened(lives)
    hours = {name: _hour_ms(at) for name, (_, at) in happened.items()}
    # Most messages do all of it within an hour or two: few rows are left to be taken apart.
    alike = pa.table({**{name: lives[name] for name in ("hour_of", "mailbox", "group")}, **hours})
    alike = alike.append_column("messages", ones(alike))
    alike = Summary(tuple(alike.column_names[:-1]), sums=("messages",)).of(alike)
    parts = []
    for name, (of_group, _) in happened.items():
        there = pc.is_valid(alike[name])
        if of_group:
            there = pc.and_(there, pc.is_valid(alike["group"]))
        rows = alike.filter(there)
        group = rows["group"] if of_group else pa.nulls(rows.num_rows, pa.string())
        kind = name.removesuffix("_seen")
        zero = pa.array(np.zeros(rows.num_rows, np.int64))
        parts.append(
            pa.table(
                {
                    "hour_of": rows["hour_of"],
                    "mailbox": rows["mailbox"],
                    "group": group,
                    "at": rows[name],
                    **{each: rows["messages"] if each == kind else zero for each in _KINDS},
                }
            )
        )
    given = lives.filter(
        pc.and_(pc.is_valid(lives["group"]), pc.is_valid(lives["first_delivered"]))
    )
    first = given.select(["hour_of", "mailbox", "group", "visible", "msg_id"])
    first = first.append_column("at", _hour_ms(given["first_delivered"]))
    return {MAIN: pa.concat_tables(parts), "first": _first_of_each(first)}


def _first_of_each(rows: pa.Table) -> pa.Table:
    """Of each key the rows with the least `visible`."""
    least = Summary(_FLOW_KEYS, least=("visible",)).of(rows).rename_columns([*_FLOW_KEYS, "first"])
    found = rows.join(least, list(_FLOW_KEYS))
    return found.filter(pc.equal(found["visible"], found["first"])).drop_columns("first")


def _flow_finish(summaries: Summaries) -> pa.Table:
    first = _FIRST.of(_first_of_each(summaries["first"]))
    given = pa.StructArray.from_arrays(
        [first[name].combine_chunks() for name in ("visible", "msg_id")], ["visible", "msg_id"]
    )
    at = pa.array(range(len(given)), pa.int64())
    places = first.select(list(_FLOW_KEYS)).append_column("place", at)
    # Rows without a group have no first delivery.
    rows = summaries[MAIN].join(places, list(_FLOW_KEYS))
    first_given = given.take(rows["place"].combine_chunks())
    times = rows["at"].cast(TIME)
    rows = rows.drop_columns(["place", "at"])
    rows = rows.append_column("at", times).append_column("first_given", first_given)
    return rows.select([*_FLOW_KEYS, *_KINDS, "first_given"])


def _hour_ms(times: Any) -> Any:  # noqa: ANN401
    """The beginning of the hour of each time."""
    ms = times.cast(pa.int64())
    return pc.multiply(pc.divide(ms, HOUR_MS), HOUR_MS)


FLOWS = HourTable("part_flows", {MAIN: _FLOWS, "first": _FIRST}, _flow_rows, _flow_finish)
"""Per cohort, mailbox and group: what happened to it in which hour.

Rows without a group count messages, each once; rows with one count what the group did.
"""

_DEAD = Summary(
    ("hour_of", "mailbox", "group", "target", "cause", "at"),
    sums=("messages", "deliveries", "age_ms"),
    least=("first",),
    most=("most_deliveries", "oldest_ms", "last"),
)


def _dead_rows(lives: pa.Table) -> pa.Table:
    dead = lives.filter(pc.equal(lives["outcome"], "dead_letter"))
    age_ms = took_ms(dead["visible"], dead["ended"])
    return pa.table(
        {
            "hour_of": dead["hour_of"],
            "mailbox": dead["mailbox"],
            "group": dead["group"],
            "target": dead["dead_letter_to"],
            "cause": dead["dead_letter_cause"],
            "at": _hour_ms(dead["ended"]).cast(TIME),
            "messages": ones(dead),
            "deliveries": dead["deliveries"],
            "most_deliveries": dead["deliveries"],
            "age_ms": age_ms,
            "oldest_ms": age_ms,
            "first": dead["ended"],
            "last": dead["ended"],
        }
    )


DEAD_LETTERS = plain("part_dead_letters", _DEAD, _dead_rows)
"""Per cohort: messages that were given up, by mailbox, group, cause and hour."""
