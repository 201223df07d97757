"""`/connz`: the clients of the server, with nats-server's parameters and field names."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mq9._core import SubscriptionInfo
from mq9.server.clients import ClientRecord, Figures
from mq9.server.clock import duration, now_ms, timestamp, uptime
from mq9.server.query import QueryError, boolean, integer
from mq9.server.running import Running
from mq9.server.subscriptions import subscriptions

_LIMIT = 1024

_AT_ONCE = 64
"""So many connections are asked about at once: others get their turn in between."""

_Key = Callable[[ClientRecord, Figures], Any]
# What to sort by, and whether the largest comes first.
_SORTS: dict[str, tuple[_Key, bool]] = {
    "cid": (lambda client, _: client.facts.cid, False),
    "start": (lambda client, _: client.facts.cid, False),
    "subs": (lambda _, figures: figures.subscriptions, True),
    "pending": (lambda _, figures: figures.pending_bytes, True),
    "msgs_to": (lambda _, figures: figures.out_msgs, True),
    "msgs_from": (lambda _, figures: figures.in_msgs, True),
    "bytes_to": (lambda _, figures: figures.out_bytes, True),
    "bytes_from": (lambda _, figures: figures.in_bytes, True),
    "last": (lambda _, figures: figures.last_activity_ms, True),
    "idle": (lambda _, figures: -figures.last_activity_ms, True),
    "uptime": (lambda client, _: (client.stop_ms or now_ms()) - client.facts.started_ms, False),
    "rtt": (lambda _, figures: figures.rtt_us, True),
    "stop": (lambda client, _: client.stop_ms or 0, True),
    "reason": (lambda client, _: client.reason, False),
}
_CLOSED_ONLY = {"stop", "reason"}


async def connz(running: Running, query: Mapping[str, str]) -> dict[str, Any]:
    """The document; QueryError if a parameter is not usable."""
    auth = boolean(query, "auth")
    detail = query.get("subs", "").lower() == "detail"
    subs = detail or boolean(query, "subs")
    offset, limit = max(integer(query, "offset"), 0), integer(query, "limit")
    limit = limit if limit > 0 else _LIMIT
    state = _state(query.get("state", ""))
    sort = query.get("sort", "") or "cid"
    if sort not in _SORTS:
        raise QueryError(f"invalid sorting option: {sort}")
    if sort in _CLOSED_ONLY and state == "open":
        raise QueryError(f"sort by {sort} only valid on closed connections")
    if (user := query.get("user", "")) and not auth:
        raise QueryError("filter by user only valid with auth option")

    clients = _clients(running, state)
    if cid := integer(query, "cid"):
        clients = [client for client in clients if client.facts.cid == cid]
        offset, limit = 0, 1
    if user:
        clients = [client for client in clients if client.facts.user == user]
    figures = await _figures(running, clients)
    key, descending = _SORTS[sort]
    clients.sort(key=lambda client: key(client, figures[client.facts.cid]), reverse=descending)
    now, page = now_ms(), clients[offset : offset + limit]
    listed = await _subscriptions(running, page, detail=detail) if subs else {}
    return {
        "server_id": running.identity.server_id,
        "now": timestamp(now),
        "num_connections": len(page),
        "total": len(clients),
        "offset": offset,
        "limit": limit,
        "connections": [
            _describe(client, figures[client.facts.cid], now, auth=auth)
            | _listed(listed.get(client.facts.cid, []), detail=detail)
            for client in page
        ],
    }


def _state(text: str) -> str:
    match text.lower():
        case "" | "open":
            return "open"
        case "closed":
            return "closed"
        case "any" | "all":
            return "all"
    raise QueryError(f"Error decoding state for '{text}'")


def _clients(running: Running, state: str) -> list[ClientRecord]:
    clients: list[ClientRecord] = []
    if state != "closed":
        clients += running.clients.listed()
    if state != "open":
        clients += running.clients.closed
    return clients


async def _figures(running: Running, clients: Sequence[ClientRecord]) -> dict[int, Figures]:
    """The figures of all these clients by the numbers of their connections."""
    figures = {client.facts.cid: client.last for client in clients}
    cids = [client.facts.cid for client in clients if client.stop_ms is None]
    for start in range(0, len(cids), _AT_ONCE):
        for stats in running.broker.connection_stats(cids[start : start + _AT_ONCE]):
            figures[stats.cid] = Figures.of(stats)
        await asyncio.sleep(0)
    return figures


async def _subscriptions(
    running: Running, clients: Sequence[ClientRecord], *, detail: bool
) -> dict[int, list[Any]]:
    found: dict[int, list[Any]] = {}
    async for some in subscriptions(running, [client.facts.cid for client in clients]):
        for one in some:
            shown = describe_subscription(one) if detail else one.subject
            found.setdefault(one.cid, []).append(shown)
    return found


def _describe(client: ClientRecord, stats: Figures, now: int, *, auth: bool) -> dict[str, Any]:
    facts = client.facts
    last = stats.last_activity_ms or facts.started_ms
    end = client.stop_ms or now
    stopped = client.stop_ms is not None
    document: dict[str, Any] = {
        "cid": facts.cid,
        "kind": "Client",
        "type": "nats",
        "ip": facts.ip,
        "port": facts.port,
        "start": timestamp(facts.started_ms),
        "last_activity": timestamp(last),
        **({"stop": timestamp(end), "reason": client.reason} if stopped else {}),
        "rtt": duration(stats.rtt_us),
        "uptime": uptime(end - facts.started_ms),
        "idle": uptime(end - last),
        "pending_bytes": stats.pending_bytes,
        "in_msgs": stats.in_msgs,
        "out_msgs": stats.out_msgs,
        "in_bytes": stats.in_bytes,
        "out_bytes": stats.out_bytes,
        "subscriptions": stats.subscriptions,
    }
    optional = {
        "name": facts.name,
        "lang": facts.lang,
        "version": facts.version,
        "tls_version": facts.tls_version,
        "tls_cipher_suite": facts.tls_cipher,
        "authorized_user": facts.user if auth else "",
        "name_tag": "$G" if auth and not stopped else "",
    }
    return document | {name: value for name, value in optional.items() if value}


def _listed(found: list[Any], *, detail: bool) -> dict[str, list[Any]]:
    return {"subscriptions_list_detail" if detail else "subscriptions_list": found} if found else {}


def describe_subscription(subscription: SubscriptionInfo) -> dict[str, Any]:
    """A subscription with nats-server's field names."""
    return {
        "subject": subscription.subject,
        **({"qgroup": subscription.queue} if subscription.queue else {}),
        "sid": subscription.sid,
        "msgs": subscription.delivered,
        **({"max": subscription.max} if subscription.max else {}),
        "cid": subscription.cid,
    }
