"""Whose turn it is: short rounds, fair to all, and nothing lost on the way."""

import asyncio
from collections.abc import Generator
from dataclasses import dataclass, field

import pytest

from mq9.commands.context import Grant
from mq9.commands.scheduler import CommandScheduler


class Client:
    """A client that notes whether it is read from."""

    grant: Grant | None = None
    is_local_operator: bool = False

    def __init__(self) -> None:
        self.heard: list[str] = []

    def pause_reading(self) -> None:
        self.heard.append("pause")

    def resume_reading(self) -> None:
        self.heard.append("resume")


@dataclass
class Room:
    """Clients by number."""

    open: dict[int, Client] = field(default_factory=dict)


@pytest.fixture
def room() -> Room:
    return Room({1: Client(), 2: Client()})


def steps(done: list[str], name: str, count: int = 0) -> Generator[None, None, None]:
    for _ in range(count):
        done.append(f"{name}:")
        yield
    done.append(name)


class Clock:
    """Time that passes where a test says so: a busy machine must not make a step long."""

    now_s = 0.0


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("mq9.commands.scheduler.perf_counter", lambda: clock.now_s)
    return clock


def busy(clock: Clock, done: list[str], name: str) -> Generator[None, None, None]:
    """Takes longer than a round may."""
    clock.now_s += 0.002
    done.append(name)
    return
    yield


async def until_idle(done: list[str], count: int) -> None:
    async with asyncio.timeout(10):
        while len(done) < count:  # noqa: ASYNC110
            await asyncio.sleep(0)


async def test_short_work_is_done_at_once(room: Room) -> None:
    scheduler, done = CommandScheduler(room), list[str]()
    scheduler.add(1, steps(done, "a"))
    scheduler.add(1, steps(done, "b"))
    assert done == ["a", "b"]


@pytest.mark.parametrize("count", [0, 1])
async def test_what_comes_during_a_step_goes_behind_and_nothing_is_lost(
    room: Room, count: int
) -> None:
    """A reply may bring the next requests of the same client."""
    scheduler, done = CommandScheduler(room), list[str]()

    def asked_meanwhile() -> Generator[None, None, None]:
        for _ in range(count):
            yield
        scheduler.add(1, steps(done, "next", 1))
        done.append("first")

    scheduler.add(1, asked_meanwhile())
    scheduler.add(1, steps(done, "last", 1))
    await until_idle(done, 5)
    order = ("next", "last") if count == 0 else ("last", "next")
    assert [name for name in done if not name.endswith(":")] == ["first", *order]


async def test_connections_take_turns_and_keep_their_own_order(room: Room) -> None:
    scheduler, done = CommandScheduler(room), list[str]()
    scheduler.add(1, steps(done, "long", 3))
    scheduler.add(1, steps(done, "behind"))
    scheduler.add(2, steps(done, "other", 1))
    assert done == ["long:", "other:"]
    await until_idle(done, 7)
    assert done == ["long:", "other:", "long:", "other", "long:", "long", "behind"]


async def test_a_round_that_has_had_enough_leaves_the_loop_to_others(
    room: Room, clock: Clock
) -> None:
    scheduler, done = CommandScheduler(room), list[str]()
    scheduler.add(1, busy(clock, done, "a"))
    scheduler.add(2, busy(clock, done, "b"))
    scheduler.add(1, busy(clock, done, "c"))
    assert done == ["a"]
    asyncio.get_running_loop().call_soon(done.append, "loop")
    await until_idle(done, 4)
    assert done == ["a", "b", "loop", "c"]


async def test_a_long_line_is_not_read_from_until_it_is_short(room: Room) -> None:
    scheduler, done = CommandScheduler(room), list[str]()
    scheduler.add(1, steps(done, "first", 1))
    for number in range(1500):
        scheduler.add(1, steps(done, str(number)))
    assert room.open[1].heard == ["pause"]
    await until_idle(done, 1502)
    assert room.open[1].heard == ["pause", "resume"]
    assert done[2:] == [str(number) for number in range(1500)]
    assert room.open[2].heard == []


async def test_a_line_of_many_bytes_is_not_read_from_until_it_has_few(room: Room) -> None:
    scheduler, done = CommandScheduler(room), list[str]()
    until: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    scheduler.add(1, waiting(done, "search", until), 1 << 20)
    scheduler.add(1, steps(done, "first", 1))
    for number in range(20):
        assert room.open[1].heard == ["pause"] * (number >= 3)
        scheduler.add(1, steps(done, str(number)), 1 << 20)
    await until_idle(done, 23)
    # One MiB is still in the hands of the search.
    assert room.open[1].heard == ["pause", "resume"]
    for _ in range(3):
        scheduler.add(1, steps(done, "next", 1), 1 << 20)
    assert room.open[1].heard == ["pause", "resume", "pause"]
    until.set_result(None)
    await until_idle(done, 30)
    assert room.open[1].heard == ["pause", "resume"] * 2
    assert room.open[2].heard == []


async def test_all_together_are_bounded_too_and_go_on_when_half_is_done(room: Room) -> None:
    """However few bytes each of them has in line."""
    scheduler, done = CommandScheduler(room), list[str]()
    room.open.update((cid, Client()) for cid in range(3, 100))
    until: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    early: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    for cid in range(1, 80):
        scheduler.add(cid, waiting(done, str(cid), early if cid <= 40 else until), 1 << 20)
    paused = [cid for cid, client in room.open.items() if client.heard]
    assert paused == list(range(64, 80))
    # Whoever asks again is not read any more either; whoever asks for nothing is.
    scheduler.add(1, steps(done, "more"), 1)
    assert room.open[1].heard == ["pause"]
    assert all(room.open[cid].heard == ["pause"] for cid in paused)
    early.set_result(None)
    await until_idle(done, 79 + 1 + 40)
    # 39 MiB are more than half.
    assert room.open[1].heard == ["pause"]
    until.set_result(None)
    await until_idle(done, 79 + 1 + 79)
    assert all(client.heard in ([], ["pause", "resume"]) for client in room.open.values())
    assert room.open[70].heard == ["pause", "resume"]


async def test_nothing_is_kept_of_clients_that_left(room: Room) -> None:
    scheduler, done = CommandScheduler(room), list[str]()
    until: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    scheduler.add(1, waiting(done, "search", until), 100)
    scheduler.add(1, steps(done, "long", 5), 100)
    scheduler.add(1, steps(done, "short"), 100)
    scheduler.add(2, steps(done, "other", 5), 100)
    room.open.clear()
    until.set_result(None)
    await until_idle(done, 5)
    await asyncio.sleep(0)
    assert not scheduler._bytes
    assert not scheduler._waiting
    assert not scheduler._lines


async def test_a_client_that_left_has_its_changes_made_and_its_searches_dropped(room: Room) -> None:
    scheduler, done = CommandScheduler(room), list[str]()
    scheduler.add(1, steps(done, "search", 5))
    scheduler.add(1, steps(done, "change"))
    scheduler.add(1, steps(done, "late", 5))
    scheduler.add(2, steps(done, "other", 3))
    del room.open[1]
    await until_idle(done, 8)
    assert [each for each in done if "other" not in each] == [
        "search:",
        "search:",
        "change",
        "late:",
    ]
    assert done[-1] == "other"


async def test_nothing_runs_after_the_end(room: Room) -> None:
    scheduler, done = CommandScheduler(room), list[str]()
    scheduler.add(1, steps(done, "a", 5))
    scheduler.close()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert done == ["a:"]
    scheduler.add(1, steps(done, "late"))
    assert done == ["a:", "late"]


def waiting(
    done: list[str], name: str, until: asyncio.Future[None]
) -> Generator[asyncio.Future[None], None, None]:
    done.append(f"{name}:")
    yield until
    done.append(name)


async def test_work_that_waits_lets_others_of_its_connection_pass(room: Room) -> None:
    scheduler, done = CommandScheduler(room), list[str]()
    until: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    scheduler.add(1, waiting(done, "search", until))
    scheduler.add(1, steps(done, "behind"))
    assert done == ["search:", "behind"]
    await asyncio.sleep(0)
    assert len(done) == 2
    until.set_result(None)
    await until_idle(done, 3)
    assert done[-1] == "search"


async def test_a_failure_that_was_waited_for_is_seen_by_the_work(room: Room) -> None:
    scheduler, done = CommandScheduler(room), list[str]()
    until: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def work() -> Generator[asyncio.Future[None], None, None]:
        yield until
        done.append(str(until.exception()))

    scheduler.add(1, work())
    until.set_exception(OSError("gone"))
    await until_idle(done, 1)
    assert done == ["gone"]


async def test_many_that_wait_are_a_long_line(room: Room) -> None:
    scheduler, done = CommandScheduler(room), list[str]()
    until: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    for number in range(1500):
        scheduler.add(1, waiting(done, str(number), until))
    await until_idle(done, 1500)
    assert room.open[1].heard == ["pause"]
    until.set_result(None)
    await until_idle(done, 3000)
    assert room.open[1].heard == ["pause", "resume"]


async def test_nobody_goes_on_for_a_client_that_left_or_after_the_end(room: Room) -> None:
    scheduler, done = CommandScheduler(room), list[str]()
    until: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    later: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    scheduler.add(1, waiting(done, "gone", until))
    scheduler.add(2, waiting(done, "here", until))
    scheduler.add(2, waiting(done, "late", later))
    del room.open[1]
    until.set_result(None)
    await until_idle(done, 4)
    scheduler.close()
    later.set_result(None)
    await asyncio.sleep(0.01)
    assert done == ["gone:", "here:", "late:", "here"]
