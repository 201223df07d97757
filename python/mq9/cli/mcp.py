"""`mq9 mcp`: mailboxes and the registry as tools of a model. Needs the extra `mcp`."""

import argparse
import asyncio
import importlib.util
import ipaddress
import os
import socket
import sys
from typing import TYPE_CHECKING

from mq9.cli import broker
from mq9.cli.exits import OK, USAGE, Failure

if TYPE_CHECKING:
    from mq9.client import Client
    from mq9.mcp.access import Credentials

_PORT = 8056


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Give the parser this command."""
    mcp = broker.add_command(
        *(commands, "mcp", _mcp),
        help="serve mailboxes as MCP tools, on standard input or over HTTP",
        example="mq9 mcp --inbox assistant.mail\nmq9 mcp --http 127.0.0.1:8056",
        connects=False,
    )
    mcp.add_argument(
        "--http",
        metavar="HOST:PORT",
        nargs="?",
        const=f"127.0.0.1:{_PORT}",
        help=f"serve over HTTP (127.0.0.1:{_PORT}) instead of standard input; port 0 is any",
    )
    mcp.add_argument("--inbox", metavar="ADDRESS", help="the agent's own mailbox; made if missing")
    mcp.add_argument("--group", default="agent", help="group that messages are fetched for (agent)")


def _mcp(arguments: argparse.Namespace) -> int:
    if importlib.util.find_spec("mcp") is None:
        raise Failure("this needs the MCP SDK: pip install 'mq9[mcp]'", USAGE)
    if arguments.http is None:
        return broker.run(_on_standard_input, arguments)
    return _over_http(arguments)


async def _on_standard_input(client: "Client", arguments: argparse.Namespace) -> int:
    from mq9.mcp.server import build

    if arguments.inbox:
        await client.create_mailbox(arguments.inbox, exist_ok=True)

    async def connected() -> "Client":
        return client

    await build(connected, arguments.inbox, arguments.group).run_stdio_async()
    return OK


def _over_http(arguments: argparse.Namespace) -> int:
    options = broker.client_options(arguments)
    server = arguments.server or os.environ.get("MQ9_URL") or broker.DEFAULT_URL
    if "@" in server or any(options[name] for name in ("user", "password", "token", "nkey_seed")):
        raise Failure(
            "over HTTP every caller has credentials of its own, in the header Authorization: leave "
            "out --user, --password, --token, --nkey, their variables and the URL's user",
            USAGE,
        )
    if arguments.inbox:
        raise Failure("--inbox is for one agent, and HTTP has many: they name mailboxes", USAGE)
    from mq9.client import Client
    from mq9.mcp.access import Callers
    from mq9.mcp.server import build, serve_http

    bound = _bound(arguments.http)
    host, port = bound.getsockname()[:2]
    url = f"http://{f'[{host}]' if ':' in host else host}:{port}/mcp"
    print(f"mq9 mcp: serving {url}", file=sys.stderr, flush=True)

    def connect(credentials: "Credentials") -> Client:
        options["user"], options["password"] = credentials.user, credentials.password
        options["token"] = credentials.token
        return Client(server, **options)

    async def serve() -> None:
        callers = Callers(connect, on_loopback=ipaddress.ip_address(host).is_loopback)
        try:
            server = build(callers.client, None, arguments.group, shared=True)
            await serve_http(server, bound)
        finally:
            await callers.close()

    asyncio.run(serve())
    return OK


def _bound(written: str) -> socket.socket:
    host, colon, port = written.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise Failure(f"--http is {written!r}: it must be HOST:PORT", USAGE)
    host = host.strip("[]") or "127.0.0.1"
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, int(port)), family=family)
    except OSError as error:
        raise Failure(f"cannot listen on {written}: {error}", USAGE) from error
