"""A broker with its management process, and clients of its REST interface."""

import os
import shutil
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.mail import Mail
from tests.peers import Serve, Server, until

OPERATORS = """
authorization {
  users = [
    { user: boss, password: boss-pw, permissions: { publish: [">", "$mq9.AI.ADMIN.>"] } }
    { user: eyes, password: eyes-pw, permissions: { publish: [
        "$mq9.AI.ADMIN.ACTIVITY", "$mq9.AI.ADMIN.ACCESS", "$mq9.AI.ADMIN.SERVER.>",
        "$mq9.AI.ADMIN.MAILBOX.SHOW.>", "$mq9.AI.ADMIN.MAILBOX.LIST", "$mq9.AI.ADMIN.DEAD.RESOLVED",
        "$mq9.AI.MSG.QUERY.>", "$mq9.AI.AGENT.DISCOVER"
    ] } }
    { user: agent, password: agent-pw }
  ]
}
"""


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def needed(program: str, found: str | None = None) -> str:
    """Where a program is that tests need; CI has it, or the test fails."""
    found = found or shutil.which(program)
    if found is None:
        assert not os.environ.get("CI"), f"{program} is not installed: make chromium"
        pytest.skip(f"needs {program}: make chromium")
    return found


@dataclass
class Managed:
    """A broker and where its management listens."""

    server: Server
    url: str
    audit: Path

    def client(self, **options: Any) -> httpx.Client:  # noqa: ANN401
        return httpx.Client(base_url=self.url, timeout=20, **options)

    def mail(self, user: str = "") -> Mail:
        url = self.server.url
        return Mail(url.replace("//", f"//{user}:{user}-pw@") if user else url)


Manage = Callable[..., Managed]


def managed(
    serve: Serve,
    folder: Path,
    config: str = "",
    port: int = -1,
    host: str = "127.0.0.1",
    more: str = "",
    inside: str = "",
) -> Managed:
    """Start a broker; returns when its management process follows it.

    `more` stands in its `management` block, `inside` beside that.
    """
    listen, audit = free_port(), folder / f"audit{free_port()}.jsonl"
    block = f'management {{ listen: "{host}:{listen}", audit_file: "{audit}", {more} }}'
    server = serve(f"{config}\nmq9 {{ {block}\n{inside} }}\n", port=port)
    found = Managed(server, f"http://127.0.0.1:{listen}", audit)
    wait_healthy(found)
    return found


def wait_healthy(found: Managed) -> None:
    def healthy() -> bool:
        try:
            return httpx.get(f"{found.url}/healthz", timeout=10).status_code == 200
        except httpx.TransportError:
            return False

    until(healthy, "management follows the broker", 60)


@pytest.fixture
def manage(serve: Serve, tmp_path: Path) -> Manage:
    return lambda config="", port=-1, **more: managed(serve, tmp_path, config, port, **more)


@pytest.fixture(scope="session")
def plain(serve_for_session: Serve, tmp_path_factory: pytest.TempPathFactory) -> Managed:
    """A broker that asks nobody who they are."""
    return managed(serve_for_session, tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="session")
def guarded(serve_for_session: Serve, tmp_path_factory: pytest.TempPathFactory) -> Managed:
    """A broker with operators who may steer (boss), look (eyes), and an agent."""
    return managed(serve_for_session, tmp_path_factory.mktemp("guarded"), OPERATORS)


@pytest.fixture
def api(plain: Managed) -> Iterator[httpx.Client]:
    with plain.client() as client:
        yield client


@pytest.fixture
def mail(plain: Managed) -> Iterator[Mail]:
    with plain.mail() as mail:
        yield mail
