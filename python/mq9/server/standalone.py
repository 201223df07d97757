"""Monitoring documents about more than one server or account, from a server that stands alone.

Tools ask for all of them: each has nats-server's fields, with nothing in those that do not apply.
"""

from collections.abc import Mapping
from typing import Any

from mq9.server.clock import now_ms, timestamp
from mq9.server.query import QueryError, boolean
from mq9.server.running import Running

ACCOUNT = "$G"
_SYSTEM_ACCOUNT = "$SYS"


def routez(running: Running) -> dict[str, Any]:
    """`/routez`: servers of the same cluster."""
    identity = running.identity
    named = {"server_id": identity.server_id, "server_name": identity.name}
    return {**named, "now": timestamp(now_ms()), "num_routes": 0, "routes": []}


def leafz(running: Running) -> dict[str, Any]:
    """`/leafz`: leaf nodes."""
    return {**_of(running), "leafnodes": 0, "leafs": []}


def gatewayz(running: Running) -> dict[str, Any]:
    """`/gatewayz`: other clusters."""
    return {**_of(running), "outbound_gateways": {}, "inbound_gateways": {}}


def accountz(running: Running, query: Mapping[str, str]) -> dict[str, Any]:
    """`/accountz`: the one account; QueryError if another is asked for."""
    document = {**_of(running), "system_account": _SYSTEM_ACCOUNT}
    asked = query.get("acc", "")
    if not asked:
        return document | {"accounts": [ACCOUNT]}
    if asked != ACCOUNT:
        raise QueryError(f"Account {asked} does not exist")
    stats = running.broker.stats()
    detail = {
        "account_name": ACCOUNT,
        "update_time": timestamp(running.loaded_ms),
        "expired": False,
        "complete": True,
        "jetstream_enabled": running.options.jetstream,
        "leafnode_connections": 0,
        "client_connections": len(running.clients),
        "subscriptions": stats.subscriptions,
        "name_tag": ACCOUNT,
    }
    return document | {"account_detail": detail}


def accstatz(running: Running, query: Mapping[str, str]) -> dict[str, Any]:
    """`/accstatz`: the traffic of the one account, if it has clients or `unused` asks for it."""
    listed = len(running.clients) > 0 or boolean(query, "unused")
    return {**_of(running), "account_statz": [_traffic(running)] if listed else []}


def _traffic(running: Running) -> dict[str, Any]:
    stats, connections = running.broker.stats(), len(running.clients)
    return {
        "acc": ACCOUNT,
        "name": ACCOUNT,
        "conns": connections,
        "leafnodes": 0,
        "total_conns": connections,
        "num_subscriptions": stats.subscriptions,
        "sent": _moved(stats.out_msgs, stats.out_bytes),
        "received": _moved(stats.in_msgs, stats.in_bytes),
        "slow_consumers": stats.slow_consumers,
    }


def _moved(messages: int, size: int) -> dict[str, Any]:
    others = {kind: {"msgs": 0, "bytes": 0} for kind in ("gateways", "routes", "leafs")}
    return {"msgs": messages, "bytes": size, **others}


def _of(running: Running) -> dict[str, Any]:
    return {"server_id": running.identity.server_id, "now": timestamp(now_ms())}
