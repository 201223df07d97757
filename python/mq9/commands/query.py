"""MSG.QUERY: looks at the messages of a mailbox and moves nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from mq9.commands.address import check_address
from mq9.commands.dispatcher import Call, Command
from mq9.commands.reply import Reply
from mq9.commands.request import MAX_ID, Request, between, read

if TYPE_CHECKING:
    from mq9.commands.context import ServerContext
    from mq9.commands.dispatcher import Steps
    from mq9.store import Message

_MAX_LIMIT = 10_000
_MAX_TIME_S = 2**53 - 1
# Where a reply is cut, unless its first message is larger.
_MAX_REPLY_BYTES = 1 << 20
# What the broker's thread reads in one go. Messages wait meanwhile.
_STEP = 64
_STEP_BYTES = 64 << 10


class QueryRequest(Request):
    """What to look for; all that is given must hold."""

    key: str | None = None
    tags: list[str] | None = None
    since: Annotated[int, between(0, _MAX_TIME_S)] | None = None
    limit: Annotated[int, between(1, _MAX_LIMIT)] | None = None
    after_id: Annotated[int, between(0, MAX_ID)] | None = None
    encoding: Literal["base64"] | None = None
    delayed: bool | None = None

    @property
    def wants_newest(self) -> bool:
        """Whether `limit` stands alone."""
        others = (self.key, self.tags or None, self.since, self.after_id)
        return self.limit is not None and all(other is None for other in others)


class QueryReply(Reply):
    """The messages, each an entry in JSON already; `more` if the reply was cut for its size."""

    messages: tuple[bytes, ...] = ()
    more: bool = False

    def json_bytes(self) -> bytes:
        """The reply as it is sent."""
        if self.error:
            return self.model_dump_json(exclude={"more"}).encode()
        tail = b'],"more":true}' if self.more else b"]}"
        return b'{"error":"","messages":[' + b",".join(self.messages) + tail


class Query:
    """Carries out MSG.QUERY."""

    def __init__(self, server: ServerContext) -> None:
        self._store = server.store
        # As of the start, as for FETCH.
        self._always_base64 = server.options.payload_encoding == "base64"
        self.command = Command("MSG.QUERY.>", self._answer)

    def _answer(self, call: Call) -> Steps:
        request = read(QueryRequest, call.payload)
        check_address(call.tail)
        if request.delayed:
            return self._delayed(call.tail, request)
        search = self._newest if request.wants_newest else self._oldest
        return search(call.tail, request)

    def _oldest(self, address: str, request: QueryRequest) -> Steps:
        found: list[bytes] = []
        size, after = 0, request.after_id
        left = request.limit or MAX_ID
        wanted = frozenset(request.tags or ())
        while left:
            # Tags are compared here: the store would look for them all through the mailbox.
            step = self._store.query(
                address,
                key=request.key,
                since_ms=(request.since or 0) * 1000,
                after_id=after,
                limit=_STEP if wanted else min(_STEP, left),
                max_bytes=_STEP_BYTES,
            )
            if not step:
                break
            for message in step:
                if wanted and wanted.isdisjoint(message.tags.split(",")):
                    continue
                written = self._entry(message, request)
                size += len(written) + 1
                if size > _MAX_REPLY_BYTES and found:
                    return QueryReply(messages=tuple(found), more=True)
                found.append(written)
                left -= 1
                if not left:
                    break
            after = step[-1].msg_id
            if len(step) >= _STEP or size >= _STEP_BYTES:
                yield None
        return QueryReply(messages=tuple(found))

    def _delayed(self, address: str, request: QueryRequest) -> Steps:
        found: list[bytes] = []
        size, after = 0, request.after_id
        always_base64 = self._always_base64 or request.encoding is not None
        while step := self._store.query_delayed(
            address, after_id=after, limit=_STEP, max_bytes=_STEP_BYTES
        ):
            for message in step:
                if not _matches(message, request):
                    continue
                written = message.entry(always_base64=always_base64, delayed=True)
                size += len(written) + 1
                if size > _MAX_REPLY_BYTES and found:
                    return QueryReply(messages=tuple(found), more=True)
                found.append(written)
                if len(found) == request.limit:
                    return QueryReply(messages=tuple(found))
            after = step[-1].msg_id
            yield None
        return QueryReply(messages=tuple(found))

    def _newest(self, address: str, request: QueryRequest) -> Steps:
        found: list[bytes] = []
        size, before = 0, None
        left = request.limit or _MAX_LIMIT
        while left and (
            step := self._store.query(
                address,
                before_id=before,
                limit=min(_STEP, left),
                max_bytes=_STEP_BYTES,
                newest=True,
            )
        ):
            for message in reversed(step):
                written = self._entry(message, request)
                size += len(written) + 1
                if size > _MAX_REPLY_BYTES and found:
                    return QueryReply(messages=tuple(reversed(found)), more=True)
                found.append(written)
            left -= len(step)
            before = step[0].msg_id
            if left:
                yield None
        return QueryReply(messages=tuple(reversed(found)))

    def _entry(self, message: Message, request: QueryRequest) -> bytes:
        always_base64 = self._always_base64 or request.encoding is not None
        return message.entry(always_base64=always_base64)


def _matches(message: Message, request: QueryRequest) -> bool:
    """Whether all that is asked for holds of a delayed message."""
    wanted = frozenset(request.tags or ())
    return (
        (request.key is None or message.key == request.key)
        and (not wanted or not wanted.isdisjoint(message.tags.split(",")))
        and message.sent_ms >= (request.since or 0) * 1000
    )
