"""Clients of nats-py that are closed when the test ends, and certificates."""

import asyncio
import itertools
import ssl
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any, Protocol

import pytest
import trustme
from nats.aio.client import Client
from tests.peers import Server

import mq9

_numbers = itertools.count()


class Connect(Protocol):
    """Connects a client of nats-py; options are those of `nats.connect`."""

    def __call__(self, server: Server | str, **options: Any) -> Awaitable[Client]: ...  # noqa: ANN401


async def ignore(_error: Exception) -> None:
    """Errors that a test expects would otherwise be printed by nats-py."""


async def settled(*clients: Client) -> None:
    """Returns when the server has seen all that the clients have said."""
    for client in clients:
        # The PING of nats-py overtakes commands that it has not written yet; the second does not.
        await client.flush()
        await client.flush()


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    clients: list[Client] = []

    async def connect(server: Server | str, **options: Any) -> Client:  # noqa: ANN401
        url = server if isinstance(server, str) else server.url
        defaults: dict[str, Any] = {
            "error_cb": ignore,
            "allow_reconnect": False,
            "connect_timeout": 10,
        }
        client = Client()
        clients.append(client)
        await client.connect(url, **(defaults | options))
        return client

    yield connect
    for client in clients:
        await client.close()
        # A client that was refused forgets to close its socket.
        if client._transport is not None:
            client._transport.close()  # type: ignore[no-untyped-call]
    await asyncio.sleep(0)


@pytest.fixture
async def client(server: Server) -> AsyncIterator[mq9.Client]:
    """A client of mq9 on the shared server."""
    async with mq9.Client(server.url) as client:
        yield client


@pytest.fixture
async def inbox(client: mq9.Client) -> str:
    """A mailbox of its own for a test."""
    return await client.create_mailbox(f"inbox.{next(_numbers)}")


class Certificates:
    """An authority, a server of that authority and its clients, as files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = trustme.CA()
        self.ca_file = folder / "ca.pem"
        self.authority.cert_pem.write_to_path(str(self.ca_file))
        server = self.authority.issue_cert("localhost", "127.0.0.1")
        self.cert_file, self.key_file = folder / "server.pem", folder / "server.key"
        server.private_key_pem.write_to_path(str(self.key_file))
        for number, blob in enumerate(server.cert_chain_pems):
            blob.write_to_path(str(self.cert_file), append=number > 0)

    def config(self, *settings: str) -> str:
        """A `tls` block."""
        files = f'cert_file: "{self.cert_file}", key_file: "{self.key_file}"'
        return f"tls {{ {', '.join([files, *settings])} }}\n"

    def trusting(self, identity: str | None = None, **names: Any) -> ssl.SSLContext:  # noqa: ANN401
        """A client that trusts the authority and, with an identity, has a certificate of it."""
        context = ssl.create_default_context()
        self.authority.configure_trust(context)
        if identity is not None:
            self.authority.issue_cert(identity, **names).configure_cert(context)
        return context


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))
