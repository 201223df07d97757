"""mq9 and nats-server side by side, both serving JetStream, and what they answer."""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.aio.client import Client
from nats.errors import NoRespondersError
from tests.peers import MQ9, NATS_SERVER, NATS_SERVER_BINARY, Serve, Server

DEADLINE_S = 10.0
VOLATILE = {"type", "ts", "created", "Nats-Time-Stamp", "metadata", "cluster"}
OF_NO_SERVER = {"bytes", "time", "first_ts", "last_ts"}

Asked = tuple[dict[str, str], Any]


def stable(document: Any) -> Any:  # noqa: ANN401
    """Without what differs from one server to the next."""
    if isinstance(document, dict):
        left = VOLATILE | OF_NO_SERVER
        return {name: stable(value) for name, value in document.items() if name not in left}
    return document


async def ask(
    client: Client, subject: str, body: object = b"", headers: dict[str, str] | None = None
) -> Asked:
    """The headers and the JSON or text of the answer, or that nobody answers."""
    payload = body if isinstance(body, bytes) else json.dumps(body).encode()
    try:
        answer = await client.request(subject, payload, timeout=DEADLINE_S, headers=headers)
    except NoRespondersError:
        return {}, "nobody answers"
    said = {str(name): value for name, value in (answer.headers or {}).items()}
    is_json = answer.data.startswith(b"{")
    return stable(said), stable(json.loads(answer.data)) if is_json else answer.data.decode()


def served_in(folder: Path) -> str:
    """What makes either server serve JetStream, with all it keeps in a folder."""
    return f'jetstream {{ store_dir: "{folder}" }}'


@asynccontextmanager
async def side_by_side(
    serve: Serve, folder: Path, *, allow_reconnect: bool = True
) -> AsyncIterator[list[tuple[Server, Client]]]:
    """mq9, then nats-server, each with a client."""
    if not NATS_SERVER_BINARY.exists():
        pytest.skip(f"needs {NATS_SERVER_BINARY.name} next to the interpreter: make setup")
    async with AsyncExitStack() as stack:
        pairs = []
        for kind in (MQ9, NATS_SERVER):
            server = serve(served_in(folder / kind), peer=kind)
            client = await nats.connect(server.url, allow_reconnect=allow_reconnect)
            stack.push_async_callback(client.close)
            pairs.append((server, client))
        yield pairs
