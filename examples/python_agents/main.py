"""A team of agents: an editor finds specialists by what they can do and collects their answers.

`python examples/python_agents/main.py` runs all of them in one process, with a broker of its own
unless MQ9_URL says where one is. Shows registration, discovery by meaning, answers to a mailbox
that nobody can guess, priorities and a message that comes later.
"""

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterator

import mq9
from mq9.testing import Broker

SPECIALISTS: dict[str, tuple[str, Callable[[str], str]]] = {
    "counter": ("Counts the words of a text.", lambda text: f"{len(text.split())} words"),
    "shouter": ("Writes a text in capital letters.", str.upper),
    "reverser": ("Writes a text backwards.", lambda text: text[::-1]),
}
QUESTIONS = {
    "how long is this text": "normal",
    "convert to upper case": "urgent",
}
TEAM = ["newsroom-example"]
TEXT = "every agent has a mailbox"


async def specialist(url: str, name: str, ready: asyncio.Event) -> None:
    """Registers, then answers whatever comes until it is cancelled."""
    description, work = SPECIALISTS[name]
    async with mq9.Client(url, name=name) as client:
        await client.create_mailbox(name, ttl=600, exist_ok=True)
        card = {"name": name, "mailbox": name, "description": description, "tags": TEAM}
        await client.register(card)
        ready.set()
        async with client.consume(name, group="agents", deliver="earliest") as requests:
            async for request in requests:
                await client.send(
                    request.headers["reply-to"],
                    work(request.text),
                    headers={"from": name},
                    priority=request.level,
                )
                await client.ack(request)


async def edit(url: str) -> list[str]:
    """Asks the best agent for each question; the answers, the most urgent first."""
    lines = []
    async with mq9.Client(url, name="editor") as client:
        answers = await client.create_mailbox(ttl=600)
        for question, priority in QUESTIONS.items():
            # Agents that have just been registered may not have been read yet.
            while True:
                found = await client.discover(semantic=question, tags=TEAM, limit=1)
                if not found.pending:
                    break
                await asyncio.sleep(0.1)
            [best] = found
            print(f"editor: {question!r} is for {best['name']}")
            await client.send(
                best["mailbox"], TEXT, priority=priority, headers={"reply-to": answers}
            )
        await client.send(answers, "close the edition", delay=1, headers={"from": "the clock"})
        async with client.consume(answers, group="editor", deliver="earliest") as mail:
            async for answer in mail:
                lines.append(f"{answer.headers['from']}: {answer.text}")
                print(lines[-1])
                await client.ack(answer)
                if answer.headers["from"] == "the clock":
                    break
    return lines


async def team(url: str) -> None:
    """All agents until the edition is closed."""
    ready = {name: asyncio.Event() for name in SPECIALISTS}
    agents = [asyncio.create_task(specialist(url, name, ready[name])) for name in SPECIALISTS]
    await asyncio.gather(*(event.wait() for event in ready.values()))
    await edit(url)
    for agent in agents:
        agent.cancel()
    await asyncio.gather(*agents, return_exceptions=True)


@contextlib.contextmanager
def broker() -> Iterator[str]:
    """Where a broker is."""
    if url := os.environ.get("MQ9_URL"):
        yield url
    else:
        with Broker() as own:
            yield own.url


if __name__ == "__main__":
    with broker() as address:
        asyncio.run(team(address))
