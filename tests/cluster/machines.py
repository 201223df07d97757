"""Each process on a machine of its own, as far as its network goes: namespaces, and a bridge.

The test and the clients stay where they are; nodes and nats-servers reach them over the bridge.
"""

import contextlib
import os
import subprocess

from tests.cluster.links import config_of

from mq9.cluster.local import LocalCluster, Process


class NoMachinesError(Exception):
    """This machine lets nobody make network namespaces here."""


class Machines:
    """The namespaces of a cluster's nodes and nats-servers: made before the cluster starts."""

    def __init__(self, cluster: LocalCluster) -> None:
        number = os.getpid()
        net, self._name = f"10.{128 + number // 256 % 96}.{number % 256}", f"mq{number % 1_000_000}"
        self.host = f"{net}.254"
        self._ends: dict[int, str] = {}
        self._spaces: list[str] = []
        try:
            _ip("link", "add", self._name, "type", "bridge")
            _ip("addr", "add", f"{self.host}/24", "dev", self._name)
            _ip("link", "set", self._name, "up")
            for index, process in enumerate((*cluster.nodes, *cluster.servers), 1):
                self._add(process, index, f"{net}.{index}")
        except (OSError, subprocess.CalledProcessError) as error:
            self.close()
            said = getattr(error, "stderr", None) or str(error)
            raise NoMachinesError(f"needs `ip netns`: {said.strip()}") from error
        for node in cluster.nodes:
            file = config_of(node)
            text = file.read_text()
            for each in (*cluster.nodes, *cluster.servers):
                text = text.replace(f"127.0.0.1:{each.port}", f"{each.host}:{each.port}")
                text = text.replace(f"127.0.0.1:{each.http}", f"{each.host}:{each.http}")
            file.write_text(text)
        hosts = [server.host for server in cluster.servers]
        for server in cluster.servers:
            file = config_of(server)
            text = file.read_text()
            # Its routes, in the order of the servers.
            for host in hosts:
                text = text.replace("//127.0.0.1", f"//{host}", 1)
            file.write_text(text.replace("127.0.0.1", server.host))

    def _add(self, process: Process, index: int, address: str) -> None:
        space, near, far = f"{self._name}n{index}", f"{self._name}h{index}", f"{self._name}f{index}"
        _ip("netns", "add", space)
        self._spaces.append(space)
        _ip("link", "add", near, "type", "veth", "peer", "name", far, "netns", space)
        _ip("link", "set", near, "master", self._name, "up")
        _ip("-n", space, "addr", "add", f"{address}/24", "dev", far)
        for device in ("lo", far):
            _ip("-n", space, "link", "set", device, "up")
        self._ends[process.port] = near
        process.host = address
        process.command = ["ip", "netns", "exec", space, *process.command]

    def cut(self, process: Process) -> None:
        """Nothing passes between this one and anybody."""
        _ip("link", "set", self._ends[process.port], "down")

    def mend(self, process: Process) -> None:
        """It does again."""
        _ip("link", "set", self._ends[process.port], "up")

    def close(self) -> None:
        """All of it goes."""
        for space in self._spaces:
            with contextlib.suppress(subprocess.CalledProcessError):
                _ip("netns", "delete", space)
        with contextlib.suppress(OSError, subprocess.CalledProcessError):
            _ip("link", "delete", self._name)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True, timeout=20)
