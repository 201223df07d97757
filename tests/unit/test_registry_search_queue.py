"""Whose search is next: connections in turn, few at a time, and nothing is left behind."""

from collections.abc import Iterator

from mq9.registry.search_queue import SearchQueue


def begun(queue: SearchQueue) -> Iterator[int]:
    while (number := queue.next()) is not None:
        yield number


def test_connections_take_turns_and_two_run_at_once() -> None:
    queue = SearchQueue()
    for number in range(100):
        queue.add(1, number)
    assert list(begun(queue)) == [0, 1]
    queue.add(2, 200)
    queue.add(3, 300)
    queue.done(1, 0)
    assert list(begun(queue)) == [2]
    queue.done(1, 1)
    assert list(begun(queue)) == [200]
    queue.done(2, 200)
    assert list(begun(queue)) == [300]


def test_a_search_that_waits_in_the_worker_lets_others_pass() -> None:
    queue = SearchQueue()
    for number in range(100):
        queue.add(1, number)
    for number in range(8):
        assert queue.next() == number
        queue.waits(number)
    # It has enough that waits; others have not.
    assert queue.next() is None
    queue.add(2, 200)
    assert queue.next() == 200
    queue.done(1, 3)
    assert queue.next() == 8


def test_no_more_than_64_wait_in_the_worker() -> None:
    queue = SearchQueue()
    begun_in_all = 0
    for cid in range(100):
        queue.add(cid, cid)
        if (number := queue.next()) is not None:
            queue.waits(number)
            begun_in_all += 1
    assert begun_in_all == 64


def test_what_is_done_leaves_no_trace() -> None:
    queue = SearchQueue()
    empty = {name: value.copy() for name, value in vars(queue).items()}
    for number in range(20):
        queue.add(number % 3, number)
    for number in range(20):
        queue.next()
        queue.done(number % 3, number)
    assert vars(queue) == empty
