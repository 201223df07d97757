"""The process: listens, serves, ends.

Owns sockets and the log. What is served is the application's.
"""

import asyncio
import logging
import os
import socket
import sys
import threading
from contextlib import suppress

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from mq9.manage.app import add_limits, make_app
from mq9.manage.connections import Server
from mq9.manage.metrics import render
from mq9.manage.settings import Settings

_LOG = logging.getLogger("mq9.manage")
# Messages go first.
_NICE = 5
CANNOT_LISTEN = 3
"""The exit status if an address is in use."""


def run(settings: Settings) -> int:
    """Serve until told to stop; the exit status."""
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="mq9 manage: %(levelname)s %(message)s"
    )
    os.nice(_NICE)
    with suppress(KeyboardInterrupt):
        return asyncio.run(_serve(settings))
    return 0


async def _serve(settings: Settings) -> int:
    app = make_app(settings)
    wanted = [(app, settings.port)]
    if settings.metrics_port is not None:
        wanted.append((_metrics_alone(app), settings.metrics_port))
    servers = []
    for served, port in wanted:
        try:
            listening = _listen(settings.host, port)
        except OSError as error:
            _LOG.error("cannot listen on %s:%d: %s", settings.host, port, error.strerror)
            return CANNOT_LISTEN
        servers.append((Server(served), listening))
    if settings.until_stdin_ends:
        threading.Thread(target=_end_with_parent, daemon=True).start()
    await asyncio.gather(*(server.serve([listening]) for server, listening in servers))
    return 0


def _listen(host: str, port: int) -> socket.socket:
    [(family, kind, protocol, _, address), *_] = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(256)
        listening.setblocking(False)
    except OSError:
        listening.close()
        raise
    return listening


def _end_with_parent() -> None:
    """Wait for the end of the input, which the broker holds open as long as it lives."""
    with suppress(OSError):
        while os.read(0, 4096):
            pass
    os._exit(0)


def _metrics_alone(app: FastAPI) -> FastAPI:
    """`/metrics` on a port of its own, for a Prometheus in the same network: asks for nothing.

    But other web sites are kept out, as from the other port.
    """
    alone = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    add_limits(alone, app.state.access)

    @alone.get("/metrics")
    async def metrics(_request: Request) -> Response:
        return Response(render(app.state.follower), media_type="text/plain; version=0.0.4")

    return alone
