"""The part of `mq9.Client` that is about push: subscriptions, inboxes and broadcasts."""

import functools
import logging
from collections.abc import Mapping
from typing import Any

from mq9.client.mailboxes import checked_address
from mq9.client.message import LEVELS, MISSING, Message, NewMessage
from mq9.client.sending import stored_id
from mq9.client.sources import BROADCAST, Broadcast, Broadcasts, Everything, Key, Shared, Unread
from mq9.client.spans import Span
from mq9.client.subscription import Subscription
from mq9.client.wire import Wire
from mq9.errors import InvalidField, Mq9Error

_log = logging.getLogger("mq9.client")


class PushMethods:
    """What `mq9.Client` inherits."""

    timeout: float
    _wire: Wire

    @functools.cached_property
    def _doubtful(self) -> "dict[str, list[Key]]":
        return {}

    @functools.cached_property
    def _undelivered(self) -> "dict[str, list[Message]]":
        """What came of calls of `unread` that were cancelled."""
        return {}

    def subscribe(
        self,
        address: str,
        priority: str | None = None,
        queue: str | None = None,
        *,
        delete: bool = False,
        limit: int | None = None,
    ) -> Subscription[Message]:
        """Get all messages of a mailbox, the most important first, then new ones.

        Each subscription starts from the beginning. With a `queue` each message goes to one of
        the subscribers with that name; when one ends, the messages it had not deleted go to the
        others. With `delete` each message is deleted when you are done with it. Ends after `limit`
        messages.
        """
        if delete and queue is None:
            raise InvalidField("delete is for messages that are shared: give a queue")
        subject = f"$mq9.AI.MAILBOX.MSG.{checked_address(address)}.{_level(priority)}"
        look = functools.partial(self._look, address)
        source: Everything | Shared
        if queue is None:
            source = Everything(address, subject, "", look)
        else:
            remove = functools.partial(self._remove, address) if delete else None
            source = Shared(address, subject, _queue(queue), look, delete=remove)
        return Subscription(self._wire, source, limit=limit, timeout=self.timeout)

    def inbox(
        self, address: str, priority: str | None = None, *, limit: int | None = None
    ) -> Subscription[Message]:
        """Get the unread messages of a mailbox, then new ones, each once.

        A message is read when you ask for the next one, or when your handler has returned. Several
        readers share the messages. Ends after `limit` messages.
        """
        subject = f"$mq9.AI.INBOX.{checked_address(address)}.{_level(priority)}"
        look = functools.partial(self._look, address)
        source = Unread(address, subject, "", look, doubtful=self._doubtful)
        return Subscription(self._wire, source, limit=limit, timeout=self.timeout)

    async def unread(
        self, address: str, *, token: str | None = None, timeout: float | None = None
    ) -> list[Message]:
        """Return the unread messages of a mailbox, which are read after this.

        Operators need no `token`. If the broker fails meanwhile, you get those that came, and the
        next call goes on.
        """
        given = self.timeout if timeout is None else timeout
        subject = f"$mq9.AI.MAILBOX.QUERY.{checked_address(address)}"
        doubtful = self._doubtful.pop(address, [])
        known = set(doubtful)
        found = self._undelivered.pop(address, [])
        try:
            more = True
            while more:
                answer = await self._wire.ask(subject, {"token": token}, timeout=given)
                entries = (Message.from_entry(address, None, entry) for entry in answer["messages"])
                found += (each for each in entries if (each.msg_id, each.create_time) not in known)
                # A reply is cut for its size.
                more = bool(answer.get("more"))
        except Mq9Error as error:
            if not found:
                self._doubtful[address] = doubtful
                raise
            _log.warning("%s: %d messages, then %s", subject, len(found), error)
        except BaseException:
            # They are read as soon as they are here: what ends this call must not lose them.
            self._undelivered.setdefault(address, []).extend(found)
            raise
        return found

    async def broadcast(
        self,
        event: str,
        payload: bytes | str = MISSING,
        *,
        json: Any = MISSING,  # noqa: ANN401
        persist: bool = False,
        ttl: Span = 0,
        headers: Mapping[str, str] | None = None,
        id: str | None = None,  # noqa: A002
        timeout: float | None = None,
    ) -> int | None:
        """Send to all listeners; `event` is a domain and an event, such as `task.available`.

        With `persist` it is stored durably, for `ttl` seconds or as long as the broker keeps
        broadcasts. Later listeners get it too, and its number is returned. Repeated with the same
        `id` within two minutes, it is sent once.
        """
        _check_event(event, wildcards=False)
        if not persist and (ttl or id is not None):
            raise InvalidField("ttl and id are for what is stored: persist=True")
        message = NewMessage(payload, headers=headers or {}, json=json, ttl=ttl, id=id)
        data, fields = message.encoded()
        given = self.timeout if timeout is None else timeout
        subject = f"{BROADCAST}{event}"
        if not persist:
            await self._wire.publish(subject, data, fields, timeout=given)
            return None
        fields = (fields or {}) | {"mq9-persist": "true"}
        return stored_id(await (await self._wire.start(subject, data, fields, timeout=given)))

    def on_broadcast(
        self, events: str = ">", queue: str | None = None, *, limit: int | None = None
    ) -> Subscription[Broadcast]:
        """Listen to broadcasts: `task.available`, `task.*`, `*.failed`, or all of them.

        Stored ones come first, each once, even if the connection breaks. With a `queue` each new
        broadcast goes to one of the listeners with that name, and stored ones do not come. A
        program that is too slow misses broadcasts that are not stored. Ends after `limit`.
        """
        events = f"{events[:-1]}>" if events == "#" or events.endswith(".#") else events
        _check_event(events, wildcards=True)
        source = Broadcasts(events, "" if queue is None else _queue(queue))
        return Subscription(self._wire, source, limit=limit, timeout=self.timeout)

    async def _look(self, address: str) -> None:
        subject = f"$mq9.AI.MSG.QUERY.{address}"
        await self._wire.ask(subject, {"limit": 1}, timeout=self.timeout)

    async def _remove(self, address: str, msg_id: int) -> None:
        subject = f"$mq9.AI.MSG.DELETE.{address}.{msg_id}"
        await self._wire.ask(subject, {}, timeout=self.timeout)


def _level(priority: str | None) -> str:
    if priority is None:
        return "*"
    if priority not in LEVELS:
        raise InvalidField(f"priority is {priority!r}: it must be one of {', '.join(LEVELS)}")
    return priority


def _queue(name: str) -> str:
    if not name or any(c.isspace() for c in name):
        raise InvalidField(f"queue is {name!r}: it must be a name without spaces")
    return name


def _check_event(event: str, *, wildcards: bool) -> None:
    tokens = event.split(".")
    wild = any(token in ("*", ">") for token in tokens)
    if not all(tokens) or any(c.isspace() for c in event) or (wild and not wildcards):
        raise InvalidField(
            f"event is {event!r}: it must be a domain and an event, such as task.available"
        )
