"""A raw connection to a NATS server, and the frames that a server sends.

Knows the protocol only as far as needed to cut the stream into frames; what a frame should be is
for the tests to say.
"""

import contextlib
import json
import socket
import struct
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Any

DEADLINE_S = 5.0
CHUNK_BYTES = 1 << 20

CONNECT = b'CONNECT {"verbose":false,"headers":true,"no_responders":true}\r\n'

# The keys of an INFO inside the stream that are the same on every server and every run.
STABLE_INFO_KEYS = ("auth_required", "connect_info", "ldm", "remote_account", "tls_required")


def cut(stream: bytes) -> tuple[list[bytes], bytes]:
    """The complete frames of what a server sent, and the unfinished rest."""
    found = []
    start = 0
    while (end := stream.find(b"\r\n", start) + 2) >= 2:
        if stream.startswith((b"MSG ", b"HMSG "), start):
            end += int(stream[start : end - 2].rsplit(b" ", 1)[1]) + 2
        if end > len(stream):
            break
        found.append(stream[start:end])
        start = end
    return found, stream[start:]


def reduced(frame: bytes) -> bytes:
    """The frame; of an INFO, only what does not differ from run to run."""
    if not frame.startswith(b"INFO "):
        return frame
    info = json.loads(frame[5:])
    kept = {key: info[key] for key in STABLE_INFO_KEYS if info.get(key)}
    return b"INFO " + json.dumps(kept, separators=(",", ":")).encode() + b"\r\n"


def comparable(stream: bytes) -> bytes:
    """The stream with every INFO in it reduced."""
    complete, rest = cut(stream)
    return b"".join(map(reduced, complete)) + rest


def without_info(stream: bytes) -> bytes:
    """The stream without the INFO frames in it."""
    complete, rest = cut(stream)
    return b"".join(frame for frame in complete if not frame.startswith(b"INFO ")) + rest


@dataclass(frozen=True)
class Message:
    """A MSG or HMSG frame."""

    subject: str
    sid: str
    reply: str
    headers: bytes
    payload: bytes


def messages(stream: bytes) -> list[Message]:
    """The messages in a stream, in order."""
    found = []
    for frame in cut(stream)[0]:
        if not frame.startswith((b"MSG ", b"HMSG ")):
            continue
        line, rest = frame.split(b"\r\n", 1)
        words = line.decode("latin-1").split(" ")
        sizes = 2 if words[0] == "HMSG" else 1
        header_bytes = int(words[-2]) if sizes == 2 else 0
        reply = words[3] if len(words) == 4 + sizes else ""
        body = rest[:-2]
        found.append(Message(words[1], words[2], reply, body[:header_bytes], body[header_bytes:]))
    return found


class Wire:
    """A blocking connection that has read the server's INFO."""

    def __init__(
        self, port: int, *, host: str = "127.0.0.1", deadline_s: float = DEADLINE_S
    ) -> None:
        self.socket = socket.create_connection((host, port), timeout=deadline_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.deadline_s = deadline_s
        self.received = bytearray()
        self.ended = False
        try:
            self.info_line = self.line()
            if not self.info_line.startswith(b"INFO "):
                raise AssertionError(f"the first line is not INFO: {self.info_line!r}")
        except BaseException:
            self.socket.close()
            raise

    @property
    def info(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.info_line[5:])
        return found

    def __enter__(self) -> "Wire":
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def finish(self) -> bytes:
        """Ends this side and returns all that is left: the server has forgotten us after that."""
        try:
            self.socket.shutdown(socket.SHUT_WR)
        except OSError:
            self.ended = True
        rest = self.until_closed()
        self.close()
        return rest

    def send(self, data: bytes) -> None:
        """Sends; a server that has closed already is noticed when reading."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.socket.sendall(data)

    def _more(self) -> bool:
        try:
            chunk = self.socket.recv(CHUNK_BYTES)
        except ConnectionError:
            chunk = b""
        except TimeoutError:
            raise TimeoutError(
                f"nothing more within {self.deadline_s} s after {bytes(self.received)!r:.500}"
            ) from None
        self.received += chunk
        self.ended = self.ended or not chunk
        return bool(chunk)

    def take(self, count: int) -> bytes:
        taken = bytes(self.received[:count])
        del self.received[:count]
        return taken

    def line(self) -> bytes:
        """The next line, with its end; less if the server closes."""
        while b"\r\n" not in self.received and self._more():
            pass
        end = self.received.find(b"\r\n")
        return self.take(end + 2 if end >= 0 else len(self.received))

    def frame(self) -> bytes:
        """The next frame; nothing if the server closes before it is complete."""
        while not (complete := cut(bytes(self.received))[0]) and self._more():
            pass
        return self.take(len(complete[0])) if complete else b""

    def exactly(self, count: int) -> bytes:
        """The next `count` bytes; less if the server closes."""
        while len(self.received) < count and self._more():
            pass
        return self.take(count)

    def until(self, mark: bytes) -> bytes:
        """Everything up to and with `mark`; less if the server closes."""
        searched = 0
        while (end := self.received.find(mark, searched)) < 0:
            searched = max(0, len(self.received) - len(mark))
            if not self._more():
                return self.take(len(self.received))
        return self.take(end + len(mark))

    def until_closed(self) -> bytes:
        """Everything until the server closes."""
        while not self.ended and self._more():
            pass
        return self.take(len(self.received))

    def until_quiet(self, quiet_s: float) -> bytes:
        """Everything until the server closes or is silent for a while: only to record with."""
        if self.ended:
            return b""
        self.socket.settimeout(quiet_s)
        try:
            return self.until_closed()
        except TimeoutError:
            return self.take(len(self.received))
        finally:
            self.socket.settimeout(self.deadline_s)

    def ask(self, data: bytes) -> bytes:
        """Sends, and returns what comes before the answer to a PING behind it.

        A PING of the server's own may come at any time; it is left out.
        """
        self.send(data + b"PING\r\n")
        complete, rest = cut(self.until(b"PONG\r\n").removesuffix(b"PONG\r\n"))
        return b"".join(frame for frame in complete if frame != b"PING\r\n") + rest

    def connect(self, **options: object) -> "Wire":
        """Says CONNECT with defaults that ask for no extras; for chaining."""
        said = {"verbose": False, "headers": True, "no_responders": True} | options
        assert self.ask(b"CONNECT " + json.dumps(said).encode() + b"\r\n") == b""
        return self

    def wait_read(self) -> None:
        """Returns when the server has taken all that was sent out of its socket."""
        local_port = self.socket.getsockname()[1]
        peer_port = self.socket.getpeername()[1]
        end = time.monotonic() + self.deadline_s
        while unread(peer_port, local_port):
            if time.monotonic() > end:
                raise TimeoutError("the server did not read what was sent")


NETLINK_SOCK_DIAG = 4
SOCK_DIAG_BY_FAMILY = 20
NLM_F_REQUEST = 1
ANY = 0xFFFFFFFF
RECEIVE_QUEUE_OFFSET = 72


def unread(server_port: int, client_port: int) -> bool:
    """Whether bytes from the client are still in the kernel, unseen by the server.

    Asks the kernel for that one socket; the table in /proc takes milliseconds to read.
    """
    address = socket.inet_aton("127.0.0.1") + bytes(12)
    request = (
        struct.pack("=BBBBI", socket.AF_INET, socket.IPPROTO_TCP, 0, 0, ANY)
        + struct.pack(">HH", server_port, client_port)
        + address * 2
        + struct.pack("=III", 0, ANY, ANY)
    )
    head = struct.pack("=IHHII", 16 + len(request), SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, 0, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG) as kernel:
        kernel.send(head + request)
        answer = kernel.recv(4096)
    (kind,) = struct.unpack_from("=H", answer, 4)
    if kind != SOCK_DIAG_BY_FAMILY:
        return False  # The server has closed it.
    (waiting,) = struct.unpack_from("=I", answer, RECEIVE_QUEUE_OFFSET)
    return bool(waiting)
