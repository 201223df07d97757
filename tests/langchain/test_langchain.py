"""The LangChain tools against a real broker, called as an agent would, without a model."""

import asyncio
import json
import threading
import time
from typing import Any

import pytest

pytest.importorskip("langchain_core", reason="needs the extra langchain")

from langchain_core.tools import BaseTool
from tests.pages import blocks
from tests.peers import Serve

from mq9.langchain import Toolkit
from mq9.testing import Broker


def tools_of(toolkit: Toolkit) -> dict[str, BaseTool]:
    return {tool.name: tool for tool in toolkit.get_tools()}


def ask(tool: BaseTool, **arguments: object) -> Any:  # noqa: ANN401
    return json.loads(tool.invoke(arguments))


def test_mail_goes_round(mq9_url: str) -> None:
    with Toolkit(mq9_url, inbox="me") as toolkit:
        tools = tools_of(toolkit)
        assert len(tools) == 9
        answers = ask(tools["create_mailbox"])["address"]
        ask(tools["send_message"], address="me", body="2+2?", reply_to=answers)
        [message] = ask(tools["wait_for_mail"], seconds=5)["messages"]
        ask(tools["send_message"], address=message["headers"]["mq9-reply-to"], body="4")
        ask(tools["acknowledge_messages"], msg_ids=[message["msg_id"]])
        assert ask(tools["fetch_messages"])["messages"] == []
        [answer] = ask(tools["query_messages"], address=answers)["messages"]
        assert answer["body"] == "4"
        ask(tools["register_agent"], name="adder", description="adds numbers")
        ask(tools["report_status"], status="ready")
        assert ask(tools["discover_agents"])["agents"][0]["address"] == "me"


def test_a_refused_call_is_told_and_a_wrong_one_names_the_field(mq9_url: str) -> None:
    with Toolkit(mq9_url) as toolkit:
        tools = tools_of(toolkit)
        told = tools["send_message"].invoke({"address": "no.such", "body": "x"})
        assert "does not exist. Check the address" in told
        with pytest.raises(ValueError, match="priority"):
            tools["send_message"].invoke({"address": "a", "body": "x", "priority": "huge"})
        schema = json.dumps(tools["send_message"].tool_call_schema.model_json_schema())  # type: ignore[union-attr]
        assert '"Mailbox address' in schema
        assert '"required": ["address", "body"]' in schema


def test_one_toolkit_serves_many_event_loops_and_threads(mq9_url: str) -> None:
    with Toolkit(mq9_url, inbox="me") as toolkit:
        send = tools_of(toolkit)["send_message"]

        async def some(of: int) -> None:
            calls = [send.ainvoke({"address": "me", "body": f"{of}.{n}"}) for n in range(5)]
            await asyncio.gather(*calls)

        threads = [threading.Thread(target=lambda n=n: asyncio.run(some(n))) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        found = ask(tools_of(toolkit)["query_messages"], max_messages=100)["messages"]
        assert {m["body"] for m in found} == {f"{i}.{n}" for i in range(4) for n in range(5)}


async def test_a_cancelled_call_stops_waiting_and_takes_nothing(mq9_url: str) -> None:
    with Toolkit(mq9_url, inbox="me") as toolkit:
        tools = tools_of(toolkit)
        await tools["create_mailbox"].ainvoke({"name": "other"})
        waiting = asyncio.create_task(tools["wait_for_mail"].ainvoke({"seconds": 60}))
        await asyncio.sleep(0.3)
        waiting.cancel()
        began = time.monotonic()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert time.monotonic() - began < 5
        await tools["send_message"].ainvoke({"address": "me", "body": "for the next"})
        [message] = json.loads(await tools["wait_for_mail"].ainvoke({"seconds": 10}))["messages"]
        assert message["body"] == "for the next"


def test_each_toolkit_acts_with_its_own_rights() -> None:
    users = (
        "authorization { users = [ { user: ann, password: a }, { user: bob, password: b, "
        'permissions: { publish: "$mq9.AI.MSG.SEND.>", subscribe: "_INBOX.>" } } ] }'
    )
    with (
        Broker(users) as broker,
        Toolkit(broker.url, inbox="ann", user="ann", password="a") as ann,
        Toolkit(broker.url, user="bob", password="b") as bob,
    ):
        assert ask(tools_of(ann)["fetch_messages"])["messages"] == []
        ask(tools_of(bob)["send_message"], address="ann", body="hi")
        told = tools_of(bob)["fetch_messages"].invoke({"address": "ann"})
        assert "credentials do not allow" in told


def test_a_refused_inbox_costs_one_connection(serve: Serve) -> None:
    users = "users = [ { user: bob, password: b, permissions: { publish: _ } } ]"
    server = serve(f"http: 127.0.0.1:-1\nauthorization {{ {users} }}")
    with Toolkit(server.url, inbox="bob", user="bob", password="b") as bob:
        for _ in range(3):
            assert "do not allow" in tools_of(bob)["fetch_messages"].invoke({})
        assert server.monitor("/varz")["connections"] == 1


def test_the_example_of_the_page(mq9_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert mq9_url
    [example] = blocks("docs/langchain.md", "python")
    exec(example, {})
    assert '"body":"hello"' in capsys.readouterr().out
