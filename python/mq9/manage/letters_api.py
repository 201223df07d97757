"""The paths of dead letters: look, send back, resolve, purge.

Owns paths and answers; which letters there are, `letters` knows.
"""

from typing import Any

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
from mq9.manage.letter import Letter, previewed, read_entry
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
    found: list[dict[str, Any]] = []
    after: int | None = None
    while len(found) < 10_000:
        fields = {"limit": 1000} | ({"after": after} if after is not None else {})
        page = await person.link.request("ADMIN.DEAD.RESOLVED", fields)
        found += [
            letter
            for letter in page["letters"]
            if queue in ("", letter["subject"]) and reason in ("", letter["error"])
        ]
        after = page["next"]
        if after is None:
            break
    found.reverse()
    letters = [models.Letter(resolved=True, **_coerced(each)) for each in found]
    return models.Letters(dead_letters=letters[offset : offset + limit], total=len(found))


def _coerced(note: dict[str, Any]) -> dict[str, Any]:
    attempts = str(note.get("attempts", "0"))
    return {**note, "attempts": int(attempts) if attempts.isdigit() else 0}


@router.get("/v1/dead-letters/reasons")
async def reasons(request: Request, _person: Looker) -> models.Reasons:
    """How many dead letters there are for each reason and queue."""
    letters = follower_of(request).letters
    found = [models.Reason(**each) for each in letters.reasons()]
    return models.Reasons(reasons=found, total=letters.count())


@router.get("/v1/dead-letters/jobs/{number}")
async def replay_job(request: Request, _person: Looker, number: Number) -> models.Replayed:
    """How far a replay of many has come."""
    job = follower_of(request).letters.jobs.get(number)
    if job is None:
        raise Problem(404, "there is no such job")
    return _replayed(job)


@router.delete("/v1/dead-letters/jobs/{number}")
async def stop_job(request: Request, person: Steerer, number: Number) -> models.Replayed:
    """Stop a replay of many."""
    job = follower_of(request).letters.jobs.get(number)
    if job is None:
        raise Problem(404, "there is no such job")
    job.stopped = True
    audit_of(request).note(
        user=person.user, address=person.address, action="stop replay", target=str(number),
        result=f"after {job.replayed} of {job.total}",
    )  # fmt: skip
    return _replayed(job)


@router.post("/v1/dead-letters/replay-all")
async def replay_all(
    request: Request, person: Steerer, given: models.ReplayFilter | None = None
) -> models.Replayed:
    """Send dead letters back where they came from, those that died first before others."""
    given = given or models.ReplayFilter()
    letters = follower_of(request).letters
    found = letters.chosen(queue=given.queue, reason=given.reason)[::-1]
    if given.expected is not None and len(found) > given.expected:
        text = f"there are {len(found)} dead letters by now, not {given.expected}"
        raise Problem(409, text, found=len(found))
    audit = audit_of(request)

    noted = {"user": person.user, "address": person.address, "target": given.queue or "all"}

    def ended(job: Job) -> None:
        result = f"{job.replayed} replayed, {job.failed} failed"
        audit.note(**noted, action="replay", result=result)

    audit.note(**noted, action="begin replay", result=f"of {len(found[: given.limit])}")
    job = letters.start(person.link, found[: given.limit], person.user, ended)
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
        attempts=letter.attempts,
        first_seen=letter.first_seen,
        last_failed=letter.last_failed,
        resolved=False,
    )


def _replayed(job: Job) -> models.Replayed:
    return models.Replayed(
        replayed=job.replayed,
        failed=job.failed,
        error=job.error,
        job=job.number,
        done=job.done,
        total=job.total,
    )
