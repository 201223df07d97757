"""A broker as a process of its own in a temporary directory: start, look, reset, stop.

Owns the process, its directory and a connection for looking. What is waited for is `waiting`'s.
"""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Coroutine
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from mq9.client import Client, Message
from mq9.sync.portal import Portal
from mq9.testing import waiting
from mq9.testing.waiting import Predicate

Value = TypeVar("Value")

_LOOK_AGAIN_S = 0.005
_START_S = 30.0
_STOP_S = 20.0
_MOST_AGENTS = 1000


class BrokerDied(Exception):  # noqa: N818
    """The broker ended before it was ready; the text holds its log."""


class Broker:
    """A broker for tests, on a free port of this machine; nothing is synced to disk.

    Use it with `with`, or call `start` and `stop`. `config` is the text of a configuration file,
    `flags` are more flags of `mq9 serve`. Without a `folder`, its files are removed when it stops.
    """

    def __init__(self, config: str = "", *flags: str, folder: Path | str | None = None) -> None:
        self._config = config
        self._flags = flags
        self._temporary = folder is None
        self._folder = Path() if folder is None else Path(folder)
        self._process: subprocess.Popen[bytes] | None = None
        self._port = -1
        self._url = ""
        self._client: Client | None = None
        self._portal: Portal | None = None

    @property
    def running(self) -> bool:
        """Whether its process is there."""
        return self._process is not None and self._process.poll() is None

    @property
    def url(self) -> str:
        """The URL for clients; the same after `restart`."""
        if self._process is None:
            raise RuntimeError("the broker does not run: call start, or use it with `with`")
        return self._url

    @property
    def environment(self) -> dict[str, str]:
        """The environment for programs under test: this one's, with `MQ9_URL`."""
        return {**os.environ, "MQ9_URL": self.url}

    @property
    def log(self) -> str:
        """The log since the last start, as long as its folder exists."""
        if self._temporary and self._folder == Path():
            return ""
        return self._log_file.read_text("utf-8", errors="replace")

    def start(self) -> Self:
        """Start it; returns when it accepts connections."""
        if self.running:
            raise RuntimeError("the broker runs already")
        # It may have ended by itself.
        self._end("kill")
        if self._temporary and self._folder == Path():
            self._folder = Path(tempfile.mkdtemp(prefix="mq9-"))
        self._folder.mkdir(parents=True, exist_ok=True)
        for left in self._folder.glob("mq9_*.ports"):
            left.unlink()
        with self._log_file.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "mq9.testing.broker_process", *self._arguments()],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
            )
        try:
            self._url = self._await_url(self._process)
        except BaseException:
            self.stop()
            raise
        self._port = int(self._url.rpartition(":")[2])
        return self

    def stop(self) -> None:
        """Stop it in order. Its temporary directory goes with it."""
        self._end("terminate")
        if self._temporary and self._folder != Path():
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = Path()

    def kill(self) -> None:
        """End it at once, as a crash would. Its files stay for `start`."""
        self._end("kill")

    def restart(self) -> None:
        """Stop it in order and start it again with the same mail on the same port."""
        self._end("terminate")
        self.start()

    def reset(self) -> None:
        """Remove all mailboxes and agents, for the next test. Needs an operator's permission."""
        self._run(_reset(self._connection()))

    def mail(self, address: str) -> list[Message]:
        """List the messages of a mailbox, oldest first, without taking any."""
        return self._run(waiting.mail(self._connection(), address))

    def wait_for_mail(
        self,
        address: str,
        *,
        count: int = 1,
        where: Predicate | None = None,
        timeout: float = 5.0,
    ) -> list[Message]:
        """Wait for `count` messages for which `where` is true, and return all of them.

        In a test that is `async def`, `await mq9.testing.wait_for_mail(client, ...)` instead.
        """
        client = self._connection()
        return self._run(
            waiting.wait_for_mail(client, address, count=count, where=where, timeout=timeout)
        )

    def wait_until_done(self, address: str, group: str, *, timeout: float = 5.0) -> None:
        """Wait until a group has acknowledged all messages of its mailbox."""
        self._run(waiting.wait_until_done(self._connection(), address, group, timeout=timeout))

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def _log_file(self) -> Path:
        return self._folder / "broker.log"

    def _arguments(self) -> list[str]:
        arguments = ["-a", "127.0.0.1", "-p", str(self._port), "--sync", "none"]
        arguments += ["--data", str(self._folder / "data")]
        arguments += ["--ports_file_dir", str(self._folder)]
        if self._config:
            file = self._folder / "broker.conf"
            file.write_text(self._config, "utf-8")
            arguments += ["-c", str(file)]
        return [*arguments, *self._flags]

    def _await_url(self, process: subprocess.Popen[bytes]) -> str:
        end = time.monotonic() + _START_S
        while time.monotonic() < end:
            if process.poll() is not None:
                raise BrokerDied(f"the broker ended with {process.returncode}:\n{self.log}")
            # The file comes when clients may.
            file = self._folder / f"mq9_{process.pid}.ports"
            if file.exists():
                return str(json.loads(file.read_text("utf-8"))["nats"][0])
            time.sleep(_LOOK_AGAIN_S)
        raise BrokerDied(f"the broker was not ready in {_START_S:g} s:\n{self.log}")

    def _end(self, how: str) -> None:
        if self._portal is not None:
            self._portal.close()
            self._portal = self._client = None
        process, self._process = self._process, None
        if process is None:
            return
        getattr(process, how)()
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdin is not None:
            process.stdin.close()

    def _connection(self) -> Client:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            raise RuntimeError(
                "this call would stop the event loop that the test runs in: use "
                "`await mq9.testing.wait_for_mail(client, ...)` and its like"
            )
        if self._client is None:
            self._client = Client(self.url, name="mq9-testing")
            self._portal = Portal(self._client.close)
            self._portal.run(self._client.connect())
        return self._client

    def _run(self, coroutine: Coroutine[Any, Any, Value]) -> Value:
        assert self._portal is not None
        return self._portal.run(coroutine)


async def _reset(client: Client) -> None:
    mailboxes = await client.list_mailboxes()
    await asyncio.gather(*(client.remove_mailbox(one.address) for one in mailboxes))
    while cards := await client.discover(fields=["mailbox"], limit=_MOST_AGENTS):
        await asyncio.gather(*(client.unregister(card["mailbox"]) for card in cards))
