"""This server as a node of a cluster: it follows until it leads, and says when it no longer does.

Owns the node's thread and the store of a follower. Clients of a follower are handed on to the
leader, byte for byte.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from mq9 import __version__
from mq9._core import ClusterNode
from mq9.cluster import metrics
from mq9.server.backbone import SyncCheck
from mq9.server.handing_on import HandingOn
from mq9.server.info import split_address
from mq9.server.running import StartError

if TYPE_CHECKING:
    import socket
    from collections.abc import Awaitable, Callable, Sequence

    from mq9._core import NodeStatus
    from mq9.config import Replication
    from mq9.server.http_server import HttpServer, Request, Response
    from mq9.server.logs import Log
    from mq9.store import Store

EVERYTHING = 2**64 - 1
"""All that the own log holds may stay."""
_WAIT_MS = 200
_NATS_PORT = 4222
# So far behind, a follower is not well.
_LAG = 10_000


class Membership:
    """One node's part in a cluster."""

    def __init__(
        self,
        options: Replication,
        log: Log,
        open_store: Callable[[int], Store],
        *,
        max_payload: int,
        first: bool,
        refusal: Callable[[Request, bool], Awaitable[Response | None]],
    ) -> None:
        self._options = options
        self._max_payload = max_payload
        self._refusal = refusal
        self._first = first
        self._has_worked = not first
        self._log = log
        self._open_store = open_store
        self._store: Store | None = None
        self._check: SyncCheck | None = None
        self._checking: asyncio.Task[None] | None = None
        self._node: ClusterNode | None = None
        self._seen = 0
        self._unknown: set[int] = set()
        self._trouble: str | None = None

    async def follow(
        self,
        keep: int,
        stop: asyncio.Event,
        sockets: Sequence[socket.socket],
        http: Sequence[socket.socket],
    ) -> Store | None:
        """Follow until this node leads, and give its store to be served; None when told to stop."""
        handing_on = HandingOn(sockets, self._log)
        monitor = self._monitor() if http else None
        if monitor is not None:
            await monitor.start(http)
        try:
            await self._check_sync(stop)
            while not stop.is_set():
                await self._open(keep)
                status = await self._until_changed(stop, handing_on)
                if status is None:
                    break
                if status.role == "leading":
                    self._log.info("This node leads", node=self._options.node, term=status.term)
                    return self._store
                if status.role == "stopped":
                    # It holds what others may need: nobody but an operator goes on with it.
                    stands = f"this node of the cluster stands still: {status.trouble}"
                    if not status.is_alarm or not self._has_worked:
                        raise StartError(stands)
                    # To end and be started again would not help, and nobody would hear of it.
                    self._log.error(stands)
                    handing_on.to(None)
                    await stop.wait()
                    break
                keep = status.keep
                await self.close(checkpoint=False)
            await self.close(checkpoint=True)
            self.raise_refusal()
            return None
        finally:
            handing_on.close()
            if monitor is not None:
                await monitor.close()

    async def _check_sync(self, stop: asyncio.Event) -> None:
        if not self._options.checks_sync:
            self._log.warn("Cluster: nobody checks whether the nats-servers sync what they confirm")
            return
        check = self._check = SyncCheck(self._options.monitors, self._log)
        # A node that was demoted may be cut off from all of them.
        if self._first:
            await check.begin(stop)
        self._checking = asyncio.create_task(check.finish(stop))

    def raise_refusal(self) -> None:
        """StartError if a nats-server does not sync: who restarts this node hears of it."""
        if self._check is not None and self._check.refusal is not None:
            raise self._check.refusal

    async def _open(self, keep: int) -> None:
        options = self._options
        self._store = await asyncio.to_thread(self._open_store, keep)
        self._node = ClusterNode(
            self._store,
            cluster=options.name,
            node=options.node,
            members=list(options.members),
            servers=[_server(url) for url in options.servers],
            replicas=options.replicas,
            lease_ms=options.lease_ms,
            max_payload=self._max_payload,
        )
        self._seen = 0
        self._log.info("Following", cluster=options.name, node=options.node)

    async def _until_changed(self, stop: asyncio.Event, handing_on: HandingOn) -> NodeStatus | None:
        while not stop.is_set():
            status = await self._next_status()
            if status.role not in ("starting", "following"):
                return status
            following = status.role == "following" and status.leader not in (0, self._options.node)
            self._has_worked |= following
            handing_on.to(self._address(status.leader) if following else None)
        return None

    async def _next_status(self) -> NodeStatus:
        node = self._running_node()
        status = await asyncio.to_thread(node.wait, self._seen, _WAIT_MS)
        self._seen = status.changes
        if status.trouble != self._trouble:
            self._trouble = status.trouble
            if status.trouble is not None:
                self._log.warn(f"Cluster: {status.trouble}")
        return status

    async def demoted(self) -> int:
        """Wait until this node leads no longer: the last message of the log that it may keep."""
        while True:
            status = await self._next_status()
            if status.role == "demoted":
                if status.trouble is None:
                    self._log.warn("Another node leads", leader=status.leader, term=status.term)
                return status.keep
            if status.role == "stopped":
                self._log.error(f"Cluster: {status.trouble}")
                return EVERYTHING

    async def end_lead(self) -> None:
        """Give the lead away, if another node can take it, and take no further part."""
        await asyncio.to_thread(self._running_node().stop)

    async def close(self, *, checkpoint: bool) -> None:
        """End the node, and close the store; a leader gives its lead away first."""
        node, store = self._node, self._store
        if node is None:
            # Told to stop between two terms.
            if store is not None:
                await asyncio.to_thread(store.close)
            self._store = None
            return
        if checkpoint and store is not None:
            await asyncio.to_thread(node.stop)
            await asyncio.to_thread(store.close)
        else:
            await asyncio.to_thread(node.abandon)
        self._node = self._store = None

    def health(self) -> dict[str, Any]:
        """What `/healthz` says about the cluster."""
        if self._node is None:
            return {"role": "starting", "stream": False}
        status = self._node.status()
        return {
            "role": status.role,
            "node": self._options.node,
            "term": status.term,
            "leader": status.leader,
            "sequence": status.sequence,
            "lag": status.lag,
            "digest": status.digest,
            "stream": status.answers,
            **({} if status.trouble is None else {"error": status.trouble}),
        }

    def yield_to(self, node: int | None) -> None:
        """Have this leader give its lead to another node, or to whichever is best placed."""
        self._running_node().yield_to(node)

    def _monitor(self) -> HttpServer:
        from mq9.server.http_server import HttpServer, Response

        async def answer(request: Request) -> Response:
            path, health = urlsplit(request.target).path.rstrip("/"), self.health()
            # As at a leader: load balancers have no password.
            if refused := await self._refusal(request, path != "/healthz"):
                return refused
            if path == "/metrics":
                return Response(metrics.text(health), metrics.CONTENT_TYPE)
            if path == "/varz":
                varz = {"version": __version__, "mq9": {"version": __version__, "cluster": health}}
                return Response(json.dumps(varz).encode(), "application/json")
            if path != "/healthz":
                return Response(b"this node follows: ask the leader\n", status=404)
            node = None if self._node is None else self._node.status()
            well = (
                node is not None and node.role != "stopped" and node.connected and node.lag < _LAG
            )
            document = {"status": "ok" if well else "unavailable", **health}
            body = json.dumps(document, separators=(",", ":")).encode()
            return Response(body, "application/json", 200 if well else 503)

        return HttpServer(answer)

    def _running_node(self) -> ClusterNode:
        if self._node is None:
            raise RuntimeError("the node was closed")
        return self._node

    def _address(self, node: int) -> tuple[str, int] | None:
        """Where a node is; None if the configuration of this one does not know of it."""
        address = self._options.members.get(node)
        if address is not None:
            return split_address(address, _NATS_PORT)
        if node not in self._unknown:
            self._unknown.add(node)
            self._log.warn(f"Cluster: node {node} leads, and is none of this node's `nodes`")
        return None


def _server(url: str) -> tuple[str, tuple[str, str] | None]:
    parts = urlsplit(url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    user = None
    if parts.username is not None:
        user = (unquote(parts.username), unquote(parts.password or ""))
    return f"{host}:{parts.port or _NATS_PORT}", user
