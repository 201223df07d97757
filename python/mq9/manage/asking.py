"""Shared by all paths of the REST interface: the caller, its rights, and the note of a change."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Path, Query, Request

from mq9.manage.access import Access, Person
from mq9.manage.audit import Audit
from mq9.manage.follower import Follower
from mq9.manage.problems import MEDIA_TYPE, Problem
from mq9.manage.rows import Kind

T = TypeVar("T")

_PROBLEM = {"description": "A problem", "content": {MEDIA_TYPE: {"schema": {"type": "object"}}}}
_STATUSES: tuple[int | str, ...] = (400, 401, 403, 404, 409, 411, 413, 422, 429, 503, 504)
PROBLEMS: dict[int | str, dict[str, Any]] = dict.fromkeys(_STATUSES, _PROBLEM)
QUEUE_NAME = r"^[^\s*>/\\]+$"
QueueName = Annotated[str, Path(pattern=QUEUE_NAME, max_length=255)]
"""The address of a mailbox, or the name of a stream, which may be in any script."""
Limit = Annotated[int, Query(ge=1, le=1000)]
Offset = Annotated[int, Query(ge=0, le=10_000_000)]
Text = Annotated[str, Query(max_length=255)]
Preview = Annotated[int | None, Query(ge=0, le=1 << 20)]
"""How much of a payload is wanted, in characters as they are sent; all of it if nothing is said."""
Number = Annotated[int, Path(ge=0, le=2**63 - 1)]


async def _look(request: Request) -> Person:
    access: Access = request.app.state.access
    return await access.who(request)


async def _steer(request: Request) -> Person:
    access: Access = request.app.state.access
    return await access.who(request, steer=True)


Looker = Annotated[Person, Depends(_look)]
Steerer = Annotated[Person, Depends(_steer)]


def follower_of(request: Request) -> Follower:
    follower: Follower = request.app.state.follower
    return follower


def audit_of(request: Request) -> Audit:
    audit: Audit = request.app.state.audit
    return audit


async def change(
    request: Request, person: Person, action: str, target: str, work: Callable[[], Awaitable[T]]
) -> T:
    """Do something, and note what came of it."""
    result = "done"
    try:
        return await work()
    except asyncio.CancelledError:
        # The broker may have done it all the same: its answer did not come in time.
        result = "unknown: it took too long"
        raise
    except Exception as error:
        result = f"failed: {error}"
        raise
    finally:
        audit_of(request).note(
            user=person.user, address=person.address, action=action, target=target, result=result
        )


def may_be_mailbox(name: str) -> bool:
    """Whether a mailbox may have this name: it can be part of a subject."""
    return re.fullmatch(r"[A-Za-z0-9_.-]+", name) is not None


def is_stream(request: Request, name: str, kind: Kind | None) -> bool:
    """Whether a stream is meant; 404 if neither that nor a mailbox can be."""
    mirror = follower_of(request).mirror
    if mirror.find(name, kind) is not None:
        return kind == "stream" or (kind is None and mirror.find(name) is None)
    if kind == "stream" or not may_be_mailbox(name):
        raise Problem(404, f"there is no queue {name!r}")
    return False
