"""What Python costs: calls of the client against a real broker, and calls of the binding.

Run by `make bench-python`, not by `make test`. Where one call at a time is waited for, a hundred
are measured together: to start and stop the event loop would otherwise be part of each.
"""

import asyncio
import os
import sys
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, Literal

import nats_runs
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

import mq9
from mq9.store import Store

SIZE = 128
PAYLOAD = b"x" * SIZE
ROUNDS = 5 if os.environ.get("QUICK") else 200
ONE_BY_ONE, MANY, BATCH = 100, 1000, 100

Run = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """On the disk of the project: the folder of temporary files may be in memory."""
    place = nats_runs.ROOT / ".build"
    place.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="python-", dir=place) as name:
        yield Path(name)


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    """Runs a coroutine to its end, always on the same loop."""
    loop = asyncio.new_event_loop()
    yield loop.run_until_complete
    loop.close()


@pytest.fixture(scope="module")
def client(folder: Path, run: Run) -> Iterator[mq9.Client]:
    """A client of a broker that syncs in intervals, so that the disk is not what is measured."""
    command = [sys.executable, "-m", "mq9", "serve", "--sync", "interval"]
    with nats_runs.running(command, folder) as server:
        client = run(mq9.connect(f"nats://{server.address}"))
        yield client
        run(client.close())


@pytest.fixture
def mailbox(client: mq9.Client, run: Run) -> str:
    """A new mailbox of the broker."""
    address: str = run(client.create_mailbox())
    return address


@pytest.fixture
def store(folder: Path) -> Iterator[Store]:
    """A store in this process with a mailbox that is called a."""
    with (
        tempfile.TemporaryDirectory(dir=folder) as name,
        Store(Path(name) / "store", sync="interval") as store,
    ):
        store.create_mailbox("a")
        yield store


def measure(
    benchmark: BenchmarkFixture,
    what: str,
    messages: int,
    call: Callable[..., Any],
    setup: Callable[[], Any] | None = None,
) -> None:
    """Calls it over and over; `setup` goes before each call and does not count."""
    benchmark.extra_info.update(what=what, messages=messages)
    pedantic: Callable[..., Any] = benchmark.pedantic
    pedantic(call, setup=setup, rounds=ROUNDS, warmup_rounds=2)


def test_client_send(
    benchmark: BenchmarkFixture, client: mq9.Client, mailbox: str, run: Run
) -> None:
    async def send() -> None:
        for _ in range(ONE_BY_ONE):
            await client.send(mailbox, PAYLOAD)

    what = f"`Client.send`, {ONE_BY_ONE} calls one after the other"
    measure(benchmark, what, ONE_BY_ONE, lambda: run(send()))


def test_client_send_many(
    benchmark: BenchmarkFixture, client: mq9.Client, mailbox: str, run: Run
) -> None:
    messages = [PAYLOAD] * MANY
    what = f"`Client.send_many` of {MANY:,}"
    measure(benchmark, what, MANY, lambda: run(client.send_many(mailbox, messages)))


@pytest.mark.parametrize("form", ["raw", "json"])
def test_client_fetch_and_ack(
    benchmark: BenchmarkFixture,
    client: mq9.Client,
    mailbox: str,
    run: Run,
    form: Literal["raw", "json"],
) -> None:
    async def take() -> None:
        messages = await client.fetch(
            mailbox, group="workers", deliver="earliest", max_msgs=BATCH, format=form
        )
        assert len(messages) == BATCH
        await client.ack(messages[-1])

    def fill() -> None:
        run(client.send_many(mailbox, ["x" * SIZE] * BATCH))

    what = f"`Client.fetch` of {BATCH} ({form}) and `ack`"
    measure(benchmark, what, BATCH, lambda: run(take()), fill)


def test_store_send(benchmark: BenchmarkFixture, store: Store) -> None:
    def send() -> None:
        for _ in range(ONE_BY_ONE):
            store.send("a", PAYLOAD)

    measure(benchmark, f"`Store.send`, {ONE_BY_ONE} calls", ONE_BY_ONE, send)


def test_store_append_many(benchmark: BenchmarkFixture, store: Store) -> None:
    messages = [PAYLOAD] * MANY
    what = f"`Store.append_many` of {MANY:,}"
    measure(benchmark, what, MANY, lambda: store.append_many("a", messages))


def test_store_fetch_and_ack(benchmark: BenchmarkFixture, store: Store) -> None:
    def take() -> None:
        messages = store.fetch("a", group="g", deliver="earliest", max_msgs=BATCH)
        assert len(messages) == BATCH
        store.ack("a", "g", [messages[-1].msg_id])

    def fill() -> None:
        store.append_many("a", [PAYLOAD] * BATCH)

    measure(benchmark, f"`Store.fetch` of {BATCH} and `ack`", BATCH, take, fill)
