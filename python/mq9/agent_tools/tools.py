"""The tools themselves: each is a method whose signature and text a model is shown.

Names, descriptions and defaults are written for a reader who knows nothing of mq9 and calls
right away. Knows nothing of MCP or LangChain: they take methods from here.
"""

import functools
import json
from collections.abc import Awaitable, Callable, Coroutine
from typing import Annotated, Any, Literal, ParamSpec, TypeVar

from pydantic import Field

from mq9 import errors
from mq9.agent_tools import budget
from mq9.client import Client

Given = ParamSpec("Given")
Method = TypeVar("Method", bound=Callable[..., Coroutine[Any, Any, str]])

Address = Annotated[
    str, Field(description="Mailbox address: lowercase letters, digits and dots, e.g. 'agent.mail'")
]
OwnAddress = Annotated[
    str | None,
    Field(description="Mailbox address; leave it out for your own inbox, if you were given one"),
]
Tokens = Annotated[
    int,
    Field(ge=0, le=100_000, description="At most about so many tokens of content in the answer"),
]

# As far as every reader of JSON counts exactly.
MsgId = Annotated[int, Field(ge=0, le=2**53)]

_LONGEST_WAIT_S = 300
_POLL_S = 5.0
_MOST_MESSAGES = 100
_MOST_ACKNOWLEDGED = 1000
_BYTES_PER_TOKEN = 4
_LEAST_BYTES = 64 * 1024
_REASON_TOKENS = 150

_HINTS: dict[type[errors.Mq9Error], str] = {
    errors.MailboxNotFound: "Check the address, or make the mailbox with create_mailbox.",
    errors.MailboxExists: "Choose another name, or give no ttl_seconds and no description to use "
    "the one that is there.",
    errors.InvalidAddress: "Addresses have only lowercase letters, digits and single dots.",
    errors.NotGiven: "Only messages from fetch_messages or wait_for_mail can be acknowledged, and "
    "only until others were given them: fetch again.",
    errors.AgentNotFound: "Call register_agent first.",
    errors.AccessDenied: "These credentials do not allow it; another address may be allowed.",
    errors.BrokerUnavailable: "The broker cannot be reached; try again later.",
    errors.RequestTimeout: "It may have been carried out; look before you do it again.",
}


class ToolFailure(Exception):  # noqa: N818
    """A tool could not do it; the text tells a model why, and what to do instead."""


def translated(method: Method, kind: type[Exception]) -> Method:
    """The same tool, whose failures are exceptions of a framework."""

    @functools.wraps(method)
    async def call(*given: Any, **named: Any) -> str:  # noqa: ANN401
        try:
            return await method(*given, **named)
        except ToolFailure as failure:
            raise kind(str(failure)) from failure

    return call  # type: ignore[return-value]


def _explained(method: Method) -> Method:
    @functools.wraps(method)
    async def call(*given: Any, **named: Any) -> str:  # noqa: ANN401
        try:
            return await method(*given, **named)
        except errors.Mq9Error as error:
            hints = (hint for kind, hint in _HINTS.items() if isinstance(error, kind))
            reason = budget.shortened(str(error), _REASON_TOKENS)
            raise ToolFailure(". ".join([reason, *list(hints)[:1]])) from error
        except UnicodeEncodeError as error:
            raise ToolFailure(f"the text has half a character: {error.reason}") from error

    return call  # type: ignore[return-value]


class AgentTools:
    """The tools of one agent, or of whoever `connect` says is calling."""

    def __init__(
        self,
        connect: Callable[[], Awaitable[Client]],
        *,
        inbox: str | None = None,
        group: str = "agent",
        shared: bool = False,
        progress: Callable[[float, float], Awaitable[None]] | None = None,
    ) -> None:
        """With `shared`, agents that cannot be told apart use one connection."""
        self._connect = connect
        self._shared = shared
        self._inbox = inbox
        self._group = group
        self._progress = progress

    @property
    def all(self) -> list[Callable[..., Coroutine[Any, Any, str]]]:
        """Every tool."""
        return [
            self.create_mailbox,
            self.send_message,
            self.fetch_messages,
            self.wait_for_mail,
            self.acknowledge_messages,
            self.query_messages,
            self.register_agent,
            self.discover_agents,
            self.report_status,
        ]

    @_explained
    async def create_mailbox(
        self,
        name: Annotated[
            str | None,
            Field(
                description="The address it shall have, e.g. 'report.17'. Left out, it gets one "
                "that nobody can guess: do that for answers only you should read"
            ),
        ] = None,
        ttl_seconds: Annotated[
            int, Field(ge=0, description="It is removed after so long; 0 keeps it for ever")
        ] = 0,
        description: Annotated[str | None, Field(description="What it is for")] = None,
    ) -> str:
        """Create a mailbox where messages wait until somebody fetches them.

        Returns its address. If the mailbox exists already with these settings, you get its address
        as well.
        """
        client = await self._connect()
        address = await client.create_mailbox(
            name or None, ttl=ttl_seconds or None, desc=description or None, exist_ok=bool(name)
        )
        return _json({"address": address})

    @_explained
    async def send_message(
        self,
        address: Address,
        body: Annotated[str, Field(description="The message: plain text, or JSON as text")],
        priority: Annotated[
            Literal["critical", "urgent", "normal", "notify"],
            Field(description="Critical and urgent are fetched before normal, notify after it"),
        ] = "normal",
        reply_to: Annotated[
            str | None, Field(description="Address of the mailbox where you want the answer")
        ] = None,
        key: Annotated[
            str | None,
            Field(description="A newer message with the same key replaces this one: for states"),
        ] = None,
        tags: Annotated[
            list[str] | None, Field(description="Words to find it by with query_messages")
        ] = None,
        delay_seconds: Annotated[
            int, Field(ge=0, description="Nobody sees it before: for reminders")
        ] = 0,
        ttl_seconds: Annotated[
            int, Field(ge=0, description="It is removed if nobody fetched it so long; 0: never")
        ] = 0,
        send_id: Annotated[
            str | None,
            Field(description="Sent twice with the same id it is stored once: for retries"),
        ] = None,
    ) -> str:
        """Send a message to a mailbox. It is stored safely when this returns.

        The receiver need not be running. To find whom to write to, call discover_agents. The
        answer, if there is one, comes to `reply_to`; get it with wait_for_mail.
        """
        client = await self._connect()
        msg_id = await client.send(
            address,
            body,
            priority=priority,
            key=key or None,
            tags=tags or (),
            delay=delay_seconds,
            ttl=ttl_seconds,
            headers={"mq9-reply-to": reply_to} if reply_to else None,
            id=send_id or None,
        )
        if msg_id is None:
            return _json({"sent": True, "visible_in_seconds": delay_seconds})
        return _json({"sent": True, "msg_id": msg_id})

    @_explained
    async def fetch_messages(
        self,
        address: OwnAddress = None,
        max_messages: Annotated[int, Field(ge=1, le=_MOST_MESSAGES)] = 10,
        max_tokens: Tokens = 2000,
        group: Annotated[
            str | None,
            Field(description="Agents that share work use one group: each message goes to one"),
        ] = None,
    ) -> str:
        """Take the next messages from a mailbox, the most urgent first. Does not wait.

        Contents are given up to max_tokens. Where a body is cut or left out, `rest_from` is set:
        read on with query_messages(msg_id=..., start=rest_from); `left_out` names what else is
        missing. Messages stay yours for 5 minutes:
        call acknowledge_messages when you have dealt with them, or they come again. An answer goes
        to the address in the header mq9-reply-to, if there is one.
        """
        return await self._take(address, max_messages, max_tokens, group, 0)

    @_explained
    async def wait_for_mail(
        self,
        address: OwnAddress = None,
        seconds: Annotated[
            int, Field(ge=1, le=_LONGEST_WAIT_S, description="How long to wait at most")
        ] = 30,
        max_messages: Annotated[int, Field(ge=1, le=_MOST_MESSAGES)] = 10,
        max_tokens: Tokens = 2000,
        group: Annotated[
            str | None,
            Field(description="Agents that share work use one group: each message goes to one"),
        ] = None,
    ) -> str:
        """Wait until a mailbox has mail for you, and take it as fetch_messages does.

        Returns at once if mail is there already. No messages after the time is no error: call
        again, or do something else.
        """
        return await self._take(address, max_messages, max_tokens, group, seconds)

    @_explained
    async def acknowledge_messages(
        self,
        msg_ids: Annotated[
            list[MsgId],
            Field(
                min_length=1,
                max_length=_MOST_ACKNOWLEDGED,
                description="From fetch_messages or wait_for_mail",
            ),
        ],
        address: OwnAddress = None,
        outcome: Annotated[
            Literal["done", "retry", "reject"],
            Field(
                description="done: dealt with. retry: give it out again. reject: it can never be "
                "dealt with"
            ),
        ] = "done",
        retry_in_seconds: Annotated[int, Field(ge=0, description="With retry: not before")] = 0,
        group: Annotated[str | None, Field(description="The one it was fetched with")] = None,
    ) -> str:
        """Say what became of messages you fetched, so that they do not come again.

        Call it after the work is done, not before: what is not acknowledged is given out again.
        """
        client = await self._connect()
        at, of = self._address(address), group or self._group
        if outcome == "done":
            await client.ack(address=at, group=of, msg_ids=msg_ids, only=True)
        elif outcome == "retry":
            await client.nak(address=at, group=of, msg_ids=msg_ids, delay=retry_in_seconds)
        else:
            await client.term(address=at, group=of, msg_ids=msg_ids)
        return _json({outcome: msg_ids})

    @_explained
    async def query_messages(
        self,
        address: OwnAddress = None,
        msg_id: Annotated[MsgId | None, Field(description="Just this message")] = None,
        start: Annotated[
            int, Field(ge=0, description="With msg_id: the character of its body to begin at")
        ] = 0,
        key: Annotated[str | None, Field(description="Only the message with this key")] = None,
        tags: Annotated[list[str] | None, Field(description="Only those with any of these")] = None,
        max_messages: Annotated[int, Field(ge=1, le=_MOST_MESSAGES)] = 10,
        max_tokens: Tokens = 2000,
    ) -> str:
        """Look at what a mailbox holds without taking anything: nobody notices.

        Without arguments, the newest messages, oldest of them first. Use fetch_messages to work
        on messages.
        """
        client = await self._connect()
        at = self._address(address)
        if msg_id is not None:
            found = await client.query(
                at, after_id=msg_id - 1 if msg_id else None, since=0, limit=1
            )
            if not found or found[0].msg_id != msg_id:
                raise ToolFailure(f"{at} holds no message {msg_id}. It may have been removed.")
            return _json({"messages": [budget.part(found[0], start, max_tokens)]})
        found = await client.query(at, key=key or None, tags=tags or (), limit=max_messages)
        return _json({"messages": budget.shown(found, max_tokens)})

    @_explained
    async def register_agent(
        self,
        name: Annotated[str, Field(description="A short name, e.g. 'translator'")],
        description: Annotated[
            str,
            Field(description="What you can do, in sentences: others search for it by meaning"),
        ],
        address: OwnAddress = None,
        tags: Annotated[list[str] | None, Field(description="e.g. ['translation']")] = None,
        ttl_seconds: Annotated[
            int,
            Field(ge=0, description="Taken out after so long without report_status; 0: never"),
        ] = 0,
    ) -> str:
        """Enter an agent in the registry, so that others find it with discover_agents.

        Its mailbox is made if it is not there. Registering again replaces the entry.
        """
        client = await self._connect()
        at = await client.create_mailbox(self._address(address), exist_ok=True)
        card: dict[str, Any] = {"name": name, "description": description, "mailbox": at}
        card |= {"tags": tags} if tags else {}
        card |= {"ttl": ttl_seconds} if ttl_seconds else {}
        await client.register(card)
        return _json({"registered": name, "address": at})

    @_explained
    async def discover_agents(
        self,
        task: Annotated[
            str | None,
            Field(description="What you need done, in your own words; left out, all are listed"),
        ] = None,
        tags: Annotated[list[str] | None, Field(description="Only those with all of these")] = None,
        alive: Annotated[bool, Field(description="Only those heard of lately")] = False,
        limit: Annotated[int, Field(ge=1, le=50)] = 5,
        max_tokens: Tokens = 2000,
    ) -> str:
        """Find agents that can do something, best match first.

        Write to one with send_message; its address is in `address`. Long descriptions are cut and
        fields that are `left_out` are missing: for all of a card, ask again with limit=1 and more
        max_tokens. If `not_read_yet` is set, others may be found a little later: call again.
        """
        client = await self._connect()
        found = await client.discover_page(
            semantic=task or None, tags=tags or (), alive=alive, limit=limit, status=True
        )
        agents = [
            (str(card.get("mailbox", "")).rpartition("/")[2], card, status.alive)
            for card, status in zip(found.cards, found.statuses, strict=True)
        ]
        answer = {"agents": budget.cards(agents, max_tokens), "total": found.total}
        answer |= {"not_read_yet": found.pending} if found.pending else {}
        return _json(answer)

    @_explained
    async def report_status(
        self,
        status: Annotated[str, Field(description="What you are doing, e.g. 'busy, 3 tasks left'")],
        address: OwnAddress = None,
    ) -> str:
        """Tell the registry that your agent is alive and what it does.

        Your agent must be registered. Others see it as alive in discover_agents.
        """
        client = await self._connect()
        await client.report({"mailbox": self._address(address), "status": status})
        return _json({"reported": True})

    @_explained
    async def inbox(self, address: str | None = None) -> str:
        """The headlines of a mailbox, newest last; for a resource, not for a model to call."""
        client = await self._connect()
        at = self._address(address)
        found = await client.query(at, limit=_MOST_MESSAGES)
        return _json({"address": at, "messages": budget.headlines(found)})

    def _address(self, given: str | None) -> str:
        # Models write an empty text for what they leave out.
        if address := given or self._inbox:
            return address
        raise ToolFailure("address is missing: you have no inbox of your own. Name a mailbox.")

    async def _take(
        self, address: str | None, most: int, most_tokens: int, group: str | None, wait_s: float
    ) -> str:
        client = await self._connect()
        at = self._address(address)
        fetch = functools.partial(
            client.fetch,
            at,
            group=group or self._group,
            deliver="earliest",
            max_msgs=most,
            # What cannot be shown is left to others.
            max_bytes=max(_LEAST_BYTES, _BYTES_PER_TOKEN * most_tokens),
            ack_wait=300,
        )
        messages = await fetch(max_wait=0, held=not self._shared)
        waited_s = 0.0
        while not messages and waited_s < wait_s:
            poll_s = min(_POLL_S, wait_s - waited_s)
            # A wait is for new mail: what came meanwhile another call may have.
            messages = await fetch(max_wait=poll_s, held=False)
            waited_s += poll_s
            if self._progress is not None and not messages:
                await self._progress(waited_s, wait_s)
        answer: dict[str, Any] = {"address": at, "messages": budget.shown(messages, most_tokens)}
        if messages:
            ids = [message.msg_id for message in messages]
            answer["then"] = f"acknowledge_messages(msg_ids={ids}) when they are dealt with"
        return _json(answer)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
