"""One connection of nats-py to one server: how it is opened, and why it could not be.

nats-py would try for minutes, and later reconnect with requests that it had kept back. Here an
attempt fails at once, and the wire reconnects.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

from nats.aio.client import Client as Nats

from mq9.client.tasks import end_tasks
from mq9.errors import AccessDenied, BrokerUnavailable, Mq9Error

PING_INTERVAL_S = 15
"""How often a server is asked whether it is there; if two are not answered it is not."""

_REFUSED = ("authorization violation", "authentication")


@dataclass(frozen=True, kw_only=True)
class Access:
    """Who the client is, and how it talks."""

    user: str | None = None
    password: str | None = None
    token: str | None = None
    nkey_seed: str | None = None
    """The seed of an nkey, or the path of a file that holds it."""
    tls: ssl.SSLContext | None = None
    name: str | None = None
    connect_timeout: float = 5.0
    inbox_prefix: str = "_INBOX"


class Options(TypedDict, total=False):
    """The options of `mq9.Client`."""

    user: str | None
    password: str | None
    token: str | None
    nkey_seed: str | None
    tls: ssl.SSLContext | None
    name: str | None
    timeout: float
    connect_timeout: float
    inbox_prefix: str


async def open_connection(
    url: str,
    access: Access,
    on_error: Callable[[Exception], None],
    on_closed: Callable[[Nats], None],
) -> Nats:
    """Connects once; `on_closed` is called when the connection is over."""
    nats = Nats()
    opened = False
    problem: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()

    async def error_cb(error: Exception) -> None:
        if opened:
            on_error(error)
        elif not problem.done():
            problem.set_result(error)

    async def closed_cb() -> None:
        on_closed(nats)

    attempt = asyncio.ensure_future(
        nats.connect(
            url,
            name=access.name,
            error_cb=error_cb,
            closed_cb=closed_cb,
            allow_reconnect=False,
            connect_timeout=access.connect_timeout,  # type: ignore[arg-type]
            ping_interval=PING_INTERVAL_S,
            inbox_prefix=access.inbox_prefix,
            tls=access.tls,
            **_credentials(access),
        )
    )
    try:
        waiting: set[asyncio.Future[Any]] = {attempt, problem}
        await asyncio.wait(
            waiting, timeout=access.connect_timeout, return_when=asyncio.FIRST_COMPLETED
        )
        if problem.done():
            raise _unavailable(url, problem.result()) from problem.result()
        if not attempt.done():
            raise _unavailable(url, TimeoutError(f"no answer in {access.connect_timeout:g} s"))
        try:
            attempt.result()
        except Exception as error:
            raise _unavailable(url, error) from error
        opened = True
    finally:
        if not opened:
            await _abandon(nats, attempt)
    return nats


async def open_first(
    urls: Sequence[str],
    access: Access,
    on_error: Callable[[Exception], None],
    on_closed: Callable[[Nats], None],
) -> Nats:
    """Connects to the first server that answers; raises what the last one said if none does."""
    problem: Mq9Error | None = None
    for url in urls:
        try:
            return await open_connection(url, access, on_error, on_closed)
        except (AccessDenied, BrokerUnavailable) as error:
            problem = error
    assert problem is not None
    raise problem


async def _abandon(nats: Nats, attempt: Awaitable[None]) -> None:
    attempt = asyncio.ensure_future(attempt)
    await end_tasks(attempt)
    # nats-py leaves the socket of an attempt that failed open.
    if nats._transport is not None:
        nats._transport.close()  # type: ignore[no-untyped-call]


def _credentials(access: Access) -> dict[str, Any]:
    given: dict[str, Any] = {
        "user": access.user,
        "password": access.password,
        "token": access.token,
    }
    if access.nkey_seed is not None:
        is_seed = access.nkey_seed.startswith("SU")
        if not is_seed and not Path(access.nkey_seed).is_file():
            raise AccessDenied(
                f"nkey_seed is {access.nkey_seed!r}: it must be a seed that starts with SU, or a "
                "file that holds one"
            )
        given["nkeys_seed_str" if is_seed else "nkeys_seed"] = access.nkey_seed
    return {name: value for name, value in given.items() if value is not None}


def shown(url: str) -> str:
    """The URL without a password, for messages."""
    scheme, slashes, rest = url.rpartition("://")
    return f"{scheme}{slashes}{rest.rpartition('@')[2]}"


def _unavailable(url: str, error: Exception) -> Mq9Error:
    why = str(error).removeprefix("nats: ").strip("'") or type(error).__name__
    if any(word in why.lower() for word in _REFUSED):
        return AccessDenied(f"{shown(url)} refused the connection: {why}")
    return BrokerUnavailable(f"cannot connect to {shown(url)}: {why}")
