"""What is not carried out is shown by real clients, which stay connected."""

import asyncio

from tests.integration.conftest import Connect
from tests.integration.test_nats_cli import Cli, nats, needs_nats  # noqa: F401
from tests.peers import Server

DEADLINE_S = 10
SUBJECT = "$mq9.AI.MSG.SEND.nobody"


async def test_nats_py_shows_it_and_goes_on(server: Server, connect: Connect) -> None:
    errors: asyncio.Queue[str] = asyncio.Queue()
    lost = []

    async def on_error(error: Exception) -> None:
        await errors.put(str(error).lower())

    async def on_loss() -> None:
        lost.append(True)

    client = await connect(server, error_cb=on_error, disconnected_cb=on_loss)
    for _ in range(3):
        await client.publish(SUBJECT, b"hello")
        told = await asyncio.wait_for(errors.get(), DEADLINE_S)
        assert f'permissions violation for publish to "{SUBJECT.lower()}"' in told
    reply = await client.request("$mq9.AI.MSG.SEND.nobody", b"hello", timeout=DEADLINE_S)
    assert reply.data == b'{"error":"mailbox nobody does not exist","msg_id":-1}'
    assert client.is_connected
    assert lost == []


@needs_nats
def test_the_nats_command_line_shows_it(nats: Cli) -> None:  # noqa: F811
    told = nats("pub", SUBJECT, "hello", code=1)
    assert f'Permissions Violation for Publish to "{SUBJECT}"' in told
    reply = nats("request", "$mq9.AI.MSG.SENT.nobody", "hello")
    assert "unknown command" in reply
