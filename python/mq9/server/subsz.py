"""`/subsz`: the subscriptions of all clients, with nats-server's parameters and field names."""

from collections.abc import Mapping
from typing import Any

from mq9.server.clock import now_ms, timestamp
from mq9.server.connz import describe_subscription
from mq9.server.query import QueryError, boolean, integer
from mq9.server.running import Running
from mq9.server.subscriptions import subscriptions

_LIMIT = 1024


async def subsz(running: Running, query: Mapping[str, str]) -> dict[str, Any]:
    """The document; QueryError if a parameter is not usable."""
    listed = boolean(query, "subs")
    offset, limit = max(integer(query, "offset"), 0), integer(query, "limit")
    limit = limit if limit > 0 else _LIMIT
    test = query.get("test", "")
    if test and not is_publish_subject(test):
        raise QueryError(f"invalid test subject, must be valid publish subject: {test}")
    stats = running.broker.stats()
    document: dict[str, Any] = {
        "server_id": running.identity.server_id,
        "now": timestamp(now_ms()),
        "num_subscriptions": stats.subscriptions,
        # What was found last is kept by each connection, not in one cache: it has no size.
        "num_cache": 0,
        "num_inserts": stats.inserts,
        "num_removes": stats.removes,
        "num_matches": stats.lookups,
        "cache_hit_rate": stats.lookup_hits / stats.lookups if stats.lookups else 0,
        "max_fanout": 0,
        "avg_fanout": 0,
        "total": 0,
        "offset": offset,
        "limit": limit,
    }
    if not listed:
        return document
    account = {"account": "$G", "account_tag": "$G"}
    page: list[dict[str, Any]] = []
    cids = [client.facts.cid for client in running.clients.listed()]
    async for some in subscriptions(running, cids):
        for subscription in some:
            if test and not matches(subscription.subject, test):
                continue
            if offset <= document["total"] < offset + limit:
                page.append(account | describe_subscription(subscription))
            document["total"] += 1
    if page:
        document["subscriptions_list"] = page
    return document


def is_publish_subject(subject: str) -> bool:
    """Whether it is a subject without wildcards and empty tokens."""
    tokens = subject.split(".")
    return all(tokens) and not {"*", ">"} & set(tokens) and not set(subject) & set(" \t\r\n\f")


def matches(pattern: str, subject: str) -> bool:
    """Whether a subscription to `pattern` receives what is published to `subject`."""
    wanted, tokens = pattern.split("."), subject.split(".")
    if wanted[-1] == ">":
        if len(tokens) < len(wanted):
            return False
        wanted, tokens = wanted[:-1], tokens[: len(wanted) - 1]
    return len(wanted) == len(tokens) and all(
        want in ("*", token) for want, token in zip(wanted, tokens, strict=True)
    )
