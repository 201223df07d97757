"""`retries`: which messages had to be delivered again, and where that comes from."""

import pyarrow as pa
import pyarrow.compute as pc

from mq9.lake.hourly import Summary, count_if, ones, plain

_SUMMARY = Summary(
    ("hour_of", "sender", "mailbox", "group", "member"),
    sums=("messages", "redeliveries", "returned", "ran_out", "acked", "dead_letters"),
    most=("most_deliveries",),
)


def _rows(lives: pa.Table) -> pa.Table:
    repeated = lives.filter(pc.greater(lives["deliveries"], 1))
    again = pc.subtract(repeated["deliveries"], 1)
    returned = pc.min_element_wise(repeated["returns"], again)
    return pa.table(
        {
            **{name: repeated[name] for name in _SUMMARY.keys},
            "messages": ones(repeated),
            "redeliveries": again,
            "returned": returned,
            "ran_out": pc.subtract(again, returned),
            "acked": count_if(pc.equal(repeated["outcome"], "acked")),
            "dead_letters": count_if(pc.equal(repeated["outcome"], "dead_letter")),
            "most_deliveries": repeated["deliveries"],
        }
    )


RETRIES = plain("retries", _SUMMARY, _rows)
"""One row per hour of sending, sender, mailbox, group and the member that had it last.

A delivery is repeated because the message was `returned`, or because the lease of a member
`ran_out` that did not say anything.
"""
