"""The process beside the broker: it may die, hang or be refused, and no message notices."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import psutil
from tests.mail import Mail
from tests.manage.conftest import Manage, Managed, free_port, wait_healthy
from tests.peers import Serve, start, until
from tests.wire import Wire


def process_of(managed: Managed) -> psutil.Process:
    children = psutil.Process(managed.server.pid).children()
    [found] = [child for child in children if "manage" in child.cmdline()]
    return found


def test_it_is_no_client_that_anybody_counts(manage: Manage) -> None:
    managed = manage()
    os.kill(process_of(managed).pid, signal.SIGKILL)
    monitor = managed.server.monitor

    def counted() -> dict[str, int]:
        names = ("connections", "total_connections", "subscriptions", "in_msgs", "out_msgs")
        return {name: monitor("/varz")[name] for name in names}

    # Another one comes: two have been there, and one has gone.
    wait_healthy(managed)
    assert set(counted().values()) == {0}
    assert monitor("/connz?state=any")["connections"] == []
    assert "subscriptions_list" not in monitor("/subsz?subs=1")
    with Wire(managed.server.port) as wire:
        wire.ask(b'CONNECT {"verbose":false}\r\nSUB a 1\r\nPUB a 1\r\nx\r\n')
        assert set(counted().values()) == {1}
        [one] = monitor("/connz")["connections"]
        assert one["cid"] == wire.info["client_id"]
        [heard] = monitor("/subsz?subs=1")["subscriptions_list"]
        assert heard["subject"] == "a"


def test_killed_it_comes_back(manage: Manage) -> None:
    managed = manage()
    first = process_of(managed)
    os.kill(first.pid, signal.SIGKILL)
    with managed.mail() as mail:
        mail.done("MAILBOX.CREATE", {"name": "a"})
        mail.deliver("a", b"x")
    until(lambda: psutil.Process(managed.server.pid).children() != [first], "another one", 30)
    wait_healthy(managed)
    assert process_of(managed).pid != first.pid


def test_stopped_it_holds_nobody_up(manage: Manage) -> None:
    managed = manage()
    found = process_of(managed)
    os.kill(found.pid, signal.SIGSTOP)
    try:
        with managed.mail() as mail:
            mail.done("MAILBOX.CREATE", {"name": "a"})
            for _ in range(200):
                mail.deliver("a", b"x" * 1000)
            assert len(mail.fetch("a", "g", num_msgs=200)) == 200
        # It is ended with the server though it cannot answer.
        assert managed.server.stop() == 0
        assert not psutil.pid_exists(found.pid)
    finally:
        if psutil.pid_exists(found.pid):
            os.kill(found.pid, signal.SIGKILL)


def test_it_ends_with_a_killed_broker_and_follows_the_next(tmp_path: Path) -> None:
    listen, port = free_port(), free_port()
    config = f'mq9 {{ management {{ listen: "127.0.0.1:{listen}" }} }}'
    first = start(tmp_path / "broker", config, port=port)
    managed = Managed(first, f"http://127.0.0.1:{listen}", tmp_path)
    wait_healthy(managed)
    child = process_of(managed)
    os.kill(first.pid, signal.SIGKILL)
    first.process.wait()
    until(lambda: not child.is_running(), "it has ended", 20)
    second = start(tmp_path / "broker", config, port=port)
    try:
        wait_healthy(Managed(second, managed.url, tmp_path))
    finally:
        second.stop()


def test_one_of_its_own_finds_a_broker_again(tmp_path: Path) -> None:
    port, listen = free_port(), free_port()
    broker = start(tmp_path / "broker", port=port)
    command = [sys.executable, "-m", "mq9", "manage", "--nats-url", broker.url]
    with subprocess.Popen([*command, "--listen", f"127.0.0.1:{listen}"]) as process:
        try:
            managed = Managed(broker, f"http://127.0.0.1:{listen}", tmp_path)
            wait_healthy(managed)
            with managed.mail() as mail, managed.client() as client:
                mail.done("MAILBOX.CREATE", {"name": "kept"})
                until(lambda: client.get("/v1/queues").json()["total"], "it is listed")
            os.kill(broker.pid, signal.SIGKILL)
            broker.process.wait()

            def gone() -> bool:
                with managed.client() as client:
                    return bool(client.get("/healthz").status_code == 503)

            until(gone, "it says that the broker is gone", 20)
            with managed.client() as client:
                assert client.get("/v1/state").json()["broker"]["gone_since"]
                assert [row["name"] for row in client.get("/v1/queues").json()["queues"]] == [
                    "kept"
                ]
                assert client.post("/v1/queues/kept/purge").status_code == 503
            broker = start(tmp_path / "broker", port=port)
            wait_healthy(managed)
            with managed.client() as client:
                found = until(
                    lambda: client.get("/v1/queues").json().get("queues"), "the list is back"
                )
            assert [row["name"] for row in found] == ["kept"]
        finally:
            process.terminate()
            process.wait(10)
            broker.stop()


def test_turned_off_there_is_none(serve: Serve) -> None:
    server = serve("mq9 { management: off }")
    assert psutil.Process(server.pid).children() == []


def test_an_address_in_use_is_told(manage: Manage, serve: Serve) -> None:
    managed = manage()
    listen = managed.url.removeprefix("http://")
    second = serve(f'mq9 {{ management {{ listen: "{listen}" }} }}')
    until(lambda: "cannot listen on" in second.log, "it says so", 30)
    with Mail(second.url) as mail:
        mail.done("MAILBOX.CREATE", {"name": "a"})
    assert httpx.get(f"{managed.url}/healthz", timeout=10).status_code == 200


def test_the_age_of_checkpoint_and_export_are_told(manage: Manage, tmp_path: Path) -> None:
    """An export that cannot write falls behind; one that can has all there is."""
    export = tmp_path / "export"
    found = manage(inside=f'export {{ dir: "{export}", every: "100ms" }}\ncheckpoint_size: 1MB')

    def told(name: str) -> float | None:
        with found.client() as client:
            lines = client.get("/metrics").text.splitlines()
        values = [line.rpartition(" ")[2] for line in lines if line.startswith(f"{name} ")]
        return float(values[0]) if values else None

    with found.mail() as mail:
        mail.done("MAILBOX.CREATE", {"name": "a"})
        until(lambda: (told("mq9_export_lag_seconds") or 60) < 10, "the export keeps up", 60)
        assert told("mq9_checkpoint_age_seconds") is None, "there is none yet"
        for _ in range(40):
            mail.deliver("a", b"x" * 100_000)
        until(lambda: told("mq9_checkpoint_age_seconds") is not None, "one was made", 60)
    assert 0 <= (told("mq9_checkpoint_age_seconds") or 0) < 120
