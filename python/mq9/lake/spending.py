"""`spending`: tokens and money per agent and conversation, as far as messages say."""

import pyarrow as pa
import pyarrow.compute as pc

from mq9.lake.hourly import MAIN, HourTable, Summaries, Summary, ones

_SUMMARY = Summary(("hour_of", "agent", "conversation"), sums=("messages", "tokens", "millionths"))
_COST = pa.decimal128(20, 6)


def _rows(lives: pa.Table) -> Summaries:
    spent = pc.or_(pc.is_valid(lives["tokens"]), pc.is_valid(lives["cost"]))
    messages = lives.filter(pc.and_(lives["counts"], spent))
    return {
        MAIN: pa.table(
            {
                "hour_of": messages["hour_of"],
                "agent": messages["sender"],
                "conversation": messages["conversation"],
                "messages": ones(messages),
                "tokens": messages["tokens"],
                "millionths": messages["cost"],
            }
        )
    }


def _finish(summaries: Summaries) -> pa.Table:
    rows = summaries[MAIN]
    cost = pc.divide(
        rows["millionths"].cast(pa.decimal128(20, 0)).cast(pa.decimal128(26, 6)),
        pa.scalar(1_000_000, pa.decimal128(7, 0)),
    ).cast(_COST)
    return rows.drop_columns("millionths").append_column("cost", cost)


SPENDING = HourTable("spending", {MAIN: _SUMMARY}, _rows, _finish)
"""One row per hour of sending, sender and conversation with tokens or a cost.

`cost` is in whatever unit the agents name, with six digits behind the point.
"""
