"""The `schedules` list: what is sent at which times.

Owns its settings and what a usable one is. When one is due, `mq9 manage` knows.
"""

import json
import re
import zoneinfo
from datetime import UTC, datetime
from typing import Any

from mq9.config.errors import quoted
from mq9.config.options import Schedule
from mq9.config.reading import Notes, Setting, at, boolean, filled, items, read_block, text
from mq9.config.tree import Map, Value

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_SUBJECT = re.compile(r"[^\s.*>$][^\s*>]{0,254}")
_MAX_SCHEDULES = 1000
# All of them are handed to a process through its environment.
_MAX_BYTES = 64 << 10
_LEVELS = ("critical", "urgent", "normal", "notify", *map(str, range(1, 11)))


def _name(value: Value, notes: Notes) -> str:
    found = filled(value, notes)
    if not _NAME.fullmatch(found):
        raise at(value.place, f'expected letters, digits, "-" and "_", found {quoted(found)}')
    return found


def _subject(value: Value, notes: Notes) -> str:
    found = filled(value, notes)
    if not _SUBJECT.fullmatch(found) or not all(found.split(".")):
        raise at(
            value.place,
            f'expected a subject or an address such as "mq.reports", found {quoted(found)}',
        )
    return found


def _cron(value: Value, notes: Notes) -> str:
    from cronsim import CronSim, CronSimError

    found = " ".join(filled(value, notes).split())
    if len(found.split()) != 5:
        raise at(
            value.place,
            "expected minute, hour, day, month and weekday "
            f'such as "*/5 * * * *", found {quoted(found)}',
        )
    try:
        next(CronSim(found, datetime.now(UTC)))
    except (CronSimError, StopIteration) as error:
        raise at(value.place, f"{quoted(found)} is no schedule: {error}") from None
    return found


def _timezone(value: Value, notes: Notes) -> str:
    found = filled(value, notes)
    try:
        zoneinfo.ZoneInfo(found)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise at(
            value.place, f'expected a time zone such as "Europe/Berlin", found {quoted(found)}'
        ) from None
    return found


def _priority(value: Value, notes: Notes) -> str:
    found = filled(value, notes)
    if found not in _LEVELS:
        raise at(value.place, f"expected one of {', '.join(_LEVELS)}, found {quoted(found)}")
    return found


def _data(value: Value, _notes: Notes) -> str:
    return json.dumps(_plain(value), ensure_ascii=False, separators=(",", ":"))


def _plain(value: Value) -> Any:  # noqa: ANN401
    data = value.data
    if isinstance(data, Map):
        return {entry.name: _plain(entry.value) for entry in data.entries.values()}
    if isinstance(data, list):
        return [_plain(each) for each in data]
    return data.isoformat() if isinstance(data, datetime) else data


SCHEDULE_SETTINGS = {
    "name": Setting("name", _name),
    "mailbox": Setting("mailbox", _subject),
    "subject": Setting("subject", _subject),
    "cron": Setting("cron", _cron),
    "timezone": Setting("timezone", _timezone),
    "data": Setting("payload", _data),
    "payload": Setting("payload", text),
    "priority": Setting("priority", _priority),
    "envelope": Setting("envelope", boolean),
}
"""Every name in an entry."""


def read_schedules(value: Value, notes: Notes) -> tuple[Schedule, ...]:
    """The `schedules` list."""
    found: dict[str, Schedule] = {}
    size = 0
    for item in items(value, "schedules"):
        fields = read_block(item, "a schedule", SCHEDULE_SETTINGS, {}, notes).values
        for name in ("name", "cron"):
            if name not in fields:
                raise at(item.place, f"no {name}: a schedule needs its name and its times")
        if ("mailbox" in fields) == ("subject" in fields):
            raise at(item.place, "expected either mailbox, or subject for a subject of a stream")
        schedule = Schedule(**fields)
        if schedule.envelope and not schedule.payload.startswith("{"):
            raise at(item.place, "an envelope is around data that is a block { }")
        if schedule.name in found:
            raise at(item.place, f"there is another schedule named {quoted(schedule.name)}")
        found[schedule.name] = schedule
        size += len(schedule.payload.encode()) + 512
    if len(found) > _MAX_SCHEDULES or size > _MAX_BYTES:
        raise at(
            value.place,
            f"too many: at most {_MAX_SCHEDULES} schedules, "
            f"of at most {_MAX_BYTES >> 10} KiB with what they send",
        )
    return tuple(found.values())
