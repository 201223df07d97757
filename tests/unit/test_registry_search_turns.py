"""Whose search is next: connections in turn, few at a time, and nothing is left behind."""

from collections.abc import Iterator

from mq9.registry.search_turns import SearchTurns


def begun(turns: SearchTurns) -> Iterator[int]:
    while (number := turns.next()) is not None:
        yield number


def test_connections_take_turns_and_two_run_at_once() -> None:
    turns = SearchTurns()
    for number in range(100):
        turns.add(1, number)
    assert list(begun(turns)) == [0, 1]
    turns.add(2, 200)
    turns.add(3, 300)
    turns.done(1, 0)
    assert list(begun(turns)) == [2]
    turns.done(1, 1)
    assert list(begun(turns)) == [200]
    turns.done(2, 200)
    assert list(begun(turns)) == [300]


def test_a_search_that_waits_in_the_worker_lets_others_pass() -> None:
    turns = SearchTurns()
    for number in range(100):
        turns.add(1, number)
    for number in range(8):
        assert turns.next() == number
        turns.waits(number)
    # It has enough that waits; others have not.
    assert turns.next() is None
    turns.add(2, 200)
    assert turns.next() == 200
    turns.done(1, 3)
    assert turns.next() == 8


def test_no_more_than_64_wait_in_the_worker() -> None:
    turns = SearchTurns()
    begun_in_all = 0
    for cid in range(100):
        turns.add(cid, cid)
        if (number := turns.next()) is not None:
            turns.waits(number)
            begun_in_all += 1
    assert begun_in_all == 64


def test_what_is_done_leaves_no_trace() -> None:
    turns = SearchTurns()
    empty = {name: value.copy() for name, value in vars(turns).items()}
    for number in range(20):
        turns.add(number % 3, number)
    for number in range(20):
        turns.next()
        turns.done(number % 3, number)
    assert vars(turns) == empty
