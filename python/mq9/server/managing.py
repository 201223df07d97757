"""The management process: started beside the server, and again when it ends.

Owns its life and what it is told: where the server listens, and a password that nobody else knows.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import os
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

from mq9.config import Management
from mq9.server.auth import OWN_USER

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mq9.server.running import Running

_NEEDED = ("fastapi", "prometheus_client", "uvicorn")
_NEEDED_FOR_POSTGRES = ("asyncpg",)
_PASSWORD = "MQ9_MANAGE_PASSWORD"
_POSTGRES = "MQ9_MANAGE_POSTGRES"
_SCHEDULES = "MQ9_MANAGE_SCHEDULES"
_STOP_S = 3.0
_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 60.0
_WELL_S = 60.0
_CANNOT_LISTEN = 3
_MAX_IN_USE = 4
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}


class Managing:
    """Keeps `mq9 manage` running until it is closed."""

    def __init__(self, running: Running, options: Management, port: int) -> None:
        self._running = running
        self._options = options
        self._port = port
        self._process: asyncio.subprocess.Process | None = None
        self._task = asyncio.get_running_loop().create_task(self._run())

    @classmethod
    def of(cls, running: Running, port: int) -> Managing | None:
        """The process that the options ask for; None, and a line in the log, if it cannot be."""
        wanted, log = running.options.management, running.log
        if wanted is False or (wanted is None and running.options.port < 0):
            return None
        options = wanted if isinstance(wanted, Management) else Management()
        copies = running.options.dead_letters is not None
        schedules = len(running.options.schedules)
        if missing := _missing(_NEEDED):
            text = (
                f"No management page: pip install 'mq9[manage]' brings what is missing ({missing})"
            )
            if copies:
                text += ". Dead letters are not copied to PostgreSQL"
            if schedules:
                text += f". No schedule of {schedules} is followed"
            (log.error if copies or schedules else log.info)(text)
            return None
        if copies and (missing := _missing(_NEEDED_FOR_POSTGRES)):
            log.error(
                "Dead letters are not copied to PostgreSQL: "
                f"pip install 'mq9[postgres]' brings what is missing ({missing})"
            )
        tls = running.options.tls
        if tls is not None and (tls.verify or tls.verify_and_map or tls.handshake_first):
            log.info("No management page: start `mq9 manage` yourself, with a certificate")
            return None
        log.info(f"Starting management on http://{options.listen}")
        return cls(running, options, port)

    async def close(self) -> None:
        """End it."""
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        process = self._process
        if process is None or process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            await asyncio.wait_for(process.wait(), _STOP_S)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def _run(self) -> None:
        pause, in_use = _FIRST_PAUSE_S, 0
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                self._process = await asyncio.create_subprocess_exec(
                    *self._command(),
                    env={**os.environ, **self._private()},
                    stdin=asyncio.subprocess.PIPE,
                )
                status = await self._process.wait()
            except OSError as error:
                self._running.log.error(f"cannot start management: {error.strerror}")
                return
            in_use = in_use + 1 if status == _CANNOT_LISTEN else 0
            if in_use == _MAX_IN_USE:
                self._running.log.warn("No management page: its address stays in use")
                return
            pause = _FIRST_PAUSE_S if loop.time() - began > _WELL_S else pause * 2
            pause = min(pause, _LONGEST_PAUSE_S)
            self._running.log.warn("management ended and is started again", status=status)
            await asyncio.sleep(pause)

    def _private(self) -> dict[str, str]:
        """What is long, or not for other users of the machine: not in arguments."""
        private = {_PASSWORD: self._running.passwords.own}
        if (letters := self._running.options.dead_letters) is not None:
            private[_POSTGRES] = letters.postgres
        if schedules := self._running.options.schedules:
            private[_SCHEDULES] = json.dumps([asdict(each) for each in schedules])
        return private

    def _command(self) -> list[str]:
        options, server = self._options, self._running.options
        host = _EVERYWHERE.get(server.host, server.host)
        host = f"[{host}]" if ":" in host else host
        scheme = "nats" if server.tls is None else "tls"
        command = [sys.executable, "-m", "mq9", "manage", "--until-stdin-ends"]
        command += ["--nats-url", f"{scheme}://{host}:{self._port}", "--nats-user", OWN_USER]
        command += ["--listen", options.listen]
        if server.tls is not None:
            command += ["--nats-ca", str(server.tls.cert_file), "--nats-pin"]
        if options.metrics_port is not None:
            command += ["--metrics-port", str(options.metrics_port)]
        if options.audit_file is not None:
            command += ["--audit-file", str(options.audit_file)]
        for name in options.hosts:
            command += ["--allow-host", name]
        for name in options.probe_hosts:
            command += ["--allow-probe-host", name]
        for name in options.series:
            command += ["--series", name]
        letters = server.dead_letters
        if letters is not None and not _missing(_NEEDED_FOR_POSTGRES):
            command += ["--postgres"]
            command += ["--broker-name", letters.broker] if letters.broker else []
        return command


def _missing(names: Iterable[str]) -> str:
    return ", ".join(name for name in names if importlib.util.find_spec(name) is None)
