"""The `nats` command line works with the server as with any other."""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import pytest
from tests.peers import Serve, Server, until

ROOT = Path(__file__).parents[2]
BINARY = ROOT / ".build" / "go" / "bin" / "nats"
DEADLINE_S = 30

needs_nats = pytestmark = pytest.mark.skipif(
    not BINARY.exists(), reason="needs the nats command line: make nats-cli (builds it with Go)"
)


class Cli(Protocol):
    """Runs `nats`; its output, with errors in it."""

    def __call__(self, *arguments: str, code: int = 0) -> str: ...


def environment(server: Server, folder: Path) -> dict[str, str]:
    # Nothing of the user's own contexts.
    kept = {key: value for key, value in os.environ.items() if not key.startswith("NATS_")}
    return kept | {"NATS_URL": server.url, "HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}


@pytest.fixture
def nats(server: Server, tmp_path: Path) -> Cli:
    def run(*arguments: str, code: int = 0) -> str:
        done = subprocess.run(
            [BINARY, *arguments],
            env=environment(server, tmp_path),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        assert done.returncode == code, done.stdout
        return done.stdout

    return run


@contextmanager
def listening(
    server: Server, folder: Path, subject: str, *arguments: str
) -> Iterator[subprocess.Popen[str]]:
    """A `nats` that runs in the background; begins when its subscription is there."""

    def subscriptions() -> int:
        listed = server.monitor("/subsz?subs=1").get("subscriptions_list", [])
        return sum(each["subject"] == subject for each in listed)

    before = subscriptions()
    with subprocess.Popen(
        [BINARY, *arguments],
        env=environment(server, folder),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            until(lambda: subscriptions() > before, f"nats listens on {subject}", DEADLINE_S)
            yield process
        finally:
            process.terminate()


def test_pub_and_sub(nats: Cli, server: Server, tmp_path: Path) -> None:
    with listening(server, tmp_path, "cli.a", "sub", "cli.a", "--count", "3", "--raw") as sub:
        published = nats("pub", "cli.a", "message {{Count}}", "--count", "3")
        assert published.count('Published 9 bytes to "cli.a"') == 3
        output, _ = sub.communicate(timeout=DEADLINE_S)
        assert sub.returncode == 0
        assert output.splitlines() == ["message 1", "message 2", "message 3"]


def test_headers(nats: Cli, server: Server, tmp_path: Path) -> None:
    with listening(server, tmp_path, "cli.h", "sub", "cli.h", "--count", "1") as sub:
        nats("pub", "cli.h", "body", "-H", "Trace:4711")
        output, _ = sub.communicate(timeout=DEADLINE_S)
        assert "Trace: 4711" in output
        assert "body" in output


def test_request_and_reply(nats: Cli, server: Server, tmp_path: Path) -> None:
    service = ("reply", "cli.svc", "got {{Request}}", "--count", "1")
    with listening(server, tmp_path, "cli.svc", *service) as reply:
        assert nats("request", "cli.svc", "ping", "--raw").strip() == "got ping"
        output, _ = reply.communicate(timeout=DEADLINE_S)
        assert 'Received on subject "cli.svc"' in output


def test_a_request_without_responders(nats: Cli) -> None:
    assert "No responders are available" in nats("request", "cli.nobody", "ping")


def test_rtt(nats: Cli, server: Server) -> None:
    [answer] = json.loads(nats("rtt", "--json"))
    assert answer["url"] == server.url
    [result] = answer["results"]
    assert 0 < result["rtt"] < 1_000_000_000


def test_check_connection(nats: Cli) -> None:
    output = nats("server", "check", "connection")
    assert output.startswith("OK Connection OK:connected to ")
    assert "round trip took" in output


def test_account_info(nats: Cli) -> None:
    output = nats("account", "info")
    assert re.search(r"Account: \$G\n", output)
    assert "JetStream is not supported in this account" in output


def test_bench_pub(nats: Cli, server: Server) -> None:
    before = server.monitor("/varz")["in_msgs"]
    output = nats("bench", "pub", "cli.bench", "--msgs", "5000", "--size", "128", "--no-progress")
    assert re.search(r"publisher stats: [\d,]+ msgs/sec", output)
    until(lambda: server.monitor("/varz")["in_msgs"] - before >= 5000, "all were counted")


def test_bench_sub(nats: Cli, server: Server, tmp_path: Path) -> None:
    bench = ("bench", "sub", "cli.bench2", "--msgs", "5000", "--no-progress")
    with listening(server, tmp_path, "cli.bench2", *bench) as sub:
        nats("bench", "pub", "cli.bench2", "--msgs", "5000", "--size", "128", "--no-progress")
        output, _ = sub.communicate(timeout=DEADLINE_S)
        assert re.search(r"subscriber stats: [\d,]+ msgs/sec", output)


def test_bench_service(nats: Cli, server: Server, tmp_path: Path) -> None:
    serving = ("bench", "service", "serve", "cli.bench3", "--no-progress")
    with listening(server, tmp_path, "cli.bench3", *serving):
        output = nats("bench", "service", "request", "cli.bench3", "--msgs", "500", "--no-progress")
        assert re.search(r"[\d,]+ msgs/sec", output)


def test_credentials(serve: Serve, tmp_path: Path) -> None:
    server = serve("authorization { user: ada, password: lovelace }\n")
    for password, code in (("lovelace", 0), ("wrong", 1)):
        done = subprocess.run(
            [BINARY, "--user", "ada", "--password", password, "pub", "cli.b", "x"],
            env=environment(server, tmp_path),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        assert done.returncode == code
        assert ("Authorization Violation" in done.stderr) is bool(code)
