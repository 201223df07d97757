"""A small HTTP/1.1 server for monitoring: GET and HEAD, bounded in every direction.

Owns the protocol. What is answered is decided by the function it is given.
"""

import asyncio
import contextlib
import socket
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from email.utils import formatdate
from functools import partial
from typing import TypeAlias

import h11

from mq9.server.info import network_of, plain_ip

_HEADER_BYTES = 16 * 1024
_REQUEST_TIMEOUT_S = 10
_WRITE_TIMEOUT_S = 10
_CONNECTIONS = 64
_TEXT = "text/plain; charset=utf-8"


@dataclass(frozen=True)
class Response:
    """What is answered."""

    body: bytes
    content_type: str = _TEXT
    status: int = 200
    headers: tuple[tuple[str, str], ...] = field(default=())


@dataclass(frozen=True)
class Request:
    """What is asked: a GET or HEAD, its headers that matter, and between which addresses."""

    target: str
    host: str | None = None
    origin: str | None = None
    authorization: str | None = field(default=None, repr=False)
    ip: str = ""
    local_ip: str = ""


Handler: TypeAlias = Callable[[Request], Awaitable[Response]]


class HttpServer:
    """Answers requests on listening sockets."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._servers: list[asyncio.Server] = []
        # Of each network, the connection that was of use most recently last.
        self._serving: dict[str, OrderedDict[asyncio.Task[None], None]] = {}

    async def start(self, sockets: Sequence[socket.socket]) -> None:
        """Begin to accept."""
        for listener in sockets:
            self._servers.append(
                await asyncio.start_server(self._accept, sock=listener, limit=_HEADER_BYTES)
            )

    async def close(self) -> None:
        """Stop, and end what is under way."""
        for server in self._servers:
            server.close()
        tasks = [task for of_network in self._serving.values() for task in of_network]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if sum(map(len, self._serving.values())) >= _CONNECTIONS:
            self._cut_off_one()
        ip = _ip(writer, "peername")
        network = network_of(ip)
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer, ip))
        self._serving.setdefault(network, OrderedDict())[task] = None
        task.add_done_callback(partial(self._left, network))

    def _cut_off_one(self) -> None:
        """Whoever comes finds room: the network with most connections gives up its idlest one."""
        network = max(self._serving, key=lambda network: len(self._serving[network]))
        task = next(iter(self._serving[network]))
        task.cancel()
        self._left(network, task)

    def _left(self, network: str, task: asyncio.Task[None]) -> None:
        of_network = self._serving.get(network, OrderedDict())
        if task in of_network:
            del of_network[task]
            if not of_network:
                del self._serving[network]

    def _was_of_use(self, ip: str) -> None:
        task = asyncio.current_task()
        of_network = self._serving.get(network_of(ip), OrderedDict())
        if task is not None and task in of_network:
            of_network.move_to_end(task)

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, ip: str
    ) -> None:
        http = h11.Connection(h11.SERVER, max_incomplete_event_size=_HEADER_BYTES)
        try:
            while True:
                async with asyncio.timeout(_REQUEST_TIMEOUT_S):
                    request = await _request(http, reader)
                if request is None:
                    break
                response = await self._answer(request, ip, _ip(writer, "sockname"))
                async with asyncio.timeout(_WRITE_TIMEOUT_S):
                    await _send(http, writer, response, head=request.method == b"HEAD")
                if http.our_state is h11.MUST_CLOSE:
                    break
                http.start_next_cycle()
                self._was_of_use(ip)
        except h11.RemoteProtocolError as error:
            with contextlib.suppress(h11.LocalProtocolError, OSError, TimeoutError):
                refusal = Response(f"{error}\n".encode(), status=error.error_status_hint)
                async with asyncio.timeout(_WRITE_TIMEOUT_S):
                    await _send(http, writer, refusal)
        except (h11.LocalProtocolError, OSError, TimeoutError):
            pass
        finally:
            writer.close()

    async def _answer(self, request: h11.Request, ip: str, local_ip: str) -> Response:
        if request.method not in {b"GET", b"HEAD"}:
            allow = (("Allow", "GET, HEAD"),)
            return Response(b"only GET and HEAD\n", status=405, headers=allow)
        headers = {name: value.decode("latin-1") for name, value in request.headers}
        return await self._handler(
            Request(
                target=request.target.decode("latin-1"),
                host=headers.get(b"host"),
                origin=headers.get(b"origin"),
                authorization=headers.get(b"authorization"),
                ip=ip,
                local_ip=local_ip,
            )
        )


def _ip(writer: asyncio.StreamWriter, which: str) -> str:
    """An address of a connection; empty if it is gone already."""
    address = writer.get_extra_info(which)
    return plain_ip(address[0]) if address else ""


async def _request(http: h11.Connection, reader: asyncio.StreamReader) -> h11.Request | None:
    """The next request; what comes with it is read, bounded, and dropped."""
    request: h11.Request | None = None
    body = 0
    while True:
        event = http.next_event()
        if event is h11.NEED_DATA:
            http.receive_data(await reader.read(_HEADER_BYTES))
        elif isinstance(event, h11.Request):
            request = event
        elif isinstance(event, h11.Data):
            body += len(event.data)
            if body > _HEADER_BYTES:
                raise h11.RemoteProtocolError("the body is too long", error_status_hint=413)
        elif isinstance(event, h11.EndOfMessage):
            return request
        else:
            return None


async def _send(
    http: h11.Connection,
    writer: asyncio.StreamWriter,
    response: Response,
    *,
    head: bool = False,
) -> None:
    headers = [
        *response.headers,
        ("Content-Type", response.content_type),
        ("Date", formatdate(usegmt=True)),
        ("Content-Length", str(len(response.body))),
    ]
    out = [
        http.send(h11.Response(status_code=response.status, headers=headers)),
        http.send(h11.Data(data=b"" if head else response.body)),
        http.send(h11.EndOfMessage()),
    ]
    writer.write(b"".join(part for part in out if part))
    await writer.drain()
