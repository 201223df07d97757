"""From a request to its one reply: every command passes here, and no error goes further.

Owns errors and when a reply leaves. What a command does is its own.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from mq9.commands.reply import Reply
from mq9.commands.request import Refusal
from mq9.commands.scheduler import CommandScheduler, Pause, Work
from mq9.errors import StoreError, kind_of

if TYPE_CHECKING:
    from mq9.commands.context import Client, ServerContext

Steps: TypeAlias = Generator[Pause, None, Reply]
"""Work that stops from time to time, or until something has happened; ends with its reply."""

Passed: TypeAlias = Callable[[int, str], None]
"""What the broker does by itself, told the connection and the subject of the reply."""

PREFIX = "$mq9.AI."


@dataclass(frozen=True, slots=True)
class Call:
    """One request."""

    cid: int
    subject: str
    tail: str
    """What stands behind the command in the subject."""
    payload: bytes
    """Empty where nobody looks at it: where there is no limit, or it is too large."""
    size: int
    """Of the payload as it came."""
    client: Client | None
    """Who asks; it may have gone meanwhile."""


@dataclass(frozen=True, slots=True)
class Command:
    """What is done with the requests to a subject, which may end in `>`."""

    subject: str
    answer: Callable[[Call], Reply | Steps | Passed]
    """At once, or in steps of a millisecond or so; steps change nothing."""
    is_durable: Callable[[], bool] = lambda: False
    """Whether all that a reply tells of is; else it is held until everything is."""
    changes: bool = False
    """Whether its steps change something: then they are made also if nobody waits for a reply."""
    limit: Literal["max_request", "max_card", "max_payload"] | None = "max_request"
    """The setting that bounds the payload; None where it is not looked at."""


class Dispatcher:
    """Takes requests from the broker and replies."""

    def __init__(self, server: ServerContext) -> None:
        self._broker = server.broker
        self._log = server.log
        self._server = server
        self._scheduler = CommandScheduler(server.clients)

    def serve(self, command: Command) -> None:
        """From now on, answer this command."""
        subject = PREFIX + command.subject
        prefix = len(subject.removesuffix(">"))

        def handle(cid: int, subject: str, reply: str, _headers: bytes, payload: bytes) -> None:
            client = self._server.clients.open.get(cid)
            size = len(payload)
            # It may wait for long: what nobody will look at is not kept.
            kept = payload if size <= self._limit(command) else b""
            call = Call(cid, subject, subject[prefix:], kept, size, client)
            self._scheduler.add(cid, self._work(command, call, reply), len(kept))

        self._broker.serve(subject, handle)

    def close(self) -> None:
        """Give up requests that are not answered yet."""
        self._scheduler.close()

    def _work(self, command: Command, call: Call, reply: str) -> Work:
        try:
            self._check_size(command, call)
            answer = command.answer(call)
            if isinstance(answer, Reply):
                self._reply(command, call.cid, reply, answer)
            elif callable(answer):
                if reply:
                    answer(call.cid, reply)
            elif reply or command.changes:
                self._reply(command, call.cid, reply, (yield from answer))
            else:
                # Nobody reads what it would find, but whether it can look is told.
                next(answer, None)
        except Exception as error:
            self._failed(command, error, call, reply)

    def _limit(self, command: Command) -> int:
        return getattr(self._server.options, command.limit) if command.limit else 0

    def _check_size(self, command: Command, call: Call) -> None:
        if command.limit and call.size > (most := self._limit(command)):
            raise Refusal(
                f"the request has {call.size} bytes: at most {most} are allowed ({command.limit})"
            )

    def _reply(self, command: Command, cid: int, subject: str, reply: Reply) -> None:
        if not subject:
            return
        if command.is_durable():
            self._broker.answer(cid, subject, reply.json_bytes())
        else:
            # Held until all that it tells of is durable.
            name = PREFIX + command.subject
            self._broker.reply(cid, subject, reply.json_bytes(), command=name)

    def _failed(self, command: Command, error: Exception, call: Call, reply: str) -> None:
        if isinstance(error, Refusal):
            kind, text = error.kind, str(error)
        elif isinstance(error, StoreError):
            kind, text = kind_of(error), _text(error)
        else:
            # Not the subject: it may hold an address, which is a secret.
            self._log.error("a command failed", command=command.subject, error=repr(error))
            self._log.debug("".join(traceback.format_exception(error)))
            kind, text = "internal_error", "internal error: the log of the broker says more"
        if reply:
            # Nothing was changed, so there is nothing to wait for.
            self._broker.refuse(call.cid, reply, PREFIX + command.subject, kind, text)
        else:
            self._broker.refused(call.cid, call.subject)


def _text(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error)
