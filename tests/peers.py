"""Servers as processes: starts mq9, or a real nats-server to compare with, and stops them again.

Both take the same flags and the same configuration, so a test does not know which one it talks to.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, Protocol, TypeVar

import psutil
import pytest

MQ9 = "mq9"
NATS_SERVER = "nats-server"
NATS_SERVER_BINARY = Path(sys.executable).parent / NATS_SERVER

START_DEADLINE_S = 20.0
STOP_DEADLINE_S = 20.0

Value = TypeVar("Value")


class ServerDiedError(Exception):
    """The server ended before it was ready; the message holds its log."""


def skip_without_npm_tools() -> NoReturn:
    """Skips a test that needs `make npm-tools`; in CI, where npm is found, they must be there."""
    if os.environ.get("CI") and shutil.which("npm"):
        pytest.fail("npm is found, but `make npm-tools` has not got what this test needs")
    pytest.skip("needs make npm-tools")


def chosen_peer() -> str:
    """Which server the tests run against: `MQ9_TEST_PEER`, or mq9."""
    peer = os.environ.get("MQ9_TEST_PEER", MQ9)
    if peer not in {MQ9, NATS_SERVER}:
        raise ValueError(f"MQ9_TEST_PEER is {peer!r}; it must be {MQ9!r} or {NATS_SERVER!r}")
    return peer


def until(condition: Callable[[], Value], what: str, deadline_s: float = 10.0) -> Value:
    """Waits until `condition` gives something true, and returns that."""
    end = time.monotonic() + deadline_s
    while not (value := condition()):
        if time.monotonic() > end:
            raise TimeoutError(f"waited {deadline_s} s in vain until {what}")
        time.sleep(0.005)
    return value


def own_address() -> str:
    """An address of this machine beside loopback: whoever uses it seems to come from elsewhere."""
    for addresses in psutil.net_if_addrs().values():
        for found in addresses:
            if found.family == socket.AF_INET and not found.address.startswith("127."):
                return str(found.address)
    pytest.skip("this machine has nothing but a loopback interface")


@dataclass
class Server:
    """A running server."""

    peer: str
    process: subprocess.Popen[bytes] = field(repr=False)
    url: str
    monitor_url: str | None
    log_file: Path = field(repr=False)
    config_file: Path | None = field(default=None, repr=False)
    exit_code: int | None = field(default=None, init=False, repr=False)

    @property
    def host(self) -> str:
        return urllib.parse.urlsplit(self.url).hostname or ""

    @property
    def port(self) -> int:
        return urllib.parse.urlsplit(self.url).port or 0

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def log(self) -> str:
        return self.log_file.read_text("utf-8", errors="replace")

    def rss_bytes(self) -> int:
        """The memory that the process occupies."""
        return int(psutil.Process(self.pid).memory_info().rss)

    def monitor(self, path: str) -> Any:  # noqa: ANN401
        """The JSON that the monitoring port gives for `path`."""
        assert self.monitor_url is not None
        with urllib.request.urlopen(self.monitor_url + path, timeout=10) as response:
            return json.load(response)

    def listeners(self) -> set[int]:
        """Connections that have subscriptions. One that has just left may be among them."""
        connections = self.monitor("/connz?subs=1").get("connections", [])
        return {each["cid"] for each in connections if each["subscriptions"]}

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal; one that stops it has stopped all of its threads by then."""
        self.process.send_signal(number)
        if number == signal.SIGSTOP:
            process = psutil.Process(self.pid)
            until(lambda: process.status() == psutil.STATUS_STOPPED, "it has stopped")

    def reconfigure(self, text: str) -> None:
        """Replaces the configuration and has it reloaded; returns when the log says so."""
        assert self.config_file is not None
        done = "Reloaded server configuration"
        seen = self.log.count(done)
        self.config_file.write_text(text, "utf-8")
        self.signal(signal.SIGHUP)
        until(lambda: self.log.count(done) > seen, "the configuration was reloaded")

    def stop(self) -> int:
        """SIGTERM, and SIGKILL where that is not enough; the exit code."""
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.exit_code = self.process.wait(STOP_DEADLINE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.exit_code = self.process.wait()
        return self.exit_code


class Serve(Protocol):
    """Starts a server that is stopped when the test (or its module) ends."""

    def __call__(
        self, config: str = "", *flags: str, port: int = -1, peer: str | None = None
    ) -> Server: ...


def command(peer: str, folder: Path) -> list[str]:
    if peer == NATS_SERVER:
        return [str(NATS_SERVER_BINARY)]
    return [sys.executable, "-m", "mq9", "serve", "--data", str(folder / "data")]


def start(
    folder: Path,
    config: str = "",
    *flags: str,
    port: int = -1,
    peer: str | None = None,
    around: Sequence[str] = (),
) -> Server:
    """Starts a server with its files in `folder`; returns when it accepts connections.

    `around` is a command that becomes the one behind it, such as `env` or `nsenter`.
    """
    peer = peer or chosen_peer()
    folder.mkdir(parents=True, exist_ok=True)
    arguments = [*around, *command(peer, folder), "-a", "127.0.0.1", "-p", str(port), "-m", "-1"]
    arguments += ["--ports_file_dir", str(folder)]
    config_file = None
    if config:
        config_file = folder / "server.conf"
        config_file.write_text(config, "utf-8")
        arguments += ["-c", str(config_file)]
    log_file = folder / "server.log"
    with log_file.open("wb") as log:
        process = subprocess.Popen(
            [*arguments, *flags], stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )

    def ports() -> dict[str, list[str]] | None:
        if process.poll() is not None:
            text = log_file.read_text("utf-8", errors="replace")
            raise ServerDiedError(
                f"{peer} ended with {process.returncode} before it was ready:\n{text}"
            )
        for file in folder.glob(f"*_{process.pid}.ports"):
            try:
                found: dict[str, list[str]] = json.loads(file.read_text("utf-8"))
            except ValueError:
                return None  # Still being written.
            return found if "Server is ready" in log_file.read_text("utf-8", "replace") else None
        return None

    try:
        found = until(ports, f"{peer} was ready", START_DEADLINE_S)
        assert found is not None
    except BaseException:
        process.kill()
        process.wait()
        raise
    [monitor_url, *_] = [*found.get("monitoring", []), None]
    return Server(peer, process, found["nats"][0], monitor_url, log_file, config_file)
