"""Traffic through a broker, and what its clients know of it: what was answered, what is in doubt.

Senders, workers and deletions, with keys, tags, headers, TTLs, delays, returned messages.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from mq9.client import Client, Message
from mq9.errors import MessageNotFound, Mq9Error

MAILBOXES = ("jobs", "notes", "queue")
DEAD = "graveyard"
GROUP = "workers"
_PRIORITIES = ("critical", "urgent", "normal", "notify", 2, 10)


@dataclass
class Sent:
    """A message as its sender knows it."""

    address: str
    payload: bytes
    priority: str
    key: str | None
    tags: tuple[str, ...]
    headers: tuple[tuple[str, str], ...]
    is_delayed: bool
    has_ttl: bool
    msg_id: int | None = None


@dataclass
class Traffic:
    """What clients know."""

    url: str
    answered: dict[bytes, Sent] = field(default_factory=dict)
    """By payload, each of which is different."""
    in_doubt: dict[bytes, Sent] = field(default_factory=dict)
    delivered: Counter[tuple[str, int, int]] = field(default_factory=Counter)
    """Mailbox, id and count of deliveries."""
    acked: set[tuple[str, int]] = field(default_factory=set)
    returned: Counter[tuple[str, int]] = field(default_factory=Counter)
    given_up: set[tuple[str, int]] = field(default_factory=set)
    deleted: set[tuple[str, int]] = field(default_factory=set)
    doubtful: set[tuple[str, str, int]] = field(default_factory=set)
    """Kind, mailbox and id of what was asked for and not answered."""
    round: int = 0

    def create(self) -> None:
        """The mailboxes that the traffic goes through."""
        asyncio.run(_to_the_end(self._create()))

    async def _create(self) -> None:
        async with Client(self.url) as client:
            await client.create_mailbox("jobs", max_deliver=2, dead_letter=DEAD, ack_wait=60)
            await client.create_mailbox("notes", ack_wait=60)
            await client.create_mailbox("queue", retention="work_queue", ack_wait=60)

    def run(self, *, senders: int = 8, messages: int = 40, workers: int = 2) -> None:
        """So many senders with so many messages each; ends early if the broker does."""
        asyncio.run(_to_the_end(self._run(senders, messages, workers)))

    async def _run(self, senders: int, messages: int, workers: int) -> None:
        self.round += 1
        done = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for number in range(workers):
                group.create_task(self._quietly(partial(self._work, f"w{number}", done)))
            sending = [
                group.create_task(self._quietly(partial(self._send, number, messages)))
                for number in range(senders)
            ]
            await asyncio.wait(sending)
            done.set()

    async def _quietly(self, work: Callable[[Client], Awaitable[None]]) -> None:
        async with Client(self.url) as client:
            try:
                await work(client)
            except Mq9Error:
                # The broker was killed. Who waits for it to be back leaves nothing behind.
                await client.query(MAILBOXES[0], limit=1)

    async def _send(self, sender: int, messages: int, client: Client) -> None:
        dice = random.Random(self.round * 1000 + sender)
        for number in range(messages):
            sent = self._make(dice, sender, number)
            options: dict[str, Any] = {"delay": 1 if sent.is_delayed else 0}
            options["ttl"] = 2 if sent.has_ttl else 0
            self.in_doubt[sent.payload] = sent
            level = int(sent.priority) if sent.priority.isdecimal() else sent.priority
            sent.msg_id = await client.send(
                sent.address,
                sent.payload,
                priority=level,
                key=sent.key,
                tags=sent.tags,
                headers=dict(sent.headers),
                **options,
            )
            self.answered[sent.payload] = self.in_doubt.pop(sent.payload)
            if sent.msg_id is not None and dice.random() < 0.05:
                await self._delete(client, sent.address, sent.msg_id)

    def _make(self, dice: random.Random, sender: int, number: int) -> Sent:
        address = dice.choice(MAILBOXES)
        size = dice.choice((0, 10, 1000))
        # Not all of it is text.
        payload = f"{self.round}.{sender}.{number} ".encode() + dice.randbytes(size)
        return Sent(
            address=address,
            payload=payload,
            priority=str(dice.choice(_PRIORITIES)),
            key=f"k{dice.randrange(5)}" if address == "notes" and dice.random() < 0.3 else None,
            tags=tuple(dice.sample(("red", "green", "blue"), dice.randrange(3))),
            headers=(("Trace", f"{sender}-{number}"), ("Lang", "ça"))
            if dice.random() < 0.5
            else (),
            is_delayed=dice.random() < 0.05,
            has_ttl=dice.random() < 0.05,
        )

    async def _delete(self, client: Client, address: str, msg_id: int) -> None:
        self.doubtful.add(("delete", address, msg_id))
        try:
            await client.delete(address, msg_id)
        except MessageNotFound:
            pass
        else:
            self.deleted.add((address, msg_id))
        self.doubtful.discard(("delete", address, msg_id))

    async def _work(self, member: str, done: asyncio.Event, client: Client) -> None:
        dice = random.Random(f"{self.round}{member}")
        while True:
            idle = True
            for address in MAILBOXES:
                batch = await client.fetch(
                    address,
                    group=GROUP,
                    member=member,
                    deliver="earliest",
                    max_msgs=7,
                    max_wait=0.02,
                )
                for message in batch:
                    self.delivered[address, message.msg_id, message.deliveries] += 1
                for message in batch:
                    idle = False
                    await self._finish(client, message, dice)
            if idle and done.is_set():
                return

    async def _finish(self, client: Client, message: Message, dice: random.Random) -> None:
        what = (message.address, message.msg_id)
        choice = dice.random()
        kind = "nak" if choice < 0.1 else "dead_letter" if choice < 0.15 else "ack"
        if kind == "nak" and (message.deliveries > 1 and message.address != "jobs"):
            kind = "ack"
        self.doubtful.add((kind, *what))
        if kind == "ack":
            await client.ack(message, only=True)
            self.acked.add(what)
        elif kind == "nak":
            await client.nak(message)
            self.returned[what] += 1
        else:
            await client.term(message)
            self.given_up.add(what)
        self.doubtful.discard((kind, *what))


async def _to_the_end(work: Awaitable[None]) -> None:
    """Sockets are closed in the round of the event loop after the one that was told to."""
    await work
    for _ in range(3):
        await asyncio.sleep(0)
