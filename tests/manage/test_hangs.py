"""A broker that hangs, and does not die: it takes connections and answers nobody."""

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.manage.conftest import OPERATORS, Managed, free_port, wait_healthy
from tests.peers import start, until

ASKERS = 12
# Prometheus waits no longer.
PATIENCE_S = 10.0
# Rights that were told so long ago are asked for again.
ROLE_S = 10.0


@pytest.fixture
def apart(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Managed]:
    """A broker, and its management as a process of its own."""
    config = f"{request.param}\nmq9 {{ management: off }}"
    listen = free_port()
    broker = start(tmp_path / "broker", config)
    url = broker.url.replace("//", "//boss:boss-pw@") if request.param else broker.url
    command = [sys.executable, "-m", "mq9", "manage", "--nats-url", url]
    with subprocess.Popen([*command, "--listen", f"127.0.0.1:{listen}"]) as process:
        try:
            found = Managed(broker, f"http://127.0.0.1:{listen}", tmp_path)
            wait_healthy(found)
            yield found
        finally:
            process.terminate()
            process.wait(10)
            broker.signal(signal.SIGCONT)
            broker.stop()


async def ask_often(managed: Managed, paths: list[str], auth: tuple[str, str] | None) -> list[str]:
    """What so many who ask at once are told, each over a connection of their own."""

    async def ask(path: str) -> str:
        async with httpx.AsyncClient(base_url=managed.url, timeout=PATIENCE_S) as client:
            answer = await client.get(path, auth=auth)
        return answer.text if answer.status_code == 200 else f"{answer.status_code} {answer.text}"

    return list(await asyncio.gather(*(ask(path) for path in paths)))


@pytest.mark.parametrize("apart", ["", OPERATORS], ids=["open", "guarded"], indirect=True)
def test_all_who_look_are_told_that_it_hangs(
    apart: Managed, request: pytest.FixtureRequest
) -> None:
    auth = None if "open" in request.node.name else ("eyes", "eyes-pw")
    paths = ["/v1/state", "/metrics", "/v1/queues"] * (ASKERS // 3)
    # The first has the password tried.
    assert [each[:1] for each in asyncio.run(ask_often(apart, paths[:1], auth))] == ["{"]
    apart.server.signal(signal.SIGSTOP)
    end = time.monotonic() + ROLE_S + 2
    told: list[str] = []
    while time.monotonic() < end:
        told = asyncio.run(ask_often(apart, paths, auth))
        assert [each[:80] for each in told if each[0] not in "{#"] == []
    assert '"gone_since":null' not in told[0]
    assert "mq9_up 0.0" in told[1]
    apart.server.signal(signal.SIGCONT)
    wait_healthy(apart)
    [found] = asyncio.run(ask_often(apart, ["/v1/state"], auth))
    assert '"gone_since":null' in found


@pytest.mark.parametrize("apart", [""], ids=["open"], indirect=True)
def test_who_wants_what_only_the_broker_knows_is_told_and_waits_for_no_other(
    apart: Managed,
) -> None:
    with apart.mail() as mail:
        mail.done("MAILBOX.CREATE", {"name": "desk"})
    with apart.client() as client:
        until(lambda: client.get("/v1/queues/desk").status_code == 200, "it is known")
    apart.server.signal(signal.SIGSTOP)
    told = asyncio.run(ask_often(apart, ["/v1/queues/desk/messages"] * ASKERS, None))
    # Those who come when it is known to be gone wait for one attempt to connect, not one each.
    told += asyncio.run(ask_often(apart, ["/v1/queues/desk/messages"] * ASKERS, None))
    assert {each[:3] for each in told} == {"503"}
