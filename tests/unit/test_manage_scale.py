"""Work is counted, not time: what lists and changes cost does not follow the number of mailboxes.

Columns are walked over by numpy, in one call each; what Python does row by row has to be small.
"""

import sys
import tracemalloc
from collections.abc import Callable
from types import FrameType

import pytest
from tests.unit.test_manage_mirror import group, looked, row

from mq9.manage.mirror import SORTS, Mirror

FEW, MANY = 2_000, 200_000


def filled(count: int) -> Mirror:
    """A mirror of so many mailboxes, one in a hundred with a group."""
    mirror, groups = Mirror(), [group(lag=3)]
    mirror.apply(
        row(at, f"m.{at * 7919 % count:07}", at % 5, *groups[: at % 100 == 0])
        for at in range(count)
    )
    mirror.whole = True
    mirror.looked()
    return mirror


@pytest.fixture(scope="module")
def mirrors() -> tuple[Mirror, Mirror]:
    return filled(FEW), filled(MANY)


def calls(work: Callable[[], object]) -> int:
    """How many functions are called, those written in C included."""
    count = 0

    def note(_frame: FrameType, event: str, _given: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def check_same(mirrors: tuple[Mirror, Mirror], work: Callable[[Mirror], object]) -> None:
    """A hundred times as many mailboxes: no more work but a few calls for each block of names."""
    for mirror in mirrors:
        # What is kept of names is read when it is asked for first.
        work(mirror)
        # Now the order of a list is not known any more.
        mirror.apply(())
    few, many = (calls(lambda mirror=mirror: work(mirror)) for mirror in mirrors)  # type: ignore[misc]
    assert few > 10, "nothing was counted"
    assert many <= few * 1.1 + MANY / 400, (few, many)


@pytest.mark.parametrize("sort", sorted(SORTS))
@pytest.mark.parametrize("search", ["", "m.00001", "m"])
def test_a_page_costs_what_is_on_it(mirrors: tuple[Mirror, Mirror], sort: str, search: str) -> None:
    check_same(mirrors, lambda mirror: mirror.page(sort=sort, search=search, limit=50))


@pytest.mark.parametrize("sort", sorted(SORTS))
@pytest.mark.parametrize("search", ["", "m"])
def test_a_page_asked_for_again_costs_its_rows(
    mirrors: tuple[Mirror, Mirror], sort: str, search: str
) -> None:
    """Whoever asks, as long as nothing has changed: no column is walked over."""
    _, many = mirrors
    first = many.page(sort=sort, search=search, limit=50)
    tracemalloc.start()
    try:
        assert many.page(sort=sort, search=search, limit=50)[0][0].name == first[0][0].name
        many.page(sort=sort, search=search, limit=50, offset=50)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # One byte for each mailbox would be more.
    assert peak < MANY


def test_the_order_is_that_of_the_last_change(mirrors: tuple[Mirror, Mirror]) -> None:
    few, _ = mirrors
    name = few.page(sort="depth", limit=2)[0][1].name
    place = few.find(name)
    assert place is not None
    looked(few, row(place, name, 10_000))
    assert few.page(sort="depth", limit=1)[0][0].name == name
    few.apply((), [place])
    rows, total = few.page(sort="depth", limit=50)
    assert (total, name in {each.name for each in rows}) == (FEW - 1, False)


@pytest.mark.parametrize("sort", ["name", "depth"])
def test_the_last_page_costs_what_the_first_does(mirrors: tuple[Mirror, Mirror], sort: str) -> None:
    _, many = mirrors
    first = calls(lambda: many.page(sort=sort, limit=50))
    last = calls(lambda: many.page(sort=sort, limit=50, offset=many.count - 50))
    # Chunks of names are stepped over, each in one go.
    assert last <= first * 1.1 + 3 * MANY / 1000


def test_changes_cost_what_has_changed(mirrors: tuple[Mirror, Mirror]) -> None:
    few, many = mirrors

    def change(mirror: Mirror, count: int) -> int:
        rows = [row(at, f"m.{at * 7919 % mirror.count:07}", 50) for at in range(1, count + 1)]
        return calls(lambda: looked(mirror, *rows))

    assert change(many, 50) <= change(few, 50) * 1.1 + 50
    assert 2 < change(many, 500) / change(many, 50) < 15


def test_a_row_among_many_costs_a_few_calls(mirrors: tuple[Mirror, Mirror]) -> None:
    _, many = mirrors
    places = [at for at in range(1, 1000) if at % 100]
    rows = [row(at, f"m.{at * 7919 % MANY:07}", 60) for at in places]

    def cost(count: int) -> int:
        return calls(lambda: looked(many, *rows[:count]))

    assert (cost(900) - cost(100)) / 800 < 5
