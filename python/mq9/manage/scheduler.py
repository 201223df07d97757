"""Schedules: messages that are sent at set times, each time once.

Owns when a schedule is due and what became of it. The broker stores a firing in one step with the
note how far the schedule has come, and does not store what it has noted: each firing is there once,
however late somebody goes on after a crash. What was missed is made up for: once, however many
times it was missed.
"""

import asyncio
import json
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from cronsim import CronSim

from mq9.config import Schedule
from mq9.manage.link import BrokerGoneError, CredentialsError, Link, RefusedError

_LOG = logging.getLogger("mq9.manage")
_RETRY_S = 1.0
_REFUSED_S = 5.0
# A clock that was set is noticed after so long.
_LONGEST_SLEEP_S = 1.0
_LATE_S = 60.0


@dataclass(slots=True)
class Progress:
    """How far a schedule has come."""

    schedule: Schedule
    seen: int = 0
    """Everything that was due up to here, in seconds, has been seen to."""
    due: int | None = None
    """When it is due next; None: never again."""
    fired: int | None = None
    """For which time it was fired last."""
    problem: str = ""

    @property
    def is_late(self) -> bool:
        """Whether it should have been fired a minute ago."""
        return self.due is not None and time.time() - self.due > _LATE_S


def parse_schedules(text: str) -> tuple[Schedule, ...]:
    """Schedules as the broker that starts this process gives them: JSON, their fields by name."""
    return tuple(Schedule(**fields) for fields in json.loads(text))


def next_after(schedule: Schedule, moment: float) -> int | None:
    """When it is due next, in seconds."""
    began = datetime.fromtimestamp(moment, UTC).astimezone(ZoneInfo(schedule.timezone))
    found = next(CronSim(schedule.cron, began), None)
    return None if found is None else int(found.timestamp())


def last_until(schedule: Schedule, moment: float) -> int | None:
    """When it was due last, at `moment` or before."""
    zone = ZoneInfo(schedule.timezone)
    began = datetime.fromtimestamp(moment, UTC).astimezone(zone) + timedelta(seconds=1)
    for found in CronSim(schedule.cron, began, reverse=True):
        if found.timestamp() <= moment:
            return int(found.timestamp())
    return None


class Scheduler:
    """Fires schedules until it is stopped."""

    def __init__(self, link: Link, schedules: Sequence[Schedule]) -> None:
        self._link = link
        self.progress = [Progress(schedule) for schedule in schedules]
        self.fired = 0
        """Firings since this process started."""

    async def run(self) -> None:
        """Fire what is due. A schedule that fails holds up no other."""
        while True:
            try:
                await self._resume()
                break
            except (BrokerGoneError, CredentialsError, RefusedError) as error:
                self._all_failed(str(error))
                await asyncio.sleep(_RETRY_S)
            except Exception as error:
                _LOG.exception("what was fired before cannot be read")
                self._all_failed(type(error).__name__)
                await asyncio.sleep(_REFUSED_S)
        await asyncio.gather(*(self._follow(each) for each in self.progress))

    async def _resume(self) -> None:
        notes = (await self._link.request("ADMIN.SCHEDULE.LIST"))["schedules"]
        known: dict[str, dict[str, Any]] = {note["name"]: note for note in notes}
        for each in self.progress:
            note = known.get(each.schedule.name)
            if note is not None and note["spec"] == _spec(each.schedule):
                each.seen, each.fired = int(note["due"]), note["fired"]
            else:
                # New, or other times than before: what was due until now is not its own.
                each.seen = int(time.time())
                await self._note(each)
            each.due = next_after(each.schedule, each.seen)
            each.problem = ""

    async def _follow(self, progress: Progress) -> None:
        while progress.due is not None:
            left = progress.due - time.time()
            if left > 0:
                await asyncio.sleep(min(left, _LONGEST_SLEEP_S))
                continue
            try:
                await self._fire(progress)
            except RefusedError as error:
                self._failed(progress, str(error))
                await asyncio.sleep(_REFUSED_S)
            except (BrokerGoneError, CredentialsError) as error:
                self._failed(progress, str(error))
                await asyncio.sleep(_RETRY_S)
            except Exception as error:
                # Whatever it is, this one is told as late, and the others go on.
                _LOG.exception("schedule %s cannot be fired", progress.schedule.name)
                progress.problem = type(error).__name__
                await asyncio.sleep(_REFUSED_S)

    async def _fire(self, progress: Progress) -> None:
        schedule = progress.schedule
        # Of all that were missed the latest.
        due = last_until(schedule, time.time())
        if due is None or due <= progress.seen:
            # The clock was set back.
            progress.due = next_after(schedule, max(progress.seen, time.time()))
            return
        stamp = datetime.fromtimestamp(due, UTC).isoformat().replace("+00:00", "Z")
        headers = {"mq9-schedule": schedule.name, "mq9-schedule-due": stamp}
        name = f"schedule.{schedule.name}.{due}"
        payload = _payload(schedule, name, stamp)
        if schedule.priority:
            headers["mq9-priority"] = schedule.priority
        headers["mq9-id" if schedule.mailbox else "Nats-Msg-Id"] = name
        to = {"mailbox": schedule.mailbox} if schedule.mailbox else {"subject": schedule.subject}
        fields = {"name": schedule.name, "spec": _spec(schedule), "due": due, **to}
        await self._link.request(
            "ADMIN.SCHEDULE.FIRE", {**fields, "headers": headers, "payload": payload}
        )
        if time.time() - due > _LATE_S:
            _LOG.warning("schedule %s was fired late: it was due at %s", schedule.name, stamp)
        progress.seen = progress.fired = due
        self.fired += 1
        progress.problem = ""
        progress.due = next_after(schedule, due)

    async def _note(self, progress: Progress) -> None:
        fields = {
            "name": progress.schedule.name,
            "spec": _spec(progress.schedule),
            "due": progress.seen,
            "fired": progress.fired,
        }
        await self._link.request("ADMIN.SCHEDULE.NOTE", fields)

    def _all_failed(self, problem: str) -> None:
        for each in self.progress:
            each.problem = problem

    def _failed(self, progress: Progress, problem: str) -> None:
        if problem != progress.problem:
            _LOG.warning("schedule %s cannot be fired: %s", progress.schedule.name, problem)
        progress.problem = problem


def _payload(schedule: Schedule, name: str, stamp: str) -> str:
    if not schedule.envelope:
        return schedule.payload
    head = {
        "schema": "hanzo.mq.v1",
        "id": name,
        "type": f"schedule.{schedule.name}",
        "source": "mq9",
        "timestamp": stamp,
    }
    # What is sent stays as it is written.
    return f'{json.dumps(head)[:-1]}, "data": {schedule.payload}}}'


def _spec(schedule: Schedule) -> str:
    return f"{schedule.cron} {schedule.timezone}"
