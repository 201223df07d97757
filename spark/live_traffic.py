"""Agents that write to each other through a broker, and remember what became of each message.

Starts `mq9 serve` for the time of the traffic. Knows the client and nothing of Spark.
"""

import asyncio
import json
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import mq9
from mq9.errors import BrokerUnavailable

ROLES = ("planner", "coder", "tester", "writer", "search", "review")
AGENTS = tuple(f"agent.{role}" for role in ROLES)
DEAD = ".dead"
PRIORITIES = ("critical", "urgent", "normal", "normal", "normal", "notify")
GROUP = "workers"
BATCH = 200
MAX_DELIVER = 3
START_DEADLINE_S = 30.0


def run(folder: Path, messages: int, seed: int = 9) -> Counter[str]:
    """Sends and works through so many messages with the data in `folder`/data; the outcomes."""
    folder.mkdir(parents=True)
    flags = ["-a", "127.0.0.1", "-p", "-1", "--ports_file_dir", str(folder)]
    command = [sys.executable, "-m", "mq9", "serve", "--data", str(folder / "data"), *flags]
    with (folder / "broker.log").open("wb") as log:
        broker = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        return asyncio.run(_traffic(broker, folder, messages, random.Random(seed)))
    finally:
        broker.terminate()
        broker.wait(60)


def _ports(broker: "subprocess.Popen[bytes]", folder: Path) -> str | None:
    """Where the broker says that it listens; None if it has not said so yet."""
    if broker.poll() is not None:
        log = (folder / "broker.log").read_text("utf-8", "replace")
        raise RuntimeError(f"the broker ended with {broker.returncode}:\n{log}")
    for file in folder.glob(f"*_{broker.pid}.ports"):
        try:
            url: str = json.loads(file.read_text("utf-8"))["nats"][0]
        except ValueError:
            return None  # Half written.
        return url
    return None


async def _url(broker: "subprocess.Popen[bytes]", folder: Path) -> str:
    """Where the broker listens, as soon as it does."""
    async with asyncio.timeout(START_DEADLINE_S):
        while True:
            if url := _ports(broker, folder):
                try:
                    async with mq9.Client(url):
                        return url
                except BrokerUnavailable:
                    pass  # Said before done.
            await asyncio.sleep(0.05)


async def _traffic(
    broker: "subprocess.Popen[bytes]", folder: Path, messages: int, chance: random.Random
) -> Counter[str]:
    outcomes: Counter[str] = Counter()
    async with mq9.Client(await _url(broker, folder), timeout=60) as client:
        for agent in AGENTS:
            await client.create_mailbox(agent, max_deliver=MAX_DELIVER, dead_letter=agent + DEAD)
        left = messages
        while left > 0:
            # Some agents get more mail than others.
            to = AGENTS[min(chance.randrange(len(AGENTS)), chance.randrange(len(AGENTS)))]
            amount = min(left, BATCH)
            left -= amount
            await client.send_many(to, [_message(chance, n) for n in range(amount)])
            outcomes["waiting"] += amount
            if chance.random() < 0.9:
                await _work(client, to, chance, outcomes)
    return outcomes


def _message(chance: random.Random, number: int) -> mq9.NewMessage:
    sender = chance.choice(AGENTS)
    priority = chance.choice(PRIORITIES)
    if number % 3:
        text = json.dumps({"task": number})
        return mq9.NewMessage(text, priority=priority, headers={"From": sender})
    return mq9.NewMessage(json.dumps({"from": sender, "task": number}), priority=priority)


async def _work(
    client: mq9.Client, mailbox: str, chance: random.Random, outcomes: Counter[str]
) -> None:
    """One round of a worker: most is done, some given back, a little given up or kept."""
    member = f"worker-{chance.randrange(3)}"
    given = await client.fetch(
        mailbox, group=GROUP, member=member, deliver="earliest", max_msgs=BATCH, max_wait=0
    )
    # Of those that were held before, the outcome is counted as pending already.
    outcomes["waiting"] -= sum(message.deliveries == 1 for message in given)
    outcomes["pending"] += sum(message.deliveries == 1 for message in given)
    fates = chance.choices(("ack", "nak", "term", "keep"), (92, 4, 1, 3), k=len(given))
    # What has been delivered as often as it may be is given up when somebody asks next, which may
    # be never: here nobody leaves it to that.
    fates = [
        "term" if message.deliveries >= MAX_DELIVER and fate != "ack" else fate
        for message, fate in zip(given, fates, strict=True)
    ]
    done = [m for m, fate in zip(given, fates, strict=True) if fate == "ack"]
    back = [m for m, fate in zip(given, fates, strict=True) if fate == "nak"]
    poison = [m for m, fate in zip(given, fates, strict=True) if fate == "term"]
    if done:
        await client.ack(*done, only=True)
    if poison:
        await client.term(*poison)
    if back:
        await client.nak(*back)
    outcomes["acked"] += len(done)
    outcomes["dead_letter"] += len(poison)
    outcomes["pending"] -= len(done) + len(poison)
