"""A program written after the original's A2A demo, and what it may rely on, on a real broker."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.pages import blocks

pytest.importorskip("a2a", reason="needs the extra a2a")

from a2a.helpers import (
    get_artifact_text,
    new_task_from_user_message,
    new_text_artifact,
    new_text_message,
    new_text_status_update_event,
)
from a2a.server.agent_execution import RequestContext
from a2a.server.events import EventQueue
from a2a.types.a2a_pb2 import (
    AgentCapabilities,
    AgentCard,
    AgentSkill,
    Role,
    SendMessageRequest,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)

import mq9
from mq9.compat.a2a import Mq9A2AAgent

BOX = "demo.shouter"
CARD = AgentCard(
    name=BOX,
    description="Turns any text into capital letters.",
    version="1.0.0",
    skills=[AgentSkill(id="shout", name="Shout", description="Capital letters.")],
    capabilities=AgentCapabilities(streaming=True),
)


def shouter(url: str) -> Mq9A2AAgent:
    agent = Mq9A2AAgent(server=url)

    @agent.on_message
    async def shout(context: RequestContext, events: EventQueue) -> None:
        assert context.message is not None
        assert context.task_id is not None
        assert context.context_id is not None
        task_id, context_id = context.task_id, context.context_id
        text = context.message.parts[0].text
        await events.enqueue_event(
            context.current_task or new_task_from_user_message(context.message)
        )
        await events.enqueue_event(
            new_text_status_update_event(
                task_id, context_id, TaskState.TASK_STATE_WORKING, "taking a breath"
            )
        )
        if text == "choke":
            raise ValueError("out of breath")
        if text != "wait":
            await events.enqueue_event(
                TaskArtifactUpdateEvent(
                    task_id=task_id,
                    context_id=context_id,
                    artifact=new_text_artifact(name="loud", text=text.upper()),
                )
            )
            await events.enqueue_event(
                TaskStatusUpdateEvent(
                    task_id=task_id,
                    context_id=context_id,
                    status=TaskStatus(state=TaskState.TASK_STATE_COMPLETED),
                )
            )

    return agent


def asked(text: str, task_id: str | None = None) -> SendMessageRequest:
    message = new_text_message(text, task_id=task_id, role=Role.ROLE_USER)
    return SendMessageRequest(message=message)


def shown(message: mq9.Message) -> tuple[str, bool, str]:
    """The type of an event, whether it is the last one, and the state it tells of."""
    state = json.loads(message.payload).get("status", {}).get("state", "")
    last = message.headers.get("mq9-a2a-last") == "true"
    return message.headers["mq9-a2a-type"], last, state.removeprefix("TASK_STATE_")


@asynccontextmanager
async def shouting(url: str) -> AsyncIterator[Mq9A2AAgent]:
    """The agent at work, until the end of the block."""
    agent = shouter(url)
    await agent.connect()
    try:
        assert await agent.register(CARD) == BOX
        yield agent
    finally:
        await agent.close()


async def test_what_its_a2a_demo_does_works(mq9_url: str) -> None:
    """Two agents with mailboxes: one finds the other by meaning and hears what came of a task."""
    heard: asyncio.Queue[tuple[str | None, str]] = asyncio.Queue()
    asker = Mq9A2AAgent(server=mq9_url)

    @asker.on_message(group_name="askers", deliver="earliest", num_msgs=10, max_wait_ms=500)
    async def hear(context: RequestContext, _events: EventQueue) -> None:
        await heard.put((context.task_id, context.get_user_input()))

    agent = shouter(mq9_url)
    await agent.connect()
    assert await agent.create_mailbox(BOX) == BOX
    await agent.register(CARD)
    await asker.connect()
    box = await asker.create_mailbox("demo.asker")
    await asker.register(AgentCard(name="demo.asker", description="Asks other agents."))
    found: list[dict[str, Any]] = []
    async with asyncio.timeout(60):
        # Cards are read one after the other.
        while not found or found[0]["mailbox"] != BOX:
            found = await asker.discover("make a text louder")
    assert found[0]["agent_card"]["skills"][0]["id"] == "shout"
    assert await asker.send_message(found[0]["mailbox"], asked("hello"), reply_to=box) == 0
    async with asyncio.timeout(20):
        first, second = await heard.get(), await heard.get()
    [task] = await asker.list_tasks(found[0])
    assert (first, second) == ((task.id, "taking a breath"), (task.id, "HELLO"))
    assert task.status.state == TaskState.TASK_STATE_COMPLETED
    assert [get_artifact_text(each) for each in task.artifacts] == ["HELLO"]
    for each in (asker, agent):
        await each.unregister()
    assert await asker.discover() == []
    assert await asker.discover("louder", semantic=False) == []
    for each in (asker, agent):
        await each.close()
    async with mq9.Client(mq9_url) as other:
        [group] = (await other.show_mailbox(box)).groups
        assert (group.name, group.pending) == ("askers", 0)


async def test_an_agent_that_only_registers_has_a_mailbox_of_its_name(mq9_url: str) -> None:
    """As in the demo of an earlier version."""
    asker = Mq9A2AAgent(server=mq9_url, mailbox_ttl=60)
    await asker.connect()
    async with shouting(mq9_url):
        assert await asker.send_message(BOX, asked("hello")) == 0
        [task] = await asker.list_tasks(BOX)
        assert await asker.get_task(BOX, task.id) == task
        assert await asker.get_task(BOX, "no-such-task") is None
    await asker.close()


async def test_events_go_to_the_mailbox_that_was_named_and_the_last_says_so(mq9_url: str) -> None:
    async with shouting(mq9_url) as agent, mq9.Client(mq9_url) as other:
        answers = await other.create_mailbox()
        await agent.send_message(BOX, asked("hi"), reply_to=answers)
        await agent.send_message(BOX, asked("choke"), reply_to=answers)
        told: list[tuple[str, bool, str]] = []
        async with asyncio.timeout(20):
            while len(told) < 8:
                told = [shown(each) for each in await other.query(answers)]
        began = [("Task", False, "SUBMITTED"), ("TaskStatusUpdateEvent", False, "WORKING")]
        assert told == [
            *began,
            ("TaskArtifactUpdateEvent", False, ""),
            ("TaskStatusUpdateEvent", False, "COMPLETED"),
            ("TaskStatusUpdateEvent", True, "COMPLETED"),
            *began,
            ("TaskStatusUpdateEvent", True, "FAILED"),
        ]
        states = [task.status.state for task in await agent.list_tasks(BOX)]
        assert states == [TaskState.TASK_STATE_COMPLETED, TaskState.TASK_STATE_FAILED]


async def test_a_task_goes_on_after_a_restart_and_can_be_cancelled_until_it_ends(
    mq9_url: str,
) -> None:
    async def last_after(agent: Mq9A2AAgent, text: str, task_id: str | None = None) -> Task:
        await agent.send_message(BOX, asked(text, task_id))
        return (await agent.list_tasks(BOX))[-1]

    async with shouting(mq9_url) as agent:
        first, second = await last_after(agent, "wait"), await last_after(agent, "wait")
    async with shouting(mq9_url) as agent:
        done = await last_after(agent, "now", first.id)
        assert done.id == first.id
        assert done.status.state == TaskState.TASK_STATE_COMPLETED
        cancelled = await agent.cancel_task(BOX, second.id)
        assert cancelled is not None
        assert cancelled.status.state == TaskState.TASK_STATE_CANCELED
        assert await agent.get_task(BOX, second.id) == cancelled
        ended = await agent.cancel_task(BOX, first.id)
        assert ended == done
        assert [task.id for task in await agent.list_tasks(BOX, page_size=1)] == [second.id]
        assert await agent.cancel_task(BOX, "no-such-task") is None


async def test_what_is_no_request_of_a2a_is_left_out(
    mq9_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with shouting(mq9_url) as agent, mq9.Client(mq9_url) as other:
        await other.send(BOX, "hello?")
        await other.send(BOX, b"\xff")
        await agent.send_message(BOX, asked("hi", task_id="x" * 5000))
        await other.send(BOX, "{}", headers={"mq9-a2a-method": "Dance"})
        await agent.send_message(BOX, asked("hi"))
        assert len(await agent.list_tasks(BOX)) == 1
    assert caplog.text.count("is not A2A") == 3
    assert "'Dance'" in caplog.text


async def test_an_agent_that_does_not_answer_has_nothing(mq9_url: str) -> None:
    async with mq9.Client(mq9_url) as other:
        await other.create_mailbox("asleep")
        agent = Mq9A2AAgent(server=mq9_url, request_timeout=0.3)
        await agent.connect()
        assert await agent.list_tasks("asleep") == []
        assert await agent.get_task({"mailbox": "asleep"}, "x") is None
        await agent.close()
        # Mailboxes for answers are gone.
        assert [each.address for each in await other.list_mailboxes()] == ["asleep"]


def test_the_import_of_the_page() -> None:
    names: dict[str, object] = {}
    exec(blocks("docs/migrate-robustmq.md", "python")[1], names)
    assert names["Mq9A2AAgent"] is Mq9A2AAgent
