"""Delays and lifetimes: exact across a restart, and never a burden to others."""

import logging
import select
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.mail import Mail, payloads
from tests.peers import until
from tests.restarts import Restarting

from mq9.store import NewMessage, Store

EXACT_S = 0.1
# The broker's clock counts whole milliseconds.
CLOCK_S = 0.002

# A file of the log is full at this size.
SEGMENT_BYTES = 64 << 20
MEGABYTE = 1_000_000

MESSAGES = 100_000
SAMPLE_S = 0.001
GOAL_S = 0.020
# A quiet run on a busy machine may be slow already: then this many times as slow is tolerated.
TOLERANCE = 5
# What stalls only now and then is the machine, not the expiry.
ATTEMPTS = 3
# Time to fill the store and start the broker; twice as much where that is not enough.
LIVE_MS = 5000


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Restarting]:
    running = Restarting(tmp_path)
    try:
        yield running
    finally:
        running.stop()


def test_delays_and_lifetimes_are_exact_after_a_crash(broker: Restarting) -> None:
    """An answer before the time never shows the change; a question 100 ms after it always does."""
    with broker.connect() as mail:
        mail.done("MAILBOX.CREATE", {"name": "box"})
        started = time.monotonic()
        mail.deliver("box", b"short", ttl=3)
        mail.deliver("box", b"late", delay=4)
        mail.deliver("box", b"both", delay=3, ttl=5)
        mail.done("MAILBOX.CREATE", {"name": "going", "ttl": 4})
        sent = time.monotonic()
    broker.restart(kill=True)
    due_s = {"short": (0, 3), "late": (4, 60), "both": (3, 5), "going": (0, 4)}
    with broker.connect() as mail:
        while time.monotonic() < sent + 5 + EXACT_S:
            asked = time.monotonic()
            seen = set(payloads(mail.fetch("box")))
            if mail.ask("MSG.QUERY.going")["error"] == "":
                seen.add("going")
            answered = time.monotonic()
            for name, (first_s, last_s) in due_s.items():
                # Not yet or no longer there for certain, and there for certain.
                before = answered < started + first_s - CLOCK_S
                after = asked > sent + last_s + EXACT_S
                inside = asked > sent + first_s + EXACT_S and answered < started + last_s - CLOCK_S
                assert not (name in seen and (before or after)), (name, asked - started)
                assert not (name not in seen and inside), (name, asked - started)
        assert seen == {"late"}


@pytest.mark.alone
def test_a_long_poll_is_answered_within_100_ms_of_a_delay(broker: Restarting) -> None:
    """Those who wait are told when it is due; half of them at least within 100 ms."""
    late_s = []
    with broker.connect() as mail:
        mail.done("MAILBOX.CREATE", {"name": "box"})
        config = {"num_msgs": 1, "max_wait_ms": 8000}
        body = {"group_name": "g", "deliver": "earliest", "config": config}
        for _ in range(5):
            mail.deliver("box", b"", delay=1)
        sent = time.monotonic()
        for _ in range(5):
            fetched = mail.done("MSG.FETCH.box", body)
            late_s.append(time.monotonic() - sent - 1)
            mail.ack("box", "g", fetched["messages"][0]["msg_id"])
    # A single one may have met a busy machine.
    assert sorted(late_s)[2] < EXACT_S, late_s


def test_the_space_of_an_expired_mailbox_comes_back(tmp_path: Path) -> None:
    """More than two whole files of the log, written for one mailbox, go with it.

    A single one may wait: to free it a checkpoint has to be written, which must be worth it.
    """
    data = tmp_path / "data"

    def used_bytes() -> int:
        files = [file.stat() for file in data.rglob("*") if file.is_file()]
        return sum(512 * file.st_blocks for file in files)

    # However long it takes, to the store it is one instant.
    now = (time.time_ns() // 1_000_000, time.monotonic_ns() // 1_000_000)
    with Store(data, sync="none") as store:
        store.create_mailbox("stays", now=now)
        store.send("stays", b"kept", now=now)
        store.create_mailbox("going", ttl_ms=3000, now=now)
        for _ in range(2 * SEGMENT_BYTES // MEGABYTE + 2):
            store.send("going", bytes(MEGABYTE), now=now)
    assert used_bytes() > 2 * SEGMENT_BYTES
    broker = Restarting(tmp_path)
    try:
        until(lambda: used_bytes() < SEGMENT_BYTES, "the space came back", 15)
        with broker.connect() as mail:
            assert payloads(mail.fetch("stays")) == ["kept"]
            assert mail.ask("MSG.QUERY.going")["error"] == "mailbox going does not exist"
    finally:
        broker.stop()


class Pinger:
    """Asks for a PONG at fixed instants, so that a stall counts once for each PING it delays."""

    def __init__(self, mail: Mail) -> None:
        self.mail = mail

    def run(self, seconds: float) -> list[float]:
        """How long each PONG took from the instant its PING was meant for, ascending."""
        start = time.monotonic()
        count = int(seconds / SAMPLE_S)
        waits: list[float] = []
        asked = 0
        pongs = self.mail.pongs
        while len(waits) < count:
            now = time.monotonic()
            due = min(count, int((now - start) / SAMPLE_S) + 1)
            if due > asked:
                self.mail.send(b"PING\r\n" * (due - asked))
                asked = due
            wait = max(0.0, start + asked * SAMPLE_S - time.monotonic()) if asked < count else 1.0
            if select.select([self.mail.socket], [], [], wait)[0]:
                self.mail.pump(time.monotonic() + 10)
                now = time.monotonic()
                while len(waits) < self.mail.pongs - pongs:
                    waits.append(now - start - len(waits) * SAMPLE_S)
        return sorted(waits)


def percentile(waits: list[float], part: float) -> float:
    return waits[min(len(waits) - 1, int(len(waits) * part))]


def expiring(folder: Path, live_ms: int) -> float:
    """A mailbox whose messages end after `live_ms`, and one that itself ends a second later.

    Returns the first instant, as `time.monotonic` counts.
    """
    monotonic_ms = time.monotonic_ns() // 1_000_000
    now = (time.time_ns() // 1_000_000, monotonic_ms)
    with Store(folder, sync="none") as store:
        store.create_mailbox("messages", now=now)
        store.create_mailbox("mailbox", ttl_ms=live_ms + 1000, now=now)
        for address, ttl_ms in (("messages", live_ms), ("mailbox", 0)):
            message = NewMessage(b"x" * 100, ttl_ms=ttl_ms)
            for _ in range(10):
                store.append_many(address, [message] * (MESSAGES // 10), now=now)
    return (monotonic_ms + live_ms) / 1000


def measure(folder: Path, live_ms: int) -> dict[str, list[float]]:
    """How long PONGs take: in quiet, while the messages end, and while the mailbox ends."""
    instant = expiring(folder / "data", live_ms)
    broker = Restarting(folder)
    try:
        with broker.connect() as mail, broker.connect() as other:
            pinger = Pinger(mail)
            found = {"quiet": pinger.run(1.0)}
            if time.monotonic() > instant - 0.2:
                raise TimeoutError(f"the broker was not ready within {live_ms} ms")
            for address in ("messages", "mailbox"):
                assert other.done(f"MSG.QUERY.{address}", {"limit": 1})["messages"] != []
            pinger.run(instant - time.monotonic() - 0.1)
            found["messages"] = pinger.run(1.0)
            found["mailbox"] = pinger.run(1.0)
            assert other.done("MSG.QUERY.messages", {"limit": 1})["messages"] == []
            assert other.ask("MSG.QUERY.mailbox")["error"] == "mailbox mailbox does not exist"
    finally:
        broker.stop()
    return found


@pytest.mark.alone
def test_a_hundred_thousand_expiring_messages_do_not_stall_other_clients(tmp_path: Path) -> None:
    """All at the same instant, one by one or with their mailbox, while another client PINGs."""
    live_ms = LIVE_MS
    for attempt in range(ATTEMPTS):
        try:
            waits = measure(tmp_path / str(attempt), live_ms)
        except TimeoutError:
            live_ms *= 2
            continue
        p99_s = {name: percentile(each, 0.99) for name, each in waits.items()}
        shown = {name: f"{1000 * wait:.1f}" for name, wait in p99_s.items()}
        # Shown with --log-cli-level=INFO.
        logging.getLogger(__name__).info("ms until PONG, p99: %s", shown)
        if max(p99_s.values()) < max(GOAL_S, TOLERANCE * p99_s["quiet"]):
            return
    pytest.fail(f"in each of {ATTEMPTS} runs PINGs waited, or the broker was not ready in time")
