"""`/jsz`: streams and consumers, in the fields that KEDA and the Prometheus exporter of NATS read.

Owns the form of the document. What streams and consumers are like, the core says, one by one.
"""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from mq9._core import stream_bytes, stream_detail, stream_names
from mq9.server.clock import now_ms, timestamp
from mq9.server.query import boolean
from mq9.server.running import Running
from mq9.server.standalone import ACCOUNT

_NO_BYTES = dict.fromkeys(("memory", "storage", "reserved_memory", "reserved_storage"), 0)
_NOT_SERVED = {
    "disabled": True,
    "config": {"max_memory": 0, "max_storage": 0},
    **dict.fromkeys(("streams", "consumers", "messages", "bytes", "total"), 0),
}


def api(running: Running) -> dict[str, int]:
    """Requests to the API so far."""
    total, errors = running.broker.jetstream_requests()
    return {"level": 0, "total": total, "errors": errors}


def summary(running: Running) -> dict[str, Any]:
    """What `/varz` says of JetStream; nothing where it is not served."""
    if not running.options.jetstream:
        return {}
    stats = _NO_BYTES | {"storage": stream_bytes(running.store)}
    return {
        "config": _config(running),
        "stats": {**stats, "accounts": 1, "ha_assets": 0, "api": api(running)},
        "limits": {},
    }


async def jsz(running: Running, query: Mapping[str, str]) -> dict[str, Any]:
    """The document; `consumers`, `config`, `streams`, `accounts` and `acc` ask for more of it."""
    identity = running.identity
    document = {**_NO_BYTES, "accounts": 0, "ha_assets": 0, "api": api(running)}
    document |= {"server_id": identity.server_id, "now": timestamp(now_ms())}
    if not running.options.jetstream:
        return document | _NOT_SERVED
    consumers, config = boolean(query, "consumers"), boolean(query, "config")
    streams = await _streams(running, consumers=consumers, config=config)
    stored = sum(stream["state"]["bytes"] for stream in streams)
    document |= {
        "storage": stored,
        "accounts": 1,
        "config": _config(running),
        "limits": {"default_max_consumers": -1},
        **_totals(streams, raft=boolean(query, "raft")),
    }
    if not (consumers or boolean(query, "streams") or boolean(query, "accounts") or "acc" in query):
        return document
    if query.get("acc", ACCOUNT) != ACCOUNT:
        return document | {"account_details": []}
    account = {"name": ACCOUNT, "id": ACCOUNT, **_NO_BYTES, "storage": stored}
    account |= {"accounts": 0, "ha_assets": 0, "api": api(running)}
    if streams and (consumers or boolean(query, "streams")):
        account["stream_detail"] = streams
    return document | {"account_details": [account]}


async def _streams(running: Running, *, consumers: bool, config: bool) -> list[dict[str, Any]]:
    """All streams; others have their turn after each."""
    streams = []
    for name in stream_names(running.store):
        if detail := stream_detail(running.store, name, consumers, config):
            streams.append(json.loads(detail))
        await asyncio.sleep(0)
    return streams


def _config(running: Running) -> dict[str, Any]:
    directory = str(running.store.path)
    return {
        "max_memory": 0,
        "max_storage": 0,
        "store_dir": directory,
        "sync_interval": 120_000_000_000,
        "strict": True,
    }


def _totals(streams: list[dict[str, Any]], *, raft: bool) -> dict[str, int]:
    states = [stream["state"] for stream in streams]
    consumers = sum(state["consumer_count"] for state in states)
    return {
        "streams": len(streams),
        **({"streams_leader": len(streams), "consumers_leader": consumers} if raft else {}),
        "consumers": consumers,
        "messages": sum(state["messages"] for state in states),
        "bytes": sum(state["bytes"] for state in states),
        "total": 1,
    }
