"""Hashes wait in turns: networks, users that exist, and others; no wait grows with another's."""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from mq9.server.hash_queue import CrowdedError, HashQueue


class Bench:
    """Checks that note when they were done; the two threads are held until `go`."""

    def __init__(self) -> None:
        self.queue = HashQueue()
        self.done: list[str] = []
        self._go = threading.Event()
        self.asked: list[asyncio.Task[bool]] = []
        for number in range(2):
            self.ask("held", str(number), self._go.wait)
        self._held, self.asked = self.asked, []

    def ask(
        self,
        address: str,
        user: str,
        work: Callable[[], bool] | None = None,
        key: str = "k",
        *,
        known: bool = True,
        right: bool = True,
    ) -> None:
        def noted() -> bool:
            self.done.append(f"{address} {user} {key}")
            return right

        check = self.queue.run(address, user, key.encode(), work or noted, known=known)
        task = asyncio.create_task(check)
        # Those that are given up may be of no interest.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        self.asked.append(task)

    async def go(self) -> list[str]:
        """All checks in the order in which they were done."""
        await asyncio.sleep(0)
        self._go.set()
        while tasks := [t for t in asyncio.all_tasks() if t is not asyncio.current_task()]:
            await asyncio.wait(tasks)
        self.queue.close()
        return self.done


def run(test: Coroutine[Any, Any, None]) -> None:
    async def within() -> None:
        async with asyncio.timeout(30):
            await test

    asyncio.run(within())


def test_networks_take_turns() -> None:
    async def check() -> None:
        bench = Bench()
        for number in range(5):
            bench.ask("192.0.2.1", "a", key=str(number))
        await asyncio.sleep(0)
        bench.ask("192.0.2.2", "a")
        bench.ask("2001:db8::1", "a")
        done = await bench.go()
        assert {line.split()[0] for line in done[:4]} == {"192.0.2.1", "192.0.2.2", "2001:db8::1"}

    run(check())


def test_a_network_of_ipv6_is_one() -> None:
    async def check() -> None:
        bench = Bench()
        for number in range(20):
            bench.ask(f"2001:db8::{number}", "a")
        await asyncio.sleep(0)
        bench.ask("2001:db8:0:1::1", "a")
        assert "2001:db8:0:1::1 a k" in (await bench.go())[:3]

    run(check())


def test_a_user_that_comes_later_is_next_in_its_network() -> None:
    async def check() -> None:
        bench = Bench()
        for number in range(20):
            bench.ask("192.0.2.1", "guessed", key=str(number))
            bench.ask("192.0.2.1", f"made up {number % 5}", key=str(number))
        await asyncio.sleep(0)
        bench.ask("192.0.2.1", "honest")
        assert "192.0.2.1 honest k" in (await bench.go())[:2]

    run(check())


def test_names_that_do_not_exist_push_nobody_out() -> None:
    async def check() -> None:
        bench = Bench()
        bench.ask("192.0.2.1", "honest")
        await asyncio.sleep(0)
        for number in range(200):
            bench.ask("192.0.2.1", f"made up {number}", known=False, right=False)
        assert "192.0.2.1 honest k" in (await bench.go())[:2]
        assert await bench.asked[0]

    run(check())


def test_names_that_do_not_exist_have_every_other_turn() -> None:
    async def check() -> None:
        bench = Bench()
        for number in range(20):
            bench.ask("192.0.2.1", f"made up {number}", known=False, right=False)
            bench.ask("192.0.2.1", f"known {number}")
        done = await bench.go()
        assert 8 <= sum("known" in line for line in done[:20]) <= 12

    run(check())


def test_who_comes_back_at_once_does_not_keep_others_of_the_same_name_out() -> None:
    async def check() -> None:
        bench = Bench()

        def wrong() -> bool:
            # So long that who was refused is back before the next turn.
            time.sleep(0.003)
            bench.done.append("guess")
            return False

        async def guess(number: int) -> None:
            for again in range(20):
                key = f"{number} {again}".encode()
                assert not await bench.queue.run("192.0.2.1", "honest", key, wrong)

        bench.ask("192.0.2.1", "honest")
        guessing = [asyncio.create_task(guess(number)) for number in range(6)]
        await asyncio.sleep(0)
        await bench.go()
        assert all(task.exception() is None for task in guessing)
        assert bench.done.index("192.0.2.1 honest k") < 20

    run(check())


@pytest.mark.parametrize("known", [True, False], ids=["known", "unknown"])
def test_a_refusal_waits_for_its_turn_among_names_that_do_not_exist(known: bool) -> None:
    async def check() -> None:
        bench = Bench()
        told: list[asyncio.Task[bool]] = []
        for number in range(9):
            bench.ask("192.0.2.1", f"made up {number}", known=False, right=False)
        bench.ask("192.0.2.1", "candidate", known=known, right=False)
        for number in range(10, 19):
            bench.ask("192.0.2.1", f"made up {number}", known=False, right=False)
        for task in bench.asked:
            task.add_done_callback(told.append)
        await bench.go()
        assert told.index(bench.asked[9]) >= 12

    run(check())


@pytest.mark.parametrize("known", [True, False], ids=["known", "unknown"])
def test_a_refusal_in_a_crowd_does_not_tell_who_exists(known: bool) -> None:
    async def check() -> None:
        bench = Bench()
        bench.ask("192.0.2.1", "candidate", known=known, right=False)
        for number in range(200):
            bench.ask("192.0.2.1", f"made up {number}", known=False, right=False)
        await bench.go()
        with pytest.raises(CrowdedError):
            await bench.asked[0]

    run(check())


def test_the_newest_of_a_user_is_first() -> None:
    async def check() -> None:
        bench = Bench()
        for number in range(10):
            bench.ask("192.0.2.1", "a", key=str(number))
        assert "192.0.2.1 a 9" in (await bench.go())[:2]

    run(check())


def test_what_is_too_much_is_given_up_at_once() -> None:
    async def check() -> None:
        bench = Bench()
        for number in range(200):
            bench.ask("192.0.2.1", "guessed", key=str(number))
        bench.ask("192.0.2.1", "honest")
        bench.ask("192.0.2.2", "guessed")
        *guesses, honest, stranger = bench.asked
        await asyncio.sleep(0.01)
        given_up = [task for task in guesses if task.done()]
        assert len(given_up) == 200 + 1 - 32
        assert {type(task.exception()) for task in given_up} == {CrowdedError}
        done = await bench.go()
        assert (len(done), await honest, await stranger) == (33, True, True)

    run(check())


def test_the_same_question_is_answered_once() -> None:
    async def check() -> None:
        bench = Bench()
        for _ in range(100):
            bench.ask("192.0.2.1", "a")
        assert await bench.go() == ["192.0.2.1 a k"]
        assert all(await asyncio.gather(*bench.asked))

    run(check())


def test_who_gives_up_leaves_no_trace() -> None:
    async def check() -> None:
        bench = Bench()
        for number in range(30):
            bench.ask("192.0.2.1", str(number), key=str(number % 7))
        await asyncio.sleep(0)
        for task in bench.asked:
            task.cancel()
        assert await bench.go() == []
        assert bench.queue._networks == {}
        assert bench.queue._checks == {}
        assert bench.queue._running == 0

    run(check())


def test_a_check_that_fails_fails_for_who_asked() -> None:
    def fail() -> bool:
        raise OSError("no memory")

    async def check() -> None:
        bench = Bench()
        bench.ask("192.0.2.1", "a", fail)
        bench.ask("192.0.2.1", "b")
        failing, after = bench.asked
        await bench.go()
        with pytest.raises(OSError, match="no memory"):
            await failing
        assert await after

    run(check())
