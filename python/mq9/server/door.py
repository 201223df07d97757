"""From an accepted socket to a connection: limits, INFO in plain text, TLS.

Works on the bare socket until TLS is agreed, because a transport may read a client's handshake
before it can be told not to.
"""

import asyncio
import contextlib
import socket
from typing import cast

from mq9.config import Tls
from mq9.server.info import info_fields, info_line, plain_ip
from mq9.server.running import Running
from mq9.server.session import Session
from mq9.server.tls import starts_with_tls

# How long a client may take to say goodbye in TLS before it is cut off.
_SHUTDOWN_S = 1.0
_HANDSHAKE_FAILURE = "TLS Handshake Failure"


class Door:
    """Lets clients in."""

    def __init__(self, running: Running, ready: asyncio.Event | None = None) -> None:
        """Until the server is `ready`, clients are greeted and what they say is not read."""
        self._running = running
        self._ready = ready
        self._entering: set[asyncio.Task[None]] = set()
        self._full = False

    def enter(self, accepted: socket.socket, address: tuple[str, int]) -> None:
        """A client has connected."""
        limit = self._running.options.max_connections
        if 0 < limit <= len(self._running.clients):
            self._turn_away(accepted)
            return
        self._full = False
        session = Session(self._running, plain_ip(address[0]), address[1])
        task = asyncio.get_running_loop().create_task(self._admit(accepted, session))
        self._entering.add(task)
        task.add_done_callback(self._entering.discard)

    async def close(self) -> None:
        """Give up on clients that are not in yet."""
        for task in tuple(self._entering):
            task.cancel()
        await asyncio.gather(*self._entering, return_exceptions=True)

    def _turn_away(self, accepted: socket.socket) -> None:
        running = self._running
        if not self._full:
            self._full = True
            running.log.error("maximum connections exceeded", limit=running.options.max_connections)
        info = info_line(info_fields(running.identity, running.options, auth_required=False))
        with accepted, contextlib.suppress(OSError):
            accepted.send(info + b"-ERR 'maximum connections exceeded'\r\n")

    async def _admit(self, accepted: socket.socket, session: Session) -> None:
        settings = self._running.settings
        try:
            secure = False
            if self._ready is not None and not self._ready.is_set():
                if settings.options.tls is None:
                    accepted.send(session.info())
                await self._ready.wait()
            if settings.options.tls is not None:
                secure = await self._agree(accepted, session, settings.options.tls)
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: cast("asyncio.BufferedProtocol", session.connection),
                accepted,
                ssl=settings.tls if secure else None,
                ssl_handshake_timeout=_handshake_seconds(settings.options.tls) if secure else None,
                ssl_shutdown_timeout=_SHUTDOWN_S if secure else None,
            )
            session.connection.read_socket()
        except Exception as error:
            # Mostly what `ssl` raises. The connection was never made: nobody else will end it.
            self._running.log.debug(f"{_HANDSHAKE_FAILURE}: {error}", cid=session.facts.cid)
            self._lost(accepted, session, _HANDSHAKE_FAILURE)
        except asyncio.CancelledError:
            self._lost(accepted, session, "Server Shutdown")
            raise

    async def _agree(self, accepted: socket.socket, session: Session, tls: Tls) -> bool:
        """Whether this client speaks TLS; INFO goes out in plain unless it starts with TLS."""
        first: bool | None = None
        if tls.handshake_first is True:
            return True
        if tls.handshake_first is not False:
            first = await starts_with_tls(accepted, tls.handshake_first)
            if first:
                return True
        accepted.send(session.info())
        if not self._running.options.allow_non_tls:
            return True
        if first is None:
            first = await starts_with_tls(accepted, tls.timeout_ms)
        return bool(first)

    def _lost(self, accepted: socket.socket, session: Session, reason: str) -> None:
        accepted.close()
        session.close(reason)
        session.connection.connection_lost(None)


def _handshake_seconds(tls: Tls | None) -> float | None:
    return tls.timeout_ms / 1000 if tls is not None else None
