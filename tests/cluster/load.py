"""Clients of a cluster under faults, what they were told, and whether it is true at the end.

Senders: plain ones, one that repeats each message under its id until it is confirmed, one with
keys, one with delays, one of jobs of which every fifth becomes a dead letter, one to an inbox.
"""

import asyncio
import json
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from mq9.cluster.local import LocalCluster

_PLAIN = 3
_WORKERS = 2
_KEYS = 20
_POISON = 5
_ACK_WAIT_S = 5
_KEPT = ("box", "ids", "later", "alice")
_CREATE = (
    {"name": "box", "ack_wait": _ACK_WAIT_S},
    {"name": "ids", "dedup_window": 3600},
    {"name": "keys"},
    {"name": "later", "dedup_window": 3600},
    {
        "name": "jobs",
        "dedup_window": 3600,
        "ack_wait": _ACK_WAIT_S,
        "max_deliver": 6,
        "dead_letter": "jobs.dead",
    },
    {"name": "alice"},
)


@dataclass
class Ledger:
    """What clients were told."""

    fault: int = 0
    """Counts faults: what was told is put down to the last one."""
    sent: dict[str, dict[str, int]] = field(default_factory=lambda: defaultdict(dict))
    """Mailbox, message, and the fault after which it was confirmed."""
    acked: set[str] = field(default_factory=set)
    got: set[str] = field(default_factory=set)
    again: Counter[int] = field(default_factory=Counter)
    pushed: Counter[str] = field(default_factory=Counter)
    given: dict[object, int] = field(default_factory=dict)
    """Per connection and mailbox, the last message that its group was given for the first time."""
    late: list[str] = field(default_factory=list)
    newest: dict[str, int] = field(default_factory=dict)
    """Per key, the newest that was confirmed."""
    last_confirmed: float = 0.0
    gap_s: float = 0.0

    def confirm(self, mailbox: str, uid: str) -> None:
        """A message is stored."""
        if mailbox == "box":
            now = time.monotonic()
            if self.last_confirmed:
                self.gap_s = max(self.gap_s, now - self.last_confirmed)
            self.last_confirmed = now
        self.sent[mailbox][uid] = self.fault

    def give(self, connection: object, messages: list[dict[str, Any]]) -> None:
        """A group was given these, over a connection that ends when the lead changes."""
        for message in messages:
            number, uid = message["msg_id"], message["payload"]
            if message["deliveries"] == 1 and uid not in self.got:
                if number < self.given.get(connection, 0):
                    self.late.append(uid)
                self.given[connection] = number
            self.got.add(uid)

    def confirmed(self) -> int:
        """How many messages."""
        return sum(map(len, self.sent.values()))


@dataclass
class Verdict:
    """What was promised and is not so, by the fault it was promised after."""

    lost: Counter[int] = field(default_factory=Counter)
    doubled: Counter[int] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def lose(self, mailbox: str, missing: set[str], ledger: Ledger) -> None:
        """Confirmed messages that are nowhere."""
        if missing:
            self.wrong.append(f"{mailbox}: {len(missing)} are gone, such as {min(missing)}")
            self.lost.update(ledger.sent[mailbox][uid] for uid in missing)

    def double(self, mailbox: str, found: list[str], ledger: Ledger) -> None:
        """Messages that are there more than once."""
        twice = [uid for uid, count in Counter(found).items() if count > 1]
        if twice:
            self.wrong.append(f"{mailbox}: {len(twice)} are there twice, such as {min(twice)}")
            self.doubled.update(ledger.sent[mailbox].get(uid, 0) for uid in twice)


class Load:
    """All clients, until they are told to stop."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self._stop = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._inbox: Client | None = None
        self.ledger = Ledger()

    async def client(self) -> Client:
        """A client that knows all nodes."""
        return await nats.connect(
            servers=[node.url for node in self._cluster.nodes],
            reconnect_time_wait=0.1,
            max_reconnect_attempts=-1,
            connect_timeout=1,
            ping_interval=1,
            max_outstanding_pings=2,
        )

    async def start(self) -> None:
        """Make mailboxes, and begin."""
        first = await self.client()
        for settings in _CREATE:
            await until_done(first, "MAILBOX.CREATE", json.dumps(settings).encode())
        for mailbox in ("box", "jobs"):
            await until_done(first, f"MSG.FETCH.{mailbox}", _fetch(0))
        await first.close()
        self._inbox = await self.client()
        await self._inbox.subscribe("$mq9.AI.INBOX.alice.*", cb=self._pushed)
        work = [self._send_plain(number) for number in range(_PLAIN)]
        work += [self._repeat("ids", {}), self._repeat("later", {"mq9-delay-ms": "1500"})]
        work += [self._repeat("jobs", {}), self._send_keys(), self._send_to_inbox()]
        work += [self._work("box") for _ in range(_WORKERS)]
        work += [self._work("jobs")]
        self._tasks = [asyncio.create_task(one) for one in work]

    async def until_confirmed(self, count: int) -> None:
        """Wait until so many messages are confirmed."""
        for _ in range(1200):
            if self.ledger.confirmed() >= count:
                return
            await asyncio.sleep(0.05)
        raise RuntimeError(f"{self.ledger.confirmed()} messages are confirmed, not {count}")

    async def stop(self) -> None:
        """End them."""
        self._stop.set()
        await asyncio.gather(*self._tasks)

    async def close(self) -> None:
        """End the one that listens as well."""
        if self._inbox is not None:
            await self._inbox.close()

    async def _pushed(self, message: Msg) -> None:
        self.ledger.pushed[message.data.decode()] += 1

    async def _send_plain(self, sender: int) -> None:
        """Each message once: what has no answer may be stored."""
        client, number = await self.client(), 0
        while not self._stop.is_set():
            number += 1
            uid = f"{sender}-{number}"
            if await _is_done(client, "MSG.SEND.box", uid.encode()):
                self.ledger.confirm("box", uid)
        await client.close()

    async def _repeat(self, mailbox: str, headers: dict[str, str]) -> None:
        """Each message under its id until it is confirmed: it is there once."""
        client, number = await self.client(), 0
        while not self._stop.is_set():
            number += 1
            uid = f"{mailbox}-{number}"
            with_id = {**headers, "mq9-id": uid}
            while not await _is_done(client, f"MSG.SEND.{mailbox}", uid.encode(), with_id):
                pass
            self.ledger.confirm(mailbox, uid)
            await asyncio.sleep(0.01)
        await client.close()

    async def _send_keys(self) -> None:
        client, number = await self.client(), 0
        while not self._stop.is_set():
            number += 1
            key = f"k{number % _KEYS}"
            if await _is_done(client, "MSG.SEND.keys", str(number).encode(), {"mq9-key": key}):
                self.ledger.newest[key] = number
            await asyncio.sleep(0.01)
        await client.close()

    async def _send_to_inbox(self) -> None:
        client, number = await self.client(), 0
        while not self._stop.is_set():
            number += 1
            if await _is_done(client, "MSG.SEND.alice", f"alice-{number}".encode()):
                self.ledger.confirm("alice", f"alice-{number}")
            await asyncio.sleep(0.01)
        await client.close()

    async def _work(self, mailbox: str) -> None:
        client = await self.client()
        while not self._stop.is_set():
            await self._take(client, mailbox, 200)
        await client.close()

    async def _take(self, client: Client, mailbox: str, wait_ms: int) -> int:
        """Fetch, acknowledge each by itself, and give back what is poison; how many there were."""
        ledger = self.ledger
        known = set(ledger.acked)
        answer = await _ask(client, f"MSG.FETCH.{mailbox}", _fetch(wait_ms))
        if answer is None or answer.get("error"):
            await asyncio.sleep(0.02)
            return -1
        given = {message["msg_id"]: message["payload"] for message in answer["messages"]}
        ledger.again[ledger.fault] += sum(uid in known for uid in given.values())
        ledger.give((client, client.stats["reconnects"], mailbox), answer["messages"])
        for kind in ("ack", "nak"):
            ids = [one for one, uid in given.items() if _is_poison(uid) == (kind == "nak")]
            body = {"group_name": "g", "msg_ids": ids, "only": True, "kind": kind}
            if ids and await _is_done(client, f"MSG.ACK.{mailbox}", json.dumps(body).encode()):
                ledger.acked.update(given[one] for one in ids if kind == "ack")
        return len(given)

    async def check(self) -> Verdict:
        """Whether all that was promised is so."""
        client, ledger, verdict = await self.client(), self.ledger, Verdict()
        for mailbox in ("box", "jobs"):
            until, idle = time.monotonic() + 60, 0
            while idle < 1 and time.monotonic() < until:
                # What somebody held and did not acknowledge has come back by then.
                taken = await self._take(client, mailbox, (_ACK_WAIT_S + 1) * 1000)
                idle = idle + 1 if taken == 0 else 0
        found = {mailbox: await contents(client, mailbox) for mailbox in _KEPT}
        for mailbox, there in found.items():
            verdict.lose(mailbox, ledger.sent[mailbox].keys() - set(there), ledger)
            verdict.double(mailbox, there, ledger)
        self._check_groups(verdict)
        await self._check_pushes(verdict)
        # What was not confirmed may lie in a connection that is cut, and come late.
        self._check_order([uid for uid in found["box"] if uid in ledger.sent["box"]], verdict)
        await self._check_keys(client, verdict)
        await self._check_dead_letters(client, verdict)
        await client.close()
        return verdict

    def _check_groups(self, verdict: Verdict) -> None:
        ledger = self.ledger
        for mailbox in ("box", "jobs"):
            kept = ledger.sent[mailbox].keys() - ledger.got
            if kept:
                text = f"{mailbox}: {len(kept)} were not delivered, such as {min(kept)}"
                verdict.wrong.append(text)
                verdict.lost.update(ledger.sent[mailbox][uid] for uid in kept)
        if ledger.late:
            text = f"{len(ledger.late)} were given to a group behind later ones"
            verdict.wrong.append(f"{text}, such as {ledger.late[0]}")
        if again := ledger.again.total():
            verdict.wrong.append(f"{again} came again after their ACK was confirmed")
            verdict.doubled += ledger.again

    async def _check_pushes(self, verdict: Verdict) -> None:
        sent = self.ledger.sent["alice"]
        missed = set(sent)
        for _ in range(200):
            missed -= self.ledger.pushed.keys()
            if not missed:
                return
            await asyncio.sleep(0.1)
        verdict.wrong.append(f"alice: {len(missed)} were not pushed, such as {min(missed)}")
        verdict.lost.update(sent[uid] for uid in missed)

    @staticmethod
    def _check_order(found: list[str], verdict: Verdict) -> None:
        order: dict[str, int] = defaultdict(int)
        for uid in found:
            sender, number = uid.split("-")
            if int(number) < order[sender]:
                verdict.wrong.append(f"{uid} lies behind a later one of its sender")
            order[sender] = int(number)

    async def _check_keys(self, client: Client, verdict: Verdict) -> None:
        # Of each key the newest is left; one without an answer may have come behind it.
        newest: dict[str, int] = {}
        for payload in await contents(client, "keys"):
            number = int(payload)
            key = f"k{number % _KEYS}"
            if key in newest:
                verdict.wrong.append(f"keys: {key} is there twice")
            newest[key] = number
        behind = {k: n for k, n in self.ledger.newest.items() if newest.get(k, 0) < n}
        if behind:
            verdict.wrong.append(f"keys: {behind} were confirmed, and older ones are there")

    async def _check_dead_letters(self, client: Client, verdict: Verdict) -> None:
        jobs = self.ledger.sent["jobs"]
        poison = {uid for uid in jobs if _is_poison(uid)}
        dead: list[str] = []
        for _ in range(100):
            dead = await contents(client, "jobs.dead")
            if poison <= set(dead):
                break
            await self._take(client, "jobs", 200)
        verdict.lose("jobs", poison - set(dead), self.ledger)
        verdict.double("jobs", dead, self.ledger)
        if done := self.ledger.acked & set(dead):
            verdict.wrong.append(f"jobs: {len(done)} were acknowledged, and are dead letters")

    def pushes(self) -> tuple[int, int]:
        """How many confirmed messages the inbox has, and how many of them were pushed twice."""
        sent, pushed = self.ledger.sent["alice"], self.ledger.pushed
        return len(sent), sum(1 for uid in sent if pushed[uid] > 1)


def _is_poison(uid: str) -> bool:
    name, _, number = uid.partition("-")
    return name == "jobs" and int(number) % _POISON == 0


def _fetch(wait_ms: int) -> bytes:
    config = {"num_msgs": 50, "max_wait_ms": wait_ms}
    return json.dumps({"group_name": "g", "deliver": "earliest", "config": config}).encode()


async def contents(client: Client, mailbox: str) -> list[str]:
    """The payloads of all messages, in order."""
    found: list[str] = []
    after = 0
    while True:
        config = {"num_msgs": 5000, "max_wait_ms": 0}
        body = {"deliver": "from_id", "from_id": after, "config": config}
        page = await until_done(client, f"MSG.FETCH.{mailbox}", json.dumps(body).encode())
        if not page["messages"]:
            return found
        found += [message["payload"] for message in page["messages"]]
        after = page["messages"][-1]["msg_id"] + 1


async def _ask(
    client: Client, command: str, body: bytes, headers: dict[str, str] | None = None
) -> dict[str, Any] | None:
    patience_s = 1.0 if command.startswith("MSG.SEND") else 8.0
    try:
        answer = await client.request(
            f"$mq9.AI.{command}", body, timeout=patience_s, headers=headers
        )
    except (TimeoutError, NatsError, ConnectionError):
        return None
    found: dict[str, Any] = json.loads(answer.data)
    return found


async def _is_done(
    client: Client, command: str, body: bytes, headers: dict[str, str] | None = None
) -> bool:
    answer = await _ask(client, command, body, headers)
    if answer is not None and not answer.get("error"):
        return True
    await asyncio.sleep(0.02)
    return False


async def until_done(client: Client, command: str, body: bytes) -> dict[str, Any]:
    """The answer of a command that is asked until it is carried out."""
    for _ in range(600):
        answer = await _ask(client, command, body)
        if answer is not None and not answer.get("error"):
            return answer
        await asyncio.sleep(0.05)
    raise RuntimeError(f"{command} was never done")
