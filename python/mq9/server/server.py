"""The life of a server: start, reload, lame duck, stop.

Owns the order in which the parts come and go. What the parts do is theirs.
"""

from __future__ import annotations

import asyncio
import os
import resource
import stat
import sys
import traceback
from typing import TYPE_CHECKING, Any, NamedTuple

import uvloop

from mq9 import __version__, config
from mq9._core import Broker, end_process_on_panic
from mq9.config import ConfigError, Options
from mq9.errors import StoreError, StoreLocked
from mq9.imports import imports_that_stay
from mq9.server import ports_file
from mq9.server.admission import Admission
from mq9.server.clock import now_ms
from mq9.server.declaring import declare
from mq9.server.exporting import FIRST_SEGMENT, Exporting
from mq9.server.info import Identity, is_loopback, plain_ip
from mq9.server.listener import Listener, listen
from mq9.server.logs import Log
from mq9.server.managing import Managing
from mq9.server.passwords import Passwords
from mq9.server.reconsider import reconsider
from mq9.server.running import Running, Settings, StartError
from mq9.server.signals import Signals
from mq9.server.system import SystemSubjects
from mq9.store import Store

if TYPE_CHECKING:
    import socket
    from collections.abc import Coroutine
    from pathlib import Path

    from mq9.commands import Commands
    from mq9.server.http_server import HttpServer
    from mq9.server.membership import Membership
    from mq9.server.monitor import Monitor
    from mq9.server.operator_subjects import OperatorSubjects

# Of a node of a cluster: all that its own log holds may stay.
_EVERYTHING = 2**64 - 1
# How long the loop may take to notice that connections were cut.
_ABORT_S = 1.0
# How long the thread that loads the commands may keep the interpreter to itself.
_LOADING_SWITCH_S = 0.0005


def run(options: Options) -> int:
    """Run a server until it is told to stop; the exit status of the process."""
    try:
        log = Log(
            file=options.log_file,
            debug=options.debug,
            trace=options.trace,
            time=options.logtime,
            utc=options.logtime_utc,
        )
    except OSError as error:
        sys.stderr.write(f"mq9 serve: cannot write the log {options.log_file}: {error.strerror}\n")
        return 1
    # What a panic leaves behind is half changed; recovery is what puts it right.
    end_process_on_panic(options.log_file)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            keep, is_first = _EVERYTHING, True
            while True:
                server = Server(options, log, keep, is_first=is_first)
                status = runner.run(server.run())
                if server.demoted_to is None:
                    return status
                # Another node leads: as after a crash, what the cluster does not have is cut off.
                keep, is_first = server.demoted_to, False
    except (ConfigError, StartError) as error:
        if options.log_file is not None:
            log.error(str(error))
        sys.stderr.write(f"mq9 serve: {error}\n")
        return 1
    finally:
        log.close()


class Server:
    """One server from its options to its end."""

    def __init__(
        self, options: Options, log: Log, keep: int = _EVERYTHING, *, is_first: bool = True
    ) -> None:
        self.demoted_to: int | None = None
        """What this node may keep of the cluster's log, when it has to start again."""
        self._keep, self._is_first = keep, is_first
        self._membership: Membership | None = None
        self._options = options
        self._log = log
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()
        self._files: list[Path] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._reloading = asyncio.Lock()
        self._retiring = False
        self._exporting: Exporting | None = None
        self._managing: Managing | None = None
        self._http: HttpServer | None = None

    async def run(self) -> int:
        """Start, serve until told to stop, and end in order."""
        asyncio.get_running_loop().set_exception_handler(self._unexpected)
        passwords = Passwords()
        settings = Settings.of(self._options, passwords)
        self._announce()
        if settings.authenticator.has_plain_secrets:
            self._log.warn("Plaintext passwords detected, use nkeys or bcrypt")
        store = await self._opened()
        if store is None:
            return 0
        try:
            self._log.info("Store opened", data=self._options.data_dir, sync=self._options.sync)
            self._warn_if_readable(self._options.data_dir)
            self._running = Running(
                settings=settings,
                identity=Identity(self._options.server_name or ""),
                broker=_broker(settings, store),
                store=store,
                log=self._log,
                passwords=passwords,
                cluster_health=None if self._membership is None else self._membership.health,
                yield_lead=None if self._membership is None else self._membership.yield_to,
            )
            self._running.watch.begin()
            await self._serve()
            self._running.watch.end()
        except BaseException:
            if self._membership is None:
                store.close()
            raise
        finally:
            passwords.close()
            for file in self._files:
                file.unlink(missing_ok=True)
        if self._membership is not None:
            await self._leave(self._membership)
            return 0
        return await self._close_store(store)

    async def _opened(self) -> Store | None:
        """The store to serve, in a cluster once this node leads; None if it was told to stop."""
        if self._options.replication is None:
            return _open_store(self._options)
        # A server that stands alone starts without it.
        from mq9.server.membership import Membership

        self._membership = Membership(
            self._options.replication,
            self._log,
            lambda keep: _open_store(self._options, keep),
            max_payload=self._options.max_payload,
            first=self._is_first,
        )
        self._stop_signals()
        sockets = listen(self._options.host, self._options.port)
        http_port = self._options.http_port
        http = [] if http_port is None else self._listen_http(http_port)
        # Who leads serves at once: what that takes to load is there by then.
        self._spawn(self._prepare(monitoring=bool(http)))
        return await self._membership.follow(self._keep, self._stop, sockets, http)

    async def _prepare(self, *, monitoring: bool) -> None:
        await asyncio.to_thread(_import_handlers, monitoring=monitoring)

    def _stop_signals(self) -> None:
        def nothing() -> None:
            """What a leader does at this signal, a follower need not."""

        Signals(
            stop=self._told_to_stop,
            lame_duck=self._stop.set,
            reload=nothing,
            reopen_log=self._reopen_log,
        ).listen()

    async def _watch_lead(self, membership: Membership) -> None:
        """End everything in order when another node leads."""
        self.demoted_to = await membership.demoted()
        self._hurry.set()
        self._stop.set()

    async def _leave(self, membership: Membership) -> None:
        if self.demoted_to is None:
            self._log.info("Giving the lead to another node")
        await membership.close(checkpoint=False)
        self._log.info("Server Exiting.." if self.demoted_to is None else "Following another node")

    async def _serve(self) -> None:
        running, options = self._running, self._options
        system = SystemSubjects(running)
        # Both ports are taken before the first client is let in: a start is whole or not at all.
        http = [] if options.http_port is None else self._listen_http(options.http_port)
        sockets = listen(options.host, options.port)
        port: int = sockets[0].getsockname()[1]
        running.identity.listens(options, port)
        system.introduce()
        self._log_protocol()
        self._log.info(f"Listening for client connections on {options.host}:{port}")
        addresses = [plain_ip(listener.getsockname()[0]) for listener in sockets]
        self._reachable = not all(map(is_loopback, addresses))
        self._warn_if_open()
        if options.tls is not None and not options.allow_non_tls:
            self._log.info("TLS required for client connections")
        running.broker.start(asyncio.get_running_loop())
        try:
            self._admission = Admission(running, ready=False)
            self._listener = Listener(sockets, self._admission.enter, self._log)
            self._take_signals()
            await self._load(http)
            declare(running)
            self._admission.open()
            # Whoever reads them may send a client, or a signal, at once.
            self._write_files(port, http[0].getsockname()[1] if http else None)
            self._exporting = self._export()
            self._managing = Managing.of(running, port)
            self._log.info("Server is ready")
            self._spawn(running.watch.run())
            if self._membership is not None:
                self._spawn(self._watch_lead(self._membership))
            await self._stop.wait()
            await self._send_clients_away()
        finally:
            if self._managing is not None:
                await self._managing.close()
            if self._exporting is not None:
                await self._exporting.close()
            # Before the store is closed, which its thread uses.
            await asyncio.to_thread(running.broker.stop)

    async def _load(self, http: list[socket.socket]) -> None:
        """Bring in what answers clients, which takes longest; they are greeted meanwhile."""
        try:
            made = await self._imported(monitoring=bool(http))
            self._commands = _commands(made, self._running)
            self._commands.start()
            self._running.registry = self._commands.registry
            made.operator_subjects(self._running)
            if made.monitor is not None:
                self._http = made.monitor(self._running).http
                await self._http.start(http)
        except BaseException:
            self._listener.close()
            raise

    async def _imported(self, *, monitoring: bool) -> _Handlers:
        # So that a client is greeted between two of its steps, not ten.
        interval = sys.getswitchinterval()
        sys.setswitchinterval(_LOADING_SWITCH_S)
        try:
            return await asyncio.to_thread(_import_handlers, monitoring=monitoring)
        finally:
            sys.setswitchinterval(interval)

    def _export(self) -> Exporting | None:
        options = self._options.export
        if options is None:
            return None
        exporting = Exporting(self._running, options)
        exporting.start()
        self._log.info("Exporting", dir=options.dir, every_ms=options.every_ms)
        return exporting

    def _log_protocol(self) -> None:
        self._running.broker.log_protocol(self._log_line if self._log.tracing else None)

    def _log_line(self, cid: int, text: bytes) -> None:
        session = self._running.clients.open.get(cid)
        who = {"cid": cid} if session is None else session.who()
        self._log.trace(_printable(text), **who)

    def _take_signals(self) -> None:
        Signals(
            stop=self._told_to_stop,
            lame_duck=self._told_to_retire,
            reload=lambda: self._spawn(self._reload()),
            reopen_log=self._reopen_log,
        ).listen()

    def _announce(self) -> None:
        self._log.info("Starting mq9", version=__version__)
        if self._options.config_file is not None:
            self._log.info("Using configuration file", file=self._options.config_file)
        for warning in self._options.warnings:
            self._log.warn(warning)
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

    def _warn_if_open(self) -> None:
        """Say so where every machine that reaches this one may do what it likes."""
        if self._reachable and self._running.settings.is_open:
            self._log.warn(
                f"Everyone who reaches {self._options.host} may connect: "
                "add an authorization block, or listen on 127.0.0.1"
            )

    def _warn_if_readable(self, data_dir: Path) -> None:
        """What mq9 makes is private; a directory that was there before may not be."""
        rights = stat.S_IMODE(data_dir.stat().st_mode)
        if rights & (stat.S_IRWXG | stat.S_IRWXO):
            self._log.warn(
                f"Other users of this machine have rights to the data directory: "
                f"chmod -R go= {data_dir} takes them away",
                rights=f"{rights:04o}",
            )

    def _listen_http(self, port: int) -> list[socket.socket]:
        host = self._options.http_host or self._options.host
        sockets = listen(host, port)
        self._log.info(f"Starting http monitor on {host}:{sockets[0].getsockname()[1]}")
        return sockets

    def _write_files(self, port: int, http_port: int | None) -> None:
        options = self._options
        scheme = "nats" if options.tls is None else "tls"
        http_host = options.http_host or options.host
        monitoring = [] if http_port is None else ports_file.urls("http", http_host, http_port)
        try:
            if options.pid_file is not None:
                ports_file.write_pid_file(options.pid_file)
                self._files.append(options.pid_file)
        except OSError as error:
            raise StartError(f"cannot write {options.pid_file}: {error.strerror}") from error
        try:
            if options.ports_file_dir is not None:
                nats = ports_file.urls(scheme, options.host, port)
                for file in ports_file.ports_files(options.ports_file_dir):
                    ports_file.write_ports_file(file, nats, monitoring)
                    self._files.append(file)
        except OSError as error:
            where = options.ports_file_dir
            raise StartError(f"cannot write a ports file to {where}: {error.strerror}") from error

    def _told_to_stop(self, signal: str) -> None:
        self._log.info(f"Trapped {signal}")
        if self._stop.is_set():
            self._hurry.set()
        self._stop.set()

    def _told_to_retire(self) -> None:
        if self._retiring or self._stop.is_set():
            return
        self._retiring = True
        self._listener.close()
        self._spawn(self._retire())

    async def _retire(self) -> None:
        from mq9.server.lame_duck import retire

        await retire(self._running)
        self._stop.set()

    def _reopen_log(self) -> None:
        try:
            self._log.reopen()
        except OSError as error:
            self._log.error(f"cannot reopen the log: {error.strerror}")
        else:
            self._log.info("File log re-opened")

    async def _reload(self) -> None:
        running = self._running
        async with self._reloading:
            try:
                options = config.reload(running.options)
                settings = Settings.of(options, running.passwords)
            except (ConfigError, OSError) as error:
                self._log.error(f"Failed to reload server configuration: {error}")
                return
            for warning in options.warnings:
                self._log.warn(warning)
            running.settings, running.loaded_ms = settings, now_ms()
            running.broker.set_limits(settings.limits)
            declare(running)
            self._warn_if_open()
            self._log.configure(
                debug=options.debug,
                trace=options.trace,
                time=options.logtime,
                utc=options.logtime_utc,
            )
            self._log_protocol()
            if (undecided := reconsider(running)) is not None:
                self._spawn(undecided)
            self._log.info("Reloaded server configuration")

    async def _send_clients_away(self) -> None:
        """Accept nobody, write what is on its way, and close; in a hurry, or late, just close."""
        self._log.info("Initiating Shutdown...")
        running = self._running
        self._listener.close()
        for task in tuple(self._tasks):
            task.cancel()
        self._commands.close()
        if self._http is not None:
            await self._http.close()
        if self.demoted_to is None:
            await self._send_replies()
        for session in running.clients:
            session.close("Server Shutdown")
        hurry = asyncio.create_task(self._hurry.wait())
        gone = asyncio.create_task(running.clients.gone())
        # The other half of the time is for the store.
        timeout = self._options.drain_ms / 2000
        await asyncio.wait({hurry, gone}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        hurry.cancel()
        if not gone.done():
            self._log.warn("clients did not take all of their output", clients=len(running.clients))
            for session in running.clients:
                session.abort()
            await asyncio.wait({gone}, timeout=_ABORT_S)
        gone.cancel()

    async def _send_replies(self) -> None:
        """Replies wait until what they confirm is durable: those that can still leave do."""
        timeout_ms = self._options.drain_ms // 4
        try:
            await asyncio.to_thread(self._running.store.wait_durable, timeout_ms=timeout_ms)
        except (StoreError, TimeoutError) as error:
            self._log.error(f"not everything is durable: {error}")
        self._running.broker.settle()

    async def _close_store(self, store: Store) -> int:
        try:
            await asyncio.to_thread(store.close)
        except StoreError as error:
            self._log.error(f"the store was not closed in order: {error}")
            return 1
        self._log.info("Server Exiting..")
        return 0

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _unexpected(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self._log.error(f"unexpected: {context.get('message')}", error=repr(error))
        if isinstance(error, BaseException):
            self._log.debug("".join(traceback.format_exception(error)))


def _printable(text: bytes) -> str:
    """A line of the protocol without what could pass for another line, or move a cursor."""
    written = text.decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in written)


def _open_store(options: Options, keep: int | None = None) -> Store:
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


class _Handlers(NamedTuple):
    """What answers clients and those who watch the server."""

    commands: type[Commands]
    operator_subjects: type[OperatorSubjects]
    monitor: type[Monitor] | None


def _import_handlers(*, monitoring: bool) -> _Handlers:
    with imports_that_stay():
        from mq9.commands import Commands
        from mq9.server.operator_subjects import OperatorSubjects

        if not monitoring:
            return _Handlers(Commands, OperatorSubjects, None)
        from mq9.server.monitor import Monitor

        return _Handlers(Commands, OperatorSubjects, Monitor)


def _commands(handlers: _Handlers, running: Running) -> Commands:
    try:
        return handlers.commands(running)
    except OSError as error:
        where = running.options.data_dir
        raise StartError(f"cannot use the tokens' secret in {where}: {error.strerror}") from error
