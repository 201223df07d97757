"""Agents that write to each other through a broker, and remember what became of each message.

Starts `mq9 serve` for the time of the traffic. Knows the client and nothing of Spark.
"""

import asyncio
import json
import random
import subprocess
import sys
from dataclasses import dataclass
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


@dataclass
class Life:
    """What the agents know of a message, in the words of the table `message_lifecycle`."""

    mailbox: str
    msg_id: int
    sender: str
    priority: str
    size: int
    group: str | None = None
    member: str | None = None
    deliveries: int = 0
    returns: int = 0
    outcome: str = "waiting"
    dead_letter_to: str | None = None

    def given(self, member: str) -> None:
        """A worker has it in its hands."""
        self.group, self.member = GROUP, member
        self.deliveries += 1
        self.outcome = "pending"

    def given_up(self) -> None:
        """Nobody will be given it again."""
        self.outcome, self.dead_letter_to = "dead_letter", self.mailbox + DEAD


Lives = dict[tuple[str, int], Life]


def run(folder: Path, messages: int, *, batch: int = BATCH, seed: int = 9) -> list[Life]:
    """Sends so many messages and works through them, `batch` at a time; what became of each.

    The data of the broker is left in `folder`/data.
    """
    folder.mkdir(parents=True)
    flags = ["-a", "127.0.0.1", "-p", "-1", "--ports_file_dir", str(folder)]
    command = [sys.executable, "-m", "mq9", "serve", "--data", str(folder / "data"), *flags]
    with (folder / "broker.log").open("wb") as log:
        broker = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        return asyncio.run(_traffic(broker, folder, messages, batch, random.Random(seed)))
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
    broker: "subprocess.Popen[bytes]",
    folder: Path,
    messages: int,
    batch: int,
    chance: random.Random,
) -> list[Life]:
    lives: Lives = {}
    async with mq9.Client(await _url(broker, folder), timeout=60) as client:
        for agent in AGENTS:
            await client.create_mailbox(agent, max_deliver=MAX_DELIVER, dead_letter=agent + DEAD)
        left = messages
        while left > 0:
            # Some agents get more mail than others.
            to = AGENTS[min(chance.randrange(len(AGENTS)), chance.randrange(len(AGENTS)))]
            amount = min(left, batch)
            left -= amount
            await _send(client, to, amount, chance, lives)
            if chance.random() < 0.9:
                await _work(client, to, batch, chance, lives)
    return list(lives.values())


async def _send(
    client: mq9.Client, to: str, amount: int, chance: random.Random, lives: Lives
) -> None:
    """Mail of many agents for one."""
    senders = [chance.choice(AGENTS) for _ in range(amount)]
    mail = [_message(sender, number, chance) for number, sender in enumerate(senders)]
    ids = await client.send_many(to, mail)
    for msg_id, sender, message in zip(ids, senders, mail, strict=True):
        assert msg_id is not None  # Only what is delayed has none yet.
        lives[to, msg_id] = Life(to, msg_id, sender, str(message.priority), len(message.payload))


def _message(sender: str, number: int, chance: random.Random) -> mq9.NewMessage:
    priority = chance.choice(PRIORITIES)
    if number % 3:
        text = json.dumps({"task": number})
        return mq9.NewMessage(text, priority=priority, headers={"From": sender})
    return mq9.NewMessage(json.dumps({"from": sender, "task": number}), priority=priority)


async def _work(
    client: mq9.Client, mailbox: str, batch: int, chance: random.Random, lives: Lives
) -> None:
    """One round of a worker: most is done, some given back, a little given up or kept."""
    member = f"worker-{chance.randrange(3)}"
    given = await client.fetch(
        mailbox, group=GROUP, member=member, deliver="earliest", max_msgs=batch, max_wait=0
    )
    fates = chance.choices(("ack", "nak", "term", "keep"), (92, 4, 1, 3), k=len(given))
    done, back, poison = [], [], []
    for message, fate in zip(given, fates, strict=True):
        life = lives[mailbox, message.msg_id]
        # What a worker kept and asks for again is the same delivery.
        if message.deliveries > life.deliveries:
            life.given(member)
        # What has been delivered as often as it may be is given up when somebody asks next, which
        # may be never: here nobody leaves it to that.
        last_time = message.deliveries >= MAX_DELIVER
        if fate == "ack":
            done.append(message)
            life.outcome = "acked"
        elif fate == "term" or last_time:
            poison.append(message)
            life.given_up()
        elif fate == "nak":
            back.append(message)
            life.returns += 1
    if done:
        await client.ack(*done, only=True)
    if poison:
        await client.term(*poison)
    if back:
        await client.nak(*back)
