"""Sources of subscriptions: their subjects, their duplicates, and their replay.

One class for each way of reading. Knows nothing of connections.
"""

import contextlib
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Generic, TypeVar

from nats.aio.msg import Msg

from mq9.client.message import Message, own_headers, parse_json, stored_key
from mq9.errors import AccessDenied, MailboxNotFound, MessageNotFound, Mq9Error

Item = TypeVar("Item")
Key = tuple[int, int]
"""What tells a message of a mailbox from any other: its number and time."""

BROADCAST = "$mq9.AI.BROADCAST."

_WINDOW_S = 0.25
"""How much work is taken at once of an inbox."""
_LARGEST_WINDOW = 1024
_REMEMBERED = 32_768
"""Messages that are known again: more than a broker has under way to a connection."""


class EndedError(Exception):
    """The broker has ended the subscription."""

    def __init__(self, error: Mq9Error) -> None:
        super().__init__(str(error))
        self.error = error


class Source(Generic[Item]):
    """How to read."""

    buffered: ClassVar[int] = 65_536
    """Messages that may wait in the program before reading is held back."""
    keeps_buffer: ClassVar[bool] = True
    """Whether messages that wait are good when the connection has broken."""
    is_windowed: ClassVar[bool] = False
    """Whether the broker is told how many messages to push, and when they are done."""

    def __init__(self, subject: str, queue: str = "") -> None:
        self.subject = subject
        self.queue = queue

    def take(self, msg: Msg) -> Item | None:
        """The message that has arrived; None if it came before. Raises `EndedError`."""
        raise NotImplementedError

    def drops(self, _item: Item) -> bool:
        """Whether it is dropped when the program is too slow."""
        return False

    def handed(self, item: Item) -> None:
        """The program is given it."""

    async def done(self, item: Item) -> None:
        """The program is done with it."""

    def confirmed(self) -> None:
        """The broker knows that the program is done with all that it was given."""

    def lost(self) -> None:
        """The connection has broken."""

    def closed(self) -> None:
        """The program wants no more."""

    def next_window(self) -> int:
        """How many messages the broker may push before it is asked for more; 0 for any number."""
        return 0

    async def why(self, text: str) -> Mq9Error:
        """What stands behind the refusal of a subscription."""
        return AccessDenied(f"this user may not subscribe to {self.subject}: {text}")


class _Mailbox(Source[Message]):
    def __init__(
        self,
        address: str,
        subject: str,
        queue: str,
        look: Callable[[], Awaitable[object]],
    ) -> None:
        """`look` asks the broker for the mailbox, to learn why it refuses."""
        super().__init__(subject, queue)
        self.address = address
        self._look = look

    def take(self, msg: Msg) -> Message | None:
        headers = msg.headers or {}
        if "mq9-msg-id" not in headers:
            said = headers.get("Description") or f"mailbox {self.address} does not exist"
            raise EndedError(MailboxNotFound(said))
        message = Message.from_raw(self.address, None, headers, msg.data)
        return None if self._is_known(message) else message

    def _is_known(self, _message: Message) -> bool:
        return False

    async def why(self, text: str) -> Mq9Error:
        try:
            await self._look()
        except Mq9Error as error:
            return error
        return await super().why(text)


class Everything(_Mailbox):
    """All messages of a mailbox from the beginning, then live ones (`MAILBOX.MSG`).

    After a connection broke the broker begins anew. Messages of a level come in order, so that one
    mark for each level tells which of them came before.
    """

    def __init__(self, *args: Any) -> None:  # noqa: ANN401
        super().__init__(*args)
        self._marks: dict[int, _Mark] = {}
        """The last message of each level."""
        self._known: dict[int, _Mark] = {}

    def lost(self) -> None:
        self._known = {level: mark.copy() for level, mark in self._marks.items()}

    def _is_known(self, message: Message) -> bool:
        known = self._known.get(message.level)
        if known is not None and known.covers(message):
            return True
        self._marks.setdefault(message.level, _Mark()).move(message)
        return False


@dataclass(slots=True)
class _Mark:
    """How far a level was read.

    Another mailbox at the same address numbers its messages from 0 again, and none of them is
    older than the last one here. So a message that is not newer is known, but in the second of
    that last one: there it is known by what it says.
    """

    msg_id: int = -1
    second: int = -1
    said: dict[int, int] = field(default_factory=dict)
    """Of the messages of that second, by number."""

    def copy(self) -> "_Mark":
        return _Mark(self.msg_id, self.second, dict(self.said))

    def move(self, message: Message) -> None:
        if message.create_time != self.second:
            self.second = message.create_time
            self.said.clear()
        self.msg_id = message.msg_id
        if len(self.said) < _REMEMBERED:
            self.said[message.msg_id] = _said(message)

    def covers(self, message: Message) -> bool:
        if message.msg_id > self.msg_id or message.create_time > self.second:
            return False
        if message.create_time < self.second:
            return True
        # Of a second with very many messages it is not known what all of them said.
        missing = None if len(self.said) < _REMEMBERED else _said(message)
        return self.said.get(message.msg_id, missing) == _said(message)


def _said(message: Message) -> int:
    return hash((message.payload, message.key))


class Shared(_Mailbox):
    """Messages of a mailbox, each to one member of a queue group.

    What a member that has lost its connection had not deleted goes to others, also what waits in
    the program.
    """

    buffered = 1_000
    keeps_buffer = False

    def __init__(
        self,
        *args: Any,  # noqa: ANN401
        delete: Callable[[int], Awaitable[None]] | None,
    ) -> None:
        super().__init__(*args)
        self._delete = delete

    async def done(self, item: Message) -> None:
        if self._delete is not None:
            with contextlib.suppress(MessageNotFound):
                await self._delete(item.msg_id)


class Unread(_Mailbox):
    """Messages of a mailbox that nobody has read yet, once (`INBOX`).

    The broker counts a message as read when the ping behind it is answered. So pings are answered
    when the program is done with what came before them, and what was under way when the
    connection broke comes again. What the program had by then is known again.
    """

    keeps_buffer = False
    is_windowed = True

    def __init__(self, *args: Any, doubtful: dict[str, list[Key]]) -> None:  # noqa: ANN401
        """`doubtful` has what the last reader of a mailbox had, for all the broker knows, not."""
        super().__init__(*args)
        self._order: deque[Key] = deque(doubtful.pop(self.address, ()))
        self._had: set[Key] = set(self._order)
        self._doubtful = doubtful
        self._unconfirmed: list[Key] = []
        self._window = 0
        self._since = 0.0

    def handed(self, item: Message) -> None:
        key = (item.msg_id, item.create_time)
        if len(self._order) == _REMEMBERED:
            self._had.discard(self._order.popleft())
        self._order.append(key)
        self._had.add(key)
        self._unconfirmed.append(key)

    def confirmed(self) -> None:
        self._unconfirmed.clear()

    def closed(self) -> None:
        if self._unconfirmed:
            self._doubtful[self.address] = self._unconfirmed

    def next_window(self) -> int:
        # As many as are done in a moment: what waits in the program can be given to nobody else.
        now = time.monotonic()
        quick = now - self._since < _WINDOW_S
        self._since = now
        larger = min(self._window * 4, _LARGEST_WINDOW) if quick else self._window // 4
        self._window = max(1, larger)
        return self._window

    def _is_known(self, message: Message) -> bool:
        return (message.msg_id, message.create_time) in self._had


@dataclass(frozen=True, slots=True)
class Broadcast:
    """An event that somebody has told everybody."""

    event: str
    """Domain and event, such as `task.available`."""
    payload: bytes
    headers: Mapping[str, str] = field(default_factory=dict, hash=False)
    reply: str = ""
    """Where an answer is expected, if one is."""
    msg_id: int | None = None
    """Its number among stored broadcasts; None if it is not stored."""
    create_time: int | None = None
    """When it was stored, in Unix seconds."""

    @property
    def text(self) -> str:
        """The payload as UTF-8."""
        return self.payload.decode()

    def json(self) -> Any:  # noqa: ANN401
        """The payload as JSON."""
        return parse_json(self.payload)


class Broadcasts(Source[Broadcast]):
    """Events as they are told, those that were stored before first.

    After a connection broke the broker gives what is stored once more. It comes in order, so that
    one mark tells what came before.
    """

    def __init__(self, events: str, queue: str) -> None:
        super().__init__(f"{BROADCAST}{events}", queue)
        self._mark: Key | None = None
        """The last stored one: its number and time."""
        self._known: Key | None = None

    def take(self, msg: Msg) -> Broadcast | None:
        headers = dict(msg.headers or {})
        key = stored_key(headers)
        if key is not None:
            known = self._known
            if known is not None and key[0] <= known[0] and key[1] <= known[1]:
                return None
            self._mark = key
        return Broadcast(
            msg.subject.removeprefix(BROADCAST),
            msg.data,
            MappingProxyType(headers if key is None else own_headers(headers)),
            msg.reply,
            *(key or ()),
        )

    def drops(self, item: Broadcast) -> bool:
        # What is stored can wait with the broker.
        return item.msg_id is None

    def lost(self) -> None:
        self._known = self._mark
