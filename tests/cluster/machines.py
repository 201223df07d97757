"""Each node on a machine of its own, as far as its network goes: namespaces, and a bridge between.

The test, the clients and the nats-servers stay where they are; nodes reach them over the bridge.
"""

import contextlib
import os
import subprocess

from tests.cluster.links import config_of

from mq9.cluster.local import LocalCluster, Process


class NoMachinesError(Exception):
    """This machine lets nobody make network namespaces here."""


class Machines:
    """The namespaces of a cluster's nodes: made before the cluster starts."""

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
            for index, node in enumerate(cluster.nodes, 1):
                self._add(node, index, f"{net}.{index}")
        except (OSError, subprocess.CalledProcessError) as error:
            self.close()
            said = getattr(error, "stderr", None) or str(error)
            raise NoMachinesError(f"needs `ip netns`: {said.strip()}") from error
        for node in cluster.nodes:
            file = config_of(node)
            text = file.read_text()
            for each in cluster.nodes:
                text = text.replace(f"127.0.0.1:{each.port}", f"{each.host}:{each.port}")
                text = text.replace(f"127.0.0.1:{each.http}", f"{each.host}:{each.http}")
            file.write_text(text)

    def _add(self, node: Process, index: int, address: str) -> None:
        space, near, far = f"{self._name}n{index}", f"{self._name}h{index}", f"{self._name}f{index}"
        _ip("netns", "add", space)
        self._spaces.append(space)
        _ip("link", "add", near, "type", "veth", "peer", "name", far, "netns", space)
        _ip("link", "set", near, "master", self._name, "up")
        _ip("-n", space, "addr", "add", f"{address}/24", "dev", far)
        for device in ("lo", far):
            _ip("-n", space, "link", "set", device, "up")
        self._ends[node.port] = near
        node.host = address
        node.command = ["ip", "netns", "exec", space, *node.command]

    def cut(self, node: Process) -> None:
        """Nothing passes between this node and anybody."""
        _ip("link", "set", self._ends[node.port], "down")

    def mend(self, node: Process) -> None:
        """It does again."""
        _ip("link", "set", self._ends[node.port], "up")

    def close(self) -> None:
        """All of it goes."""
        for space in self._spaces:
            with contextlib.suppress(subprocess.CalledProcessError):
                _ip("netns", "delete", space)
        with contextlib.suppress(OSError, subprocess.CalledProcessError):
            _ip("link", "delete", self._name)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True, timeout=20)
