"""The `nats` command line manages streams and consumers, reads messages and measures."""

import json
import re
import subprocess
from pathlib import Path

import pytest
from tests.integration.test_nats_cli import BINARY, DEADLINE_S, Cli, environment, nats, needs_nats
from tests.peers import Serve, Server

pytestmark = needs_nats
__all__ = ["nats"]


@pytest.fixture
def server(serve: Serve) -> Server:
    """What the fixture `nats` talks to."""
    return serve("jetstream { }")


@pytest.fixture
def orders(nats: Cli) -> Cli:
    """A stream of three messages with a consumer."""
    nats("stream", "add", "ORDERS", "--subjects", "orders.>", "--defaults")
    for number in range(3):
        nats("pub", f"orders.{number}", f"order {number}", "--jetstream")
    nats("consumer", "add", "ORDERS", "workers", "--pull", "--defaults")
    return nats


def test_streams(orders: Cli) -> None:
    assert orders("stream", "ls", "--names").split() == ["ORDERS"]
    assert "ORDERS" in orders("stream", "ls")
    info = json.loads(orders("stream", "info", "ORDERS", "--json"))
    assert info["config"]["subjects"] == ["orders.>"]
    assert (info["state"]["messages"], info["state"]["consumer_count"]) == (3, 1)
    said = orders("stream", "info", "ORDERS")
    assert re.search(r"Messages: 3\b", said)
    assert "orders.1" in orders("stream", "subjects", "ORDERS")
    assert "order 1" in orders("stream", "get", "ORDERS", "2")
    assert "order 2" in orders("stream", "get", "ORDERS", "--last-for", "orders.2")
    assert "ORDERS" in orders("stream", "report")
    orders("stream", "edit", "ORDERS", "--max-msgs", "2", "--force")
    assert json.loads(orders("stream", "info", "ORDERS", "--json"))["state"]["first_seq"] == 2
    orders("stream", "rmm", "ORDERS", "2", "--force")
    orders("stream", "purge", "ORDERS", "--force")
    assert json.loads(orders("stream", "info", "ORDERS", "--json"))["state"]["messages"] == 0
    orders("stream", "rm", "ORDERS", "--force")
    assert "No Streams defined" in orders("stream", "ls")


def test_messages_are_shown(orders: Cli, server: Server, tmp_path: Path) -> None:
    """The command pages on a terminal only."""
    assert orders("stream", "ls", "--names").split() == ["ORDERS"]
    shown = subprocess.run(
        ["script", "-qec", f"{BINARY} stream view ORDERS 10", "/dev/null"],
        env=environment(server, tmp_path) | {"TERM": "xterm"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=True,
    ).stdout
    assert [f"order {number}" in shown for number in range(3)] == [True, True, True]


def test_consumers(orders: Cli) -> None:
    assert orders("consumer", "ls", "ORDERS", "--names").split() == ["workers"]
    assert orders("consumer", "next", "ORDERS", "workers", "--raw").strip() == "order 0"
    taken = orders("consumer", "next", "ORDERS", "workers", "--count", "2", "--ack")
    assert "order 1" in taken
    assert "order 2" in taken
    info = json.loads(orders("consumer", "info", "ORDERS", "workers", "--json"))
    assert (info["num_pending"], info["num_ack_pending"]) == (0, 0)
    assert info["delivered"]["stream_seq"] == info["ack_floor"]["stream_seq"] == 3
    assert "Outstanding Acks: 0" in orders("consumer", "info", "ORDERS", "workers")
    assert "workers" in orders("consumer", "report", "ORDERS")
    orders("consumer", "rm", "ORDERS", "workers", "--force")
    assert orders("consumer", "ls", "ORDERS", "--names").split() == []


def test_the_account_is_shown(orders: Cli) -> None:
    output = orders("account", "info")
    assert re.search(r"Streams: 1\b", output)
    assert re.search(r"Consumers: 1\b", output)


def test_what_is_missing_is_said(nats: Cli) -> None:
    assert "stream not found" in nats("request", "$JS.API.STREAM.INFO.NONE", "", "--raw")


@pytest.fixture
def bench(nats: Cli) -> Cli:
    """The command with a stream to measure."""
    nats("stream", "add", "BENCH", "--subjects", "bench.js", "--defaults")

    def run(*arguments: str, code: int = 0) -> str:
        which = ("--stream", "BENCH", "--msgs", "500", "--no-progress")
        return nats("bench", "js", *arguments, *which, code=code)

    return run


@pytest.mark.parametrize("way", [("sync",), ("async", "--batch", "100")])
def test_publishing_is_measured(bench: Cli, nats: Cli, way: tuple[str, ...]) -> None:
    output = bench("pub", *way, "bench.js")
    assert re.search(r"[\d,]+ msgs/sec", output)
    assert json.loads(nats("stream", "info", "BENCH", "--json"))["state"]["messages"] == 500
    refused = bench("pub", *way, "bench.js", "--create", code=1)
    assert "JetStream minimum api level required (10185)" in refused


@pytest.mark.parametrize("way", ["fetch", "consume"])
def test_taking_is_measured(bench: Cli, nats: Cli, way: str) -> None:
    bench("pub", "async", "bench.js")
    nats("consumer", "add", "BENCH", "workers", "--pull", "--defaults")
    output = bench(way, "--consumer", "workers")
    assert re.search(r"[\d,]+ msgs/sec", output)
    info = json.loads(nats("consumer", "info", "BENCH", "workers", "--json"))
    assert info["delivered"]["stream_seq"] == 500
