"""The monitoring port: which document belongs to which path.

Owns paths and the form of answers. The documents have files of their own.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from mq9 import __version__
from mq9.cluster import metrics
from mq9.server.connz import connz
from mq9.server.http_server import HttpServer, Request, Response
from mq9.server.jsz import jsz
from mq9.server.monitor_access import refusal
from mq9.server.query import QueryError
from mq9.server.running import Running
from mq9.server.standalone import accountz, accstatz, gatewayz, leafz, routez
from mq9.server.subsz import subsz
from mq9.server.varz import Usage, varz

_CORS = (("Access-Control-Allow-Origin", "*"),)
_MAX_PARAMETERS = 32
_ENCODER = json.JSONEncoder(indent=2, ensure_ascii=False)
_STEP_S = 0.001
# Looking at the clock takes as long as encoding a few words.
_PARTS = 64
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head><title>mq9</title></head>
<body>
<h1>mq9 {version}</h1>
<p><a href="{base}/varz">General</a></p>
<p><a href="{base}/connz">Connections</a></p>
<p><a href="{base}/subsz">Subscriptions</a></p>
<p><a href="{base}/healthz">Health</a></p>
</body>
</html>
"""
_DOCUMENTS: dict[str, Callable[[Running, Mapping[str, str]], dict[str, Any]]] = {
    "/accountz": accountz,
    "/accstatz": accstatz,
    "/routez": lambda running, _query: routez(running),
    "/leafz": lambda running, _query: leafz(running),
    "/gatewayz": lambda running, _query: gatewayz(running),
}
# Those that look at all connections take turns with others.
_LONG_DOCUMENTS = {"/connz": connz, "/jsz": jsz, "/subsz": subsz, "/subscriptionsz": subsz}
_PATHS = {"/", "/varz", "/healthz", "/metrics", *_DOCUMENTS, *_LONG_DOCUMENTS}


class Monitor:
    """Answers questions about the server over HTTP."""

    def __init__(self, running: Running) -> None:
        self._running = running
        self._usage = Usage()
        self._requests: Counter[str] = Counter()
        self._base = f"/{running.options.http_base_path.strip('/')}".rstrip("/")
        self.http = HttpServer(self.answer)

    async def _refused(self, request: Request, *, secret: bool) -> Response | None:
        running = self._running
        return await refusal(running.options, running.passwords, request, secret=secret)

    async def answer(self, request: Request) -> Response:
        """The answer to a GET."""
        try:
            parts = urlsplit(request.target)
            query = dict(parse_qsl(parts.query, max_num_fields=_MAX_PARAMETERS))
        except ValueError:
            return Response(b"the query cannot be read", status=400)
        if not f"{parts.path}/".startswith(f"{self._base}/"):
            return await self._refused(request, secret=True) or _not_found()
        path = parts.path[len(self._base) :] or "/"
        # Whether the server is well is for load balancers, which have no password.
        if refused := await self._refused(request, secret=path != "/healthz"):
            return refused
        try:
            response = await self._route(path, query)
        except QueryError as error:
            return Response(str(error).encode(), status=400)
        except Exception as error:
            self._running.log.error(f"monitoring: {path}", error=repr(error))
            return Response(b"the server could not answer; its log says why\n", status=500)
        return response or _not_found()

    async def _route(self, path: str, query: Mapping[str, str]) -> Response | None:
        if path not in _PATHS:
            return None
        self._requests[path] += 1
        if path == "/":
            page = _PAGE.format(version=__version__, base=self._base)
            return Response(page.encode(), "text/html; charset=utf-8")
        if path == "/healthz":
            return self._health()
        if path == "/metrics":
            return self._metrics()
        if path == "/varz":
            return _document(varz(self._running, self._usage, self._requests))
        if long := _LONG_DOCUMENTS.get(path):
            return await _long_document(await long(self._running, query))
        return _document(_DOCUMENTS[path](self._running, query))

    def _metrics(self) -> Response | None:
        cluster_health = self._running.cluster_health
        if cluster_health is None:
            return None
        return Response(metrics.text(cluster_health()), metrics.CONTENT_TYPE)

    def _health(self) -> Response:
        if self._running.lame_duck:
            return _line({"status": "error", "error": "the server takes no new clients"}, 500)
        store = self._running.store.info()
        if store.writes_stopped is not None:
            error = f"the store: {store.writes_stopped}"
            return _line({"status": "unavailable", "error": error}, 503)
        if store.refusing is not None:
            error = f"the store refuses writes: {store.refusing}"
            return _line({"status": "unavailable", "error": error}, 503)
        cluster_health = self._running.cluster_health
        cluster = {} if cluster_health is None else cluster_health()
        if cluster and not cluster["stream"]:
            return _line({"status": "unavailable", **cluster}, 503)
        # Damage that was isolated is no reason to send clients elsewhere.
        warning = self._running.watch.warning()
        return _line({"status": "ok", **({"warning": warning} if warning else {}), **cluster}, 200)


def _document(document: Mapping[str, Any]) -> Response:
    return _response(_ENCODER.encode(document))


async def _long_document(document: Mapping[str, Any]) -> Response:
    """The same in steps of a millisecond or so: others get their turn in between."""
    parts: list[str] = []
    enough = perf_counter() + _STEP_S
    for count, part in enumerate(_ENCODER.iterencode(document)):
        parts.append(part)
        if count % _PARTS == 0 and perf_counter() > enough:
            await asyncio.sleep(0)
            enough = perf_counter() + _STEP_S
    return _response("".join(parts))


def _response(text: str) -> Response:
    return Response(text.encode("utf-8", "replace"), "application/json", headers=_CORS)


def _line(document: Mapping[str, Any], status: int) -> Response:
    body = json.dumps(document, separators=(",", ":")).encode()
    return Response(body, "application/json", status, _CORS)


def _not_found() -> Response:
    return Response(b"404 page not found\n", status=404)
