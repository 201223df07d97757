"""Requests and replies over a connection that comes back when it breaks.

Owns the connection and which request waits for which reply: all replies arrive under one
subscription. A request is published at most once; if the connection breaks before the answer, its
sender is told so at once. Knows nothing of commands.
"""

import asyncio
import itertools
import json
import logging
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import nats.errors
from nats.aio.client import Client as Nats
from nats.aio.msg import Msg

from mq9.client.connecting import Access, open_connection, shown
from mq9.client.refusals import refusal
from mq9.client.tasks import end_tasks
from mq9.errors import (
    AccessDenied,
    BrokerUnavailable,
    ClientClosed,
    ConnectionLost,
    InvalidField,
    MessageTooLarge,
    Mq9Error,
    NoResponders,
    RequestTimeout,
)

_log = logging.getLogger("mq9.client")

_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 2.0


@dataclass(slots=True)
class _Waiting:
    subject: str
    future: asyncio.Future[list[Msg]]
    timer: asyncio.TimerHandle
    batch: bool
    """Whether messages come until a status closes them."""
    received: list[Msg] = field(default_factory=list)


class Wire:
    """A connection to one of several servers, and the requests under way on it."""

    def __init__(self, urls: Sequence[str], access: Access) -> None:
        self._urls = tuple(urls)
        self._access = access
        self._nats: Nats | None = None
        self._ready = asyncio.Event()
        self._opening = asyncio.Lock()
        self._closed = False
        self._prefix = ""
        self._deaf: str | None = None
        """Why no reply can arrive."""
        self._numbers = itertools.count()
        self._waiting: dict[str, _Waiting] = {}
        self._publishing: dict[str, list[asyncio.Future[None]]] = {}
        """What is published without an answer, by its subject in lower case."""
        self._reopening: asyncio.Task[None] | None = None
        self._last_problem: Mq9Error | None = None

    @property
    def urls(self) -> tuple[str, ...]:
        """The servers."""
        return self._urls

    @property
    def access(self) -> Access:
        """Who the client is."""
        return self._access

    @property
    def where(self) -> str:
        """The servers, for messages."""
        return ", ".join(map(shown, self._urls))

    @property
    def connected(self) -> bool:
        """Whether there is a connection now."""
        return self._ready.is_set() and not self._closed

    @property
    def connection(self) -> Nats:
        """The connection of this moment."""
        if self._nats is None:
            raise BrokerUnavailable(f"there is no connection to {self.where} now")
        return self._nats

    async def open(self) -> None:
        """Connects to the first server that answers; raises if none does. Once is enough."""
        # Of two attempts side by side, the later would take the replies of the other.
        async with self._opening:
            if self._nats is not None and not self._nats.is_closed:
                return
            problem: Mq9Error | None = None
            for url in self._urls:
                if self._closed:
                    raise ClientClosed("the client was closed: create another")
                try:
                    connection = await self._listening(url)
                except (AccessDenied, BrokerUnavailable) as error:
                    problem = error
                    continue
                self._nats = connection
                self._ready.set()
                return
            assert problem is not None
            self._last_problem = problem
            raise problem

    async def _listening(self, url: str) -> Nats:
        """A connection on which replies arrive."""
        connection = await open_connection(url, self._access, self._on_error, self._on_closed)
        heard = False
        try:
            inbox = connection.new_inbox()
            self._prefix = f"{inbox}."
            self._deaf = None
            # No limits: above them nats-py would drop messages of a batch. Requests have some.
            await connection.subscribe(
                f"{inbox}.*", cb=self._on_message, pending_msgs_limit=0, pending_bytes_limit=0
            )
            if self._closed:
                raise ClientClosed("the client was closed while it connected")
            heard = True
        except (nats.errors.Error, OSError) as error:
            raise BrokerUnavailable(f"the connection to {shown(url)} broke: {error}") from error
        finally:
            if not heard:
                await connection.close()
        return connection

    async def close(self) -> None:
        """Ends the connection; requests under way fail."""
        self._closed = True
        if self._reopening is not None:
            await end_tasks(self._reopening)
        connection, self._nats = self._nats, None
        if connection is not None:
            await connection.close()
            # nats-py returns at once where it is closing already, because the broker went away.
            if connection._transport is not None:
                connection._transport.close()  # type: ignore[no-untyped-call]
        # Who waits for a connection is told that there will be none.
        self._ready.set()
        self._fail_all(ClientClosed, "the client was closed")

    async def start(
        self,
        subject: str,
        payload: bytes,
        headers: dict[str, str] | None = None,
        *,
        timeout: float,
        batch: bool = False,
    ) -> asyncio.Future[list[Msg]]:
        """Publishes a request; the future has the reply, or the messages and status of a batch."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        connection = await self._connection(timeout)
        self._check_size(connection, payload, headers)
        if self._deaf is not None:
            raise AccessDenied(self._deaf)
        token = f"{next(self._numbers):x}"
        waiting = _Waiting(
            subject,
            loop.create_future(),
            loop.call_at(deadline, self._on_timeout, token, timeout),
            batch,
        )
        self._waiting[token] = waiting
        try:
            await connection.publish(
                subject, payload, reply=f"{self._prefix}{token}", headers=headers
            )
        except nats.errors.BadSubjectError as error:
            self._forget(token)
            raise InvalidField(f"{subject!r} is no subject") from error
        except (nats.errors.Error, OSError) as error:
            self._forget(token)
            raise ConnectionLost(f"the connection to {self.where} broke: {error}") from error
        return waiting.future

    def _check_size(self, connection: Nats, payload: bytes, headers: dict[str, str] | None) -> None:
        size = len(payload) + sum(len(n) + len(v.encode()) + 4 for n, v in (headers or {}).items())
        if size > connection.max_payload:
            raise MessageTooLarge(
                f"message of {size} bytes, headers included, is larger than the limit of "
                f"{connection.max_payload} bytes that the broker has (max_payload)"
            )

    async def request(
        self,
        subject: str,
        payload: bytes = b"",
        headers: dict[str, str] | None = None,
        *,
        timeout: float,
    ) -> Any:  # noqa: ANN401
        """The JSON of a reply, as it is; raises if it says that the request was refused."""
        future = await self.start(subject, payload, headers, timeout=timeout)
        return answer_of(await future)

    async def ask(self, subject: str, body: Mapping[str, Any], *, timeout: float) -> Any:  # noqa: ANN401
        """A request with a JSON body."""
        return await self.request(subject, compact(body), timeout=timeout)

    async def publish(
        self, subject: str, payload: bytes, headers: dict[str, str] | None, *, timeout: float
    ) -> None:
        """Publishes what nobody answers; returns when the broker has it, raises if it refuses."""
        connection = await self._connection(timeout)
        self._check_size(connection, payload, headers)
        refusals = self._publishing.setdefault(subject.lower(), [])
        refusal: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        refusals.append(refusal)
        try:
            await connection.publish(subject, payload, headers=headers)
            # The first ping of nats-py overtakes what it has not written yet, the second does not;
            # a refusal comes before its answer.
            for _ in range(2):
                await connection.flush(timeout)  # type: ignore[arg-type]
        except nats.errors.BadSubjectError as error:
            raise InvalidField(f"{subject!r} is no subject") from error
        except nats.errors.TimeoutError as error:
            raise RequestTimeout(f"no answer from {self.where} in {timeout:g} s") from error
        except (nats.errors.Error, OSError) as error:
            raise ConnectionLost(f"the connection to {self.where} broke: {error}") from error
        finally:
            refusals.remove(refusal)
            if not refusals:
                self._publishing.pop(subject.lower(), None)
        if refusal.done():
            refusal.result()

    async def _connection(self, timeout: float) -> Nats:
        if self._nats is not None and not self._nats.is_closed:
            return self._nats
        deadline = asyncio.get_running_loop().time() + timeout
        while not self._closed:
            if self._nats is not None:
                if not self._nats.is_closed:
                    return self._nats
                # nats-py does not tell of every end.
                self._on_closed(self._nats)
            elif self._reopening is None:
                raise ClientClosed(
                    "the client is not connected: use a `with` or `async with` block, or connect()"
                )
            try:
                async with asyncio.timeout_at(deadline):
                    await self._ready.wait()
            except TimeoutError:
                why = self._last_problem or f"the connection to {self.where} is lost"
                raise BrokerUnavailable(f"no connection for {timeout:g} s: {why}") from None
        raise ClientClosed("the client was closed")

    async def _on_message(self, msg: Msg) -> None:
        token = msg.subject[len(self._prefix) :]
        waiting = self._waiting.get(token)
        if waiting is None:
            return
        waiting.received.append(msg)
        headers = msg.headers or {}
        # Only messages of a batch have this; what closes a batch is a status or a refusal.
        if waiting.batch and "mq9-msg-id" in headers:
            return
        self._forget(token)
        if waiting.future.done():
            return
        if headers.get("Status") == "503":
            command = waiting.subject.removeprefix("$mq9.AI.")
            waiting.future.set_exception(
                NoResponders(
                    f"nobody at {self.where} answers {command}: it is no mq9 broker, or one "
                    "without this command"
                )
            )
        else:
            waiting.future.set_result(waiting.received)

    def _on_timeout(self, token: str, timeout: float) -> None:
        waiting = self._waiting.pop(token)
        if not waiting.future.done():
            waiting.future.set_exception(
                RequestTimeout(f"no answer from {self.where} in {timeout:g} s")
            )

    def _on_error(self, error: Exception) -> None:
        text = str(error)
        _log.debug("%s: %s", self.where, text)
        if "permissions violation for subscription" in text and self._prefix.lower() in text:
            self._deaf = (
                f"this user may not subscribe to {self._prefix}*, where replies come in; "
                "inbox_prefix names another place"
            )
            self._fail_all(AccessDenied, self._deaf)
        # The only sign of a request that may not be made; nats-py has it in lower case.
        if "permissions violation for publish" in text:
            for subject, refusals in self._publishing.items():
                for refusal in refusals:
                    if f'"{subject}"' in text and not refusal.done():
                        refusal.set_exception(
                            AccessDenied(f"this user may not publish to {subject}: {text}")
                        )
            for token, waiting in tuple(self._waiting.items()):
                if f'"{waiting.subject.lower()}"' in text:
                    self._fail(
                        token, AccessDenied(f"this user may not publish to {waiting.subject}")
                    )

    def _on_closed(self, connection: Nats) -> None:
        if connection is not self._nats or self._closed:
            return
        self._nats = None
        self._ready.clear()
        why = str(connection.last_error or "").removeprefix("nats: ") or "closed by the server"
        _log.warning("the connection to %s is lost: %s", self.where, why)
        self._fail_all(ConnectionLost, f"the connection to {self.where} broke: {why}")
        self._reopening = asyncio.get_running_loop().create_task(self._reopen())

    async def _reopen(self) -> None:
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                await self.open()
            except (AccessDenied, BrokerUnavailable) as error:
                _log.info("%s", error)
            else:
                _log.warning("connected to %s again", self.where)
                return
            # Not all clients of a broker that comes back are to knock at the same moment.
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)

    def _forget(self, token: str) -> None:
        if waiting := self._waiting.pop(token, None):
            waiting.timer.cancel()

    def _fail(self, token: str, error: Mq9Error) -> None:
        waiting = self._waiting[token]
        self._forget(token)
        if not waiting.future.done():
            waiting.future.set_exception(error)

    def _fail_all(self, kind: type[Mq9Error], text: str) -> None:
        for token in tuple(self._waiting):
            self._fail(token, kind(text))


def answer_of(reply: list[Msg]) -> Any:  # noqa: ANN401
    """The JSON of a reply; raises what its `error` stands for."""
    try:
        answer = json.loads(reply[0].data)
    except ValueError as error:
        raise NoResponders(f"the answer is no JSON ({reply[0].data[:80]!r})") from error
    if isinstance(answer, dict) and (text := answer.get("error")):
        raise refusal(str(text), reply[0].headers)
    return answer


def compact(body: Mapping[str, Any]) -> bytes:
    """JSON without what is None."""
    given = {name: value for name, value in body.items() if value is not None}
    return json.dumps(given, separators=(",", ":"), ensure_ascii=False).encode()
