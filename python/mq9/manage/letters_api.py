"""The paths of dead letters: look, send back, resolve, purge.

Owns paths and answers; which letters there are, `letters` knows.
"""

from typing import Any, Literal

from fastapi import APIRouter, Request

from mq9.manage import models
from mq9.manage.access import Person
from mq9.manage.asking import (
    PROBLEMS,
    Limit,
    Looker,
    Number,
    Offset,
    Preview,
    Steerer,
    Text,
    audit_of,
    change,
    follower_of,
)
from mq9.manage.letter import Letter, attempts_of, previewed, read_entry
from mq9.manage.letters import Job
from mq9.manage.problems import Problem

router = APIRouter(responses=PROBLEMS)


@router.get("/v1/dead-letters")
async def dead_letters(
    request: Request,
    person: Looker,
    queue: Text = "",
    reason: Text = "",
    limit: Limit = 50,
    offset: Offset = 0,
    *,
    resolved: bool = False,
) -> models.Letters:
    """A part of all dead letters, the newest first."""
    if resolved:
        return await _resolved(person, queue, reason, offset, limit)
    letters = follower_of(request).letters
    found = letters.chosen(queue=queue, reason=reason)
    page = found[offset : offset + limit]
    return models.Letters(dead_letters=[_letter(each) for each in page], total=len(found))


async def _resolved(
    person: Person, queue: str, reason: str, offset: int, limit: int
) -> models.Letters:
    """From the newest on: no more is read than the part that is wanted, unless some are chosen."""
    page: list[models.Letter] = []
    is_chosen, seen = bool(queue or reason), 0
    before: int | None = 2**63 - 1
    while before is not None and (is_chosen or seen < offset + limit):
        fields = {"limit": 1000 if is_chosen else min(offset + limit - seen, 1000)}
        found = await person.link.request("ADMIN.DEAD.RESOLVED", {**fields, "before": before})
        before = found["next"]
        for letter in reversed(found["letters"]):
            if queue not in ("", letter["subject"]) or reason not in ("", letter["error"]):
                continue
            if offset <= seen < offset + limit:
                page.append(models.Letter(resolved=True, **_coerced(letter)))
            seen += 1
        total = seen if is_chosen else found["total"]
    return models.Letters(dead_letters=page, total=total)


def _coerced(note: dict[str, Any]) -> dict[str, Any]:
    return {**note, "attempts": attempts_of(note)}


@router.get("/v1/dead-letters/reasons")
async def reasons(request: Request, _person: Looker) -> models.Reasons:
    """How many dead letters there are for each reason and queue."""
    letters = follower_of(request).letters
    found = [models.Reason(**each) for each in letters.reasons()]
    return models.Reasons(reasons=found, total=letters.count(), unlisted=letters.unlisted)


@router.get("/v1/dead-letters/jobs/{number}")
async def replay_job(request: Request, _person: Looker, number: Number) -> models.Replayed:
    """How far a replay or purge of many has come."""
    job = follower_of(request).letters.jobs.get(number)
    if job is None:
        raise Problem(404, "there is no such job")
    return _replayed(job)


@router.delete("/v1/dead-letters/jobs/{number}")
async def stop_job(request: Request, person: Steerer, number: Number) -> models.Replayed:
    """Stop a replay or purge of many."""
    job = follower_of(request).letters.jobs.get(number)
    if job is None:
        raise Problem(404, "there is no such job")
    job.stopped = True
    audit_of(request).note(
        user=person.user, address=person.address, action=f"stop {job.action}", target=str(number),
        result=f"after {job.count} of {job.total}",
    )  # fmt: skip
    return _replayed(job)


@router.post("/v1/dead-letters/replay-all")
async def replay_all(
    request: Request, person: Steerer, given: models.ReplayFilter | None = None
) -> models.Replayed:
    """Send dead letters back where they came from, those that died first before others."""
    given = given or models.ReplayFilter()
    return await _begin(request, person, given, "replay", given.limit)


@router.post("/v1/dead-letters/purge")
async def purge(
    request: Request, person: Steerer, given: models.PurgeFilter | None = None
) -> models.Replayed:
    """Take dead letters out and send them nowhere."""
    return await _begin(request, person, given or models.PurgeFilter(), "purge")


async def _begin(
    request: Request,
    person: Person,
    given: models.ReplayFilter | models.PurgeFilter,
    action: Literal["replay", "purge"],
    limit: int | None = None,
) -> models.Replayed:
    letters = follower_of(request).letters
    found = letters.chosen(queue=given.queue, reason=given.reason)[::-1]
    if given.expected is not None and len(found) > given.expected:
        text = f"there are {len(found)} dead letters by now, not {given.expected}"
        raise Problem(409, text, found=len(found))
    audit = audit_of(request)
    target = " ".join(filter(None, (given.queue, given.reason))) or "all"
    noted = {"user": person.user, "address": person.address, "target": target}

    def ended(job: Job) -> None:
        done = "purged" if action == "purge" else "replayed"
        audit.note(**noted, action=action, result=f"{job.count} {done}, {job.failed} failed")

    job = letters.start(person.link, found[:limit], person.user, ended, action)
    audit.note(**noted, action=f"begin {action}", result=f"of {job.total}")
    if given.wait:
        await letters.finished(job)
    return _replayed(job)


@router.get("/v1/dead-letters/{name}")
async def dead_letter(
    request: Request, person: Looker, name: str, preview: Preview = None
) -> models.Letter:
    """One dead letter with its payload, or the beginning of that."""
    letter = _named(request, name)
    entry = previewed(await read_entry(person.link, letter), preview)
    found = _letter(letter)
    found.bytes, found.cut = entry.get("bytes", found.bytes), entry.get("cut", False)
    found.payload, found.encoding = entry["payload"], entry.get("encoding")
    found.headers = entry.get("headers", {})
    return found


@router.post("/v1/dead-letters/{name}/replay")
async def replay(request: Request, person: Steerer, name: str) -> models.Replayed:
    """Send one dead letter back where it came from."""
    letter = _named(request, name)
    letters = follower_of(request).letters
    await change(request, person, "replay", name, lambda: letters.replay(person.link, letter))
    return models.Replayed(replayed=1)


@router.patch("/v1/dead-letters/{name}")
async def resolve(
    request: Request, person: Steerer, name: str, _change_to: models.LetterChange
) -> models.Letter:
    """Mark a dead letter as resolved."""
    letter = _named(request, name)
    letters = follower_of(request).letters
    await change(
        request, person, "resolve", name, lambda: letters.resolve(person.link, letter, "resolved")
    )
    found = _letter(letter)
    found.resolved, found.by = True, person.user
    return found


def _named(request: Request, name: str) -> Letter:
    letter = follower_of(request).letters.get(name)
    if letter is None:
        raise Problem(404, f"there is no dead letter {name[:150]!r}")
    return letter


def _letter(letter: Letter) -> models.Letter:
    return models.Letter(
        id=letter.id,
        original_id=letter.original_id,
        subject=letter.subject,
        group=letter.group,
        priority=letter.priority,
        bytes=letter.bytes,
        error=letter.reason,
        detail=letter.detail,
        attempts=letter.attempts,
        first_seen=letter.first_seen,
        last_failed=letter.last_failed,
        resolved=False,
    )


def _replayed(job: Job) -> models.Replayed:
    return models.Replayed(
        action=job.action,
        replayed=job.count if job.action == "replay" else 0,
        purged=job.count if job.action == "purge" else 0,
        failed=job.failed,
        error=job.error,
        job=job.number,
        done=job.done,
        total=job.total,
    )
