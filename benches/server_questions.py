"""Single questions to servers, over NATS and to Redis, outside of what is measured."""

import asyncio
import json
import socket
from collections.abc import Sequence
from typing import Any

import nats
import nats.errors
from nats_runs import BenchError

ASK_SECONDS = 20


def ask(address: str, subject: str, body: dict[str, Any]) -> dict[str, Any]:
    """The reply to one request over NATS, in JSON."""
    reply: dict[str, Any] = json.loads(ask_bytes(address, subject, body))
    return reply


def ask_bytes(address: str, subject: str, body: dict[str, Any]) -> bytes:
    """The reply to one request over NATS.

    By hand, because JetStream sends messages under the subject that they were published to.
    """

    async def request() -> bytes:
        client = await nats.connect(f"nats://{address}", connect_timeout=ASK_SECONDS)
        try:
            inbox = client.new_inbox()
            subscription = await client.subscribe(inbox)
            await client.publish(subject, json.dumps(body).encode(), reply=inbox)
            return (await subscription.next_msg(ASK_SECONDS)).data
        finally:
            await client.close()

    try:
        return asyncio.run(request())
    except nats.errors.Error as error:
        raise BenchError(f"{subject}: {error}") from None


def ask_all(address: str, questions: Sequence[tuple[str, dict[str, Any]]]) -> list[dict[str, Any]]:
    """The replies to all of these requests, over one connection."""

    async def request() -> list[dict[str, Any]]:
        client = await nats.connect(f"nats://{address}", connect_timeout=ASK_SECONDS)
        try:
            replies = [
                await client.request(subject, json.dumps(body).encode(), timeout=ASK_SECONDS)
                for subject, body in questions
            ]
        finally:
            await client.close()
        return [json.loads(reply.data) for reply in replies]

    try:
        return asyncio.run(request())
    except nats.errors.Error as error:
        raise BenchError(f"{questions[0][0]}: {error}") from None


def expect(reply: dict[str, Any], **members: Any) -> None:  # noqa: ANN401
    """The reply must have these members."""
    if any(reply.get(name) != value for name, value in members.items()):
        raise BenchError(f"a server answered {reply}, not {members}")


def redis_ask(address: str, command: str) -> str:
    """The first line of the reply to a Redis command."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=ASK_SECONDS) as connection:
        connection.sendall(f"{command}\r\n".encode())
        with connection.makefile("rb") as replies:
            return replies.readline().decode().strip()


def redis_answers(address: str) -> bool:
    """Whether a Redis server serves: it accepts connections before it has read its files."""
    try:
        return redis_ask(address, "PING") == "+PONG"
    except OSError:
        return False


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
