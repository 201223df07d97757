"""`mq9.testing`: waiting for mail, brokers that end with their tests, and what failures say."""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.peers import until

import mq9
import mq9.sync
from mq9.errors import BrokerUnavailable
from mq9.testing import Broker, BrokerDied, NotInTime, mail, wait_for_mail, wait_until_done


def test_mail_is_looked_at_and_left_for_its_group(
    mq9_broker: Broker, mq9_client: mq9.sync.Client
) -> None:
    mq9_client.create_mailbox("inbox")
    mq9_client.send("inbox", "one")
    mq9_client.send("inbox", "two", key="k")
    for _ in range(2):
        assert [m.text for m in mq9_broker.mail("inbox")] == ["one", "two"]
        [two] = mq9_broker.wait_for_mail("inbox", where=lambda m: m.key == "k")
        assert two.text == "two"
    given = mq9_client.fetch("inbox", group="g", deliver="earliest")
    assert [(m.text, m.deliveries) for m in given] == [("one", 1), ("two", 1)]


@pytest.mark.parametrize("number", [1, 2])
def test_a_test_finds_nothing_of_the_one_before(
    mq9_broker: Broker, mq9_client: mq9.sync.Client, number: int
) -> None:
    assert mq9_broker.mail("inbox") == []
    assert mq9_client.discover() == []
    mq9_client.create_mailbox("inbox")
    mq9_client.register({"mailbox": "inbox", "name": f"agent {number}"})
    assert mq9_client.send("inbox", f"{number}") == 0


def test_a_test_may_kill_the_broker(mq9_broker: Broker) -> None:
    mq9_broker.kill()
    assert not mq9_broker.running


def test_the_next_finds_it_running_and_empty(
    mq9_broker: Broker, mq9_client: mq9.sync.Client
) -> None:
    mq9_client.create_mailbox("inbox")
    assert mq9_broker.mail("inbox") == []
    assert mq9_broker._process is not None
    mq9_broker._process.kill()
    mq9_broker._process.wait()


def test_a_broker_that_is_never_started_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    broker = Broker()
    assert (broker.log, broker.running) == ("", False)
    assert list(tmp_path.iterdir()) == []


async def test_waiting_for_many_reads_each_of_them_a_few_times(mq9_url: str) -> None:
    read = 0

    class Counting(mq9.Client):
        async def query(self, *given: Any, **named: Any) -> list[mq9.Message]:  # noqa: ANN401
            nonlocal read
            found = await super().query(*given, **named)
            read += len(found)
            return found

    async with Counting(mq9_url) as client:
        await client.create_mailbox("many")
        waiting = asyncio.create_task(wait_for_mail(client, "many", count=300, timeout=60))
        for number in range(299):
            await client.send("many", str(number), key="last" if number > 290 else None)
        # Of a key only the newest is there, though all were seen as they came.
        assert not waiting.done()
        await client.send_many("many", ["x"] * 10)
        assert len(await waiting) >= 300
    assert read < 300 * 6


def test_a_client_without_a_url_finds_the_broker(mq9_url: str) -> None:
    with mq9.sync.Client() as client:
        client.create_mailbox("here")
    with mq9.sync.Client(mq9_url) as client:
        assert [one.address for one in client.list_mailboxes()] == ["here"]


async def test_waiting_ends_when_the_last_of_them_comes(mq9_url: str) -> None:
    async with mq9.Client(mq9_url) as client:
        waiting = asyncio.create_task(wait_for_mail(client, "late", count=3, timeout=20))
        await asyncio.sleep(0.05)
        await client.create_mailbox("late")
        await client.send("late", "1")
        await client.send("late", "2", delay=0.2)
        assert not waiting.done()
        await client.send("late", "3", priority="urgent")
        assert [m.text for m in await waiting] == ["1", "3", "2"]
        assert len(await mail(client, "late")) == 3


async def test_what_does_not_come_in_time_fails_with_what_is_there(mq9_url: str) -> None:
    async with mq9.Client(mq9_url) as client:
        with pytest.raises(NotInTime, match=r"inbox has 0 of 1 messages after 0\.1 s; it holds no"):
            await wait_for_mail(client, "inbox", timeout=0.1)
        await client.create_mailbox("inbox")
        await client.send_many("inbox", [f"message {n}" for n in range(7)])
        expected = r"0 of 1 messages like these .*\n  2 older ones\n  2 \(normal\): 'message 2'\n"
        with pytest.raises(NotInTime, match=expected):
            await wait_for_mail(client, "inbox", where=lambda m: m.text == "other", timeout=0.1)


async def test_a_group_is_done_when_it_has_acknowledged_all(mq9_url: str) -> None:
    async with mq9.Client(mq9_url) as client:

        async def left() -> str:
            with pytest.raises(NotInTime) as failure:
                await wait_until_done(client, "tasks", "workers", timeout=0)
            return str(failure.value)

        assert "no such mailbox" in await left()
        await client.create_mailbox("tasks")
        await client.send_many("tasks", ["a", "b"])
        assert "nobody has fetched" in await left()
        [a] = await client.fetch("tasks", group="workers", deliver="earliest", max_msgs=1)
        assert "1 not fetched and 1 not acknowledged" in await left()
        await client.ack(a)
        [b] = await client.fetch("tasks", group="workers")
        assert "0 not fetched and 1 not acknowledged" in await left()
        done = asyncio.create_task(wait_until_done(client, "tasks", "workers", timeout=20))
        await client.ack(b)
        await done


async def test_a_call_that_would_stop_the_event_loop_says_what_to_use(mq9_broker: Broker) -> None:
    with pytest.raises(RuntimeError, match=r"await mq9\.testing\.wait_for_mail"):
        mq9_broker.wait_for_mail("inbox")


def test_a_broker_keeps_port_and_mail_over_a_restart_and_nothing_over_its_end() -> None:
    broker = Broker("max_payload: 2048")
    with broker:
        url, folder = broker.url, broker._folder
        with mq9.sync.Client(url) as client:
            client.create_mailbox("inbox")
            client.send("inbox", "kept")
        broker.restart()
        assert broker.url == url
        assert [m.text for m in broker.mail("inbox")] == ["kept"]
        assert broker.environment["MQ9_URL"] == url
        assert "sync=none" in broker.log
    assert not folder.exists()
    with pytest.raises(RuntimeError, match="does not run"):
        _ = broker.url
    with pytest.raises(BrokerUnavailable):
        mq9.sync.Client(url).connect()


def test_a_broker_that_cannot_start_says_why() -> None:
    with pytest.raises(BrokerDied, match="expected a whole number"), Broker("max_payload: lots"):
        pass


def test_a_broker_ends_with_the_program_that_started_it(tmp_path: Path) -> None:
    code = (
        "import time; from mq9.testing import Broker\n"
        f"with Broker(folder={str(tmp_path)!r}) as broker:\n"
        "    print(broker._process.pid, flush=True)\n"
        "    time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        pid = int(program.stdout.readline())
        assert psutil.pid_exists(pid)
        os.kill(program.pid, signal.SIGKILL)
    until(lambda: not psutil.pid_exists(pid), "the broker has ended", 20)


def test_a_broker_that_starts_again_has_no_more_beside_it(tmp_path: Path) -> None:
    with Broker(folder=tmp_path) as broker:
        url = broker.url
        for again in (broker.restart, broker.kill):
            again()
            if not broker.running:
                broker.start()
            assert broker.url == url
            assert "management" not in broker.log
    # Whoever wants it says so, and may write the log elsewhere.
    log = tmp_path / "elsewhere.log"
    wanted = f"log_file: {str(log)!r}\nmq9 {{ management {{ listen: '127.0.0.1:1' }} }}"
    with Broker(wanted, folder=tmp_path) as broker:
        until(lambda: "management" in log.read_text("utf-8"), "a word of management")
        broker.restart()
        until(
            lambda: "management" in log.read_text("utf-8").rpartition("Server Exiting")[2],
            "another one",
        )
