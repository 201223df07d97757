"""ADMIN.STREAM.QUERY and ADMIN.DEAD.STREAMS: messages of streams, and which have dead letters.

Owns what operators are shown of streams. Moves nothing.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

from pydantic import BaseModel

from mq9._core import query_stream, stream_detail, stream_names
from mq9.commands.dispatcher import Call, Command
from mq9.commands.reply import Reply
from mq9.commands.request import MAX_ID, Refusal, Request, between, read, shown
from mq9.commands.watch import check_operator

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mq9.commands.context import ServerContext
    from mq9.commands.dispatcher import Steps
    from mq9.store import Message

_LIMIT = 100
_MAX_REPLY_BYTES = 1 << 20
# What the broker's thread reads in one go. Messages wait meanwhile.
_STEP = 64
_STEP_BYTES = 64 << 10
# And how often: a part is not longer than that, however few messages fit.
_STEPS = 200


class StreamQueryRequest(Request):
    """The messages from number `first` on and below `before`; the oldest, or the newest."""

    first: Annotated[int, between(0, MAX_ID)] | None = None
    before: Annotated[int, between(0, MAX_ID)] | None = None
    limit: Annotated[int, between(1, 10_000)] | None = None
    newest: bool | None = None
    prefixes: list[str] | None = None
    """Only those whose subjects begin with one of these."""
    config: bool | None = None
    """Whether the reply says how the stream is configured."""


class StreamConfig(BaseModel):
    """What steering a stream has to know of its configuration."""

    subjects: tuple[str, ...]
    retention: str
    declared: bool
    """Whether the broker's own configuration has it: it then makes it again if it is missing."""
    declared_consumers: tuple[str, ...]


class StreamQueryReply(Reply):
    """Messages as JSON, the oldest first."""

    created_ms: int = 0
    total: int = 0
    """How many messages the stream has."""
    end: int = 0
    """The number that the next message gets."""
    next: int | None = None
    """Where to go on: the `first` of the next part, or the `before` of the newest."""
    config: StreamConfig | None = None
    messages: tuple[bytes, ...] = ()

    def json_bytes(self) -> bytes:
        """The reply as it is sent."""
        left_out = {"messages"} if self.config else {"messages", "config"}
        head = self.model_dump_json(exclude=left_out).removesuffix("}").encode()
        return head + b',"messages":[' + b",".join(self.messages) + b"]}"


class DeadStreamsRequest(Request):
    """What subjects of dead letters begin with."""

    prefixes: list[str] | None = None


class DeadStream(BaseModel):
    """A stream with subjects of dead letters."""

    stream: str
    prefixes: tuple[str, ...]
    """What their subjects begin with; none if the stream takes no others."""


class DeadStreamsReply(Reply):
    """All of them."""

    streams: tuple[DeadStream, ...] = ()


class Streams:
    """Carries out the commands about streams."""

    def __init__(self, server: ServerContext) -> None:
        self._server = server
        self._store = server.store
        self.query = Command("ADMIN.STREAM.QUERY.>", self._answer_query)
        self.dead = Command("ADMIN.DEAD.STREAMS", self._answer_dead)

    def _answer_query(self, call: Call) -> Steps:
        check_operator(self._server, call)
        return self._messages(call.tail, read(StreamQueryRequest, call.payload))

    def _messages(self, name: str, request: StreamQueryRequest) -> Steps:
        found: list[bytes] = []
        size, left = 0, request.limit or _LIMIT
        newest = bool(request.newest)
        first, before = request.first or 1, request.before
        following: int | None = None
        created_ms = total = end = 0
        for _ in range(_STEPS):
            page = query_stream(
                self._store,
                name,
                prefixes=request.prefixes or (),
                first=first,
                before=before,
                limit=min(_STEP, left),
                max_bytes=_STEP_BYTES,
                newest=newest,
            )
            if page is None:
                raise Refusal(f"there is no stream {shown(name)}", "mailbox_not_found")
            created_ms, total, end, messages, following = page
            left -= len(messages)
            for message in reversed(messages) if newest else messages:
                written = entry(message)
                size += len(written) + 1
                if size > _MAX_REPLY_BYTES and found:
                    following, left = message.msg_id + 1 + newest, 0
                    break
                found.append(written)
            if following is None or not left:
                break
            first, before = (first, following) if newest else (following, before)
            yield None
        return StreamQueryReply(
            created_ms=created_ms,
            total=total,
            end=end,
            next=following,
            config=self._config(name) if request.config else None,
            messages=tuple(reversed(found) if newest else found),
        )

    def _config(self, name: str) -> StreamConfig | None:
        detail = stream_detail(self._store, name, False, True)
        if detail is None:
            return None
        config, options = json.loads(detail)["config"], self._server.options
        return StreamConfig(
            subjects=tuple(config.get("subjects") or ()),
            retention=config["retention"],
            declared=any(stream.name == name for stream in options.streams),
            declared_consumers=tuple(
                each.name for each in options.consumers if each.stream == name
            ),
        )

    def _answer_dead(self, call: Call) -> Steps:
        check_operator(self._server, call)
        return self._dead(read(DeadStreamsRequest, call.payload).prefixes or ())

    def _dead(self, prefixes: Sequence[str]) -> Steps:
        found: list[DeadStream] = []
        for at, name in enumerate(stream_names(self._store) if prefixes else ()):
            if detail := stream_detail(self._store, name, False, True):
                subjects = json.loads(detail)["config"].get("subjects") or []
                takes = [each for each in prefixes if any(_takes(s, each) for s in subjects)]
                if takes:
                    is_mixed = not all(any(_is_below(s, each) for each in takes) for s in subjects)
                    begins = tuple(f"{each}." for each in takes) if is_mixed else ()
                    found.append(DeadStream(stream=name, prefixes=begins))
            if at % _STEP == _STEP - 1:
                yield None
        return DeadStreamsReply(streams=tuple(found))


def entry(message: Message) -> bytes:
    """A message of a stream, as FETCH shows those of a mailbox; `msg_id` is its number."""
    known = json.loads(message.entry(always_base64=False))
    shown = {"msg_id": message.msg_id + 1, "subject": known.pop("key", ""), "payload": ""}
    known.pop("priority", None)
    known.pop("msg_id")
    return json.dumps(shown | known, ensure_ascii=False, separators=(",", ":")).encode()


def _takes(subject: str, prefix: str) -> bool:
    """Whether a subject of a stream may be one of messages below this prefix."""
    tokens, wanted = subject.split("."), prefix.split(".")
    for at, token in enumerate(wanted):
        if at == len(tokens):
            return False
        if tokens[at] == ">":
            return True
        if tokens[at] not in ("*", token):
            return False
    return len(tokens) > len(wanted)


def _is_below(subject: str, prefix: str) -> bool:
    return subject.startswith(f"{prefix}.")
