"""`mq9.Client`: the commands of the protocol as methods; those of groups and push are inherited.

Knows which subject and which fields a command has. How a request travels is the wire's, how
messages are worked through is the consumer's.
"""

import asyncio
import json
import logging
import os
import ssl
import uuid
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, Self, Unpack, cast

from nats.aio.client import Client as Nats

from mq9.client.acknowledging import ack_body
from mq9.client.agents import AgentPage, Cards
from mq9.client.connecting import Access, Options
from mq9.client.consumer import Consumer
from mq9.client.fetching import Deliver, Fetch, Format
from mq9.client.groups import GroupMethods
from mq9.client.mailboxes import MailboxDetails, MailboxPolicy, MailboxSummary, policy_fields
from mq9.client.mailboxes import checked_address as _address
from mq9.client.message import MISSING, DelayedMessage, Message, NewMessage
from mq9.client.pushing import PushMethods
from mq9.client.sending import send_all, stored_id
from mq9.client.spans import Span, milliseconds, seconds
from mq9.client.wire import Wire
from mq9.errors import InvalidField, Mq9Error

_log = logging.getLogger("mq9.client")

DEFAULT_URL = "nats://127.0.0.1:4222"

AckKind = Literal["ack", "nak", "progress", "term"]
Agent = Mapping[str, Any]
# So much longer the first search of a broker may take.
_MODELS_LOAD_S = 5.0


class Client(GroupMethods, PushMethods):
    """A connection to a broker; all times are in seconds.

    `url` is the broker, or a list of brokers of which the first that answers is used. Without it,
    the environment variable `MQ9_URL` counts, then `nats://127.0.0.1:4222`.

    Use it with `async with`, or call `connect` and `close`. A broken connection is opened again.
    Requests under way then fail with `ConnectionLost`; later ones wait for the connection, up to
    their timeout.
    """

    def __init__(
        self,
        url: str | Sequence[str] | None = None,
        *,
        user: str | None = None,
        password: str | None = None,
        token: str | None = None,
        nkey_seed: str | None = None,
        tls: ssl.SSLContext | None = None,
        name: str | None = None,
        timeout: float = 5.0,
        connect_timeout: float = 5.0,
        inbox_prefix: str = "_INBOX",
    ) -> None:
        self.timeout = timeout
        """How long a request may take, unless its call has a `timeout`."""
        access = Access(
            user=user,
            password=password,
            token=token,
            nkey_seed=nkey_seed,
            tls=tls,
            name=name or "mq9-client",
            connect_timeout=connect_timeout,
            inbox_prefix=inbox_prefix,
        )
        if url is None:
            url = os.environ.get("MQ9_URL") or DEFAULT_URL
        urls = url.split(",") if isinstance(url, str) else url
        self._wire = Wire([url.strip() for url in urls], access)
        self._leftovers: set[asyncio.Task[None]] = set()

    @property
    def connected(self) -> bool:
        """Whether there is a connection right now."""
        return self._wire.connected

    @property
    def nats(self) -> Nats:
        """The NATS connection, for plain publish and subscribe. Another one after it broke."""
        return self._wire.connection

    async def connect(self) -> Self:
        """Connect; raises `BrokerUnavailable` or `AccessDenied` at once if that fails."""
        await self._wire.open()
        return self

    async def close(self) -> None:
        """Close the connection; requests under way fail with `ClientClosed`."""
        await self._wire.close()
        await asyncio.gather(*self._leftovers, return_exceptions=True)

    async def __aenter__(self) -> Self:
        return await self.connect()

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def create_mailbox(
        self,
        name: str | None = None,
        *,
        exist_ok: bool = False,
        timeout: float | None = None,
        **policy: Unpack[MailboxPolicy],
    ) -> str:
        """Create a mailbox and return its address. Without a name the broker generates one.

        With `exist_ok` the mailbox may exist already, if it has the settings given here.
        """
        body = {"name": name, **policy_fields(policy), "exist_ok": exist_ok or None}
        answer = await self._ask("MAILBOX.CREATE", body, timeout)
        return str(answer["mail_address"])

    async def create_mailbox_and_token(
        self,
        name: str | None = None,
        *,
        timeout: float | None = None,
        **policy: Unpack[MailboxPolicy],
    ) -> tuple[str, str]:
        """Create a mailbox and return its address and its token, which proves that it is yours."""
        body = {"name": name, **policy_fields(policy), "token": True}
        answer = await self._ask("MAILBOX.CREATE", body, timeout)
        return str(answer["mail_address"]), str(answer["token"])

    async def update_mailbox(
        self,
        address: str,
        *,
        token: str | None = None,
        timeout: float | None = None,
        **policy: Unpack[MailboxPolicy],
    ) -> None:
        """Change the given settings of a mailbox. Operators need no `token`."""
        body = {**policy_fields(policy), "token": token}
        await self._ask(f"MAILBOX.UPDATE.{_address(address)}", body, timeout)

    async def purge_mailbox(
        self, address: str, *, token: str | None = None, timeout: float | None = None
    ) -> int:
        """Remove all messages and return how many there were. Operators need no `token`."""
        answer = await self._ask(f"MAILBOX.PURGE.{_address(address)}", {"token": token}, timeout)
        return int(answer["purged"])

    async def remove_mailbox(
        self, address: str, *, token: str | None = None, timeout: float | None = None
    ) -> None:
        """Remove a mailbox with its messages and groups. Operators need no `token`."""
        await self._ask(f"MAILBOX.REMOVE.{_address(address)}", {"token": token}, timeout)

    async def send(
        self,
        address: str,
        payload: bytes | str = MISSING,
        *,
        json: Any = MISSING,  # noqa: ANN401
        priority: str | int | None = None,
        key: str | None = None,
        tags: Iterable[str] = (),
        delay: Span = 0,
        ttl: Span = 0,
        headers: Mapping[str, str] | None = None,
        id: str | None = None,  # noqa: A002
        timeout: float | None = None,
    ) -> int | None:
        """Store a message durably and return its `msg_id`, or None if it is delayed.

        The payload is `bytes` or text; `json` sends any value that JSON can write. With an `id`, a
        repeated send returns the same `msg_id` and stores nothing.
        """
        message = NewMessage(payload, priority, key, tags, delay, ttl, headers or {}, json, id)
        data, fields = message.encoded()
        reply = await self._wire.start(
            f"$mq9.AI.MSG.SEND.{_address(address)}",
            data,
            fields,
            timeout=self._timeout(timeout),
        )
        return stored_id(await reply)

    async def send_many(
        self,
        address: str,
        messages: Iterable[bytes | str | NewMessage],
        *,
        window: int = 1024,
        timeout: float | None = None,
    ) -> list[int | None]:
        """Store many messages in order, without waiting for each, and return their `msg_id`s.

        If some are not stored, `PartlySent` says which and why. Each may take `timeout`.
        """
        return await send_all(
            self._wire,
            f"$mq9.AI.MSG.SEND.{_address(address)}",
            (m if isinstance(m, NewMessage) else NewMessage(m) for m in messages),
            window=window,
            timeout=self._timeout(timeout),
        )

    async def fetch(
        self,
        address: str,
        *,
        group: str | None = None,
        member: str | None = None,
        deliver: Deliver | None = None,
        from_time: int | None = None,
        from_id: int | None = None,
        force_deliver: bool = False,
        max_msgs: int = 100,
        max_wait: Span = 0.5,
        ack_wait: Span | None = None,
        max_bytes: int | None = None,
        min_priority: str | int | None = None,
        held: bool = True,
        format: Format = "raw",  # noqa: A002
        timeout: float | None = None,
    ) -> list[Message]:
        """Return messages by priority, then by age. Waits up to `max_wait` for the first one.

        With a `group` the broker remembers deliveries until they are acknowledged.
        """
        fetch = Fetch(
            address=_address(address),
            group=group,
            member=member,
            deliver=deliver,
            from_time=from_time,
            from_id=from_id,
            force_deliver=force_deliver,
            max_msgs=max_msgs,
            max_wait=seconds("max_wait", max_wait),
            ack_wait=None if ack_wait is None else seconds("ack_wait", ack_wait),
            max_bytes=max_bytes,
            min_priority=min_priority,
            held=held,
            format=format,
        )
        answer = fetch.run(self._wire, self._timeout(timeout))
        if group is None or held:
            return await answer
        polling = asyncio.ensure_future(answer)
        try:
            return await asyncio.shield(polling)
        except asyncio.CancelledError:
            # No later fetch would be given what this one still is.
            self._keep(asyncio.create_task(self._return_late(polling)))
            raise

    async def ack(
        self,
        *messages: Message,
        address: str | None = None,
        group: str | None = None,
        msg_ids: Sequence[int] = (),
        only: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Confirm messages, and all that the same member got before them, unless `only` is set.

        Without any message it does nothing.
        """
        await self._acknowledge(messages, address, group, msg_ids, {"only": only or None}, timeout)

    async def nak(
        self,
        *messages: Message,
        address: str | None = None,
        group: str | None = None,
        msg_ids: Sequence[int] = (),
        delay: Span = 0,
        timeout: float | None = None,
    ) -> None:
        """Give messages back: the group gets them again, after `delay`."""
        fields = {"kind": "nak", "delay_ms": milliseconds("delay", delay) or None}
        await self._acknowledge(messages, address, group, msg_ids, fields, timeout)

    async def progress(
        self,
        *messages: Message,
        address: str | None = None,
        group: str | None = None,
        msg_ids: Sequence[int] = (),
        timeout: float | None = None,
    ) -> None:
        """Say that messages are still being worked on: `ack_wait` starts again."""
        await self._acknowledge(messages, address, group, msg_ids, {"kind": "progress"}, timeout)

    async def term(
        self,
        *messages: Message,
        address: str | None = None,
        group: str | None = None,
        msg_ids: Sequence[int] = (),
        timeout: float | None = None,
    ) -> None:
        """Give messages up: the group never gets them again."""
        await self._acknowledge(messages, address, group, msg_ids, {"kind": "term"}, timeout)

    async def query(
        self,
        address: str,
        *,
        key: str | None = None,
        tags: Sequence[str] = (),
        since: int | None = None,
        after_id: int | None = None,
        limit: int | None = None,
        timeout: float | None = None,
    ) -> list[Message]:
        """List messages, oldest first, and take none. A `limit` alone gives the newest."""
        found: list[Message] = []
        # The newest are one reply; all else goes on where a reply was cut for its size.
        newest = limit is not None and (key, since, after_id, *tags) == (None, None, None)
        while True:
            body = {
                "key": key,
                "tags": list(tags) or None,
                "since": since,
                "after_id": after_id,
                "limit": limit and limit - len(found),
            }
            answer = await self._ask(f"MSG.QUERY.{_address(address)}", body, timeout)
            found += (Message.from_entry(address, None, entry) for entry in answer["messages"])
            if newest or not answer.get("more"):
                return found
            after_id = found[-1].msg_id

    async def delete(self, address: str, msg_id: int, *, timeout: float | None = None) -> None:
        """Remove a message, or raise `MessageNotFound`."""
        await self._ask(f"MSG.DELETE.{_address(address)}.{int(msg_id)}", {}, timeout)

    async def replay_dead_letter(self, address: str, msg_id: int) -> int | None:
        """Send a dead letter back in one step; None if it was before. Only for operators."""
        subject = f"ADMIN.DEAD.REPLAY.{_address(address)}.{int(msg_id)}"
        return cast("int | None", (await self._ask(subject, {}, None)).get("msg_id"))

    async def list_delayed(
        self, address: str, *, timeout: float | None = None
    ) -> list[DelayedMessage]:
        """List messages that are not due yet, in the order they were sent."""
        found: list[DelayedMessage] = []
        more = True
        while more:
            body = {"delayed": True, "after_id": found[-1].delay_id if found else None}
            answer = await self._ask(f"MSG.QUERY.{_address(address)}", body, timeout)
            found += (DelayedMessage.from_entry(address, entry) for entry in answer["messages"])
            more = answer.get("more", False)
        return found

    async def cancel_delayed(
        self, address: str, delay_id: int, *, timeout: float | None = None
    ) -> None:
        """Cancel a message that is not due yet, or raise `MessageNotFound`."""
        await self._ask(f"MSG.DELETE.{_address(address)}.d{int(delay_id)}", {}, timeout)

    def consume(
        self,
        address: str,
        *,
        group: str,
        member: str | None = None,
        deliver: Deliver | None = "earliest",
        concurrency: int = 1,
        prefetch: int = 0,
        auto_ack: bool = True,
        ack_wait: Span = 30.0,
        retry_delays: Sequence[Span] = (1.0, 5.0, 30.0, 120.0),
        min_priority: str | int | None = None,
        max_wait: Span = 10.0,
        create: bool = False,
    ) -> Consumer:
        """Make a worker of a group: iterate over it with `async for`, or `run` it with a handler.

        If the mailbox does not exist, it waits for it, or creates it with `create`.

        `member` is its name in the group. A worker that comes back under its name gets its
        unfinished messages at once, not after `ack_wait`. Without a name it gets a unique one.
        """
        return Consumer(
            self,
            _address(address),
            group=group,
            member=member or f"client-{uuid.uuid4().hex[:16]}",
            named=member is not None,
            deliver=deliver,
            concurrency=concurrency,
            prefetch=prefetch,
            auto_ack=auto_ack,
            ack_wait=seconds("ack_wait", ack_wait),
            retry_delays=[seconds("retry_delays", delay) for delay in retry_delays],
            min_priority=min_priority,
            max_wait=seconds("max_wait", max_wait),
            create=create,
        )

    async def status(self, *, timeout: float | None = None) -> dict[str, Any]:
        """Return the state of the broker. Only for operators, as `list_mailboxes`."""
        answer: dict[str, Any] = await self._ask("ADMIN.STATUS", {}, timeout)
        return {name: value for name, value in answer.items() if name != "error"}

    async def list_mailboxes(self, *, timeout: float | None = None) -> list[MailboxSummary]:
        """List all mailboxes. Only for users that may publish to `$mq9.AI.ADMIN.>`."""
        found: list[MailboxSummary] = []
        start: int | None = 0
        while start is not None:
            body = {"start": start, "limit": 1000}
            answer = await self._ask("ADMIN.MAILBOX.LIST", body, timeout)
            found += map(MailboxSummary.from_entry, answer["mailboxes"])
            start = answer.get("next")
        return found

    async def list_public_mailboxes(self, *, timeout: float | None = None) -> list[MailboxSummary]:
        """List the public mailboxes."""
        found: list[MailboxSummary] = []
        more = True
        while more:
            body = {"after": found[-1].address if found else None, "limit": 1000}
            answer = await self._ask("PUBLIC.LIST", body, timeout)
            found += map(MailboxSummary.from_entry, answer["mailboxes"])
            more = answer.get("more", False)
        return found

    async def show_mailbox(self, address: str, *, timeout: float | None = None) -> MailboxDetails:
        """Return a mailbox with its settings and groups. Only for operators."""
        answer = await self._ask(f"ADMIN.MAILBOX.SHOW.{_address(address)}", {}, timeout)
        return MailboxDetails.from_entry(answer["mailbox"])

    async def register(self, agent: Agent, *, timeout: float | None = None) -> None:
        """Register an agent, or replace its card, which must have a `mailbox`.

        With a `ttl` in its card, an agent that does not report for that many seconds is removed.
        """
        await self._tell("AGENT.REGISTER", agent, timeout)

    async def unregister(
        self,
        mailbox: str | None = None,
        *,
        name: str | None = None,
        timeout: float | None = None,
    ) -> None:
        """Remove an agent from the registry, or raise `AgentNotFound`.

        A `name` works if exactly one agent has it.
        """
        await self._ask("AGENT.UNREGISTER", {"mailbox": mailbox, "name": name}, timeout)

    async def report(self, status: Agent, *, timeout: float | None = None) -> None:
        """Report that an agent is alive. Needs its `mailbox`, or a `name` that it alone has.

        Raises `AgentNotFound` if it is not registered, or no longer.
        """
        await self._tell("AGENT.REPORT", status, timeout, by=("mailbox", "name"))

    async def discover(
        self,
        text: str | None = None,
        *,
        semantic: str | None = None,
        tags: Sequence[str] = (),
        alive: bool = False,
        fields: Sequence[str] | None = None,
        limit: int | None = None,
        page: int | None = None,
        timeout: float | None = None,
    ) -> Cards:
        """Find cards of agents, best match first; without a text, all of them.

        `tags` finds agents that have all of them, `alive` those that reported lately. `fields`
        returns only these fields of each card. The list also has `total`, `pending` and `more`.
        """
        found = await self.discover_page(
            text,
            semantic=semantic,
            tags=tags,
            alive=alive,
            fields=fields,
            limit=limit,
            page=page,
            timeout=timeout,
        )
        return Cards(found)

    async def discover_page(
        self,
        text: str | None = None,
        *,
        semantic: str | None = None,
        tags: Sequence[str] = (),
        alive: bool = False,
        fields: Sequence[str] | None = None,
        status: bool = False,
        scores: bool = False,
        limit: int | None = None,
        page: int | None = None,
        timeout: float | None = None,
    ) -> AgentPage:
        """Find agents as `discover` does, with `status` and `scores` of each if asked for."""
        body = {
            "text": text,
            "semantic": semantic,
            "tags": list(tags) or None,
            "alive": alive or None,
            "fields": None if fields is None else list(fields),
            "status": status or None,
            "scores": scores or None,
            "limit": limit,
            "page": page,
        }
        given = self.timeout + _MODELS_LOAD_S if timeout is None else timeout
        return AgentPage.from_answer(await self._ask("AGENT.DISCOVER", body, given))

    async def _return_late(self, polling: "asyncio.Future[list[Message]]") -> None:
        """What is given to a fetch whose caller has gone is for others."""
        try:
            if messages := await polling:
                await self.nak(*messages)
        except Mq9Error as error:
            _log.debug("a fetch ended after its caller: %s", error)

    def _keep(self, task: "asyncio.Task[None]") -> None:
        """A task that outlives what started it, and ends with the client at the latest."""
        self._leftovers.add(task)
        task.add_done_callback(self._leftovers.discard)

    def _timeout(self, given: float | None) -> float:
        return self.timeout if given is None else given

    async def _ask(self, command: str, body: Mapping[str, Any], given: float | None) -> Any:  # noqa: ANN401
        return await self._wire.ask(f"$mq9.AI.{command}", body, timeout=self._timeout(given))

    async def _tell(
        self, command: str, card: Agent, given: float | None, by: Sequence[str] = ("mailbox",)
    ) -> None:
        if not any(card.get(field) for field in by):
            raise InvalidField('an agent must have "mailbox", the address it is reached at')
        await self._wire.request(
            f"$mq9.AI.{command}",
            json.dumps(card, ensure_ascii=False).encode(),
            timeout=self._timeout(given),
        )

    async def _acknowledge(
        self,
        messages: Sequence[Message],
        address: str | None,
        group: str | None,
        msg_ids: Sequence[int],
        fields: Mapping[str, Any],
        given: float | None,
    ) -> None:
        if messages or msg_ids:
            body = ack_body(messages, address, group, msg_ids, fields)
            await self._ask(f"MSG.ACK.{_address(str(body['mail_address']))}", body, given)


async def connect(url: str | Sequence[str] | None = None, **options: Unpack[Options]) -> Client:
    """A connected client; options are those of `Client`."""
    return await Client(url, **options).connect()
