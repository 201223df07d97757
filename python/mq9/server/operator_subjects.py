"""ADMIN.SERVER.VARZ, CONNZ: what the monitoring port tells, for operators over NATS; and YIELD.

Owns who is told. The documents have files of their own.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from mq9._core import dead_counts, latency_bounds_us
from mq9.commands.permission import is_operator
from mq9.server.connz import connz
from mq9.server.query import QueryError
from mq9.server.varz import Usage, varz

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from mq9.server.running import Running

_PREFIX = "$mq9.AI.ADMIN.SERVER."
_MAX_CONNECTIONS = 1024
_MAX_WAITING = 64
_MAX_DAMAGE = 20
_MOST_NODES = 1 << 16
_ANSWER_S = 0.1
_LOOK_S = 5.0


class OperatorSubjects:
    """Answers requests about the server as a whole."""

    def __init__(self, running: Running) -> None:
        self._running = running
        self._usage = Usage()
        self._waiting: set[asyncio.Task[None]] = set()
        self._one = asyncio.Lock()
        self._checkpoint_ms: int | None = None
        self._looked = -_LOOK_S
        running.broker.serve(f"{_PREFIX}VARZ", self._varz)
        running.broker.serve(f"{_PREFIX}CONNZ", self._connz)
        running.broker.serve(f"{_PREFIX}YIELD", self._yield)

    def _varz(self, cid: int, subject: str, reply: str, _headers: bytes, _payload: bytes) -> None:
        if reply and self._may(cid, subject, reply):
            self._answer(cid, reply, {"varz": self._server(), **self._state()})

    def _connz(self, cid: int, subject: str, reply: str, _headers: bytes, payload: bytes) -> None:
        if not reply or not self._may(cid, subject, reply):
            return
        try:
            query = _query(payload)
        except ValueError as error:
            self._answer(cid, reply, {}, f"invalid request: {error}")
            return
        if len(self._waiting) >= _MAX_WAITING:
            self._answer(cid, reply, {}, "too many such requests are waiting")
            return
        task = asyncio.get_running_loop().create_task(self._connections(cid, reply, query))
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)

    def _yield(self, cid: int, subject: str, reply: str, _headers: bytes, payload: bytes) -> None:
        if not reply or not self._may(cid, subject, reply):
            return
        yield_lead = self._running.yield_lead
        try:
            fields = json.loads(payload) if payload.strip() else {}
            node = fields.get("node") if isinstance(fields, dict) else 0
            if node is not None and (not isinstance(node, int) or not 0 < node < _MOST_NODES):
                raise ValueError("node is the number of a node")
        except ValueError as error:
            self._answer(cid, reply, {}, f"invalid request: {error}")
            return
        if yield_lead is None:
            self._answer(cid, reply, {}, "this server is no node of a cluster")
            return
        self._answer(cid, reply, {})
        # The answer leaves first: nothing does once the lead is given away.
        asyncio.get_running_loop().call_later(_ANSWER_S, yield_lead, node)

    async def _connections(self, cid: int, reply: str, query: Mapping[str, str]) -> None:
        async with self._one:
            try:
                document = await connz(self._running, query)
            except QueryError as error:
                self._answer(cid, reply, {}, str(error))
                return
        self._answer(cid, reply, {"connz": document})

    def _may(self, cid: int, subject: str, reply: str) -> bool:
        if is_operator(self._running.clients.open.get(cid), subject):
            return True
        text = "permission denied: this command is for operators"
        self._running.broker.refuse(cid, reply, subject, "access_denied", text)
        return False

    def _answer(self, cid: int, reply: str, document: dict[str, Any], error: str = "") -> None:
        body = json.dumps({"error": error, **document}, ensure_ascii=False, separators=(",", ":"))
        self._running.broker.answer(cid, reply, body.encode("utf-8", "replace"))

    def _server(self) -> dict[str, Any]:
        return varz(self._running, self._usage, {})

    def _newest_checkpoint(self) -> int | None:
        """Looked for now and then only: there may be many files beside it."""
        now = time.monotonic()
        if now - self._looked >= _LOOK_S:
            self._checkpoint_ms = newest_checkpoint(self._running.options.data_dir)
            self._looked = now
        return self._checkpoint_ms

    def _state(self) -> dict[str, Any]:
        running = self._running
        info = running.store.info()
        disk = shutil.disk_usage(running.options.data_dir)
        damage = running.store.damage()
        stats = running.broker.stats()
        dead, others = dead_counts(running.store)
        return {
            "store": {
                "mailboxes": info.mailboxes,
                "segments": info.segments,
                "log_bytes": info.log_bytes,
                "live_bytes": info.live_bytes,
                "checkpoint_bytes": info.checkpoint_bytes,
                "checkpoint_ms": self._newest_checkpoint(),
                "opened": info.epoch,
                "waiting": info.waiting,
                "writes_stopped": info.writes_stopped or "",
                "refusing": info.refusing or "",
                "damage": [str(each) for each in damage[:_MAX_DAMAGE]],
            },
            "latency": {
                "bounds_us": latency_bounds_us(),
                "sync": {"counts": info.sync_counts, "sum_us": info.sync_sum_us},
                "commit": {"counts": stats.commit_counts, "sum_us": stats.commit_sum_us},
            },
            "dead": dict(sorted(dead)) | ({"$others": others} if others else {}),
            "registry": running.registry() if running.registry is not None else None,
            "exported_ms": running.exported_ms,
            "disk": {"total": disk.total, "free": disk.free},
            "started_ms": running.started_ms,
            "lame_duck": running.lame_duck,
        }


def newest_checkpoint(folder: Path) -> int | None:
    """When the newest checkpoint in a data directory was written, in Unix milliseconds."""
    times = []
    for file in folder.glob("checkpoint-*.mq9"):
        # One may go while others are looked at.
        with suppress(OSError):
            times.append(file.stat().st_mtime_ns // 1_000_000)
    return max(times, default=None)


def _query(payload: bytes) -> dict[str, str]:
    fields = json.loads(payload) if payload.strip() else {}
    if not isinstance(fields, dict):
        raise ValueError("expected an object")
    query = {str(name): str(value) for name, value in fields.items()}
    if int(query.get("limit", "0") or 0) > _MAX_CONNECTIONS:
        raise ValueError(f"limit is at most {_MAX_CONNECTIONS}")
    return query
