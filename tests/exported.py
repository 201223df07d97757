"""An export folder read back with pyarrow, and compared with what clients know."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.dataset
from tests.traffic import DEAD, GROUP, Traffic

Row = dict[str, Any]


def read(out: Path, dataset: str) -> list[Row]:
    """Every row of every file that a reader sees."""
    folder = out / dataset
    if not folder.exists():
        return []
    rows: list[Row] = pyarrow.dataset.dataset(folder, partitioning="hive").to_table().to_pylist()
    return rows


def manifest(out: Path) -> Row:
    """The manifest."""
    found: Row = json.loads((out / "manifest.json").read_text("utf-8"))
    return found


def check(out: Path, traffic: Traffic, *, payloads: bool = True) -> None:
    """Every row is there once and says what the clients know."""
    messages, events = read(out, "messages"), read(out, "events")
    for rows, id_columns in (
        (messages, ("segment", "offset")),
        (events, ("segment", "offset", "seq")),
    ):
        unique = {tuple(row[name] for name in id_columns) for row in rows}
        assert len(unique) == len(rows), "a row is there twice"
    totals = manifest(out)
    assert (totals["messages"]["rows"], totals["events"]["rows"]) == (len(messages), len(events))
    _check_partitions(messages, "sent")
    _check_partitions(events, "time")
    _check_messages([row for row in messages if row["mailbox"] != DEAD], traffic, payloads)
    _check_events(events, messages, traffic)


def _check_partitions(rows: list[Row], instant: str) -> None:
    for row in rows:
        assert str(row["date"]) == row[instant].strftime("%Y-%m-%d")
        assert int(row["hour"]) == row[instant].hour


def _check_messages(rows: list[Row], traffic: Traffic, payloads: bool) -> None:
    if not payloads:
        assert {row["payload"] for row in rows} == {None}
        assert len(rows) == len(traffic.answered)
        return
    by_payload = {row["payload"]: row for row in rows}
    assert len(by_payload) == len(rows)
    assert by_payload.keys() <= traffic.answered.keys() | traffic.in_doubt.keys()
    # A delayed message whose time was over before it was due never entered its mailbox.
    missing = traffic.answered.keys() - by_payload.keys()
    assert all(traffic.answered[payload].is_delayed for payload in missing)
    for payload, row in by_payload.items():
        sent = traffic.answered.get(payload) or traffic.in_doubt[payload]
        assert sent.msg_id in {None, row["msg_id"]}
        assert (row["mailbox"], row["priority"], row["key"]) == (
            sent.address,
            sent.priority,
            sent.key,
        )
        assert (
            row["level"]
            == {"critical": 1, "urgent": 3, "normal": 5, "notify": 9}.get(sent.priority, 0)
            or str(row["level"]) == sent.priority
        )
        assert (tuple(row["tags"]), row["size"]) == (sent.tags, len(payload))
        assert tuple((h["name"], h["value"]) for h in row["headers"]) == sent.headers
        assert (row["visible"] > row["sent"]) == sent.is_delayed
        assert (row["expires"] is not None) == sent.has_ttl
        if sent.has_ttl:
            assert (row["expires"] - row["sent"]).total_seconds() == 2


def _check_events(events: list[Row], messages: list[Row], traffic: Traffic) -> None:
    of = {kind: [row for row in events if row["kind"] == kind] for kind in _KINDS}
    assert {row["kind"] for row in events} <= of.keys()
    assert {row["mailbox"] for row in of["create"]} >= {"jobs", "notes", "queue"}
    sends = {(row["mailbox"], row["msg_id"], row["time"], row["size"]) for row in of["send"]}
    assert sends == {(row["mailbox"], row["msg_id"], row["sent"], row["size"]) for row in messages}
    deliveries = Counter(
        (row["mailbox"], row["msg_id"], row["count"]) for row in of["deliver"] + of["redeliver"]
    )
    assert all(
        (row["count"] > 1) == (row["kind"] == "redeliver")
        for row in of["redeliver"] + of["deliver"]
    )
    # What was on its way when a connection ended was delivered, though nobody saw it.
    assert traffic.delivered <= deliveries
    named = [row for kind in ("deliver", "redeliver", "ack", "nak") for row in of[kind]]
    assert {row["group"] for row in named} <= {GROUP}
    # Of a message that is gone there is nothing to acknowledge: the answer says no more than that.
    gone = {(row["mailbox"], row["msg_id"]) for row in of["delete"] + of["expire"]}
    _answered(of["ack"], traffic.acked - gone, traffic.acked, traffic, "ack")
    _answered(of["nak"], set(traffic.returned) - gone, set(traffic.returned), traffic, "nak")
    deletions = [row for row in of["delete"] if row["cause"] == "deleted"]
    _answered(deletions, traffic.deleted, traffic.deleted, traffic, "delete")
    given_up = [row for row in of["dead_letter"] if row["cause"] == "terminated"]
    _answered(given_up, traffic.given_up - gone, traffic.given_up, traffic, "dead_letter")
    _check_dead(of["dead_letter"], messages)
    # What a newer message of the same key took the place of.
    replaced = {
        (row["mailbox"], row["msg_id"]) for row in of["delete"] if row["cause"] == "replaced"
    }
    by_id = {(row["mailbox"], row["msg_id"]): row for row in messages}
    assert all(by_id[what]["key"] for what in replaced)
    assert all(by_id[row["mailbox"], row["msg_id"]]["expires"] for row in of["expire"])


def _answered(
    rows: list[Row],
    certain: set[tuple[str, int]],
    known: set[tuple[str, int]],
    traffic: Traffic,
    kind: str,
) -> None:
    found = {(row["mailbox"], row["msg_id"]) for row in rows}
    assert certain <= found
    assert found - known <= {what[1:] for what in traffic.doubtful if what[0] == kind}


def _check_dead(rows: list[Row], messages: list[Row]) -> None:
    for row in rows:
        assert row["target"] == (DEAD if row["mailbox"] == "jobs" else None)
    buried = Counter(row["msg_id"] for row in rows if row["target"] == DEAD)
    copies: Counter[int] = Counter()
    for row in messages:
        if row["mailbox"] == DEAD:
            history = {header["name"]: header["value"] for header in row["headers"]}
            copies[int(history["mq9-dead-msg-id"])] += 1
    assert copies == buried


_KINDS = (
    *("create", "send", "deliver", "redeliver", "ack", "nak"),
    *("expire", "delete", "dead_letter", "register", "report"),
)
