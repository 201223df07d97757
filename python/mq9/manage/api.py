"""The REST interface: what each path does.

Owns paths and answers. Every change is made over the connection of the user who asks for it, so the
broker decides whether they may, and leaves a line in the audit log.
"""

import time
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import PlainTextResponse

from mq9 import __version__
from mq9.manage import models, streams
from mq9.manage.access import COOKIE, Access, Person, peer
from mq9.manage.asking import (
    PROBLEMS,
    QUEUE_NAME,
    Limit,
    Looker,
    Offset,
    QueueName,
    Steerer,
    Text,
    audit_of,
    change,
    follower_of,
    is_stream,
)
from mq9.manage.groups import SORTS as GROUP_SORTS
from mq9.manage.latency import NAMES as LATENCIES
from mq9.manage.link import RefusedError
from mq9.manage.metrics import duration_quantile, render
from mq9.manage.mirror import SORTS, Mirror
from mq9.manage.problems import Problem
from mq9.manage.rows import Group, Kind, Row

router = APIRouter(responses=PROBLEMS)


@router.get("/healthz")
async def healthz(request: Request) -> dict[str, str]:
    """Whether this process and the broker answer."""
    follower = follower_of(request)
    if follower.gone_since is not None:
        raise Problem(503, f"the broker is gone: {follower.problem}")
    return {"status": "ok"}


@router.get("/metrics", response_class=PlainTextResponse)
async def metrics(request: Request, _person: Looker) -> Response:
    """For Prometheus."""
    return Response(render(follower_of(request)), media_type="text/plain; version=0.0.4")


@router.get("/v1/session")
async def session(request: Request) -> models.Session:
    """Who is asking."""
    access: Access = request.app.state.access
    try:
        person = await access.who(request)
    except Problem as problem:
        if problem.status != 401:
            raise
        return models.Session(user="", role="none", csrf="", anonymous=True, version=__version__)
    return _session(person)


@router.post("/v1/session")
async def sign_in(
    request: Request, response: Response, given: models.Credentials
) -> models.Session:
    """Begin a session with the user and password of an operator of the broker."""
    access: Access = request.app.state.access
    noted = {"user": given.user, "address": peer(request), "action": "sign in", "target": ""}
    try:
        cookie, person = await access.sign_in(request, given.user, given.password)
    except Exception as error:
        # One who goes on guessing must not fill the disk.
        if not isinstance(error, Problem) or error.status != 429:
            audit_of(request).note(**noted, result=f"failed: {error}")
        raise
    # A proxy that speaks TLS with the browser says so.
    proto = request.headers.get("x-forwarded-proto", request.url.scheme)
    secure = proto.strip().lower() == "https"
    response.set_cookie(COOKIE, cookie, httponly=True, samesite="strict", secure=secure)
    person.address = peer(request)
    audit_of(request).note(**noted, result="done")
    return _session(person)


@router.delete("/v1/session")
async def sign_out(request: Request, response: Response) -> models.Removed:
    """End the session."""
    access: Access = request.app.state.access
    person = await access.sign_out(request)
    if person is not None:
        audit_of(request).note(
            user=person.user, address=peer(request), action="sign out", target="", result="done"
        )
    response.delete_cookie(COOKIE)
    return models.Removed(removed=True)


@router.get("/v1/state")
async def state(request: Request, _person: Looker) -> models.State:
    """Whether the broker answers, and how much there is."""
    follower = follower_of(request)
    varz = follower.server.get("varz", {})
    broker = {
        "gone_since": follower.gone_since,
        "problem": follower.problem,
        "next_try": follower.next_try,
        "name": varz.get("server_name", ""),
        "version": varz.get("mq9", {}).get("version", ""),
    }
    counts = {
        "queues": follower.mirror.count,
        "consumers": follower.mirror.group_count,
        "dead_letters": follower.letters.count(),
        "connections": int(varz.get("connections", 0)),
    }
    return models.State(now=time.time(), broker=broker, counts=counts)


@router.get("/v1/overview")
async def overview(request: Request, person: Looker) -> models.Overview:
    """How the broker is, and what needs attention."""
    follower = follower_of(request)
    mirror, points = follower.mirror, follower.series.points()
    last = points[-1] if points else {}
    behind, _ = mirror.page(sort="outlook", limit=8)
    varz, store = follower.server.get("varz", {}), follower.server.get("store", {})
    told = await state(request, person)
    return models.Overview(
        now=told.now,
        broker={
            **told.broker,
            "sync": varz.get("mq9", {}).get("sync", ""),
            "uptime": varz.get("uptime", ""),
            "memory": varz.get("mem"),
            "slow_consumers": varz.get("slow_consumers"),
            "store": {key: value for key, value in store.items() if key != "damage"},
            "damage": len(store.get("damage", ())),
            "disk": follower.server.get("disk"),
        },
        attention=[models.Attention(**each) for each in follower.attention()],
        numbers={
            "rate_in": last.get("sent"),
            "rate_delivered": last.get("delivered"),
            "rate_acked": last.get("acked"),
            **{name: last.get(name) for name in LATENCIES},
            "waiting": int(mirror.levels.sum()),
            "in_flight": mirror.totals["in_flight"],
            "delayed": mirror.totals["delayed"],
            "dead_letters": told.counts["dead_letters"],
            "bytes": mirror.totals["bytes"],
        },
        levels={at + 1: n for at, n in enumerate(mirror.levels.tolist()) if n},
        series=points,
        behind=[_queue(row) for row in behind if row.lag or row.outlook == "nobody reads"],
        counts=told.counts,
    )


@router.get("/v1/queues")
async def queues(
    request: Request,
    _person: Looker,
    search: Text = "",
    sort: Text = "outlook",
    limit: Limit = 50,
    offset: Offset = 0,
    kind: Kind | None = None,
) -> models.Queues:
    """A part of all queues; `sort` is a field, with `-` before it the other way round."""
    if sort.removeprefix("-") not in SORTS:
        raise Problem(422, f"sort is {sort!r}: it must be one of {', '.join(sorted(SORTS))}")
    mirror = follower_of(request).mirror
    rows, total = mirror.page(search=search, sort=sort, offset=offset, limit=limit, kind=kind)
    return models.Queues(queues=[_queue(row) for row in rows], total=total)


@router.get("/v1/queues/{name}")
async def queue(
    request: Request, person: Looker, name: QueueName, kind: Kind | None = None
) -> models.QueueDetails:
    """One queue, with its lanes, groups and policy: a mailbox if there is one, or a stream."""
    mirror = follower_of(request).mirror
    if is_stream(request, name, kind):
        config = await streams.config(person.link, name)
        if (place := mirror.find(name, "stream")) is None:
            raise Problem(404, f"there is no stream {name!r}")
        return _stream(mirror, place, config)
    shown = (await person.link.request(f"ADMIN.MAILBOX.SHOW.{name}"))["mailbox"]
    place = mirror.find(name)
    if place is None:
        raise Problem(404, f"mailbox {name} does not exist")
    row, groups = mirror.row(place), mirror.groups_of(place)
    policy = {**shown["policy"]}
    return models.QueueDetails(
        **_queue(row).model_dump(),
        desc=shown["desc"],
        created=shown["created"],
        expires=shown["expires"],
        next_id=shown["next_id"],
        lanes=row.levels,
        policy=policy,
        groups=[_consumer(group) for group in groups],
    )


@router.get("/v1/consumers")
async def consumers(
    request: Request,
    _person: Looker,
    search: Text = "",
    sort: Annotated[str, Query(pattern=f"^-?({'|'.join(GROUP_SORTS)})$")] = "pending",
    limit: Limit = 50,
    offset: Offset = 0,
    kind: Kind | None = None,
) -> models.Consumers:
    """A part of all groups and consumers, those with the most work first."""
    found, total = follower_of(request).mirror.groups.page(
        search=search, sort=sort, offset=offset, limit=limit, kind=kind
    )
    return models.Consumers(consumers=[_consumer(each) for each in found], total=total)


@router.get("/v1/consumers/{name}")
async def consumer(
    request: Request,
    _person: Looker,
    name: str,
    queue: Text = "",
    limit: Limit = 1000,
    offset: Offset = 0,
) -> models.Consumers:
    """A part of the groups of this name, of one queue or of all."""
    groups = follower_of(request).mirror.groups
    found, total = groups.named(name, queue, offset, limit)
    if not total:
        raise Problem(404, f"there is no group {name[:100]!r}")
    return models.Consumers(consumers=[_consumer(each) for each in found], total=total)


@router.delete("/v1/consumers/{name:path}")
async def remove_consumer(
    request: Request,
    person: Steerer,
    name: Annotated[str, Path(min_length=1, max_length=255)],
    queue: Annotated[str, Query(pattern=QUEUE_NAME, max_length=255)],
    kind: Kind = "mailbox",
) -> models.Removed:
    """Remove a group of a mailbox; with `kind`, a consumer of a stream. Messages stay."""
    found, _ = follower_of(request).mirror.groups.named(name, queue, 0, 2)
    if not any(each.kind == kind for each in found):
        raise Problem(404, f"there is no group {name[:100]!r} of {queue[:100]!r}")

    async def work() -> None:
        if kind == "stream":
            await streams.remove_consumer(person.link, queue, name)
        else:
            await person.link.request(f"GROUP.REMOVE.{queue}", {"group_name": name})

    await change(request, person, "remove consumer", f"{queue}:{name}", work)
    return models.Removed(removed=True)


@router.get("/v1/agents")
async def agents(
    person: Looker,
    q: Text = "",
    by: Annotated[str, Query(pattern="^(words|meaning)$")] = "words",
    limit: Limit = 50,
    page: Annotated[int, Query(ge=1, le=100_000)] = 1,
) -> models.Agents:
    """Agents that match a question, best first; without one, all."""
    fields: dict[str, Any] = {"limit": limit, "page": page, "status": True}
    if q:
        fields |= {"semantic" if by == "meaning" else "text": q, "scores": True}
    found = await person.link.request("AGENT.DISCOVER", fields, timeout_s=8)
    return models.Agents(
        agents=found["agents"],
        statuses=[models.AgentStatus(**each) for each in found["statuses"]],
        scores=found.get("scores"),
        total=found["total"],
    )


@router.get("/v1/connections")
async def connections(
    person: Looker,
    sort: Annotated[str, Query(pattern="^[a-z_]{1,20}$")] = "cid",
    limit: Limit = 50,
    offset: Offset = 0,
) -> models.Connections:
    """Clients of the broker."""
    fields = {"limit": limit, "offset": offset, "sort": sort, "auth": "1"}
    found = (await person.link.request("ADMIN.SERVER.CONNZ", fields))["connz"]
    return models.Connections(connections=found["connections"], total=found["total"])


@router.get("/v1/schedules")
async def schedules(request: Request, _person: Looker) -> models.Schedules:
    """What is sent at set times, and when next."""
    scheduler = follower_of(request).scheduler
    found = [
        models.ScheduleRow(
            name=each.schedule.name,
            cron=each.schedule.cron,
            timezone=each.schedule.timezone,
            target=each.schedule.mailbox or each.schedule.subject,
            due=each.due,
            fired=each.fired,
            late=each.is_late,
            problem=each.problem,
        )
        for each in (scheduler.progress if scheduler else ())
    ]
    return models.Schedules(schedules=found, total=len(found))


@router.get("/v1/audit")
async def audit_lines(request: Request, _person: Looker) -> models.AuditLines:
    """What somebody changed, newest first."""
    return models.AuditLines(lines=list(audit_of(request).newest)[::-1])


def refused(error: RefusedError) -> Problem:
    """The broker's refusal as a problem: its words, and a status by its kind."""
    text, kind = str(error), error.kind
    if kind in ("mailbox_not_found", "message_not_found", "group_not_found"):
        return Problem(404, text, kind=kind)
    if kind == "access_denied":
        return Problem(403, text, kind=kind)
    return Problem(422, text, kind=kind)


def _session(person: Person) -> models.Session:
    return models.Session(
        user=person.user,
        role=person.role,  # type: ignore[arg-type]
        csrf=person.csrf if person.user else "",
        anonymous=not person.user,
        version=__version__,
    )


def _queue(row: Row) -> models.Queue:
    return models.Queue(**{name: getattr(row, name) for name in Row.__dataclass_fields__})


def _stream(mirror: Mirror, place: int, config: dict[str, Any]) -> models.QueueDetails:
    """What is known of a stream; the rest of its configuration is JetStream's to show."""
    row = mirror.row(place)
    return models.QueueDetails(
        **_queue(row).model_dump(),
        desc="",
        created=mirror.created_ms(place) // 1000,
        expires=0,
        next_id=mirror.numbers(place)[1],
        lanes={},
        policy={"retention": config["retention"]} if config else {},
        groups=[_consumer(group) for group in mirror.groups_of(place)],
        subjects=config.get("subjects", []),
        declared=config.get("declared", False),
        declared_consumers=config.get("declared_consumers", []),
    )


def _consumer(group: Group) -> models.Consumer:
    now = time.time()
    durations = group.durations
    return models.Consumer(
        name=group.name,
        queue=group.queue,
        kind=group.kind,
        pending=group.pending,
        ack_pending=group.ack_pending,
        redelivered=group.redelivered,
        lag=group.lag,
        lag_s=group.lag_s(now) if group.pending and group.oldest_ms else None,
        members=group.members,
        ack_rate=group.ack_rate(now),
        delivered=group.delivered,
        acked=group.acked,
        dead=group.dead,
        used_s=max(now - group.used_ms / 1000, 0.0),
        p95_s=duration_quantile(durations, 0.95) if sum(durations) else None,
    )
