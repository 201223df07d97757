"""The life of a server: start, reload, lame duck, stop.

Owns the order in which the parts come and go. What the parts do is theirs.
"""

from __future__ import annotations

import asyncio
import sys
import traceback
from typing import TYPE_CHECKING, Any, NamedTuple

import uvloop

from mq9 import config
from mq9.config import ConfigError
from mq9.errors import StoreError
from mq9.imports import imports_that_stay
from mq9.server import ports_file
from mq9.server.clock import now_ms
from mq9.server.declaring import declare
from mq9.server.exporting import Exporting
from mq9.server.listener import Listener, listen
from mq9.server.managing import Managing
from mq9.server.opening import (
    Opened,
    Prepared,
    listen_http,
    log_protocol,
    open_store,
    prepared,
    warn_if_open,
)
from mq9.server.reconsider import reconsider
from mq9.server.running import Running, Settings, StartError
from mq9.server.signals import Signals

if TYPE_CHECKING:
    import socket
    from collections.abc import Coroutine
    from pathlib import Path

    from mq9.commands import Commands
    from mq9.config import Options
    from mq9.server.http_server import HttpServer, Request, Response
    from mq9.server.logs import Log
    from mq9.server.membership import Membership
    from mq9.server.monitor import Monitor
    from mq9.server.operator_subjects import OperatorSubjects
    from mq9.store import Store

# Of a node of a cluster: all that its own log holds may stay.
_EVERYTHING = 2**64 - 1
# How long the loop may take to notice that connections were cut.
_ABORT_S = 1.0
# How long the thread that loads the commands may keep the interpreter to itself.
_LOADING_SWITCH_S = 0.0005


def serve_alone(opened: Opened) -> int:
    """Serve until told to stop; the exit status of the process."""
    running = opened.running
    ready = Prepared(running.settings, running.passwords, running.log)
    return _run(Server(ready).run(opened), ready)


def serve_in_cluster(options: Options, log: Log) -> int:
    """Follow, and serve whenever this node leads, until told to stop."""
    ready = prepared(options, log)
    return _run(_serve_terms(ready), ready)


def _run(work: Coroutine[None, None, int], ready: Prepared) -> int:
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(work)
    finally:
        ready.passwords.close()


async def _serve_terms(ready: Prepared) -> int:
    keep, is_first = _EVERYTHING, True
    while True:
        server = Server(ready, keep, is_first=is_first)
        status = await server.run()
        if server.demoted_to is None or server.told_to_stop:
            return status
        # Another node leads: as after a crash, what the cluster does not have is cut off. What was
        # reloaded since the start holds for the next term as well.
        keep, is_first, ready = server.demoted_to, False, server.ready


class Server:
    """One server from its settings to its end."""

    def __init__(self, ready: Prepared, keep: int = _EVERYTHING, *, is_first: bool = True) -> None:
        self.ready = ready
        """What it begins with, and what a reload has made of it."""
        self.demoted_to: int | None = None
        """What this node may keep of the cluster's log, when it has to start again."""
        self.told_to_stop = False
        """Whether it is to end, and not only its lead."""
        self._keep, self._is_first = keep, is_first
        self._membership: Membership | None = None
        self._log = ready.log
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()
        self._files: list[Path] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._retiring = False
        self._exporting: Exporting | None = None
        self._managing: Managing | None = None
        self._http: HttpServer | None = None

    @property
    def _options(self) -> Options:
        return self.ready.settings.options

    async def run(self, opened: Opened | None = None) -> int:
        """Serve until told to stop, and end in order; a node of a cluster opens once it leads."""
        asyncio.get_running_loop().set_exception_handler(self._unexpected)
        if opened is None:
            opened = await self._opened_as_leader()
            if opened is None:
                return 0
        self._running = opened.running
        store = opened.running.store
        try:
            await self._serve(opened)
            self._running.watch.end()
        except BaseException:
            if self._membership is None:
                store.close()
            raise
        finally:
            for file in self._files:
                file.unlink(missing_ok=True)
        if self._membership is not None:
            await self._leave(self._membership)
            return 0
        return await self._close_store(store)

    async def _opened_as_leader(self) -> Opened | None:
        """What this node serves once it leads; None if it was told to stop."""
        # A server that stands alone starts without it.
        from mq9.server.membership import Membership

        options = self._options
        assert options.replication is not None
        self._membership = Membership(
            options.replication,
            self._log,
            lambda keep: open_store(options, keep),
            max_payload=options.max_payload,
            first=self._is_first,
            refusal=self._refusal_of_monitoring,
        )
        self._stop_signals()
        sockets = listen(options.host, options.port)
        http = [] if options.http_port is None else listen_http(options, self._log)
        # Who leads serves at once: what that takes to load is there by then.
        self._spawn(self._prepare(monitoring=bool(http)))
        store = await self._membership.follow(self._keep, self._stop, sockets, http)
        if store is None:
            return None
        opened = self.ready.listening(store)
        opened.running.cluster_health = self._membership.health
        opened.running.yield_lead = self._membership.yield_to
        return opened

    async def _refusal_of_monitoring(self, request: Request, secret: bool) -> Response | None:
        from mq9.server.monitor_access import refusal

        return await refusal(self._options, self.ready.passwords, request, secret=secret)

    async def _prepare(self, *, monitoring: bool) -> None:
        await asyncio.to_thread(_import_handlers, monitoring=monitoring)

    def _stop_signals(self) -> None:
        Signals(
            stop=self._told_to_stop,
            lame_duck=self._stop.set,
            reload=self._reload_following,
            reopen_log=self._reopen_log,
        ).listen()

    async def _watch_lead(self, membership: Membership) -> None:
        """End everything in order when another node leads."""
        self.demoted_to = await membership.demoted()
        self._hurry.set()
        self._stop.set()

    async def _leave(self, membership: Membership) -> None:
        await membership.close(checkpoint=False)
        membership.raise_refusal()
        self._log.info("Server Exiting.." if self.demoted_to is None else "Following another node")

    async def _serve(self, opened: Opened) -> None:
        running = self._running
        running.broker.start(asyncio.get_running_loop())
        try:
            self._listener = Listener(opened.sockets, opened.admission.enter, self._log)
            self._take_signals()
            declare(running)
            opened.admission.open()
            await self._load(opened.http)
            # Whoever reads them may send a client, or a signal, at once.
            self._write_files(opened)
            self._exporting = self._export()
            self._managing = Managing.of(running, opened.port)
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
        """Bring in what carries out control commands, which takes longest; they wait for it."""
        try:
            made = await self._imported(monitoring=bool(http))
            self._commands = _commands(made, self._running)
            self._commands.start()
            self._running.registry = self._commands.registry
            made.operator_subjects(self._running)
            self._running.broker.await_commands(False)
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

    def _take_signals(self) -> None:
        Signals(
            stop=self._told_to_stop,
            lame_duck=self._told_to_retire,
            reload=self._reload,
            reopen_log=self._reopen_log,
        ).listen()

    def _write_files(self, opened: Opened) -> None:
        options, http_port = self._options, opened.http_port
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
                nats = ports_file.urls(scheme, options.host, opened.port)
                for file in ports_file.ports_files(options.ports_file_dir):
                    ports_file.write_ports_file(file, nats, monitoring)
                    self._files.append(file)
        except OSError as error:
            where = options.ports_file_dir
            raise StartError(f"cannot write a ports file to {where}: {error.strerror}") from error

    def _told_to_stop(self, signal: str) -> None:
        self._log.info(f"Trapped {signal}")
        self.told_to_stop = True
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

    def _reload_following(self) -> None:
        if self._read_again() is not None:
            self._log.info("Reloaded server configuration")

    def _reload(self) -> None:
        running, settings = self._running, self._read_again()
        if settings is None:
            return
        running.settings, running.loaded_ms = settings, now_ms()
        running.broker.set_limits(settings.limits)
        declare(running)
        warn_if_open(running)
        log_protocol(running)
        if (undecided := reconsider(running)) is not None:
            self._spawn(undecided)
        self._log.info("Reloaded server configuration")

    def _read_again(self) -> Settings | None:
        """The configuration as it is now; None, and nothing is changed, if it cannot be used."""
        try:
            options = config.reload(self._options)
            settings = Settings.of(options, self.ready.passwords)
        except (ConfigError, OSError) as error:
            self._log.error(f"Failed to reload server configuration: {error}")
            return None
        for warning in options.warnings:
            self._log.warn(warning)
        self._log.configure(
            debug=options.debug,
            trace=options.trace,
            time=options.logtime,
            utc=options.logtime_utc,
        )
        self.ready = self.ready._replace(settings=settings)
        return settings

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
            if self._membership is not None:
                # A client that takes nothing keeps this server for a while, but not the others.
                self._log.info("Giving the lead to another node")
                await self._membership.end_lead()
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
        self._running.broker.end_pulls()
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
