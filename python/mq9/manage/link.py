"""A connection to the broker, in the name of one user.

Owns connecting, again and again, and what is told when the broker does not answer. Knows no command
but ADMIN.ACCESS.
"""

import asyncio
import json
import ssl
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any

import nats.errors
from nats.aio.client import Client as Nats
from nats.aio.msg import Msg

from mq9.manage.settings import Settings

PREFIX = "$mq9.AI."
_TIMEOUT_S = 5.0
_CONNECT_S = 3.0
_CLOSE_S = 1.0
# Of JetStream: there is no such consumer, message, sequence, or stream.
_NOT_FOUND = (10014, 10037, 10043, 10059)


class BrokerGoneError(Exception):
    """The broker cannot be reached, or does not answer in time."""


class RefusedError(Exception):
    """The broker said no; the text is its own."""

    def __init__(self, text: str, kind: str = "") -> None:
        super().__init__(text)
        self.kind = kind


class CredentialsError(Exception):
    """The broker does not let this user in."""


class Link:
    """Requests of one user."""

    def __init__(self, settings: Settings, user: str = "", password: str = "") -> None:
        self._settings = settings
        self._user = user
        self._password = password
        self._nats: Nats | None = None
        self._lost = asyncio.Event()
        self._opening = asyncio.Lock()
        self._failures = 0
        self._failure: Exception = BrokerGoneError()
        """How often connecting has failed, and why it did last."""
        self.gone_since: float | None = None
        """Since when the broker has not answered, in Unix seconds; None if it does."""
        self.used = time.monotonic()
        self._closed = False
        self._asking: dict[asyncio.Future[str], str] = {}
        """What is being asked for, by what ends when the broker forbids it."""
        self.connections = 0
        """How many times it was connected."""

    async def open(self) -> None:
        """Connect; CredentialsError or BrokerGoneError if that fails."""
        failures = self._failures
        async with self._opening:
            if self._closed:
                raise BrokerGoneError("the session has ended")
            if self._nats is not None and self._nats.is_connected:
                return
            if self._failures != failures:
                # Another one has just tried, and this one has waited for that.
                raise type(self._failure)(*self._failure.args)
            await self._drop()
            try:
                await self._connect()
            except (BrokerGoneError, CredentialsError) as error:
                self._failure, self._failures = error, failures + 1
                raise

    async def _connect(self) -> None:
        connection = Nats()
        options: dict[str, Any] = {
            "name": "mq9 manage",
            "allow_reconnect": False,
            "connect_timeout": _CONNECT_S,
            "error_cb": self._heard,
            "max_outstanding_pings": 3,
            "ping_interval": 10,
        }
        if self._user:
            options |= {"user": self._user, "password": self._password}
        if self._settings.tls_ca is not None:
            options["tls"] = _context(self._settings)
        options |= {"max_reconnect_attempts": 1, "reconnect_time_wait": 0}
        options["closed_cb"] = options["disconnected_cb"] = _setter(lost := asyncio.Event())
        try:
            async with asyncio.timeout(_CONNECT_S):
                await connection.connect(self._settings.server, **options)
        except Exception as error:
            await _end(connection)
            if "authorization" in str(error).lower() or "authentication" in str(error).lower():
                raise CredentialsError("the broker does not know this user and password") from None
            self._note_gone()
            raise BrokerGoneError(f"the broker cannot be reached: {_words(error)}") from None
        self._nats, self._lost = connection, lost
        self.connections += 1
        self.gone_since = None

    async def request(
        self,
        command: str,
        fields: Mapping[str, Any] | None = None,
        *,
        payload: bytes | None = None,
        headers: dict[str, str] | None = None,
        timeout_s: float = _TIMEOUT_S,
    ) -> dict[str, Any]:
        """The reply to a command below `$mq9.AI.`; RefusedError if it is an error."""
        body = payload if payload is not None else json.dumps(fields or {}).encode()
        reply = await self._ask(PREFIX + command, body, headers, timeout_s)
        document = _document(reply)
        if document.get("error"):
            kind = (reply.headers or {}).get("mq9-error", "")
            raise RefusedError(str(document["error"]), kind)
        return document

    async def publish(
        self, subject: str, payload: bytes, headers: dict[str, str]
    ) -> dict[str, Any]:
        """Store a message in the stream that has the subject, and what that says; RefusedError if
        it is not stored."""
        document = _unless_refused(await self._ask(subject, payload, headers, _TIMEOUT_S))
        if "seq" not in document:
            raise RefusedError(f"no stream has the subject {subject}")
        return document

    async def jetstream(
        self, command: str, fields: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """The reply to a request of JetStream's API; RefusedError if it is an error."""
        body = json.dumps(fields).encode() if fields else b""
        return _unless_refused(await self._ask(f"$JS.API.{command}", body, None, _TIMEOUT_S))

    async def _ask(
        self, subject: str, body: bytes, headers: dict[str, str] | None, timeout_s: float
    ) -> Msg:
        self.used = time.monotonic()
        await self.open()
        connection, lost = self._nats, self._lost
        if connection is None:
            raise BrokerGoneError("the broker cannot be reached")
        forbidden = asyncio.get_running_loop().create_future()
        self._asking[forbidden] = subject
        try:
            asked = connection.request(subject, body, timeout=timeout_s, headers=headers)
            reply = await _unless(lost, forbidden, asked)
        except nats.errors.NoRespondersError:
            raise RefusedError(f"nobody answers to {subject}") from None
        except nats.errors.MaxPayloadError:
            raise RefusedError("the message is larger than the broker takes") from None
        except nats.errors.BadHeaderError as error:
            raise RefusedError(f"a header cannot be sent: {_words(error)}") from None
        except (nats.errors.Error, OSError, TimeoutError) as error:
            await self._drop()
            self._note_gone()
            raise BrokerGoneError(f"the broker did not answer: {_words(error)}") from None
        finally:
            del self._asking[forbidden]
        self.gone_since = None
        return reply

    async def _heard(self, error: Exception) -> None:
        """What is forbidden is only told here; of all else the request tells."""
        text = str(error)
        if "permissions violation for publish" not in text:
            return
        for forbidden, subject in self._asking.items():
            # The client has it in lower case.
            if f'"{subject.lower()}"' in text and not forbidden.done():
                forbidden.set_result(f"permission denied: this user may not publish to {subject}")

    async def close(self) -> None:
        """End the connection for good: it does not come back for somebody who still asks."""
        self._closed = True
        async with self._opening:
            await self._drop()

    async def _drop(self) -> None:
        connection, self._nats = self._nats, None
        if connection is not None:
            await _end(connection)

    def _note_gone(self) -> None:
        if self.gone_since is None:
            self.gone_since = time.time()


def _document(reply: Msg) -> dict[str, Any]:
    try:
        document = json.loads(reply.data)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise RefusedError("the answer is no JSON object")
    return document


def _unless_refused(reply: Msg) -> dict[str, Any]:
    document = _document(reply)
    if error := document.get("error"):
        told = error if isinstance(error, dict) else {"description": error}
        kind = "message_not_found" if told.get("err_code") in _NOT_FOUND else ""
        raise RefusedError(str(told.get("description")), kind)
    return document


def _context(settings: Settings) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(settings.tls_ca))
    if settings.tls_pinned:
        # This very certificate, so nobody else's name can be meant.
        context.check_hostname = False
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


async def _end(connection: Nats) -> None:
    """Close a connection; one that is lost already may take its time over that."""
    with suppress(Exception):
        async with asyncio.timeout(_CLOSE_S):
            await connection.close()


def _setter(event: asyncio.Event) -> Callable[[], Awaitable[None]]:
    async def note() -> None:
        event.set()

    return note


async def _unless(
    lost: asyncio.Event, forbidden: asyncio.Future[str], asked: Coroutine[Any, Any, Msg]
) -> Msg:
    """The reply; an error as soon as the connection is lost or it is forbidden, not after the
    timeout."""
    asking, losing = asyncio.ensure_future(asked), asyncio.ensure_future(lost.wait())
    try:
        await asyncio.wait((asking, losing, forbidden), return_when=asyncio.FIRST_COMPLETED)
        if asking.done() and not asking.cancelled():
            return asking.result()
        if forbidden.done():
            raise RefusedError(forbidden.result(), "access_denied")
        raise ConnectionError("the connection was lost")
    finally:
        asking.cancel()
        losing.cancel()


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__
