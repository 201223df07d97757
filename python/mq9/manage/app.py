"""The web application: its parts, and what every request passes before it reaches one.

Owns limits of size and time, the headers that keep a browser strict, and how errors become answers.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse
from starlette.staticfiles import StaticFiles

from mq9 import __version__
from mq9.manage import api, letters_api, messages_api
from mq9.manage.access import Access
from mq9.manage.audit import Audit
from mq9.manage.follower import Follower
from mq9.manage.link import BrokerGoneError, CredentialsError, Link, RefusedError
from mq9.manage.problems import Problem
from mq9.manage.settings import Settings

if TYPE_CHECKING:
    from mq9.manage.archive import Archive
    from mq9.manage.scheduler import Scheduler

_LOG = logging.getLogger("mq9.manage")
_PAGE = Path(__file__).parent / "page"
_MAX_BODY = 2 << 20
_TIMEOUT_S = 12.0
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
# The views of the page: all are the same document.
VIEWS = (
    "/",
    "/queues",
    "/queue",
    "/consumers",
    "/dead-letters",
    "/agents",
    "/schedules",
    "/connections",
)


def make_app(settings: Settings) -> FastAPI:
    """The application; it follows the broker while it runs."""
    link = Link(settings, settings.user, settings.password)
    follower = Follower(link, settings.series)
    access, audit = Access(settings), Audit(settings.audit_file)
    access.is_gone = lambda: follower.gone_since is not None
    archive = _archive(settings, follower)
    follower.archive = archive
    scheduler = _scheduler(settings, follower)
    follower.scheduler = scheduler

    @asynccontextmanager
    async def life(_app: FastAPI) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        parts = (follower, archive, scheduler)
        tasks = [loop.create_task(each.run()) for each in parts if each is not None]
        for task in tasks:
            task.add_done_callback(_tell_end)
        yield
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await access.close()
        await follower.link.close()
        audit.close()

    app = FastAPI(
        title="mq9 management",
        version=__version__,
        description="What is in the broker, and steering it.",
        lifespan=life,
        docs_url=None,
        redoc_url=None,
    )
    app.state.follower, app.state.access, app.state.audit = follower, access, audit
    app.include_router(api.router)
    app.include_router(letters_api.router)
    app.include_router(messages_api.router)
    _add_page(app)
    _add_errors(app)
    add_limits(app, access)
    return app


def _tell_end(task: "asyncio.Task[None]") -> None:
    """None of them ends by itself."""
    if not task.cancelled() and (error := task.exception()) is not None:
        _LOG.error("a part of management has ended", exc_info=error)


def _archive(settings: Settings, follower: Follower) -> "Archive | None":
    if not settings.postgres:
        return None
    from mq9.manage.archive import Archive

    return Archive(follower.link, follower.mirror, settings.postgres, settings.broker_name)


def _scheduler(settings: Settings, follower: Follower) -> "Scheduler | None":
    if not settings.schedules:
        return None
    from mq9.manage.scheduler import Scheduler, parse_schedules

    return Scheduler(follower.link, parse_schedules(settings.schedules))


def _add_page(app: FastAPI) -> None:
    app.mount("/page", StaticFiles(directory=_PAGE), name="page")

    async def page() -> FileResponse:
        return FileResponse(_PAGE / "index.html", headers={"Cache-Control": "no-cache"})

    for view in VIEWS:
        app.add_api_route(view, page, include_in_schema=False)


def _add_errors(app: FastAPI) -> None:
    def answer(_request: Request, error: Exception) -> Response:
        return _problem(error).response()

    kinds: tuple[type[Exception], ...] = (
        *(Problem, RefusedError, BrokerGoneError, CredentialsError),
        *(RequestValidationError, HTTPException),
    )
    for kind in kinds:
        app.add_exception_handler(kind, answer)


def _problem(error: Exception) -> Problem:
    match error:
        case Problem():
            return error
        case RefusedError():
            return api.refused(error)
        case BrokerGoneError():
            return Problem(503, str(error), kind="broker_gone")
        case CredentialsError():
            return Problem(401, str(error))
        case RequestValidationError():
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            return Problem(422, f"{where}: {first['msg']}")
        case HTTPException():
            return Problem(error.status_code, str(error.detail), dict(error.headers or {}))
    return Problem(500, "internal error")


def add_limits(app: FastAPI, access: Access) -> None:
    """What every request passes before it reaches a path."""

    @app.middleware("http")
    async def limited(
        request: Request, proceed: Callable[[Request], Awaitable[Response]]
    ) -> Response:
        try:
            access.check_origin(request)
            _check_size(request)
            async with asyncio.timeout(_TIMEOUT_S):
                response = await proceed(request)
        except Problem as problem:
            response = problem.response()
        except TimeoutError:
            response = Problem(504, "this took too long").response()
        except Exception:
            _LOG.exception("%s %s failed", request.method, request.url.path)
            response = Problem(500, "internal error: the log of mq9 manage says more").response()
        for name, value in _HEADERS.items():
            response.headers[name] = value
        if "sec-fetch-mode" in request.headers and "www-authenticate" in response.headers:
            # A browser would ask for the password itself, before the page can.
            del response.headers["www-authenticate"]
        if request.url.path.startswith("/v1/"):
            response.headers["Cache-Control"] = "no-store"
        return response


def _check_size(request: Request) -> None:
    """A body must say how long it is, so that none has to be read to be refused."""
    length = request.headers.get("content-length", "")
    if "transfer-encoding" in request.headers:
        raise Problem(411, "the request must say how long it is")
    if length and (not length.isascii() or not length.isdigit() or int(length) > _MAX_BODY):
        raise Problem(413, f"a request has at most {_MAX_BODY} bytes")
