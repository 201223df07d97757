"""Waiting for acknowledgements: in threads, and in an event loop."""

import asyncio
import os
import select
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

import pytest

from mq9._core import Store, StoreError

TIMEOUT_MS = 60_000


@pytest.mark.parametrize("sync", ["always", "interval", "none"])
def test_what_was_done_is_acknowledged(
    tmp_path: Path, sync: Literal["always", "interval", "none"]
) -> None:
    with Store(tmp_path, sync=sync, sync_interval_ms=1) as store:
        store.create_mailbox("a")
        ticket = store.end()
        store.wait_durable(timeout_ms=TIMEOUT_MS)
        assert store.acknowledged() >= ticket
        store.wait_durable(ticket)
        store.wait_durable(0, timeout_ms=0)


@pytest.mark.parametrize("sync", ["always", "interval", "none"])
def test_a_blocked_wait_leaves_the_interpreter_to_other_threads(
    tmp_path: Path, sync: Literal["always", "interval", "none"]
) -> None:
    with Store(tmp_path, sync=sync) as store, ThreadPoolExecutor() as pool:
        store.create_mailbox("a")
        # Nothing has been written there yet: only what this thread does next can end the wait.
        wait = pool.submit(store.wait_durable, store.end() + 1, timeout_ms=TIMEOUT_MS)
        store.send("a", b"x")
        wait.result()


def test_a_wait_ends_when_time_is_over(tmp_path: Path) -> None:
    with Store(tmp_path, maintain_every_ms=0) as store:
        for timeout_ms in (0, 1, 150):
            with pytest.raises(TimeoutError, match="not acknowledged in time"):
                store.wait_durable(store.end() + 1, timeout_ms=timeout_ms)


def test_a_wait_ends_when_the_store_is_closed(tmp_path: Path) -> None:
    store = Store(tmp_path, maintain_every_ms=0)
    with ThreadPoolExecutor() as pool:
        future = pool.submit(store.wait_durable, store.end() + (1 << 40), timeout_ms=TIMEOUT_MS)
        store.close()
        with pytest.raises(StoreError, match="the store is closed"):
            future.result()


class Interrupted(Exception):  # noqa: N818
    pass


def test_signals_are_handled_during_a_wait(tmp_path: Path) -> None:
    main = threading.main_thread().ident
    assert main is not None
    handled = threading.Semaphore(0)
    signals = iter(range(3))

    def handle(*_: object) -> None:
        handled.release()
        if next(signals) == 2:
            raise Interrupted

    def send_one_after_the_other() -> None:
        for _ in range(3):
            signal.pthread_kill(main, signal.SIGUSR1)
            handled.acquire()

    thread = threading.Thread(target=send_one_after_the_other)
    before = signal.signal(signal.SIGUSR1, handle)
    # What ran before in this process may hold signals back, as the start of a broker does.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})
    try:
        with Store(tmp_path, maintain_every_ms=0) as store:
            ticket = store.end() + (1 << 40)
            with pytest.raises(Interrupted):  # noqa: PT012 - the first signal may come at once
                thread.start()
                store.wait_durable(ticket, timeout_ms=TIMEOUT_MS)
            thread.join()
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_many_threads_share_a_store(tmp_path: Path) -> None:
    threads, each = 8, 50
    with Store(tmp_path, segment_bytes=1 << 20, maintain_every_ms=1) as store:
        store.create_mailbox("a")

        def work(thread: int) -> None:
            for n in range(each):
                store.send("a", b"%d.%d" % (thread, n))
                store.wait_durable(timeout_ms=TIMEOUT_MS)
                store.fetch("a", deliver="from_id", from_id=n, max_msgs=3)

        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(work, range(threads)))
        stored = store.fetch("a", deliver="earliest", max_msgs=threads * each)
        expected = {b"%d.%d" % (thread, n) for thread in range(threads) for n in range(each)}
        assert {message.payload for message in stored} == expected


def test_closing_waits_for_calls_in_progress(tmp_path: Path) -> None:
    store = Store(tmp_path, maintain_every_ms=1)
    store.create_mailbox("a")
    stored = []

    def send() -> None:
        while True:
            try:
                stored.append(store.send("a", b"x"))
            except StoreError as error:
                assert str(error) == "the store is closed"  # noqa: PT017
                return

    with ThreadPoolExecutor() as pool:
        futures = [pool.submit(send) for _ in range(2)]
        while len(stored) < 20:
            store.tick()
        store.close()
        for future in futures:
            future.result()
    with Store(tmp_path) as store:
        assert store.mailbox("a").messages == len(stored)


@pytest.mark.parametrize("sync", ["always", "interval", "none"])
def test_the_descriptor_is_readable_from_an_acknowledgement_until_it_is_read(
    tmp_path: Path, sync: Literal["always", "interval", "none"]
) -> None:
    with Store(tmp_path, sync=sync, maintain_every_ms=0) as store:
        poll = select.poll()
        poll.register(store.fileno(), select.POLLIN)
        assert store.fileno() == store.fileno()
        for n in range(3):
            store.create_mailbox(f"a{n}")
            ticket = store.end()
            while store.read_acknowledged() < ticket:
                assert poll.poll(TIMEOUT_MS)
        # One late ring may be left, no more.
        poll.poll(0)
        store.read_acknowledged()


@pytest.mark.parametrize("sync", ["interval", "none"])
def test_reading_wakes_nobody_who_waits_for_acknowledgements(
    tmp_path: Path, sync: Literal["interval", "none"]
) -> None:
    with Store(tmp_path, sync=sync, sync_interval_ms=TIMEOUT_MS, maintain_every_ms=0) as store:
        poll = select.poll()
        poll.register(store.fileno(), select.POLLIN)
        store.create_mailbox("a")
        store.send("a", b"1")
        assert poll.poll(TIMEOUT_MS)
        store.read_acknowledged()
        assert store.mailbox("a").messages == 1
        assert len(store.query("a")) == 1
        assert poll.poll(0) == []
        store.send("a", b"2")
        assert poll.poll(TIMEOUT_MS)


def test_an_event_loop_waits_without_a_thread(tmp_path: Path) -> None:
    async def create() -> None:
        loop = asyncio.get_running_loop()
        with Store(tmp_path, maintain_every_ms=0) as store:
            done = loop.create_future()
            store.create_mailbox("a")
            ticket = store.end()

            def on_acknowledged() -> None:
                if store.read_acknowledged() >= ticket and not done.done():
                    done.set_result(None)

            loop.add_reader(store.fileno(), on_acknowledged)
            # What was acknowledged before there was a descriptor does not ring.
            on_acknowledged()
            await asyncio.wait_for(done, TIMEOUT_MS / 1000)
            loop.remove_reader(store.fileno())

    asyncio.run(create())


def test_the_descriptor_is_closed_with_the_store(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        descriptor = store.fileno()
        os.fstat(descriptor)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
