"""Who is registered: the order, filters, who is alive and whose time is over."""

import random
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mq9.registry.order import Order
from mq9.registry.roster import ALIVE_MS, Agent, Roster


def agent(number: int, **fields: object) -> Agent:
    known: dict[str, object] = {"address": f"a{number}", "registered_ms": 1000, "ttl_ms": 0}
    known |= {"tags": (), **fields}
    return Agent(number=number, **known)  # type: ignore[arg-type]


def chosen(
    roster: Roster,
    *tags: str,
    alive: bool = False,
    now_ms: int = 1000,
    first: int = 0,
    count: int = 10_000,
) -> tuple[list[int], int]:
    """Numbers and total."""
    found: list[Agent] = []
    steps = roster.chosen(tags, alive=alive, now_ms=now_ms).steps(first, count, found)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return [each.number for each in found], end.value


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**32), st.integers(1, 6000))
def test_the_order_is_that_of_a_sorted_list(seed: int, size: int) -> None:
    chance = random.Random(seed)
    order, model = Order[Agent](), list(range(0, size * 2, 2))
    for number in model:
        order.add(agent(number))
    for number in chance.sample(range(1, size * 2, 2), min(size, 50)):
        order.add(agent(number))
        model.append(number)
    model.sort()
    for number in chance.sample(model, len(model) // 3):
        order.remove(number)
        model.remove(number)
    assert len(order) == len(model)
    assert order.last == (model[-1] if model else -1)
    for _ in range(5):
        first, count = chance.randrange(size + 5), chance.randrange(1, 50)
        part = [each.number for each in order.part(first, count)]
        assert part == model[first : first + count]
        behind = [number for number in model if number > first]
        assert [each.number for each in islice(order.behind(first), 20)] == behind[:20]
        assert order.count_behind(first) == len(behind)
        assert (order.find(first) is not None) == (first in model)


def settled(*agents: Agent, now_ms: int = 1000) -> Roster:
    roster = Roster()
    for each in agents:
        roster.load(each)
    for _ in roster.settle(now_ms):
        pass
    return roster


def test_filters_hold_all_at_once() -> None:
    roster = settled(*(agent(n, tags=(f"m{n % 2}", f"n{n % 3}")) for n in range(100)))
    assert chosen(roster) == (list(range(100)), 100)
    assert chosen(roster, "m1") == (list(range(1, 100, 2)), 50)
    assert chosen(roster, "m1", first=3, count=2) == ([7, 9], 50)
    assert chosen(roster, "m1", "n0") == (list(range(3, 100, 6)), 17)
    assert chosen(roster, "m1", "nobody") == ([], 0)
    roster.pop("a3")
    assert chosen(roster, "m1", "n0", count=1) == ([9], 16)


@pytest.mark.parametrize("others", [0, 1000])
def test_who_is_alive(others: int) -> None:
    start = 1000 + ALIVE_MS
    silent = [agent(n) for n in range(10, 10 + others)]
    known = [
        agent(0, registered_ms=start),
        agent(1, registered_ms=start, ttl_ms=5000),
        agent(2, registered_ms=start + 1000),
    ]
    roster = settled(*known, *silent, now_ms=start)
    assert chosen(roster, alive=True, now_ms=start) == ([0, 1, 2], 3)
    late = start + ALIVE_MS
    assert chosen(roster, alive=True, now_ms=late) == ([1, 2], 2)
    zero = roster.get("a0")
    assert zero is not None
    roster.reported(zero, late, 1)
    assert chosen(roster, alive=True, now_ms=late + 1000) == ([0, 1], 2)
    assert chosen(roster, alive=True, now_ms=late + ALIVE_MS) == ([1], 1)


def test_what_came_while_agents_were_loaded_counts() -> None:
    roster = Roster()
    roster.load(agent(1, registered_ms=0))
    roster.put(agent(5, address="a1", registered_ms=9000))
    # The old card, read before the new one came.
    roster.load(agent(1, registered_ms=0))
    steps = roster.settle(9000)
    next(steps)
    new = roster.get("a1")
    assert new is not None
    assert new.number == 5
    roster.reported(new, 10_000, 1)
    roster.put(agent(6, registered_ms=10_000, ttl_ms=1000))
    list(steps)
    assert chosen(roster, alive=True, now_ms=9999 + ALIVE_MS) == ([5, 6], 2)
    assert roster.next_deadline_ms() == 11_000


def test_agents_expire_when_they_are_silent() -> None:
    roster = settled(agent(0, ttl_ms=1000), agent(1, ttl_ms=2000), agent(2))
    assert roster.next_deadline_ms() == 2000
    assert roster.overdue(1999) is None
    first = roster.get("a0")
    assert first is not None
    roster.reported(first, 1900, 1)
    assert roster.overdue(2899) is None
    assert roster.overdue(2900) is first
    roster.pop("a0")
    second = roster.overdue(10_000)
    assert second is not None
    assert second.address == "a1"
    roster.pop("a1")
    assert roster.overdue(10**15) is None
    assert roster.next_deadline_ms() is None


def test_agents_that_come_and_go_leave_nothing_behind() -> None:
    roster = settled()
    for number in range(10_000):
        roster.put(agent(number, address="same", ttl_ms=10**9, tags=("x",)))
    assert len(roster) == len(roster.order) == 1
    assert len(roster._deadlines) <= 1002
    roster.pop("same")
    assert chosen(roster, "x") == ([], 0)
    assert roster._by_tag == {}


def test_names_and_owners_are_counted_as_agents_come_and_go() -> None:
    roster = Roster()
    for number in range(5):
        roster.put(agent(number, name="twin" if number else "one", owner=f"u{number % 2}"))
    assert [each.number for each in roster.named("one")] == [0]
    assert sorted(each.number for each in roster.named("twin")) == [1, 2, 3, 4]
    assert sorted(each.number for each in roster.named("twin", "u1")) == [1, 3]
    assert [each.number for each in roster.named("one", "u0")] == [0]
    assert list(roster.named("one", "u1")) == list(roster.named("twin", "u2")) == []
    assert (roster.count_of("u0"), roster.count_of("u1"), roster.count_of("u2")) == (3, 2, 0)
    # The same address again, under another name.
    roster.put(agent(9, address="a1", name="one", owner="u2"))
    assert sorted(each.number for each in roster.named("one")) == [0, 9]
    for number in (0, 1, 2, 3):
        roster.pop(f"a{number}")
    assert list(roster.named("one")) == []
    assert [each.number for each in roster.named("twin")] == [4]
    assert [each.number for each in roster.named("twin", "u0")] == [4]
    assert list(roster.named("twin", "u1")) == []
    assert (roster.count_of("u0"), roster.count_of("u1"), roster.count_of("u2")) == (1, 0, 0)
