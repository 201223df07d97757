"""Agents that write to each other through a broker, and remember what became of each message.

Starts `mq9 serve` for the time of the traffic. Knows the client and nothing of Spark.
"""

import asyncio
import json
import random
import subprocess
import sys
from collections.abc import Sequence
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
    reply_to: str | None = None
    correlation: str | None = None
    conversation: str | None = None
    tokens: int | None = None
    cost: int | None = None
    """In millionths."""

    def given(self, member: str) -> None:
        """A worker has it in its hands."""
        self.group, self.member = GROUP, member
        self.deliveries += 1
        self.outcome = "pending"

    def given_up(self) -> None:
        """Nobody will be given it again."""
        self.outcome, self.dead_letter_to = "dead_letter", self.mailbox + DEAD


Lives = dict[tuple[str, int], Life]


@dataclass(frozen=True)
class Mail:
    """What one agent has to say to another: a request, an answer, or neither."""

    sender: str
    to: str
    headers: dict[str, str]


TALKS = 3
"""So few conversations that agents send each of them round and round."""


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
    # Answers that are owed.
    owed: list[Mail] = []
    async with mq9.Client(await _url(broker, folder), timeout=60) as client:
        for agent in AGENTS:
            await client.create_mailbox(agent, max_deliver=MAX_DELIVER, dead_letter=agent + DEAD)
        left = messages
        while left > 0:
            answers, owed = owed[:left], []
            for to in sorted({mail.to for mail in answers}):
                await _send(client, to, [mail for mail in answers if mail.to == to], chance, lives)
            left -= len(answers)
            # Some agents get more mail than others.
            to = AGENTS[min(chance.randrange(len(AGENTS)), chance.randrange(len(AGENTS)))]
            amount = min(left, batch)
            left -= amount
            senders = [chance.choice(AGENTS) for _ in range(amount)]
            mail = [_mail(sender, to, number, chance) for number, sender in enumerate(senders)]
            await _send(client, to, mail, chance, lives)
            if chance.random() < 0.9:
                owed = await _work(client, to, batch, chance, lives)
    return list(lives.values())


def _mail(sender: str, to: str, number: int, chance: random.Random) -> Mail:
    """Some mail asks for an answer, some says what it cost, some is about nothing in particular."""
    headers = {}
    if number % 2:
        headers["mq9-conversation-id"] = f"talk-{number % TALKS}"
        headers["mq9-tokens"] = str(chance.randrange(1000))
    if number % 5 == 0:
        headers["mq9-cost"] = f"{chance.randrange(1000) / 1000:.3f}"
    if number % 4 == 0 and sender != to:
        headers["mq9-reply-to"] = sender
        headers["mq9-correlation-id"] = f"request-{chance.getrandbits(64):x}"
    return Mail(sender, to, headers)


async def _send(
    client: mq9.Client, to: str, mail: Sequence[Mail], chance: random.Random, lives: Lives
) -> None:
    """Mail of many agents for one."""
    if not mail:
        return
    sent = [_message(each, number, chance) for number, each in enumerate(mail)]
    ids = await client.send_many(to, sent)
    for msg_id, each, message in zip(ids, mail, sent, strict=True):
        assert msg_id is not None  # Only what is delayed has none yet.
        says = each.headers.get
        correlation, tokens, cost = (
            says(f"mq9-{name}") for name in ("correlation-id", "tokens", "cost")
        )
        lives[to, msg_id] = Life(
            to,
            msg_id,
            each.sender,
            str(message.priority),
            len(message.payload),
            reply_to=says("mq9-reply-to"),
            correlation=correlation,
            conversation=says("mq9-conversation-id", correlation),
            tokens=None if tokens is None else int(tokens),
            cost=None if cost is None else round(float(cost) * 1_000_000),
        )


def _message(mail: Mail, number: int, chance: random.Random) -> mq9.NewMessage:
    priority = chance.choice(PRIORITIES)
    if number % 3:
        text = json.dumps({"task": number})
        headers = mail.headers | {"From": mail.sender}
        return mq9.NewMessage(text, priority=priority, headers=headers)
    text = json.dumps({"from": mail.sender, "task": number})
    return mq9.NewMessage(text, priority=priority, headers=mail.headers)


async def _work(
    client: mq9.Client, mailbox: str, batch: int, chance: random.Random, lives: Lives
) -> list[Mail]:
    """One round of a worker: most is done, some given back, a little given up or kept.

    The answers to requests that are done.
    """
    member = f"worker-{chance.randrange(3)}"
    given = await client.fetch(
        mailbox, group=GROUP, member=member, deliver="earliest", max_msgs=batch, max_wait=0
    )
    fates = chance.choices(("ack", "nak", "term", "keep"), (92, 4, 1, 3), k=len(given))
    done, back, poison, answers = [], [], [], []
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
            if life.reply_to and life.correlation:
                says = {"mq9-correlation-id": life.correlation}
                answers.append(Mail(mailbox, life.reply_to, says))
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
    return answers
