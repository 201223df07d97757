"""`mq9 mcp` against a real broker, called by the SDK's own client over both transports."""

import asyncio
import base64
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="needs the extra mcp")

import httpx2
import nkeys  # type: ignore[import-untyped]
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from tests.pages import ROOT, blocks
from tests.peers import skip_without_npm_tools

import mq9
import mq9.sync
from mq9.agent_tools import AgentTools
from mq9.cli.parser import parser
from mq9.client.agents import AgentPage
from mq9.testing import Broker

TOOLS = {
    *("create_mailbox", "send_message", "fetch_messages", "wait_for_mail", "acknowledge_messages"),
    *("query_messages", "register_agent", "discover_agents", "report_status"),
}
PROMPTS = {"work_through_mailbox", "delegate_task", "summarize_mailbox"}
# Ann as the page shows her, and two others.
[USERS] = blocks("docs/mcp.md", "conf")
USERS = USERS.replace(
    "users: [",
    'users: [ { user: bob, password: b, permissions: { publish: "$mq9.AI.MSG.*.bob.>", '
    'subscribe: "_INBOX.>" } }, { user: root, password: r }',
)


def on_standard_input(url: str, *flags: str) -> StdioServerParameters:
    return StdioServerParameters(
        command=sys.executable,
        args=["-m", "mq9", "mcp", *flags],
        env={**os.environ, "MQ9_URL": url},
    )


@contextlib.contextmanager
def over_http(url: str, *flags: str, host: str = "127.0.0.1") -> Iterator[str]:
    command = [sys.executable, "-m", "mq9", "mcp", "--http", f"{host}:0", *flags]
    with subprocess.Popen(
        command, env={**os.environ, "MQ9_URL": url}, stderr=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stderr is not None
            line = server.stderr.readline()
            assert "serving http" in line, line + server.stderr.read()
            yield line.split()[-1]
        finally:
            server.terminate()


@contextlib.asynccontextmanager
async def calling(
    url: str, user: str = "", password: str = "", **others: str
) -> AsyncIterator[Client]:
    known = base64.b64encode(f"{user}:{password}".encode()).decode()
    headers = others | ({"Authorization": f"Basic {known}"} if user else {})
    async with (
        httpx2.AsyncClient(headers=headers, timeout=30) as http,
        Client(streamable_http_client(url, http_client=http)) as client,
    ):
        yield client


async def ask(client: Client, tool: str, **arguments: object) -> Any:  # noqa: ANN401
    result = await client.call_tool(tool, arguments)
    text = str(result.content[0].text)  # type: ignore[union-attr]
    assert not result.is_error, text
    return json.loads(text)


async def refused(client: Client, tool: str, **arguments: object) -> str:
    result = await client.call_tool(tool, arguments)
    assert result.is_error, result
    return str(result.content[0].text)  # type: ignore[union-attr]


async def conversation(client: Client, address: str) -> None:
    """Mail goes round: sent, waited for, answered, acknowledged."""
    assert {tool.name for tool in (await client.list_tools()).tools} == TOOLS
    await ask(client, "create_mailbox", name=address)
    answers = (await ask(client, "create_mailbox", ttl_seconds=60))["address"]
    waiting = asyncio.create_task(ask(client, "wait_for_mail", address=address, seconds=20))
    await asyncio.sleep(0.2)
    sent = await ask(
        client, "send_message", address=address, body="2+2?", reply_to=answers, tags=["sum"]
    )
    assert sent == {"sent": True, "msg_id": 0}
    taken = await waiting
    [message] = taken["messages"]
    assert (message["body"], message["headers"]) == ("2+2?", {"mq9-reply-to": answers})
    assert taken["then"].startswith("acknowledge_messages(msg_ids=[0])")
    await ask(client, "send_message", address=answers, body="4")
    await ask(client, "acknowledge_messages", address=address, msg_ids=[0])
    assert (await ask(client, "fetch_messages", address=address))["messages"] == []
    [answer] = (await ask(client, "fetch_messages", address=answers))["messages"]
    assert answer["body"] == "4"
    [seen] = (await ask(client, "query_messages", address=address, tags=["sum"]))["messages"]
    assert seen["body"] == "2+2?"
    assert "create_mailbox" in await refused(client, "send_message", address="no.such", body="x")
    read = await client.read_resource(f"mq9://inbox/{answers}")
    assert json.loads(read.contents[0].text)["messages"][0]["headline"] == "4"  # type: ignore[union-attr]


async def test_over_standard_input(mq9_url: str) -> None:
    async with Client(on_standard_input(mq9_url, "--inbox", "me")) as client:
        assert "Your own inbox is me." in (client.instructions or "")
        await conversation(client, "desk")
        # What is left out means the own inbox.
        await ask(client, "send_message", address="me", body="hello")
        assert (await ask(client, "fetch_messages"))["messages"][0]["body"] == "hello"
        await ask(client, "acknowledge_messages", msg_ids=[0], outcome="retry")
        [again] = (await ask(client, "wait_for_mail"))["messages"]
        assert again["deliveries"] == 2
        own = await client.read_resource("mq9://inbox")
        assert json.loads(own.contents[0].text)["address"] == "me"  # type: ignore[union-attr]
        prompts = {prompt.name for prompt in (await client.list_prompts()).prompts}
        assert prompts == PROMPTS
        prompt = await client.get_prompt("delegate_task", {"task": "count the stars"})
        assert "count the stars" in prompt.messages[0].content.text  # type: ignore[union-attr]


async def test_bodies_are_given_while_tokens_last_and_the_rest_can_be_read(mq9_url: str) -> None:
    bodies = ["short", "first line\n" + "x" * 4000, "later"]
    async with mq9.Client(mq9_url) as sender:
        await sender.create_mailbox("in")
        await sender.send_many("in", bodies)
        await sender.send("in", b"\xff\x00", priority="notify")
    async with Client(on_standard_input(mq9_url)) as client:
        taken = await ask(client, "fetch_messages", address="in", max_tokens=500)
        short, long, later, binary = taken["messages"]
        assert short["body"] == "short"
        assert long["headline"] == "first line..."
        assert 1900 < len(long["body"]) == long["rest_from"] < 2000
        assert (later["headline"], later.get("body"), later["rest_from"]) == ("later", None, 0)
        assert binary["headline"] == "<2 bytes that are not text>"
        whole = long["body"]
        while "rest_from" in long:
            [long] = (
                await ask(
                    client,
                    "query_messages",
                    address="in",
                    msg_id=1,
                    start=long["rest_from"],
                    max_tokens=500,
                )
            )["messages"]
            whole += long["body"]
        assert whole == bodies[1]
        [first] = (await ask(client, "query_messages", address="in", msg_id=0))["messages"]
        assert first["body"] == "short"
        assert "no message 77" in await refused(client, "query_messages", address="in", msg_id=77)
        assert "no inbox" in await refused(client, "fetch_messages")
        assert "address" in await refused(client, "send_message", address="Bad-One", body="x")
        assert "max_tokens" in await refused(
            client, "fetch_messages", address="in", max_tokens=10**9
        )


async def test_headers_keys_and_cards_count_as_well(mq9_url: str) -> None:
    async with mq9.Client(mq9_url) as sender:
        await sender.create_mailbox("in")
        flood = {f"x-{n}": "flood" * 100 for n in range(60)}
        for number in range(10):
            answer_to = {"mq9-reply-to": "answers"}
            await sender.send("in", "hi", key=f"{number}" * 100, headers=flood | answer_to)
            await sender.send("in", "x" * 500_000)
        long = {"description": "I do it. " * 20_000, "prices": ["high"] * 9000}
        await sender.register({"mailbox": "in", "name": "n" * 5000, "address": "boss", **long})
    async with Client(on_standard_input(mq9_url)) as client:
        for ask_for in ("query_messages", "fetch_messages"):
            given = await ask(client, ask_for, address="in", max_messages=100, max_tokens=500)
            assert len(json.dumps(given)) < 500 * 4 + 400 * len(given["messages"])
        first = given["messages"][0]
        assert first["headers"] == {"mq9-reply-to": "answers"}
        assert "headers" in first["left_out"]
        # What could not be shown is not taken from others.
        assert len(given["messages"]) < 5
        read = await client.read_resource("mq9://inbox/in")
        assert len(read.contents[0].text) < 20_000  # type: ignore[union-attr]
        whole = await ask(client, "query_messages", address="in", msg_id=0, max_tokens=50_000)
        assert len(whole["messages"][0]["headers"]) == 61
        [found] = (await ask(client, "discover_agents", max_tokens=300))["agents"]
        assert (found["address"], found["alive"], found["left_out"]) == ("in", True, ["prices"])
        assert found["description"].startswith("I do it.")
        assert len(json.dumps(found)) < 2000


async def test_a_model_is_told_that_cards_are_still_read(mq9_url: str) -> None:
    class Reading(mq9.Client):
        async def discover_page(self, *given: Any, **named: Any) -> AgentPage:  # noqa: ANN401
            return replace(await super().discover_page(*given, **named), pending=7)

    async with Reading(mq9_url) as client:

        async def connected() -> mq9.Client:
            return client

        found = json.loads(await AgentTools(connected).discover_agents())
        assert found == {"agents": [], "total": 0, "not_read_yet": 7}


async def test_what_cannot_be_undone_is_announced(mq9_url: str) -> None:
    async with Client(on_standard_input(mq9_url)) as client:
        said = {
            tool.name: (tool.annotations.destructive_hint, tool.annotations.idempotent_hint)
            for tool in (await client.list_tools()).tools
            if tool.annotations
        }
    assert said["acknowledge_messages"] == (True, False)
    assert said["register_agent"] == (False, True)
    assert said["send_message"] == (False, False)


async def test_agents_find_each_other(mq9_url: str) -> None:
    async with Client(on_standard_input(mq9_url, "--inbox", "sky")) as client:
        assert "register_agent" in await refused(client, "report_status", status="ready")
        await ask(client, "register_agent", name="weather", description="says if it will rain")
        await ask(client, "report_status", status="ready")
        found = await ask(client, "discover_agents")
        assert found["agents"] == [
            {
                "address": "sky",
                "name": "weather",
                "description": "says if it will rain",
                "alive": True,
            }
        ]


NKEY = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY"


async def test_on_standard_input_an_agent_has_the_rights_of_its_credentials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = nkeys.from_seed(bytearray(NKEY.encode())).public_key.decode()
    permissions = 'publish: "$mq9.AI.MSG.*.eve.>", subscribe: "_INBOX.>"'
    nkey_user = f"{{ nkey: {key}, permissions: {{ {permissions} }} }}"
    users = USERS.replace("users: [", f"users: [ {nkey_user},")
    seed = tmp_path / "seed"
    seed.write_text(NKEY)
    with Broker(users, folder=tmp_path / "broker") as broker:
        with mq9.sync.Client(broker.url, user="root", password="r") as root:
            root.create_mailbox("bob.in")
            root.create_mailbox("eve.in")
        ways: list[tuple[dict[str, str], list[str], str]] = [
            ({"MQ9_USER": "bob", "MQ9_PASSWORD": "b"}, [], "bob.in"),
            ({}, ["--user", "bob", "--password", "b"], "bob.in"),
            ({"MQ9_NKEY": NKEY}, [], "eve.in"),
            ({}, ["--nkey", str(seed)], "eve.in"),
        ]
        for number, (variables, flags, own) in enumerate(ways):
            with monkeypatch.context() as set_here:
                for name, value in variables.items():
                    set_here.setenv(name, value)
                async with Client(on_standard_input(broker.url, *flags)) as client:
                    await ask(client, "send_message", address=own, body=f"mail {number}")
                    [given] = (await ask(client, "fetch_messages", address=own))["messages"]
                    assert given["body"] == f"mail {number}"
                    await ask(
                        client, "acknowledge_messages", address=own, msg_ids=[given["msg_id"]]
                    )
                    [other] = {"bob.in", "eve.in"} - {own}
                    denied = await refused(client, "fetch_messages", address=other)
                    assert "credentials do not allow" in denied
        wrong = on_standard_input(broker.url, "--user", "bob", "--password", "wrong")
        stranger = await asyncio.create_subprocess_exec(
            wrong.command,
            *wrong.args,
            env=wrong.env,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        _, said = await stranger.communicate()
        assert stranger.returncode == 3
        assert b"refused the connection" in said


async def test_over_http_every_caller_has_its_own_rights(tmp_path: Path) -> None:
    with Broker(USERS, folder=tmp_path) as broker, over_http(broker.url) as url:
        with mq9.sync.Client(broker.url, user="root", password="r") as root:
            root.create_mailbox("bob.in")
        async with calling(url, "root", "r") as client:
            await conversation(client, "desk")
        async with calling(url, "ann", "a") as ann, calling(url, "bob", "b") as bob:
            await ask(ann, "send_message", address="bob.in", body="hi bob")
            denied = await refused(ann, "fetch_messages", address="bob.in")
            assert "credentials do not allow" in denied
            assert (await ask(bob, "fetch_messages", address="bob.in"))["messages"][0]["body"] == (
                "hi bob"
            )
            await refused(bob, "create_mailbox", name="other")
        async with calling(url, "ann", "wrong") as stranger:
            await refused(stranger, "send_message", address="bob.in", body="x")
        async with calling(url) as nobody:
            await refused(nobody, "send_message", address="bob.in", body="x")


async def test_over_http_other_hosts_names_are_refused(mq9_url: str) -> None:
    with over_http(mq9_url) as url:
        async with httpx2.AsyncClient() as http:
            answer = await http.post(url, headers={"Host": "evil.example"}, json={})
            assert answer.status_code in {403, 421}
        async with calling(url) as client:
            await ask(client, "create_mailbox", name="open")


async def test_over_http_a_broker_that_asks_nobody_is_for_this_machine(mq9_url: str) -> None:
    with over_http(mq9_url, host="0.0.0.0") as url:
        async with calling(url, "made", "up") as stranger, calling(url) as nobody:
            said = await refused(stranger, "create_mailbox", name="taken")
            assert "asks nobody who they are" in said
            assert "Authorization" in await refused(nobody, "create_mailbox", name="taken")
    with over_http(mq9_url) as url:
        for header in ("Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-IP", "Via"):
            by_proxy = {header: "203.0.113.9"}
            async with calling(url, **by_proxy) as nobody:
                assert "Authorization" in await refused(nobody, "create_mailbox", name="taken")
            async with calling(url, "made", "up", **by_proxy) as stranger:
                said = await refused(stranger, "create_mailbox", name="taken")
                assert "asks nobody who they are" in said
        # The same connection serves who is on this machine.
        async with calling(url, "made", "up") as here:
            await ask(here, "create_mailbox", name="given")
        async with calling(url, "made", "up", **{"X-Real-IP": "203.0.113.9"}) as stranger:
            await refused(stranger, "create_mailbox", name="taken")
    async with mq9.Client(mq9_url) as client:
        assert [box.address for box in await client.list_mailboxes()] == ["given"]


async def test_over_http_users_are_known_behind_a_proxy_and_elsewhere(tmp_path: Path) -> None:
    with Broker(USERS, folder=tmp_path) as broker:
        for host in ("127.0.0.1", "0.0.0.0"):
            with over_http(broker.url, host=host) as url:
                async with calling(url, "root", "r", **{"X-Forwarded-For": "203.0.113.9"}) as root:
                    await ask(root, "create_mailbox", name=f"on.h{len(host)}")
                async with calling(url, "root", "wrong") as stranger:
                    await refused(stranger, "create_mailbox", name="taken")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--http", "--user", "ann"], "Authorization"),
        (["--http", "--server", "nats://ann:a@127.0.0.1:4222"], "Authorization"),
        (["--http", "--server", "nats://127.0.0.1:4222,nats://token@127.0.0.1"], "Authorization"),
        (["--http", "--inbox", "me"], "--inbox is for one agent"),
        (["--http", "nowhere"], "HOST:PORT"),
    ],
)
def test_a_wrong_command_line_says_what_to_do(flags: list[str], said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mq9", "mcp", *flags], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert said in done.stderr


def test_the_page_names_every_tool_and_its_command_line_works() -> None:
    page = (ROOT / "docs/mcp.md").read_text("utf-8")
    assert set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == TOOLS | PROMPTS
    started = json.loads(blocks("docs/mcp.md", "json")[0])["mcpServers"]["mq9"]
    read = parser().parse_args(started["args"])
    assert (read.inbox, read.http) == ("assistant.mail", None)


def test_the_inspector_lists_and_calls_tools(mq9_url: str) -> None:
    installed = ROOT / ".build/npm/node_modules/.bin"
    inspector = shutil.which("mcp-inspector", path=f"{installed}:{os.environ['PATH']}")
    if inspector is None:
        skip_without_npm_tools()
    command = [inspector, "--cli", sys.executable, "-m", "mq9", "mcp", "-s", mq9_url]
    for options, expected in (
        (["--method", "tools/list"], '"fetch_messages"'),
        (
            ["--method", "tools/call", "--tool-name", "create_mailbox", "--tool-arg", "name=seen"],
            r"{\"address\":\"seen\"}",
        ),
    ):
        done = subprocess.run(
            [*command, *options], capture_output=True, text=True, timeout=60, check=False
        )
        assert re.search(re.escape(expected), done.stdout), done.stdout + done.stderr
