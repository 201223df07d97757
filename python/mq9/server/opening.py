"""Opens what a server needs before it serves: settings, store, broker, listening ports.

Owns the order in which they come, and what the log says of them. Imports no event loop: clients are
greeted before there is one.
"""

from __future__ import annotations

import os
import resource
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from mq9 import __version__
from mq9._core import Broker
from mq9.errors import StoreError, StoreLocked
from mq9.server.admission import Admission
from mq9.server.info import Identity, is_loopback, plain_ip
from mq9.server.listener import listen
from mq9.server.passwords import Passwords
from mq9.server.running import Running, Settings, StartError
from mq9.server.system import SystemSubjects
from mq9.store import Store

if TYPE_CHECKING:
    import socket
    from pathlib import Path

    from mq9.config import Options
    from mq9.server.logs import Log

FIRST_SEGMENT = 1
"""What to keep until it is known how far an export is: from here on, nothing may go."""


@dataclass(frozen=True)
class Opened:
    """A server that listens; nobody is let in yet."""

    running: Running
    sockets: list[socket.socket]
    http: list[socket.socket]
    admission: Admission
    port: int
    """Where clients connect, or did before the sockets were closed."""

    @property
    def http_port(self) -> int | None:
        """Where monitoring is asked."""
        return self.http[0].getsockname()[1] if self.http else None

    def close(self) -> None:
        """Give all of it back, if it does not come to serving."""
        for listener in (*self.sockets, *self.http):
            listener.close()
        self.running.broker.stop()
        self.running.store.close()
        self.running.passwords.close()


class Prepared(NamedTuple):
    """The settings are read and found good; nothing else was touched."""

    settings: Settings
    passwords: Passwords
    log: Log

    def opened(self) -> Opened:
        """With its own store, which is closed again if that fails."""
        store = open_store(self.settings.options)
        try:
            return self.listening(store)
        except BaseException:
            store.close()
            raise

    def listening(self, store: Store) -> Opened:
        """With this store."""
        options, log = self.settings.options, self.log
        log.info("Store opened", data=options.data_dir, sync=options.sync)
        _warn_if_readable(options.data_dir, log)
        running = Running(
            settings=self.settings,
            identity=Identity(options.server_name or ""),
            broker=_broker(self.settings, store),
            store=store,
            log=log,
            passwords=self.passwords,
        )
        running.watch.begin()
        return _listening(running)


def prepared(options: Options, log: Log) -> Prepared:
    """What is known before anything is opened; ConfigError if it cannot be used."""
    passwords = Passwords()
    settings = Settings.of(options, passwords)
    log.info("Starting mq9", version=__version__)
    if options.config_file is not None:
        log.info("Using configuration file", file=options.config_file)
    for warning in options.warnings:
        log.warn(warning)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if settings.authenticator.has_plain_secrets:
        log.warn("Plaintext passwords detected, use nkeys or bcrypt")
    return Prepared(settings, passwords, log)


def _listening(running: Running) -> Opened:
    options = running.options
    # What carries them out is loaded after clients are let in.
    running.broker.await_commands(True)
    system = SystemSubjects(running)
    # Both ports are taken before the first client is let in: a start is whole or not at all.
    http = [] if options.http_port is None else listen_http(options, running.log)
    sockets = listen(options.host, options.port)
    port = sockets[0].getsockname()[1]
    opened = Opened(running, sockets, http, Admission(running, ready=False), port)
    running.identity.listens(options, opened.port)
    system.introduce()
    log_protocol(running)
    running.log.info(f"Listening for client connections on {options.host}:{opened.port}")
    addresses = [plain_ip(listener.getsockname()[0]) for listener in sockets]
    running.reachable = not all(map(is_loopback, addresses))
    warn_if_open(running)
    if options.tls is not None and not options.allow_non_tls:
        running.log.info("TLS required for client connections")
    return opened


def listen_http(options: Options, log: Log) -> list[socket.socket]:
    """Take the port for monitoring."""
    assert options.http_port is not None
    host = options.http_host or options.host
    sockets = listen(host, options.http_port)
    log.info(f"Starting http monitor on {host}:{sockets[0].getsockname()[1]}")
    return sockets


def warn_if_open(running: Running) -> None:
    """Say so where every machine that reaches this one may do what it likes."""
    if running.reachable and running.settings.is_open:
        running.log.warn(
            f"Everyone who reaches {running.options.host} may connect: "
            "add an authorization block, or listen on 127.0.0.1"
        )


def log_protocol(running: Running) -> None:
    """Have the log show what clients say, or no longer."""

    def line(cid: int, text: bytes) -> None:
        session = running.clients.open.get(cid)
        who = {"cid": cid} if session is None else session.who()
        running.log.trace(_printable(text), **who)

    running.broker.log_protocol(line if running.log.tracing else None)


def _printable(text: bytes) -> str:
    """A line of the protocol without what could pass for another line, or move a cursor."""
    written = text.decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in written)


def _warn_if_readable(data_dir: Path, log: Log) -> None:
    """What mq9 makes is private; a directory that was there before may not be."""
    rights = stat.S_IMODE(data_dir.stat().st_mode)
    if rights & (stat.S_IRWXG | stat.S_IRWXO):
        log.warn(
            f"Other users of this machine have rights to the data directory: "
            f"chmod -R go= {data_dir} takes them away",
            rights=f"{rights:04o}",
        )


def open_store(options: Options, keep: int | None = None) -> Store:
    """The store in the data directory; of a node of a cluster, what it may keep."""
    try:
        store = Store(
            options.data_dir,
            sync=options.sync,
            sync_interval_ms=options.sync_interval_ms,
            segment_bytes=options.segment_bytes,
            checkpoint_bytes=options.checkpoint_bytes,
            maintain_every_ms=options.upkeep_ms,
            group_ttl_ms=options.group_ttl_ms,
            max_groups=options.max_groups,
            max_mailboxes=options.max_mailboxes,
            max_mailboxes_per_user=options.max_mailboxes_per_user,
            max_store_bytes=options.max_store_bytes,
            max_bytes_per_user=options.max_bytes_per_user,
            max_waits=options.max_waiting_fetches,
            max_waits_per_user=options.max_waiting_fetches_per_user,
            max_waits_per_connection=options.max_waiting_fetches_per_connection,
            member_keep=keep,
        )
        if options.export is not None:
            # Before upkeep has its first round: it would give back what was not exported yet.
            store.keep_segments(FIRST_SEGMENT, options.export.keep_bytes)
        return store
    except StoreLocked as error:
        raise StartError(
            f"the data directory {options.data_dir} is in use by another process; "
            "stop it, or give another directory with --data"
        ) from error
    except (StoreError, OSError) as error:
        raise StartError(f"cannot open the data directory {options.data_dir}: {error}") from error


def _broker(settings: Settings, store: Store) -> Broker:
    options = settings.options
    return Broker(
        settings.limits,
        seed=int.from_bytes(os.urandom(8), "little"),
        store=store,
        payload_base64=options.payload_encoding == "base64",
        jetstream=options.jetstream,
        max_broadcasts=options.max_broadcasts,
        max_broadcast_bytes=options.max_broadcast_bytes,
        broadcast_ttl_ms=options.broadcast_ttl_ms,
    )
