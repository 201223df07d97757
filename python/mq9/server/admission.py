"""Makes an accepted socket a session: limits, and clients that wait until the server runs."""

import contextlib
import socket

from mq9.server.info import info_fields, info_line, plain_ip
from mq9.server.running import Running
from mq9.server.session import Session


class Admission:
    """Lets clients in."""

    def __init__(self, running: Running, *, ready: bool = True) -> None:
        """Until the server runs, clients are greeted and what they say is not read."""
        self._running = running
        self._ready = ready
        self._full = False

    def enter(self, accepted: socket.socket, address: tuple[str, int]) -> None:
        """A client has connected."""
        limit = self._running.options.max_connections
        if 0 < limit <= len(self._running.clients):
            self._turn_away(accepted)
            return
        self._full = False
        session = Session(self._running, plain_ip(address[0]), address[1])
        session.admit(accepted.detach(), paused=not self._ready)

    def open(self) -> None:
        """The server runs: what clients have said is read."""
        self._ready = True
        for session in self._running.clients:
            session.resume_reading()

    def _turn_away(self, accepted: socket.socket) -> None:
        running = self._running
        if not self._full:
            self._full = True
            running.log.error("maximum connections exceeded", limit=running.options.max_connections)
        info = info_line(info_fields(running.identity, running.options, auth_required=False))
        with accepted, contextlib.suppress(OSError):
            accepted.send(info + b"-ERR 'maximum connections exceeded'\r\n")
