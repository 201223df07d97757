"""Links between nodes and nats-servers that a test can cut: what is sent then is swallowed."""

import contextlib
import re
import selectors
import socket
import threading
from pathlib import Path

from mq9.cluster.local import LocalCluster, Process


class Link:
    """Passes bytes on between a port of its own and a server, until it is cut."""

    def __init__(self, target: tuple[str, int], host: str = "127.0.0.1") -> None:
        self._target = target
        self._cut = threading.Event()
        self._ended = False
        self._listener = socket.create_server((host, 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """From now on nothing passes, and nobody is told."""
        self._cut.set()

    def mend(self) -> None:
        """What connects from now on is passed on again; what was cut stays silent."""
        self._cut.clear()

    def close(self) -> None:
        """End it."""
        self._ended = True
        self._listener.close()

    def _accept(self) -> None:
        while not self._ended:
            try:
                accepted, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._pass_on, args=(accepted,), daemon=True).start()

    def _pass_on(self, near: socket.socket) -> None:
        with near, contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            far = None
            if not self._cut.is_set():
                far = stack.enter_context(socket.create_connection(self._target))
            poll = stack.enter_context(selectors.DefaultSelector())
            poll.register(near, selectors.EVENT_READ, far)
            if far is not None:
                poll.register(far, selectors.EVENT_READ, near)
            while not self._ended:
                for key, _ in poll.select(0.2):
                    assert isinstance(key.fileobj, socket.socket)
                    data = key.fileobj.recv(65_536)
                    if not data:
                        return
                    # Once cut, a connection is dead for ever.
                    if self._cut.is_set():
                        far = None
                    if far is not None:
                        key.data.sendall(data)


class Links:
    """All links of nodes, which reach them at `host`: made before the cluster starts."""

    def __init__(self, cluster: LocalCluster, host: str = "127.0.0.1") -> None:
        self._of: dict[int, list[Link]] = {}
        for node in cluster.nodes:
            links = [Link((server.host, server.port), host) for server in cluster.servers]
            self._of[node.port] = links
            urls = ", ".join(f'"nats://{host}:{link.port}"' for link in links)
            file = config_of(node)
            file.write_text(re.sub(r"servers: \[.*\]", f"servers: [{urls}]", file.read_text()))

    def cut(self, node: Process) -> None:
        """This node reaches no server any more."""
        for link in self._of[node.port]:
            link.cut()

    def mend(self, node: Process) -> None:
        """It does again."""
        for link in self._of[node.port]:
            link.mend()

    def close(self) -> None:
        """End all of them."""
        for links in self._of.values():
            for link in links:
                link.close()


def config_of(node: Process) -> Path:
    """The configuration file of a node, or of a server."""
    return Path(node.command[node.command.index("-c") + 1])
