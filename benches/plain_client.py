"""A client that speaks just enough NATS to give commands to mq9, and costs little."""

import json
import socket
from typing import Any

from nats_runs import BenchError


class Client:
    """A plain connection that asks one thing after the other, or many at once."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=120)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.input = self.socket.makefile("rb")
        self.input.readline()
        self.socket.sendall(b'CONNECT {"verbose":false,"headers":true}\r\nSUB inbox.bench 1\r\n')

    def send(self, command: str, body: bytes) -> None:
        """Asks, without waiting for the answer."""
        head = f"PUB $mq9.AI.{command} inbox.bench {len(body)}\r\n".encode()
        self.socket.sendall(head + body + b"\r\n")

    def answer_bytes(self) -> bytes:
        """The next answer as it came."""
        while not (line := self.input.readline()).startswith((b"MSG", b"HMSG")):
            if line.startswith(b"PING"):
                self.socket.sendall(b"PONG\r\n")
            elif not line or line.startswith(b"-ERR"):
                raise BenchError(f"the broker said {line!r}")
        return self.input.read(int(line.split()[-1]) + 2)

    def answer(self) -> dict[str, Any]:
        """The next answer, which must be no error."""
        found: dict[str, Any] = json.loads(self.answer_bytes())
        if found["error"]:
            raise BenchError(found["error"])
        return found

    def ask(self, command: str, request: object) -> dict[str, Any]:
        """Asks, and waits for the answer."""
        self.send(command, json.dumps(request).encode())
        return self.answer()

    def close(self) -> None:
        """The end of the connection."""
        self.input.close()
        self.socket.close()
