"""What a model may call tools with: refused with a reason it can act on, and the server goes on."""

import asyncio
import itertools
import json
from typing import Any

import pytest

pytest.importorskip("mcp", reason="needs the extra mcp")

from mcp import Client
from tests.mcp.test_mcp import ask, calling, on_standard_input, over_http, refused

import mq9
from mq9.agent_tools import AgentTools, ToolFailure, tools

HUGE = 10**30
# Each with a word of the reason; nothing of it may be carried out.
ODD: list[tuple[str, dict[str, Any], str]] = [
    ("send_message", {"address": "in", "body": 7}, "body"),
    ("send_message", {"address": "in"}, "body"),
    ("send_message", {"address": "", "body": "x"}, "address"),
    ("send_message", {"address": "in.", "body": "x"}, "address"),
    ("send_message", {"address": "in\r\nPUB x 1", "body": "x"}, "address"),
    ("send_message", {"address": "in", "body": "x" * 2_000_000}, "payload"),
    ("send_message", {"address": "in", "body": "x", "priority": "huge"}, "priority"),
    ("send_message", {"address": "in", "body": "x", "delay_seconds": HUGE}, "delay"),
    ("send_message", {"address": "in", "body": "x", "delay_seconds": -1}, "delay_seconds"),
    ("send_message", {"address": "in", "body": "x", "ttl_seconds": HUGE}, "ttl"),
    ("send_message", {"address": "in", "body": "x", "key": "a\r\nmq9-x: y"}, "key"),
    ("send_message", {"address": "in", "body": "x", "reply_to": "me\r\nmq9-x: y"}, "mq9-reply-to"),
    ("send_message", {"address": "in", "body": "x", "tags": ["a,b"]}, "tag"),
    ("send_message", {"address": "in", "body": "x", "tags": "a"}, "tags"),
    ("send_message", {"address": "in", "body": "x", "send_id": "i" * 10_000}, "id"),
    ("create_mailbox", {"name": "Not-One"}, "address"),
    ("create_mailbox", {"name": "new", "ttl_seconds": HUGE}, "ttl"),
    ("create_mailbox", {"name": "new", "description": "d" * 5000}, "desc"),
    ("fetch_messages", {"address": "nobody"}, "create_mailbox"),
    ("fetch_messages", {"address": "in", "max_tokens": HUGE}, "max_tokens"),
    ("fetch_messages", {"address": "in", "max_tokens": -1}, "max_tokens"),
    ("fetch_messages", {"address": "in", "max_messages": 0}, "max_messages"),
    ("fetch_messages", {"address": "in", "group": "g" * 10_000}, "group"),
    ("wait_for_mail", {"address": "nobody", "seconds": 300}, "create_mailbox"),
    ("wait_for_mail", {"address": "in", "seconds": 10_000}, "seconds"),
    ("acknowledge_messages", {"address": "in", "msg_ids": []}, "msg_ids"),
    ("acknowledge_messages", {"address": "in", "msg_ids": [HUGE]}, "msg_ids"),
    ("acknowledge_messages", {"address": "in", "msg_ids": [-1]}, "msg_ids"),
    ("acknowledge_messages", {"address": "in", "msg_ids": [0]}, "fetch"),
    ("acknowledge_messages", {"address": "in", "msg_ids": list(range(200_000))}, "msg_ids"),
    (
        "acknowledge_messages",
        {"address": "in", "msg_ids": [0], "outcome": "retry", "retry_in_seconds": HUGE},
        "delay",
    ),
    ("query_messages", {"address": "in", "msg_id": HUGE}, "id"),
    ("query_messages", {"address": "in", "msg_id": 99}, "no message 99"),
    ("register_agent", {"address": "in", "name": "n", "description": "d" * 500_000}, "card"),
    (
        "register_agent",
        {"address": "in", "name": "n", "description": "d", "tags": ["t" * 999]},
        "tag",
    ),
    ("discover_agents", {"task": "t" * 200_000}, "max_request"),
    ("discover_agents", {"limit": 0}, "limit"),
    ("report_status", {"address": "nobody", "status": "ready"}, "register_agent"),
]


async def test_odd_calls_are_refused_with_a_reason_and_change_nothing(mq9_url: str) -> None:
    async with mq9.Client(mq9_url) as owner:
        await owner.create_mailbox("in")
        await owner.send("in", "kept")
        async with Client(on_standard_input(mq9_url)) as client:
            said = [(await refused(client, tool, **given), word) for tool, given, word in ODD]
            assert [text for text, word in said if word not in text] == []
            # A long reason would take the tokens that a budget is there to save.
            assert [text for text, _ in said if len(text) > 1000] == []
            taken = await ask(client, "fetch_messages", address="in")
            assert [message["body"] for message in taken["messages"]] == ["kept"]
        assert [message.text for message in await owner.query("in")] == ["kept"]
        assert await owner.list_delayed("in") == []
        assert await owner.discover() == []
        assert [box.address for box in await owner.list_mailboxes()] == ["in"]


async def test_an_empty_address_is_one_left_out(mq9_url: str) -> None:
    async with Client(on_standard_input(mq9_url, "--inbox", "me")) as client:
        await ask(client, "send_message", address="me", body="hello")
        assert (await ask(client, "fetch_messages", address=""))["address"] == "me"
    async with Client(on_standard_input(mq9_url)) as client:
        assert "no inbox of your own" in await refused(client, "fetch_messages", address="")
        assert "no inbox of your own" in await refused(
            client, "register_agent", address="", name="n", description="d"
        )
        made = await ask(client, "create_mailbox", name="", description="")
        assert len(made["address"]) > 20
        blank = {"key": "", "reply_to": "", "send_id": "", "tags": []}
        await ask(client, "send_message", address=made["address"], body="x", **blank)


async def test_waits_side_by_side_get_a_message_once(
    mq9_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tools, "_POLL_S", 0.2)
    async with mq9.Client(mq9_url) as client:
        await client.create_mailbox("in")

        async def connected() -> mq9.Client:
            return client

        model = AgentTools(connected)
        waits = [asyncio.create_task(model.wait_for_mail("in", seconds=2)) for _ in range(5)]
        await asyncio.sleep(0.1)
        await client.send("in", "only once")
        found = [json.loads(await wait)["messages"] for wait in waits]
        assert sorted(map(len, found)) == [0, 0, 0, 0, 1]
        # Who has forgotten it is given it again.
        [again] = json.loads(await model.fetch_messages("in"))["messages"]
        assert again["body"] == "only once"


async def test_agents_that_share_credentials_over_http_share_the_work(mq9_url: str) -> None:
    async with mq9.Client(mq9_url) as sender:
        await sender.create_mailbox("in")
        await sender.send_many("in", ["one", "two"])
    with over_http(mq9_url) as url:
        async with calling(url) as ann, calling(url) as bob:
            first = await ask(ann, "fetch_messages", address="in", max_messages=1)
            second = await ask(bob, "fetch_messages", address="in")
            bodies = [m["body"] for taken in (first, second) for m in taken["messages"]]
            assert bodies == ["one", "two"]


async def test_many_waits_are_bounded_and_hold_up_nothing(mq9_url: str) -> None:
    async with mq9.Client(mq9_url) as sender, Client(on_standard_input(mq9_url)) as client:
        await sender.create_mailbox("in")
        waits = [
            asyncio.create_task(client.call_tool("wait_for_mail", {"address": "in", "seconds": 60}))
            for _ in range(1200)
        ]
        # The broker lets 1024 wait on one connection.
        for wait in itertools.islice(asyncio.as_completed(waits), 1200 - 1024):
            done = await wait
            assert done.is_error
            assert "max_waiting_fetches_per_connection" in str(done.content)
        sent = await ask(client, "send_message", address="in", body="x")
        assert sent["msg_id"] == 0
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)


async def test_reasons_are_for_a_model_where_python_has_none(mq9_url: str) -> None:
    async with mq9.Client(mq9_url) as client:

        async def connected() -> mq9.Client:
            return client

        with pytest.raises(ToolFailure, match="half a character"):
            await AgentTools(connected).send_message("in", "\ud800")
