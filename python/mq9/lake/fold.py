"""From the facts of some messages to their lives: Arrow in, Arrow out, one pass over sorted rows.

All facts of a message must be there. Rows are sorted by message and place in the log, and equal
rows become one, so the result does not depend on order, repetition and how the input was cut.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mq9.lake.facts import ACK, DEAD, DELIVERY, END, MESSAGE, NAK, SCHEMA, TIME

# Columns that a message brings along as they are.
_KEPT = (
    *("mailbox", "msg_id", "level", "priority", "size", "sender"),
    *("reply_to", "correlation", "conversation", "tokens", "cost"),
    *("visible", "expires", "position"),
)
_COLUMNS = (
    *("mailbox", "msg_id", "group", "level", "priority", "size", "sender"),
    *("reply_to", "correlation", "conversation", "tokens", "cost", "sent", "visible", "expires"),
    *("first_delivered", "last_delivered", "member", "deliveries", "returns", "acked"),
    *("outcome", "ended", "dead_letter_to", "dead_letter_cause"),
    *("waiting_ms", "processing_ms", "total_ms", "gone", "reached", "settled", "counts"),
    *("with_mailbox", "mailbox_gone", "position"),
)
_OPEN = pa.array(["waiting", "pending"])
NEVER = np.iinfo(np.int64).max

Ints = np.ndarray[Any, np.dtype[np.int64]]


def lives(facts: pa.Table) -> pa.Table:
    """One row per message and group that was given it, or without a group; in no special order."""
    whole = pc.is_null(facts["msg_id"])
    of_messages = facts.filter(pc.invert(whole)).combine_chunks()
    rows = _Lives(of_messages).rows()
    return _settled(rows, _Ends(facts.filter(whole)))


def schema() -> pa.Schema:
    """The columns of a life."""
    return lives(SCHEMA.empty_table()).schema


class _Lives:
    """The facts, sorted, and what is found in them; a life is a message with all it owns.

    Addresses may be used again after a mailbox is gone, with ids from 0: facts of a message id may
    be of several messages. Each owns the events from its own place in the log up to the next one's;
    the first also owns those before it.
    """

    def __init__(self, facts: pa.Table) -> None:
        self.facts = facts
        names = _encoded(facts["mailbox"])
        mailbox, msg_id = _ints(names.indices), _ints(facts["msg_id"])
        kind, seq = _ints(facts["kind"]), _ints(facts["seq"])
        position, time = _ints(facts["position"]), _ints(facts["time"])
        of_row = seq * 8 + kind
        order = np.lexsort((of_row, position, msg_id, mailbox))
        columns = [mailbox, msg_id, position, of_row, time]
        mailbox, msg_id, position, of_row, time = (column[order] for column in columns)
        kind = kind[order]
        new_key = _changes(mailbox, msg_id)
        # Equal rows become one.
        kept = new_key | _changes(position, of_row)
        key = np.cumsum(new_key) - 1
        kept &= ~_copies(key, kind, position, time)
        self.row, self.kind, self.time = order[kept], kind[kept], time[kept]
        self.key = key[kept]
        self._tell_apart()

    def _tell_apart(self) -> None:
        """Numbers the lives; those of a message id lie one behind the other."""
        is_message = self.kind == MESSAGE
        if not len(self.key):
            self.life, self.amount, self.message = self.key, 0, np.empty(0, np.int64)
            return
        so_far = np.cumsum(is_message)
        first = np.flatnonzero(_changes(self.key))
        before = (so_far - is_message)[first]
        counted = np.diff(np.append(before, so_far[-1]))
        nth = np.maximum(so_far - np.repeat(before, _lengths(first, len(self.key))) - 1, 0)
        starts = np.cumsum(np.maximum(counted, 1)) - np.maximum(counted, 1)
        self.life = starts[self.key_index(first)] + nth
        self.amount = int(self.life[-1]) + 1
        self.message = np.full(self.amount, -1)
        self.message[self.life[is_message]] = self.row[is_message]

    def key_index(self, first: Ints) -> Ints:
        """For each row, which of the message ids it is of, counted from 0."""
        return np.repeat(np.arange(len(first)), _lengths(first, len(self.key)))

    def rows(self) -> dict[str, pa.Array]:
        """The rows that are asked for; none of a life whose message is not known yet."""
        first = np.flatnonzero(_changes(self.life))
        kind, time = self.kind, self.time
        delivered = kind == DELIVERY
        reached = _least(time, delivered, first)
        settled = _least(time, (kind == ACK) | (kind == DEAD) | (kind == END), first)
        gone = _least(time, kind == END, first)
        gone_row = self._row_at(gone, kind == END, first)
        group, of = self._groups()
        known = self.message[of["life"]] >= 0
        of = {name: column[known] for name, column in of.items()}
        group = group.take(pa.array(np.flatnonzero(known)))
        life = of["life"]
        message = pa.array(self.message[life])
        outcome = self._outcome(of, gone[life], gone_row[life])
        ended = np.where(of["acked"] < NEVER, of["acked"], of["dead"])
        ended = np.where(ended < NEVER, ended, gone[life])
        columns = {name: self._take(name, message) for name in _KEPT}
        visible = _ints(columns["visible"])
        last = np.where(of["last"] < 0, NEVER, of["last"])
        return columns | {
            "sent": self._take("time", message),
            "group": group,
            "first_delivered": _times(of["first"]),
            "last_delivered": _times(last),
            "member": self._text("member", of["last_row"]),
            "deliveries": pa.array(of["deliveries"], pa.int32()),
            "returns": pa.array(of["returns"], pa.int32()),
            "acked": _times(of["acked"]),
            "outcome": outcome,
            "ended": _times(ended),
            "dead_letter_to": self._text("target", of["dead_row"]),
            "dead_letter_cause": self._text("cause", of["dead_row"]),
            "waiting_ms": _took(visible, of["first"]),
            "processing_ms": _took(last, of["acked"]),
            "total_ms": _took(visible, of["acked"]),
            "gone": _times(gone[life]),
            "reached": _times(reached[life]),
            "settled": _times(settled[life]),
            "counts": pa.array(_changes(life)),
        }

    def _groups(self) -> tuple[pa.Array, dict[str, Ints]]:
        """A row for each group of a life, in the order of their names, or one without a group."""
        names = _encoded(self.facts["group"])
        rank = _ranks(names.dictionary)
        code = np.asarray(pc.fill_null(names.indices, -1))[self.row]
        with_group = np.flatnonzero(code >= 0)
        life, nth = self.life[with_group], rank[code[with_group]]
        order = np.lexsort((nth, life))
        rows = with_group[order]
        first = np.flatnonzero(_changes(life[order], nth[order]))
        of = self._of_groups(rows, first)
        of["life"], of["group"] = life[order][first], code[rows[first]]
        # Those of whom no group knows.
        is_alone = np.ones(self.amount, bool)
        is_alone[of["life"]] = False
        alone = np.flatnonzero(is_alone)
        nothing: dict[str, Any] = {"life": alone, "deliveries": 0, "returns": 0, "last": -1}
        nothing |= dict.fromkeys(("group", "last_row", "dead_row"), -1)
        filled = {
            name: np.concatenate([column, np.broadcast_to(nothing.get(name, NEVER), alone.shape)])
            for name, column in of.items()
        }
        by_life = np.argsort(filled["life"], kind="stable")
        filled = {name: column[by_life] for name, column in filled.items()}
        code = filled.pop("group")
        return names.dictionary.take(pa.array(code, mask=code < 0)), filled

    def _of_groups(self, rows: Ints, first: Ints) -> dict[str, Ints]:
        """What groups did with messages; `first` is where each pair begins in `rows`."""
        if not len(rows):
            names = ("first", "last", "last_row", "deliveries", "returns", "acked", "dead")
            return {name: np.empty(0, np.int64) for name in (*names, "dead_row")}
        kind, time = self.kind[rows], self.time[rows]
        delivered = kind == DELIVERY
        acked = _least(time, kind == ACK, first)
        dead = _least(time, kind == DEAD, first)
        lengths = _lengths(first, len(rows))
        # The last delivery counts that came before the acknowledgement.
        in_time = delivered & (time <= np.repeat(acked, lengths))
        last = np.maximum.reduceat(np.where(in_time, time, -1), first)
        at = np.arange(len(rows))
        is_last = in_time & (time == np.repeat(last, lengths))
        last_at = np.maximum.reduceat(np.where(is_last, at, -1), first)
        is_dead = (kind == DEAD) & (time == np.repeat(dead, lengths))
        dead_at = np.minimum.reduceat(np.where(is_dead, at, NEVER), first)
        row = self.row[rows]
        return {
            "first": _least(time, delivered, first),
            "last": last,
            "last_row": np.where(last_at >= 0, row[np.maximum(last_at, 0)], -1),
            "deliveries": np.add.reduceat(delivered.astype(np.int64), first),
            "returns": np.add.reduceat((kind == NAK).astype(np.int64), first),
            "acked": acked,
            "dead": dead,
            "dead_row": np.where(dead_at < NEVER, row[np.minimum(dead_at, len(row) - 1)], -1),
        }

    def _outcome(self, of: dict[str, Ints], gone: Ints, gone_row: Ints) -> pa.Array:
        names = pa.array(["acked", "dead_letter", "pending", "waiting"])
        code = np.select(
            [of["acked"] < NEVER, of["dead"] < NEVER, gone < NEVER, of["last"] >= 0],
            [0, 1, -1, 2],
            3,
        )
        told = names.take(pa.array(code, mask=code < 0))
        return pc.coalesce(told, self._text("cause", np.where(code < 0, gone_row, -1)))

    def _row_at(self, least: Ints, wanted: Any, first: Ints) -> Ints:  # noqa: ANN401
        """The first of the rows that are wanted and have the least time; -1 if there is none."""
        if not len(first):
            return first
        lengths = _lengths(first, len(self.time))
        found = wanted & (self.time == np.repeat(least, lengths))
        at = np.minimum.reduceat(np.where(found, np.arange(len(found)), NEVER), first)
        return np.where(at < NEVER, self.row[np.minimum(at, len(found) - 1)], -1)

    def _take(self, name: str, rows: pa.Array) -> pa.Array:
        column = self.facts[name]
        return column.chunk(0).take(rows) if column.num_chunks else pa.nulls(0, column.type)

    def _text(self, name: str, rows: Ints) -> pa.Array:
        return self._take(name, pa.array(rows, mask=rows < 0))


class _Ends:
    """When whole mailboxes went or were purged, sorted by mailbox and place in the log."""

    def __init__(self, facts: pa.Table) -> None:
        keys = [("mailbox", "ascending"), ("position", "ascending")]
        facts = facts.sort_by(keys).combine_chunks()
        self.mailbox = facts["mailbox"]
        self.position, self.time = _ints(facts["position"]), _ints(facts["time"])
        self.expired = np.asarray(pc.fill_null(pc.equal(facts["cause"], "expired"), False))

    def after(self, mailbox: pa.Array, position: Ints) -> Ints:
        """The end behind each place of a mailbox, which is that of the message there; or -1."""
        found = np.full(len(position), -1)
        if not len(self.position):
            return found
        names = pc.unique(self.mailbox)
        code = np.asarray(pc.fill_null(pc.index_in(mailbox, names), -1))
        rows = np.flatnonzero(code >= 0)
        of_ends = np.asarray(pc.index_in(self.mailbox, names))
        codes = np.concatenate([of_ends, code[rows]])
        is_row = np.arange(len(codes)) >= len(of_ends)
        places = np.concatenate([self.position, position[rows]])
        order = np.lexsort((is_row, places, codes))
        ends = np.where(is_row[order], NEVER, order)
        # The next end in this order, seen from the back; of the same mailbox, or of none.
        at = np.where(is_row[order], len(order), np.arange(len(order)))
        following = np.minimum.accumulate(at[::-1])[::-1]
        inside = following < len(order)
        end = np.where(inside, ends[np.minimum(following, len(order) - 1)], -1)
        same = inside & (codes[order][np.minimum(following, len(order) - 1)] == codes[order])
        mine = is_row[order]
        found[rows[order[mine] - len(of_ends)]] = np.where(same, end, -1)[mine]
        return found


def _settled(rows: dict[str, pa.Array], ends: _Ends) -> pa.Table:
    """Ends the messages that were open when their mailbox went."""
    end = ends.after(rows["mailbox"], _ints(rows["position"]))
    there = end >= 0
    gone = np.full(len(end), NEVER)
    gone[there] = ends.time[end[there]]
    is_open = np.asarray(pc.is_in(rows["outcome"], _OPEN))
    goes = is_open & there
    expired = np.zeros(len(end), bool)
    expired[there] = ends.expired[end[there]]
    taken = pc.if_else(pa.array(expired), "expired", "deleted")
    rows["outcome"] = pc.if_else(pa.array(goes), taken, rows["outcome"])
    rows["ended"] = pc.if_else(pa.array(goes), _times(gone), rows["ended"])
    rows["with_mailbox"] = pa.array(goes)
    rows["mailbox_gone"] = _times(gone)
    return pa.table({name: rows[name] for name in _COLUMNS})


def _times(values: Ints) -> pa.Array:
    return pa.array(values, mask=values == NEVER).cast(TIME)


def _took(start: Ints, end: Ints) -> pa.Array:
    """How long it took; 0 rather than less where the clock was set back."""
    unknown = (start == NEVER) | (end == NEVER)
    took = np.where(unknown, 0, end) - np.where(unknown, 0, start)
    return pa.array(np.maximum(took, 0), mask=unknown)


def _copies(key: Ints, kind: Ints, position: Ints, sent: Ints) -> Any:  # noqa: ANN401
    """Messages that are also at an earlier place of the log, from where they were moved."""
    copied = np.zeros(len(key), bool)
    messages = np.flatnonzero(kind == MESSAGE)
    if np.any(np.diff(key[messages]) == 0):
        order = np.lexsort((position[messages], sent[messages], key[messages]))
        messages = messages[order]
        copied[messages[~_changes(key[messages], sent[messages])]] = True
    return copied


def _encoded(column: pa.ChunkedArray) -> pa.DictionaryArray:
    one = column.chunk(0) if column.num_chunks else pa.array([], pa.string())
    return pc.dictionary_encode(one)


def _ints(column: Any) -> Ints:  # noqa: ANN401
    """A column without nulls as whole numbers; times in milliseconds."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    return np.asarray(column, np.int64)


def _changes(*columns: Ints) -> Any:  # noqa: ANN401
    """Where any of the columns is another than in the row before; always in the first row."""
    changed = np.zeros(len(columns[0]), bool)
    changed[:1] = True
    for column in columns:
        changed[1:] |= column[1:] != column[:-1]
    return changed


def _lengths(first: Ints, total: int) -> Ints:
    return np.diff(np.append(first, total))


def _least(time: Ints, wanted: Any, first: Ints) -> Ints:  # noqa: ANN401
    """The least time of each stretch of rows among those that are wanted."""
    if not len(first):
        return np.empty(0, np.int64)
    return np.minimum.reduceat(np.where(wanted, time, NEVER), first)


def _ranks(names: pa.Array) -> Ints:
    """The place of each name among all of them, sorted."""
    ranks = np.empty(len(names), np.int64)
    ranks[np.asarray(pc.sort_indices(names))] = np.arange(len(names))
    return ranks
