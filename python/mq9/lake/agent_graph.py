"""`agent_graph`: who sends to whom, as far as messages say who sent them."""

import pyarrow as pa
import pyarrow.compute as pc

from mq9.lake.hourly import Summary, count_if, earliest, ones, plain

_SUMMARY = Summary(
    ("hour_of", "sender", "mailbox"), sums=("messages", "bytes", "urgent", "delivered", "settled")
)
_IMPORTANT = pa.array(["critical", "urgent"])


def _rows(lives: pa.Table) -> pa.Table:
    messages = lives.filter(pc.and_(lives["counts"], pc.is_valid(lives["sender"])))
    return pa.table(
        {
            **{name: messages[name] for name in _SUMMARY.keys},
            "messages": ones(messages),
            "bytes": messages["size"],
            "urgent": count_if(pc.is_in(messages["priority"], _IMPORTANT)),
            "delivered": count_if(pc.is_valid(messages["reached"])),
            "settled": count_if(
                pc.is_valid(earliest(messages["settled"], messages["mailbox_gone"]))
            ),
        }
    )


AGENT_GRAPH = plain("agent_graph", _SUMMARY, _rows)
"""One row per hour of sending, sender and mailbox."""
