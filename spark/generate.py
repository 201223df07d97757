"""Makes an export as a broker with a busy day would leave it, and knows what is in it.

For benchmarks, where a real broker would take too long, and for tests, which compare the tables
with `Truth`. Works in chunks, each of a stretch of time, so that memory does not grow with the
number of messages. Knows the form of the export and nothing of the jobs.
"""

import argparse
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mq9.spark.manifest import NAME, checksum

HOUR_MS = 3_600_000
RECORD_BYTES = 128
SEGMENT_BYTES = 64 << 20
CHUNK = 250_000

LEVELS = np.array([1, 3, 5, 9, 7])
PRIORITIES = np.array(["critical", "urgent", "normal", "notify", "7"])
PRIORITY_SHARES = [0.02, 0.10, 0.70, 0.15, 0.03]
# How long a message of a level waits, in the middle.
WAIT_MS = np.array([150.0, 700.0, 4_000.0, 30_000.0, 9_000.0])

ROLES = ("planner", "coder", "tester", "writer", "search", "review", "deploy", "billing")

MESSAGES = pa.schema(
    [
        ("mailbox", pa.string()),
        ("msg_id", pa.int64()),
        ("level", pa.int32()),
        ("priority", pa.string()),
        ("key", pa.string()),
        ("tags", pa.list_(pa.string())),
        ("headers", pa.list_(pa.struct([("name", pa.string()), ("value", pa.string())]))),
        ("payload", pa.binary()),
        ("size", pa.int64()),
        ("sent", pa.timestamp("ms", "UTC")),
        ("visible", pa.timestamp("ms", "UTC")),
        ("expires", pa.timestamp("ms", "UTC")),
        ("segment", pa.int64()),
        ("offset", pa.int64()),
    ]
)
EVENTS = pa.schema(
    [
        ("kind", pa.string()),
        ("mailbox", pa.string()),
        ("msg_id", pa.int64()),
        ("level", pa.int32()),
        ("group", pa.string()),
        ("member", pa.string()),
        ("time", pa.timestamp("ms", "UTC")),
        ("count", pa.int32()),
        ("target", pa.string()),
        ("size", pa.int64()),
        ("segment", pa.int64()),
        ("offset", pa.int64()),
        ("seq", pa.int32()),
        ("cause", pa.string()),
    ]
)
KINDS = np.array(
    ["create", "send", "deliver", "nak", "redeliver", "ack", "dead_letter", "expire", "delete"]
)
CREATE, SEND, DELIVER, NAK, REDELIVER, ACK, DEAD, EXPIRE, DELETE = range(len(KINDS))
MAX_DELIVER = 3

# What becomes of messages, and of how many.
FATES = ("acked", "retried", "dead_letter", "waiting", "pending", "expired", "deleted")
OPEN, EXPIRED = ("waiting", "pending"), FATES.index("expired")
FATE_SHARES = [0.90, 0.05, 0.01, 0.01, 0.01, 0.01, 0.01]


@dataclass
class Truth:
    """What the tables must say about the whole of a generated export."""

    messages: int = 0
    events: int = 0
    size: int = 0
    deliveries: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    priorities: Counter[str] = field(default_factory=Counter)
    mailboxes: Counter[str] = field(default_factory=Counter)
    files: int = 0


@dataclass
class Traffic:
    """How much traffic, of whom, over which time."""

    messages: int
    hours: float = 24.0
    agents: int = 40
    seed: int = 9
    begin_ms: int = 1_777_680_000_000  # 2026-05-02
    records_per_file: int = SEGMENT_BYTES // RECORD_BYTES
    payloads: bool = True
    chunk: int = CHUNK
    settles: bool = False
    """Nothing stays open: what nobody finishes expires."""
    hot_share: float = 0.0
    """How much of all goes to one mailbox, besides what it would get anyway."""

    def write(self, folder: Path) -> Truth:
        """Writes the export; the manifest comes last."""
        truth, log = Truth(), Log(folder, self.records_per_file)
        random = np.random.default_rng(self.seed)
        names = np.array([f"agent.{ROLES[n % len(ROLES)]}.{n}" for n in range(self.agents)])
        next_ids = np.zeros(self.agents, np.int64)
        chunks = -(-self.messages // self.chunk)
        for chunk in range(chunks):
            count = min(self.chunk, self.messages - chunk * self.chunk)
            start = self.begin_ms + int(chunk * self.hours * HOUR_MS / chunks)
            messages = self._messages(
                random, names, next_ids, count, start, chunks, chunk * self.chunk
            )
            self._session(messages, chunk)
            events = self._events(random, messages, truth)
            log.append(messages, events)
            _tally(truth, messages, len(events["kind"]))
        log.finish()
        truth.files = log.files
        return truth

    def _messages(
        self,
        random: np.random.Generator,
        names: np.ndarray[Any, Any],
        next_ids: np.ndarray[Any, Any],
        count: int,
        start: int,
        chunks: int,
        chunk_first: int,
    ) -> dict[str, Any]:
        length = self.hours * HOUR_MS / chunks
        # Busier in the middle of the day.
        day = np.linspace(0, 2 * np.pi, 1000)
        rate = np.cumsum(1.3 - np.cos(day)) if chunks == 1 else np.arange(1.0, 1001.0)
        sent = start + np.interp(
            random.random(count), rate / rate[-1], np.linspace(0, length, 1000)
        )
        sent = np.sort(sent).astype(np.int64)
        # Few agents get most of the mail.
        weights = 1 / np.arange(1, self.agents + 1)
        to = random.choice(self.agents, count, p=weights / weights.sum())
        if self.hot_share:
            to = np.where(random.random(count) < self.hot_share, 0, to)
        # Most of what an agent sends goes to few others.
        sender = (to + random.geometric(0.35, count)) % self.agents
        _ask(to, sender)
        ids = np.empty(count, np.int64)
        order = np.argsort(to, kind="stable")
        amounts = np.bincount(to, minlength=self.agents)
        starts = np.repeat(np.cumsum(amounts) - amounts, amounts)
        ids[order] = np.arange(count) - starts + np.repeat(next_ids, amounts)
        next_ids += amounts
        level = random.choice(len(LEVELS), count, p=PRIORITY_SHARES)
        return {
            "mailbox": names[to],
            "msg_id": ids,
            "level": level,
            "sender": names[sender],
            "sent": sent,
            "size": random.integers(40, 2_000, count),
            "fate": random.choice(len(FATES), count, p=FATE_SHARES),
            "payloads": self.payloads,
            "first": chunk_first,
        }

    def _session(self, messages: dict[str, Any], chunk: int) -> None:
        """Every hundredth message goes to a mailbox that expires as a whole, with what it holds."""
        count = len(messages["sent"])
        chosen = np.arange(count) % 100 == 7
        messages["mailbox"] = np.where(chosen, f"session.{chunk}", messages["mailbox"])
        messages["msg_id"] = np.where(chosen, np.cumsum(chosen) - 1, messages["msg_id"])
        gone = {FATES.index("expired"), FATES.index("deleted")}
        fate = messages["fate"]
        # And one in two hundred to a mailbox that nobody reads.
        unread = np.arange(count) % 200 == 150
        messages["mailbox"] = np.where(unread, "audit.log", messages["mailbox"])
        messages["msg_id"] = np.where(
            unread, messages["first"] + np.cumsum(unread) - 1, messages["msg_id"]
        )
        fate = np.where(unread, FATES.index("waiting"), fate)
        if self.settles:
            fate = np.where(np.isin(fate, [FATES.index(each) for each in OPEN]), EXPIRED, fate)
        fate = np.where(chosen & np.isin(fate, list(gone)), FATES.index("waiting"), fate)
        messages["fate"], messages["session"] = fate, chosen
        messages["session_name"] = f"session.{chunk}"

    def _events(
        self, random: np.random.Generator, messages: dict[str, Any], truth: Truth
    ) -> dict[str, Any]:
        count = len(messages["sent"])
        fate = np.array(FATES)[messages["fate"]]
        wait = random.lognormal(np.log(WAIT_MS[messages["level"]]), 0.8).astype(np.int64) + 1
        work = random.lognormal(np.log(800.0), 0.7, count).astype(np.int64) + 1
        first = messages["sent"] + wait
        steps: list[tuple[int, Any, Any, Any, int]] = []

        def step(kind: int, mask: Any, time: Any, delivery: int = 0) -> None:  # noqa: ANN401
            steps.append((kind, np.flatnonzero(mask), time[mask], delivery, len(steps)))

        everybody = np.ones(count, bool)
        step(SEND, everybody, messages["sent"])
        given = np.isin(fate, ["acked", "retried", "dead_letter", "pending"])
        retried = fate == "retried"
        dead = fate == "dead_letter"
        step(DELIVER, given, first, 1)
        step(ACK, fate == "acked", first + work)
        step(NAK, retried | dead, first + work)
        step(REDELIVER, retried | dead, first + work + 50, 2)
        step(ACK, retried, first + 2 * work + 50)
        step(REDELIVER, dead, first + 2 * work + 100, 3)
        step(DEAD, dead, first + 3 * work + 100)
        step(EXPIRE, fate == "expired", messages["sent"] + 60_000)
        step(DELETE, fate == "deleted", messages["sent"] + 30_000)
        truth.deliveries += int(given.sum() + retried.sum() + 2 * dead.sum())
        open_in_session = messages["session"] & np.isin(fate, ["waiting", "pending"])
        final = np.where(retried, "acked", np.where(open_in_session, "expired", fate))
        truth.outcomes.update(dict(zip(*np.unique(final, return_counts=True), strict=True)))
        return {
            "kind": np.concatenate([np.full(len(rows), kind) for kind, rows, *_ in steps]),
            "row": np.concatenate([rows for _, rows, *_ in steps]),
            "time": np.concatenate([time for _, _, time, *_ in steps]),
            "count": np.concatenate([np.full(len(rows), n) for _, rows, _, n, _ in steps]),
        }


# Of forty messages, which are requests, and which answer the message before.
CONVERSATION, REQUESTS = 40, (3, 13)


def _ask(to: Any, sender: Any) -> None:  # noqa: ANN401
    """In each conversation an agent asks another twice, and gets answers."""
    first, again = REQUESTS
    whole = len(to) // CONVERSATION * CONVERSATION
    to, sender = (each[:whole].reshape(-1, CONVERSATION) for each in (to, sender))
    to[:, again], sender[:, again] = to[:, first], sender[:, first]
    for asked in REQUESTS:
        to[:, asked + 1], sender[:, asked + 1] = sender[:, asked], to[:, asked]


def _tally(truth: Truth, messages: dict[str, Any], events: int) -> None:
    truth.messages += len(messages["sent"])
    truth.events += events
    truth.size += int(messages["size"].sum())
    truth.priorities.update(
        dict(zip(*np.unique(PRIORITIES[messages["level"]], return_counts=True), strict=True))
    )
    truth.mailboxes.update(
        dict(zip(*np.unique(messages["mailbox"], return_counts=True), strict=True))
    )


@dataclass
class Log:
    """The export under way: gives records their place, and cuts them into files."""

    folder: Path
    records_per_file: int
    position: int = 80
    segment: int = 1
    files: int = 0

    def append(self, messages: dict[str, Any], events: dict[str, Any]) -> None:
        """Records of a stretch of time; none of later ones comes before them."""
        order = np.lexsort((events["kind"] != SEND, events["time"]))
        for name in events:
            events[name] = events[name][order]
        total = len(events["kind"])
        last_ms = int(events["time"][-1])
        for start in range(0, total, self.records_per_file):
            rows = slice(start, min(start + self.records_per_file, total))
            self._piece(messages, {name: column[rows] for name, column in events.items()})
        row = {"kind": "expire", "mailbox": messages["session_name"], "time": last_ms + 1, "seq": 0}
        self._write("events", np.array([last_ms + 1]), [row], self._place(1))

    def _place(self, records: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Segments and offsets of the next records; a piece is in one segment."""
        if self.position + records * RECORD_BYTES > SEGMENT_BYTES:
            self.segment, self.position = self.segment + 1, 80
        offsets = self.position + np.arange(records) * RECORD_BYTES
        self.position += records * RECORD_BYTES
        return np.full(records, self.segment), offsets

    def _piece(self, messages: dict[str, Any], events: dict[str, Any]) -> None:
        kind, row, time = events["kind"], events["row"], events["time"]
        place = self._place(len(kind))
        given = np.isin(kind, [DELIVER, REDELIVER])
        by_group = given | np.isin(kind, [NAK, ACK, DEAD])
        mailbox = messages["mailbox"][row]
        reason = np.where(row % 4 == 0, "terminated", "max_deliver")
        columns = {
            "kind": KINDS[kind],
            "mailbox": mailbox,
            "msg_id": messages["msg_id"][row],
            "level": _where(given | (kind == SEND), LEVELS[messages["level"][row]]),
            "group": _where(by_group, np.full(len(kind), "workers")),
            "member": _where(given, np.char.add("worker-", (row % 5).astype(str))),
            "time": time,
            "count": _where(given, events["count"]),
            "target": _where(kind == DEAD, np.char.add(mailbox.astype(str), ".dead")),
            "size": _where(kind == SEND, messages["size"][row]),
            "segment": place[0],
            "offset": place[1],
            "seq": np.zeros(len(kind), np.int32),
            "cause": _where(
                (kind == DEAD) | (kind == DELETE), np.where(kind == DEAD, reason, "deleted")
            ),
        }
        self._write("events", time, _table(columns, EVENTS), place)
        send = kind == SEND
        rows = row[send]
        if len(rows):
            written = _message_table(messages, rows, place[0][send], place[1][send])
            self._write("messages", messages["sent"][rows], written, place)

    def _write(self, dataset: str, times: Any, rows: Any, place: Any) -> None:  # noqa: ANN401
        """One file per hour, all named after the place where the piece begins."""
        if isinstance(rows, list):
            fields = {"segment": int(place[0][0]), "offset": int(place[1][0])}
            rows = pa.Table.from_pylist([row | fields for row in rows], schema=EVENTS)
        hours = times // HOUR_MS
        for hour in np.unique(hours):
            stamp = np.datetime64(int(hour) * HOUR_MS, "ms")
            day, clock = str(stamp.astype("datetime64[h]")).split("T")
            inside = self.folder / dataset / f"date={day}" / f"hour={clock[:2]}"
            inside.mkdir(parents=True, exist_ok=True)
            name = f"part-{place[0][0]:010d}-{place[1][0]:010d}.parquet"
            table = rows.filter(pa.array(hours == hour)).sort_by("mailbox")
            pq.write_table(table, inside / name, compression="zstd")
            self.files += 1

    def finish(self) -> None:
        """Writes the manifest: from here on all of it counts."""
        self.folder.mkdir(parents=True, exist_ok=True)
        manifest: dict[str, Any] = {"version": 1, "segment": self.segment, "offset": self.position}
        manifest["crc32c"] = checksum(manifest)
        (self.folder / NAME).write_text(json.dumps(manifest), "utf-8")


def _where(mask: Any, values: Any) -> pa.Array:  # noqa: ANN401
    return pa.array(values, mask=~mask)


def _table(columns: dict[str, Any], schema: pa.Schema) -> pa.Table:
    arrays = [
        (column if isinstance(column, pa.Array) else pa.array(column)).cast(schema.field(name).type)
        for name, column in columns.items()
    ]
    return pa.table(arrays, schema=schema)


def _message_table(messages: dict[str, Any], rows: Any, segment: Any, offset: Any) -> pa.Table:  # noqa: ANN401
    count = len(rows)
    sender = messages["sender"][rows]
    # Two of three name the sender in a header, the others in the message.
    in_header = rows % 3 != 0
    headers = _headers(messages, rows, sender, in_header)
    text = np.char.add(np.char.add('{"task": ', rows.astype(str)), "}")
    envelope = np.char.add(np.char.add('{"from": "', sender.astype(str)), '"}')
    payload = pa.array(np.where(in_header, text, envelope)).cast(pa.binary())
    fate = messages["fate"][rows]
    expires = messages["sent"][rows] + 60_000
    tags = pa.array([[]] * count, pa.list_(pa.string()))
    columns = {
        "mailbox": messages["mailbox"][rows],
        "msg_id": messages["msg_id"][rows],
        "level": LEVELS[messages["level"][rows]],
        "priority": PRIORITIES[messages["level"][rows]],
        "key": pa.nulls(count, pa.string()),
        "tags": tags,
        "headers": headers,
        "payload": payload if messages["payloads"] else pa.nulls(count, pa.binary()),
        "size": messages["size"][rows],
        "sent": messages["sent"][rows],
        "visible": messages["sent"][rows],
        "expires": _where(fate == FATES.index("expired"), expires),
        "segment": segment,
        "offset": offset,
    }
    return _table(columns, MESSAGES)


def _headers(messages: dict[str, Any], rows: Any, sender: Any, in_header: Any) -> pa.Array:  # noqa: ANN401
    """Who sent it; of requests and answers what they belong to, of answers what they cost."""
    place = rows % CONVERSATION
    asks = np.isin(place, REQUESTS)
    answers = np.isin(place, [request + 1 for request in REQUESTS])
    number = messages["first"] + rows
    talk = np.char.add("task-", (number // CONVERSATION).astype(str))
    request = np.char.add("request-", (number - answers).astype(str))
    told = [
        ("from", in_header, sender),
        ("mq9-reply-to", asks, sender),
        ("mq9-correlation-id", asks | answers, request),
        ("mq9-conversation-id", asks | answers, talk),
        ("mq9-tokens", answers, (number % 900 + 100).astype(str)),
        ("mq9-cost", answers, np.full(len(rows), "0.0125")),
    ]
    present = np.stack([mask for _, mask, _ in told], axis=1)
    at = np.nonzero(present)
    names = np.array([name for name, *_ in told])[at[1]]
    values = np.stack([text.astype(str) for *_, text in told], axis=1)[at]
    offsets = np.concatenate([[0], np.cumsum(present.sum(axis=1))])
    pairs = pa.StructArray.from_arrays([pa.array(names), pa.array(values)], ["name", "value"])
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pairs)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="where the export goes")
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--agents", type=int, default=40)
    parser.add_argument("--hot-share", type=float, default=0.0, help="of one mailbox, of all")
    parser.add_argument("--seed", type=int, default=9)
    return parser.parse_args()


def _lines(truth: Truth) -> Iterator[str]:
    yield f"{truth.messages} messages, {truth.events} events in {truth.files} files"
    yield ", ".join(f"{name} {count}" for name, count in sorted(truth.outcomes.items()))


if __name__ == "__main__":
    asked = _arguments()
    traffic = Traffic(
        *(asked.messages, asked.hours, asked.agents, asked.seed), hot_share=asked.hot_share
    )
    print(*_lines(traffic.write(asked.folder)), sep="\n")
