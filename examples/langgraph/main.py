"""A LangGraph agent that has a task done by another agent, which it finds in the registry.

`python examples/langgraph/main.py` runs it with a scripted model, so that no key is needed. With
`--model openai:gpt-5` (or any name that `init_chat_model` of `langchain` takes) a real one decides.
Starts a broker of its own unless MQ9_URL says where one is.
Needs mq9 with the extra `langchain`, and `pip install langgraph`.
"""

import argparse
import contextlib
import json
import os
import threading
from collections.abc import Iterator
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

import mq9.sync
from mq9.langchain import Toolkit
from mq9.testing import Broker

TASK = "Have 'good morning' translated into French by another agent, and tell me what it says."
TEAM = ["langgraph-example"]
DICTIONARY = {"good morning": "bonjour", "thank you": "merci"}


def translate(url: str, ready: threading.Event) -> None:
    """The other agent: registers, answers one request, and ends. It is no model at all."""
    try:
        with mq9.sync.Client(url) as client:
            client.create_mailbox("translator", ttl=600, exist_ok=True)
            client.register(
                {
                    "name": "translator",
                    "mailbox": "translator",
                    "description": "Translates short English phrases into French.",
                    "tags": TEAM,
                }
            )
            ready.set()
            with client.consume("translator", group="translators", deliver="earliest") as requests:
                for request in requests:
                    answer = DICTIONARY.get(request.text.lower(), "I do not know that phrase.")
                    client.send(request.headers["mq9-reply-to"], answer)
                    client.ack(request)
                    return
    finally:
        # Nobody waits for an agent that has failed.
        ready.set()


def scripted(state: MessagesState) -> dict[str, list[AIMessage]]:
    """What a model would decide: discover, make a mailbox, ask, wait, acknowledge, answer."""
    results = [
        json.loads(str(message.content))
        for message in state["messages"]
        if isinstance(message, ToolMessage)
    ]
    steps: list[tuple[str, dict[str, Any]]] = [
        ("discover_agents", {"task": "translate English into French", "tags": TEAM}),
        ("create_mailbox", {"ttl_seconds": 600}),
    ]
    if len(results) >= 2:
        whom, answers = results[0]["agents"][0]["address"], results[1]["address"]
        steps += [
            ("send_message", {"address": whom, "body": "good morning", "reply_to": answers}),
            ("wait_for_mail", {"address": answers}),
        ]
    if len(results) >= 4:
        [answer] = results[3]["messages"]
        steps += [("acknowledge_messages", {"address": answers, "msg_ids": [answer["msg_id"]]})]
    if len(results) == len(steps):
        return {"messages": [AIMessage(f"The translator says: {answer['body']}")]}
    name, arguments = steps[len(results)]
    call = {"name": name, "args": arguments, "id": str(len(results)), "type": "tool_call"}
    return {"messages": [AIMessage("", tool_calls=[call])]}


def run(url: str, model: str | None) -> str:
    """The agent's last words."""
    with Toolkit(url) as toolkit:
        tools = toolkit.get_tools()
        decide: Any = scripted
        if model is not None:
            from langchain.chat_models import init_chat_model

            bound = init_chat_model(model).bind_tools(tools)
            decide = lambda state: {"messages": [bound.invoke(state["messages"])]}  # noqa: E731
        graph = StateGraph(MessagesState)
        graph.add_node("decide", decide)
        graph.add_node("tools", ToolNode(tools))
        graph.add_edge(START, "decide")
        graph.add_conditional_edges("decide", tools_condition, {"tools": "tools", END: END})
        graph.add_edge("tools", "decide")
        given: Any = {"messages": [HumanMessage(TASK)]}
        for step in graph.compile().stream(given, stream_mode="updates"):
            for message in (m for update in step.values() for m in update["messages"]):
                message.pretty_print()
        return str(message.content)


@contextlib.contextmanager
def broker() -> Iterator[str]:
    """Where a broker is."""
    if url := os.environ.get("MQ9_URL"):
        yield url
    else:
        with Broker() as own:
            yield own.url


def main() -> None:
    """Both agents, until the task is done."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", help="a model that decides, instead of the script")
    arguments = parser.parse_args()
    with broker() as url:
        ready = threading.Event()
        # If the conversation fails, nobody asks it, and it does not keep the program.
        other = threading.Thread(target=translate, args=(url, ready), daemon=True)
        other.start()
        ready.wait()
        run(url, arguments.model)
        other.join()


if __name__ == "__main__":
    main()
