"""Listening sockets: binding them, and accepting without starving anybody.

Knows nothing of what is done with an accepted socket.
"""

from __future__ import annotations

import contextlib
import errno
import select
import socket
import time
from typing import TYPE_CHECKING, TypeAlias

from mq9.server.running import StartError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mq9.server.logs import Log

    Enter: TypeAlias = Callable[[socket.socket, tuple[str, int]], None]

_BACKLOG = 4096
# Connections taken before others get a turn: with what each of them sends, some milliseconds.
_BATCH = 8
_PAUSE_S = 0.1
_EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_EVERYWHERE = {"", "0.0.0.0", "::"}


def listen(host: str, port: int) -> list[socket.socket]:
    """Listen on all addresses of `host`; port -1 is any free one, the same for all."""
    wanted = 0 if port == -1 else port
    if host in _EVERYWHERE and (everywhere := _listen_everywhere(wanted)):
        return [everywhere]
    sockets: list[socket.socket] = []
    for family, address in _addresses(host, wanted):
        try:
            sockets.append(_listen(family, (address, wanted)))
        except OSError as error:
            # A name like localhost may stand for an address that this machine does not have.
            if error.errno == errno.EADDRNOTAVAIL and sockets:
                continue
            for opened in sockets:
                opened.close()
            raise _refused(host, wanted, error) from error
        wanted = sockets[0].getsockname()[1]
    return sockets


def _addresses(host: str, port: int) -> list[tuple[int, str]]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except socket.gaierror as error:
        raise StartError(f"cannot listen on {host!r}: {error.strerror}") from error
    return list(dict.fromkeys((int(entry[0]), str(entry[4][0])) for entry in found))


def _listen_everywhere(port: int) -> socket.socket | None:
    """One socket for IPv4 and IPv6; None on a machine without IPv6."""
    if not socket.has_dualstack_ipv6():
        return None
    try:
        return _listen(socket.AF_INET6, ("::", port), dual=True)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise _refused("0.0.0.0", port, error) from error
        return None


def _listen(family: int, address: tuple[str, int], *, dual: bool = False) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(not dual))
        listener.setblocking(False)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


def _refused(host: str, port: int, error: OSError) -> StartError:
    hint = "; is another server running there?" if error.errno == errno.EADDRINUSE else ""
    return StartError(f"cannot listen on {host}:{port}: {error.strerror}{hint}")


def accept_until(done: int, sockets: Sequence[socket.socket], enter: Enter, log: Log) -> None:
    """Accept without an event loop until the descriptor `done` can be read."""
    waiting = select.poll()
    for descriptor in (done, *(listener.fileno() for listener in sockets)):
        waiting.register(descriptor, select.POLLIN)
    while True:
        ready = {descriptor for descriptor, _ in waiting.poll()}
        if done in ready:
            return
        for listener in sockets:
            if listener.fileno() in ready and (error := _accept(listener, enter)):
                _complain(error, log)
                time.sleep(_PAUSE_S)


def _accept(listener: socket.socket, enter: Enter) -> OSError | None:
    """Take in a few; the error if the system has no room for more."""
    for _ in range(_BATCH):
        try:
            accepted, address = listener.accept()
        except (BlockingIOError, InterruptedError):
            return None
        except ConnectionError:
            continue
        except OSError as error:
            if error.errno in _EXHAUSTED:
                return error
            raise
        accepted.setblocking(False)
        # Raises on a connection that was reset already.
        with contextlib.suppress(OSError):
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        enter(accepted, address[:2])
    return None


def _complain(error: OSError, log: Log) -> None:
    log.error(f"cannot accept a connection: {error.strerror}")


class Listener:
    """Accepts on listening sockets and hands each connection on."""

    def __init__(self, sockets: Sequence[socket.socket], enter: Enter, log: Log) -> None:
        # Imported here: clients are greeted before there is a loop.
        import asyncio

        self._sockets = list(sockets)
        self._enter = enter
        self._log = log
        self._loop = asyncio.get_running_loop()
        for listener in self._sockets:
            self._loop.add_reader(listener.fileno(), self._accept, listener)

    def close(self) -> None:
        """Stop accepting; new clients are refused by the system from now on."""
        for listener in self._sockets:
            self._loop.remove_reader(listener.fileno())
            listener.close()
        self._sockets.clear()

    def _accept(self, listener: socket.socket) -> None:
        if error := _accept(listener, self._enter):
            # The socket stays readable: without a pause the loop would spin until a client leaves.
            _complain(error, self._log)
            self._loop.remove_reader(listener.fileno())
            self._loop.call_later(_PAUSE_S, self._resume, listener)

    def _resume(self, listener: socket.socket) -> None:
        if listener in self._sockets:
            self._loop.add_reader(listener.fileno(), self._accept, listener)
