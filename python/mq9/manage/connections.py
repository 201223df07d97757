"""Connections of clients: how many there may be, and how long one may be silent.

Owns which connection is closed. uvicorn reads what requests say, and the application answers.
"""

import asyncio
import socket
import time
from collections import Counter
from typing import Any, cast

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

MOST = 256
SILENT_S = 20.0


class Connection(H11Protocol):
    """A connection that has to say something, or to take something, in time."""

    def __init__(self, *given: Any, **named: Any) -> None:  # noqa: ANN401
        super().__init__(*given, **named)
        self._since = time.monotonic()
        self._untaken = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Another one has come: if there are too many, one of the address with the most goes."""
        super().connection_made(transport)
        if len(self.connections) > MOST:
            others = [each for each in self.connections if isinstance(each, Connection)]
            counts = Counter(each.address for each in others)
            most = max(counts.values())
            theirs = [each for each in others if counts[each.address] == most]
            min(theirs, key=lambda each: (each.is_answered, each._since)).abort()

    @property
    def address(self) -> str:
        """Where the client is."""
        return self.client[0] if self.client else ""

    @property
    def is_answered(self) -> bool:
        """Whether a whole request came, and its reply is not complete."""
        cycle = cast("RequestResponseCycle | None", self.cycle)
        return cycle is not None and not cycle.response_complete and not cycle.more_body

    def on_response_complete(self) -> None:
        """The time for the next request begins."""
        self._since = time.monotonic()
        super().on_response_complete()

    def sweep(self, now: float, silent_s: float) -> None:
        """Close it if no whole request came, or nothing of a reply was taken, for so long."""
        untaken = self.transport.get_write_buffer_size()
        if untaken != self._untaken or (self.is_answered and not untaken):
            self._since, self._untaken = now, untaken
        if now - self._since > silent_s:
            self.abort()

    def abort(self) -> None:
        """Close it at once: what was not taken of a reply is gone."""
        self.connections.discard(self)
        self.transport.abort()


class Server(uvicorn.Server):
    """Serves an application to clients that get on."""

    def __init__(self, app: FastAPI, silent_s: float = SILENT_S) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                log_level="warning",
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=int(SILENT_S),
                timeout_graceful_shutdown=2,
                h11_max_incomplete_event_size=64 << 10,
                http=Connection,
                loop="asyncio",
                ws="none",
            )
        )
        self._silent_s = silent_s

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until told to stop."""
        watching = asyncio.get_running_loop().create_task(self._watch())
        try:
            await super().serve(sockets)
        finally:
            watching.cancel()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._silent_s / 20)
            now = time.monotonic()
            for each in list(self.server_state.connections):
                if isinstance(each, Connection):
                    each.sweep(now, self._silent_s)
