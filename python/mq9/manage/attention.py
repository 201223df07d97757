"""Finds what needs attention now, in the order in which an operator should look.

Owns the order and the words. A mailbox that no group reads is normal: its agent is away.
"""

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mq9.manage.follower import Follower

_NEW_LETTERS_S = 3600
_ARCHIVE_GONE_S = 5.0
_REDELIVERED = 0.05
_GROWING_S, _MANY = 600.0, 1000
_SLOW_S = 3600.0
_MIN_DELIVERED = 100
_DISK_FREE = 0.10
_DISK_FULL_S = 7 * 24 * 3600.0
_MOST = 5
_EXAMPLES = 3


def attention(follower: "Follower") -> list[dict[str, Any]]:
    """One entry for each kind of problem, the worst first."""
    return [
        *_broker(follower),
        *_alone(follower),
        *_letters(follower),
        *_archive(follower),
        *_growing(follower),
        *_redelivered(follower),
        *_disk(follower),
        *_schedules(follower),
        *_slow(follower),
    ]


def _broker(follower: "Follower") -> list[dict[str, Any]]:
    store = follower.server.get("store", {})
    found = []
    if stopped := store.get("writes_stopped"):
        found.append(_entry("broker", "broken", f"The broker stores nothing: {stopped}"))
    if refusing := store.get("refusing"):
        found.append(_entry("disk", "broken", f"The broker refuses messages: {refusing}"))
    if damage := store.get("damage"):
        text = f"{len(damage)} {_plural(len(damage), 'place')} of the log damaged: {damage[0]}"
        found.append(_entry("damage", "broken", text))
    return found


def _alone(follower: "Follower") -> list[dict[str, Any]]:
    groups = follower.mirror.groups
    places, since_ms = groups.alone()
    first, count = groups.most_alone(), len(places)
    if first is None:
        return []
    if count == 1:
        text = f"Nobody reads {first.queue} for {first.name}: {first.pending} messages wait"
        link = _to(first.queue, first.kind)
    else:
        text = f"{count} groups have work and no members; most waits in {first.queue}"
        link = {"view": "consumers", "sort": "lag"}
    since = float(since_ms.min()) / 1000
    return [_entry("no_members", "attention", text, since=since, count=count, link=link)]


def _letters(follower: "Follower") -> list[dict[str, Any]]:
    now = time.time()
    new = follower.letters.since(now - _NEW_LETTERS_S)
    if not new:
        return []
    reasons = follower.letters.reasons()
    text = f"{new} new dead {_plural(new, 'letter')} in the last hour"
    if reasons:
        text += f", most from {reasons[0]['queue']}"
    newest = max(each["newest"] for each in reasons) if reasons else None
    return [
        _entry("dead_letters", "attention", text, since=newest, count=new,
               link={"view": "dead-letters"})
    ]  # fmt: skip


def _archive(follower: "Follower") -> list[dict[str, Any]]:
    archive = follower.archive
    if archive is None or archive.gone_since is None:
        return []
    if time.time() - archive.gone_since < _ARCHIVE_GONE_S:
        return []
    text = f"Dead letters do not reach PostgreSQL: {archive.problem}"
    return [
        _entry("archive", "attention", text, since=archive.gone_since,
               link={"view": "dead-letters"})
    ]  # fmt: skip


def _growing(follower: "Follower") -> list[dict[str, Any]]:
    growing = follower.mirror.growing(_GROWING_S, _MANY)
    if not growing:
        return []
    first = growing[0]
    text = f"{first.name} grows by {first.outlook_s or 0:.1f} messages a second"
    if len(growing) > 1:
        text += f", and {len(growing) - 1} more grow"
    link = _to(first.name, first.kind)
    return [_entry("growing", "attention", text, count=len(growing), link=link)]


def _redelivered(follower: "Follower") -> list[dict[str, Any]]:
    count, first, share = follower.mirror.groups.given_again(_REDELIVERED, _MIN_DELIVERED)
    if first is None:
        return []
    text = f"{first.name} gets {100 * share:.0f}% of the messages of {first.queue} more than once"
    link = _to(first.queue, first.kind)
    return [_entry("redelivered", "attention", text, count=count, link=link)]


def _disk(follower: "Follower") -> list[dict[str, Any]]:
    disk = follower.server.get("disk") or {}
    total, free = disk.get("total", 0), disk.get("free", 0)
    full_in = follower.disk_trend.full_in()
    if total and free <= _DISK_FREE * total:
        text = f"The disk has {100 * free / total:.0f}% left"
    elif full_in is not None and full_in[0] < _DISK_FULL_S:
        left_s, watched_s = full_in
        text = f"The disk is full in {_span(left_s)} at the pace of the last {_span(watched_s)}"
    else:
        return []
    return [_entry("disk", "attention", text, link={"view": "overview"})]


def _schedules(follower: "Follower") -> list[dict[str, Any]]:
    late = (
        [each for each in follower.scheduler.progress if each.is_late] if follower.scheduler else []
    )
    if not late:
        return []
    first = min(late, key=lambda each: each.due or 0)
    text = f"Schedule {first.schedule.name} is late: {first.problem or 'it was not fired'}"
    link = {"view": "schedules"}
    return [_entry("schedules", "attention", text, since=first.due, count=len(late), link=link)]


def _slow(follower: "Follower") -> list[dict[str, Any]]:
    slow = follower.server.get("varz", {}).get("slow_consumers", 0)
    if not slow or time.time() - (follower.slow_since or 0.0) > _SLOW_S:
        return []
    text = f"{slow} {_plural(slow, 'client')} read too slowly and were disconnected"
    return [_entry("slow", "attention", text, count=slow, link={"view": "connections"})]


def _to(queue: str, kind: str) -> dict[str, str]:
    return {"view": "queue", "name": queue, "kind": kind}


def _entry(
    kind: str,
    status: str,
    text: str,
    *,
    since: float | None = None,
    count: int = 1,
    link: dict[str, str] | None = None,
) -> dict[str, Any]:
    found = {"kind": kind, "status": status, "text": text, "count": count, "since": since}
    return {**found, "link": link}


def _span(seconds: float) -> str:
    hours = round(seconds / 3600)
    return f"{hours} h" if hours < 48 else f"{hours // 24} d"


def _plural(count: int, word: str) -> str:
    return word if count == 1 else f"{word}s"
