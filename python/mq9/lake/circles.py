"""`circles`: agents that send a conversation round and round.

An agent is who messages say they are from, and the mailbox of the same name.
"""

import pyarrow as pa
import pyarrow.compute as pc

from mq9.lake.hourly import MAIN, HourTable, Summaries, Summary, ones

LEAST_ROUNDS = 2
MOST_WAYS = 1000
"""Of how many ways between agents a conversation may consist to be searched for circles of three.

Each way is followed by all that go on from its end: of one conversation of everybody with everybody
those would be too many.
"""
_IN = ("hour_of", "conversation")
_EDGES = Summary((*_IN, "sender", "mailbox"), sums=("sent",))
_COLUMNS = (*_IN, "agents", "rounds", "messages")


def _rows(lives: pa.Table) -> Summaries:
    known = pc.and_(pc.is_valid(lives["conversation"]), pc.is_valid(lives["sender"]))
    to_others = pc.and_(known, pc.not_equal(lives["sender"], lives["mailbox"]))
    messages = lives.filter(pc.and_(lives["counts"], pc.fill_null(to_others, False)))
    rows = messages.select(list(_EDGES.keys))
    return {MAIN: rows.append_column("sent", ones(rows))}


def _finish(summaries: Summaries) -> pa.Table:
    edges = summaries[MAIN]
    edges = edges.filter(pc.greater_equal(edges["sent"], LEAST_ROUNDS))
    # Each circle once: it begins with the agent whose name comes first.
    first = edges.rename_columns([*_IN, "a", "b", "sent"])
    back = edges.rename_columns([*_IN, "b", "a", "on"])
    two = first.filter(pc.less(first["a"], first["b"])).join(
        back, [*_IN, "a", "b"], join_type="inner"
    )
    ways = edges.group_by(list(_IN)).aggregate([([], "count_all")])
    few = ways.filter(pc.less_equal(ways["count_all"], MOST_WAYS)).select(list(_IN))
    searched = edges.join(few, list(_IN), join_type="inner")
    first, second, third = (
        searched.rename_columns([*_IN, *names])
        for names in (("a", "b", "sent"), ("b", "c", "on"), ("c", "a", "back"))
    )
    paths = first.join(second, [*_IN, "b"], join_type="inner")
    begins = pc.and_(pc.less(paths["a"], paths["b"]), pc.less(paths["a"], paths["c"]))
    three = paths.filter(begins).join(third, [*_IN, "c", "a"], join_type="inner")
    return pa.concat_tables(
        [_circles(two, ("a", "b"), ("sent", "on")), _circles(three, "abc", ("sent", "on", "back"))]
    )


def _circles(paths: pa.Table, agents: tuple[str, ...] | str, sent: tuple[str, ...]) -> pa.Table:
    """Paths that end where they begin; `rounds` is the least that any of the agents sent on."""
    rows = paths.num_rows
    names = [paths[name].combine_chunks() for name in agents]
    order = [row + rows * nth for row in range(rows) for nth in range(len(agents))]
    flat = pa.concat_arrays([pa.array(name, pa.string()) for name in names])
    offsets = pa.array(range(0, rows * len(agents) + 1, len(agents)), pa.int32())
    messages = paths[sent[0]]
    for name in sent[1:]:
        messages = pc.add(messages, paths[name])
    columns = {
        **{name: paths[name] for name in _IN},
        "agents": pa.ListArray.from_arrays(offsets, flat.take(pa.array(order, pa.int64()))),
        "rounds": pc.min_element_wise(*(paths[name] for name in sent)),
        "messages": messages,
    }
    return pa.table({name: columns[name] for name in _COLUMNS})


CIRCLES = HourTable("circles", {MAIN: _EDGES}, _rows, _finish)
"""One row per hour of sending, conversation and circle of two or three agents."""
