"""Rows of the export, written by hand: a log in which each row has a place of its own."""

import datetime
import itertools
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    import pyarrow as pa

BEGIN = datetime.datetime(2026, 5, 2, 7, 0, tzinfo=datetime.UTC)
LEVELS = {"critical": 1, "urgent": 3, "normal": 5, "notify": 9}

Row = dict[str, Any]


def reveal(export: Path, segment: int, offset: int, **more: object) -> None:
    """Lets an export go up to a place of the log, all at once; its manifest may say more."""
    from mq9.spark.manifest import NAME, checksum

    manifest: dict[str, object] = {"version": 1, "segment": segment, "offset": offset}
    manifest |= more
    manifest["crc32c"] = checksum(manifest)
    unfinished = export / f"{NAME}.unfinished"
    unfinished.write_text(json.dumps(manifest), "utf-8")
    unfinished.rename(export / NAME)


def at(seconds: float) -> datetime.datetime:
    """So many seconds after seven o'clock."""
    return BEGIN + datetime.timedelta(seconds=seconds)


@dataclass
class Log:
    """What happened, in order; times are seconds after seven o'clock."""

    messages: list[Row] = field(default_factory=list)
    events: list[Row] = field(default_factory=list)
    places: "itertools.count[int]" = field(default_factory=lambda: itertools.count(100, 100))

    def send(
        self,
        mailbox: str,
        msg_id: int,
        time_s: float,
        *,
        priority: str = "normal",
        payload: bytes = b"",
        headers: dict[str, str] | None = None,
        visible_s: float | None = None,
        expires_s: float | None = None,
    ) -> Self:
        place = next(self.places)
        row = {
            "mailbox": mailbox,
            "msg_id": msg_id,
            "level": LEVELS.get(priority) or int(priority),
            "priority": priority,
            "key": None,
            "tags": [],
            "headers": [{"name": n, "value": v} for n, v in (headers or {}).items()],
            "payload": payload,
            "size": len(payload) or 10,
            "sent": at(time_s),
            "visible": at(time_s if visible_s is None else visible_s),
            "expires": None if expires_s is None else at(expires_s),
            "segment": 1,
            "offset": place,
        }
        self.messages.append(row)
        return self._event("send", mailbox, msg_id, time_s, place)

    def happen(
        self, kind: str, mailbox: str, msg_id: int | None, time_s: float, **fields: object
    ) -> Self:
        return self._event(kind, mailbox, msg_id, time_s, next(self.places), **fields)

    def _event(
        self,
        kind: str,
        mailbox: str,
        msg_id: int | None,
        time_s: float,
        place: int,
        **fields: object,
    ) -> Self:
        row = {
            "kind": kind,
            "mailbox": mailbox,
            "msg_id": msg_id,
            "level": None,
            "group": None,
            "member": None,
            "time": at(time_s),
            "count": None,
            "target": None,
            "size": None,
            "segment": 1,
            "offset": place,
            "seq": 0,
            "cause": None,
        }
        self.events.append(row | fields)
        return self

    def worked(
        self, mailbox: str, msg_id: int, given_s: float, acked_s: float, group: str = "g"
    ) -> Self:
        """Delivered to a group, and acknowledged."""
        self.happen("deliver", mailbox, msg_id, given_s, group=group, member="ada", count=1)
        return self.happen("ack", mailbox, msg_id, acked_s, group=group)


def lives(log: Log) -> "pa.Table":
    """What became of the messages of a log."""
    import pyarrow as pa

    from generate import EVENTS, MESSAGES
    from mq9.lake import facts, fold

    messages = pa.Table.from_pylist(log.messages, schema=MESSAGES)
    events = pa.Table.from_pylist(log.events, schema=EVENTS)
    return fold.lives(pa.concat_tables([facts.of_messages(messages), facts.of_events(events)]))
