"""`Mq9Toolkit`: the tools of the original's `langchain_mq9`. Needs the extra `langchain`.

Owns their names, arguments and answers; new programs use `mq9.langchain`. Each call opens a
connection, so that tools can be called from any event loop.
"""

import asyncio
import inspect
import json
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Literal

from langchain_core.tools import BaseTool, ToolException
from langchain_core.tools.base import BaseToolkit, create_schema_from_function

from mq9.compat import Message, Mq9Client, Priority
from mq9.errors import Mq9Error

__all__ = ["Mq9Toolkit"]

_WORDS_OF_A_SENTENCE = 4

Work = Callable[..., Coroutine[Any, Any, str]]


class Mq9Toolkit(BaseToolkit):
    """The eight tools on a broker."""

    server: str = "nats://127.0.0.1:4222"

    def get_tools(self) -> list[BaseTool]:
        """All tools."""
        return [_tool(work, self.server) for work in _TOOLS]


class _Tool(BaseTool):
    server: str
    work: Work

    def _run(self, **arguments: object) -> str:
        return asyncio.run(self._arun(**arguments))

    async def _arun(self, **arguments: object) -> str:
        try:
            async with Mq9Client(self.server) as client:
                return await self.work(client, **arguments)
        except Mq9Error as error:
            raise ToolException(str(error)) from error


def _tool(work: Work, server: str) -> BaseTool:
    # A model is shown why a call failed, instead of the end of its run.
    return _Tool(
        name=work.__name__,
        description=inspect.getdoc(work) or "",
        args_schema=create_schema_from_function(work.__name__, work, filter_args=["client"]),
        handle_tool_error=True,
        server=server,
        work=work,
    )


async def create_mailbox(client: Mq9Client, ttl: int = 3600) -> str:
    """Create a mailbox that lives for `ttl` seconds, 0 for ever; returns its address."""
    return await client.mailbox_create(ttl=ttl)


async def send_message(
    client: Mq9Client,
    mail_address: str,
    content: str,
    priority: Literal["normal", "urgent", "critical"] = "normal",
) -> str:
    """Put a message into the mailbox of another agent, who may read it at any time later."""
    msg_id = await client.send(mail_address, content, priority=Priority(priority))
    return f"stored in {mail_address} with msg_id={msg_id}, priority={priority}"


async def fetch_messages(
    client: Mq9Client, mail_address: str, group_name: str = "langchain", num_msgs: int = 10
) -> str:
    """Take waiting messages, the most important first. Acknowledge them when you are done."""
    given = await client.fetch(
        mail_address, group_name=group_name, deliver="earliest", num_msgs=num_msgs
    )
    return _shown(mail_address, given)


async def ack_messages(client: Mq9Client, mail_address: str, group_name: str, msg_id: int) -> str:
    """Say that a fetched message and all that were fetched before it are done."""
    await client.ack(mail_address, group_name, msg_id)
    return f"{group_name} is done with msg_id={msg_id} of {mail_address}"


async def query_messages(
    client: Mq9Client, mail_address: str, key: str = "", limit: int = 20
) -> str:
    """Look at messages without taking them, at those with a `key` if you give one."""
    found = await client.query(mail_address, key=key or None, limit=limit)
    return _shown(mail_address, found)


async def delete_message(client: Mq9Client, mail_address: str, msg_id: int) -> str:
    """Delete a message for everybody and for ever."""
    await client.delete(mail_address, msg_id)
    return f"msg_id={msg_id} of {mail_address} is deleted"


async def agent_register(client: Mq9Client, name: str, capabilities: str, ttl: int = 3600) -> str:
    """Create the mailbox `name` and tell other agents, in plain words, what you can do."""
    mailbox = await client.client.create_mailbox(name, ttl=ttl, exist_ok=True)
    await client.agent_register({"name": name, "mailbox": mailbox, "payload": capabilities})
    return f"{name} is registered with mailbox={mailbox}"


async def agent_discover(client: Mq9Client, query: str = "", limit: int = 10) -> str:
    """Find agents: a sentence searches by meaning, a few words by words, nothing lists all."""
    if len(query.split()) >= _WORDS_OF_A_SENTENCE:
        found = await client.agent_discover(semantic=query, limit=limit)
    else:
        found = await client.agent_discover(text=query or None, limit=limit)
    if not found:
        return "no agent was found"
    return "\n".join(
        f"name={card.get('name')} mailbox={card['mailbox']} {card.get('payload') or ''}".rstrip()
        for card in found
    )


def _shown(mail_address: str, messages: Sequence[Message]) -> str:
    if not messages:
        return f"{mail_address} has no messages for you"
    return "\n".join(
        f"msg_id={each.msg_id} priority={each.priority.value} content={_content(each.payload)}"
        for each in messages
    )


def _content(payload: bytes) -> object:
    try:
        return json.loads(payload)
    except ValueError:
        return payload.decode(errors="replace")


_TOOLS: Sequence[Work] = (
    create_mailbox,
    send_message,
    fetch_messages,
    ack_messages,
    query_messages,
    delete_message,
    agent_register,
    agent_discover,
)
