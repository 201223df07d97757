"""A program written after the original's LangChain demo, without a model, on a real broker."""

import json
import re

import pytest
from tests.pages import blocks

pytest.importorskip("langchain_core", reason="needs the extra langchain")

from mq9.compat.langchain import Mq9Toolkit


async def test_what_its_langchain_demo_does_works(mq9_url: str) -> None:
    """All tools by name, called as the demo does, which passes LangChain by."""
    tools = {tool.name: tool for tool in Mq9Toolkit(server=mq9_url).get_tools()}
    assert sorted(tools) == [
        *("ack_messages", "agent_discover", "agent_register", "create_mailbox"),
        *("delete_message", "fetch_messages", "query_messages", "send_message"),
    ]
    assert all(tool.description for tool in tools.values())
    box = await tools["create_mailbox"]._arun(ttl=300)
    content = json.dumps({"task": "sum up", "data": "hello"})
    for priority in ("normal", "urgent"):
        said = await tools["send_message"]._arun(
            mail_address=box, content=content, priority=priority
        )
        assert re.search(r"msg_id=\d+", said)
    given = await tools["fetch_messages"]._arun(
        mail_address=box, group_name="langchain", num_msgs=5
    )
    ids = re.findall(r"msg_id=(\d+)", given)
    assert re.findall(r"priority=(\w+)", given) == ["urgent", "normal"]
    await tools["ack_messages"]._arun(mail_address=box, group_name="langchain", msg_id=int(ids[-1]))
    rest = await tools["fetch_messages"]._arun(mail_address=box, group_name="langchain")
    assert "no messages" in rest
    for _ in range(2):
        await tools["agent_register"]._arun(
            name="demo.tools", capabilities="Shows a toolkit.", ttl=300
        )
    assert "mailbox=demo.tools" in await tools["agent_discover"]._arun(query="toolkit", limit=5)
    assert "hello" in await tools["query_messages"]._arun(mail_address=box)
    for msg_id in ids:
        await tools["delete_message"]._arun(mail_address=box, msg_id=int(msg_id))
    assert "no messages" in await tools["query_messages"]._arun(mail_address=box)


async def test_langchain_calls_the_tools_and_is_told_what_went_wrong(mq9_url: str) -> None:
    tools = {tool.name: tool for tool in Mq9Toolkit(server=mq9_url).get_tools()}
    box = await tools["create_mailbox"].ainvoke({})
    await tools["send_message"].ainvoke({"mail_address": box, "content": "no JSON"})
    assert "content=no JSON" in await tools["fetch_messages"].ainvoke({"mail_address": box})
    told = await tools["send_message"].ainvoke({"mail_address": "no.such", "content": "x"})
    assert "does not exist" in told
    with pytest.raises(ValueError, match="priority"):
        await tools["send_message"].ainvoke(
            {"mail_address": box, "content": "x", "priority": "huge"}
        )


def test_tools_work_without_an_event_loop(mq9_url: str) -> None:
    tools = {tool.name: tool for tool in Mq9Toolkit(server=mq9_url).get_tools()}
    assert tools["agent_discover"].invoke({"query": ""}) == "no agent was found"
    assert "no messages" in tools["query_messages"].invoke(
        {"mail_address": tools["create_mailbox"].invoke({"ttl": 60})}
    )


def test_the_import_of_the_page() -> None:
    names: dict[str, object] = {}
    exec(blocks("docs/migrate-robustmq.md", "python")[2], names)
    assert names["Mq9Toolkit"] is Mq9Toolkit
