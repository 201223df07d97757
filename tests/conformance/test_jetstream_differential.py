"""Random sessions of one stream and two consumers: mq9 answers and ends as nats-server does.

Each session is drawn from a number, which a difference names. `MQ9_TEST_SESSIONS=500` runs more of
them, from `MQ9_TEST_FIRST_SESSION` on. What differs on purpose is not drawn: the head of `session`.
"""

import asyncio
import json
import os
import random
from pathlib import Path
from typing import Any

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from tests.conformance.jetstream_pair import side_by_side
from tests.peers import Serve

SESSIONS = int(os.environ.get("MQ9_TEST_SESSIONS", "40"))
FIRST = int(os.environ.get("MQ9_TEST_FIRST_SESSION", "0"))
STEPS = 30
PLAYED_AT_MOST = 3
# What ends by itself ends well before a session looks again, or well behind it.
SHORT_MS, LONG_MS, WAIT_S = 400, 30_000, 1.0
ANSWER_S = 10.0
QUIET_S = 0.3
VOLATILE = {
    *("type", "ts", "bytes", "cluster", "metadata", "created", "time"),
    *("first_ts", "last_ts", "last_active"),
}

Step = tuple[Any, ...]


def consumer(draw: random.Random, name: str, stream: dict[str, Any]) -> Step:
    """A consumer; on a work queue one that may be there beside the other."""
    policies = ["explicit"] if stream["retention"] == "workqueue" else ["explicit"] * 3 + ["none"]
    config: dict[str, Any] = {
        "durable_name": name,
        "name": name,
        "ack_policy": draw.choice(policies),
        "ack_wait": draw.choice([SHORT_MS, LONG_MS]) * 1_000_000,
    }
    if draw.random() < 0.4:
        config["max_deliver"] = draw.randint(1, 3)
    if draw.random() < 0.4:
        config["filter_subject"] = {"c": "s.1", "d": "s.2"}[name]
    return "api", f"CONSUMER.CREATE.S.{name}", {"stream_name": "S", "config": config}


def session(number: int) -> list[Step]:
    """What is done in a session.

    Not drawn, since it differs (decision 26, "Random sessions"): acknowledgement of all messages up
    to one, updates of consumers, purges of a part and of what is empty, and the removal of a
    consumer that may have given up what only interest keeps.
    """
    draw = random.Random(number)
    stream: dict[str, Any] = {
        "name": "S",
        "subjects": ["s.*"],
        "retention": draw.choice(["limits", "workqueue", "interest"]),
        "storage": "memory",
    }
    steps: list[Step] = [("api", "STREAM.CREATE.S", stream)]
    steps += [consumer(draw, name, stream) for name in "cd"]
    kinds = ["publish"] * 6 + ["pull"] * 5 + ["ack"] * 6 + ["wait", "delete", "get", "purge", "end"]
    for _ in range(STEPS):
        match draw.choice(kinds):
            case "publish":
                steps.append(
                    ("publish", f"s.{draw.randint(1, 3)}", draw.choice(["", "", "1", "2"]))
                )
            case "pull":
                steps.append(("pull", draw.choice("ccd"), draw.randint(1, 4)))
            case "ack":
                said = draw.choice(["+ACK", "+ACK", "+ACK", "-NAK", "+WPI", "+TERM"])
                steps.append(("ack", draw.random(), said))
            case "wait":
                steps.append(("wait",))
            case "delete":
                steps.append(("api", "STREAM.MSG.DELETE.S", {"seq": draw.randint(1, 9)}))
            case "get":
                asked = draw.choice([{"seq": draw.randint(1, 9)}, {"last_by_subj": "s.1"}])
                steps.append(("api", "STREAM.MSG.GET.S", asked))
            case "purge" if draw.random() < 0.3 and stream["retention"] == "limits":
                # So that something is there.
                steps += [("publish", "s.1", ""), ("api", "STREAM.PURGE.S", {})]
            case "end" if draw.random() < 0.3:
                name = draw.choice("cd")
                gives_up = "max_deliver" in steps[1 + "cd".index(name)][2]["config"]
                if stream["retention"] != "interest" or not gives_up:
                    steps.append(("api", f"CONSUMER.DELETE.S.{name}", None))
    return steps


def stable(said: Any) -> Any:  # noqa: ANN401
    """Without what no two servers have alike."""
    if isinstance(said, dict):
        return {name: stable(value) for name, value in said.items() if name not in VOLATILE}
    return [stable(value) for value in said] if isinstance(said, list) else said


class Player:
    """Plays sessions on one server."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._published = 0
        self._replies: list[str] = []

    async def begin(self) -> None:
        await self._ask("$JS.API.STREAM.DELETE.S")
        self._published, self._replies = 0, []

    async def play(self, step: Step) -> Any:  # noqa: ANN401
        match step:
            case ("api", name, body):
                text = b"" if body is None else json.dumps(body).encode()
                return await self._ask(f"$JS.API.{name}", text)
            case ("publish", subject, msg_id):
                self._published += 1
                headers = {"Nats-Msg-Id": msg_id} if msg_id else None
                return await self._ask(subject, b"m%d" % self._published, headers)
            case ("pull", name, most):
                return await self._pull(name, most)
            case ("ack", which, said) if self._replies:
                reply = self._replies[int(which * len(self._replies))]
                return await self._ask(reply, said.encode())
            case ("wait",):
                await asyncio.sleep(WAIT_S)
        return None

    async def state(self) -> list[Any]:
        names = ("STREAM.INFO.S", "CONSUMER.INFO.S.c", "CONSUMER.INFO.S.d")
        return [await self._ask(f"$JS.API.{name}") for name in names]

    async def _ask(
        self, subject: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> Any:  # noqa: ANN401
        try:
            answer = await self._client.request(subject, body, timeout=ANSWER_S, headers=headers)
        except nats.errors.NoRespondersError:
            return "nobody"
        if answer.data[:1] == b"{":
            return stable(json.loads(answer.data))
        return dict(answer.headers or {}), answer.data.decode()

    async def _pull(self, name: str, most: int) -> list[Any]:
        inbox = self._client.new_inbox()
        answers = await self._client.subscribe(inbox)
        request = json.dumps({"batch": most, "no_wait": True}).encode()
        subject = f"$JS.API.CONSUMER.MSG.NEXT.S.{name}"
        await self._client.publish(subject, request, reply=inbox)
        came: list[Any] = []
        while len(came) < most:
            try:
                message = await answers.next_msg(timeout=ANSWER_S if not came else QUIET_S)
            except nats.errors.TimeoutError:
                break
            came.append(self._noted(message))
            if not message.reply:
                break
        await answers.unsubscribe()
        await self._client.flush()
        return came

    def _noted(self, message: Msg) -> Any:  # noqa: ANN401
        if not message.reply:
            return dict(message.headers or {})
        self._replies.append(message.reply)
        tokens = message.reply.split(".")
        return [*tokens[:7], tokens[8]], message.data, message.subject


async def compare(number: int, players: list[Player]) -> str:
    """Plays a session; says where it differs first."""
    await asyncio.gather(*(player.begin() for player in players))
    for nth, step in enumerate(session(number)):
        mq9, real = await asyncio.gather(*(player.play(step) for player in players))
        if mq9 == real:
            mq9, real = await asyncio.gather(*(player.state() for player in players))
        if mq9 != real:
            return f"session {number}: {session(number)[: nth + 1]}\nmq9:  {mq9}\nnats: {real}"
    return ""


async def test_random_sessions_go_as_with_nats_server(serve: Serve, tmp_path: Path) -> None:
    differences = []
    async with side_by_side(serve, tmp_path) as pairs:
        players = [Player(client) for _, client in pairs]
        for number in range(FIRST, FIRST + SESSIONS):
            # A busy machine can let time pass for one server and not yet for the other.
            found = [difference := await compare(number, players)]
            while difference and len(found) < PLAYED_AT_MOST:
                found.append(difference := await compare(number, players))
            if difference:
                differences.append(difference)
    assert not differences, f"{len(differences)} of {SESSIONS} differ\n" + "\n".join(differences)
