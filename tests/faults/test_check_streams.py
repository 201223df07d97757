"""The check of streams finds each broken promise in a ledger, and nothing in a sound one."""

import pytest
from tests.faults.check_streams import StreamCheck
from tests.faults.ledger import Event

STREAM: list[Event] = [["stream", "s", "workqueue", [["c", ""]]]]
KEPT: list[Event] = [["stream", "s", "limits", [["c", ""]]]]
SENT: list[Event] = [["publish", "s", [[7, "s.a", 70]]]]
STORED: list[Event] = [*SENT, ["published", "s", [[7, 1]]]]
DONE: list[Event] = [["done", "s", "c", [1]]]
GOOD: list[Event] = [*DONE, ["done for good", "s", "c", [1]]]


def given(count: int = 1, uid: int = 7, sequence: int = 1, crc: int = 70) -> Event:
    return ["given", "s", "c", [[sequence, uid, crc, count]]]


def look(*entries: list[int]) -> Event:
    return ["stored", "s", list(entries)]


def broken(*parts: list[Event]) -> set[str]:
    check = StreamCheck()
    check.feed(event for part in parts for event in part)
    assert len(check.violations) == check.broken.total()
    return set(check.broken)


SOUND = {
    "nothing under way": [*STREAM, *STORED, look([1, 7, 70]), ["counted", "s", "c", 1, 0, 0]],
    "an unconfirmed publish is there": [*STREAM, *SENT, look([1, 7, 70])],
    "an unconfirmed publish is not there": [*STREAM, *SENT, look()],
    "given again": [*STREAM, *STORED, given(), given(2)],
    "an open acknowledgement has counted": [*STREAM, *STORED, given(), *DONE, look()],
    "or not": [*STREAM, *STORED, given(), *DONE, look([1, 7, 70]), given(2)],
    "given out": [*STREAM, *STORED, given(), look([1, 7, 70]), ["counted", "s", "c", 0, 1, 0]],
    "given out to somebody who died": [
        *STREAM,
        *STORED,
        look([1, 7, 70]),
        ["counted", "s", "c", 0, 1, 0],
    ],
    "a power cut forgot that it was given out": [
        *STREAM,
        *STORED,
        given(),
        ["forgot"],
        look([1, 7, 70]),
        ["counted", "s", "c", 1, 0, 0],
    ],
    "ended by its worker": [
        *STREAM,
        *STORED,
        given(),
        *DONE,
        ["given up", "s", [1]],
        ["done for good", "s", "c", [1]],
        ["dead", "s", [[1, 7, 70]]],
        look(),
    ],
    "gone": [*STREAM, *STORED, given(), *GOOD, look(), ["counted", "s", "c", 0, 0, 1], ["ended"]],
    "kept": [*KEPT, *STORED, given(), *GOOD, look([1, 7, 70]), ["counted", "s", "c", 0, 0, 1]],
    "dead": [*STREAM, *STORED, given(), ["dead", "s", [[1, 7, 70]]], look(), ["ended"]],
    "dead since the look": [
        *STREAM,
        *STORED,
        ["dead", "s", [[1, 7, 70]]],
        look([1, 7, 70]),
        ["counted", "s", "c", 0, 0, 1],
    ],
    "a power cut forgot a delivery": [*STREAM, *STORED, given(), ["forgot"], given()],
}
BROKEN = {
    "lost": [*STREAM, *STORED, look()],
    "came back": [*STREAM, *STORED, given(), *GOOD, look([1, 7, 70])],
    "duplicated": [*KEPT, *STORED, given(), *GOOD, given(2)],
    "not marked": [*STREAM, *STORED, given(), given()],
    "invented": [*STREAM, given(uid=8)],
    "changed": [*STREAM, *STORED, given(crc=71)],
    "id reused": [
        *STREAM,
        *STORED,
        ["publish", "s", [[8, "s.a", 80]]],
        ["published", "s", [[8, 1]]],
    ],
    "stored twice": [*STREAM, *STORED, look([1, 7, 70], [2, 7, 70])],
    "reordered": [*STREAM, *STORED, look([1, 7, 70], [1, 7, 70])],
    "not wanted": [["stream", "s", "limits", [["c", "s.b"]]], *STORED, given()],
}
MISCOUNTED = {
    "too few": ["counted", "s", "c", 0, 0, 0],
    "too many": ["counted", "s", "c", 1, 1, 0],
    "a floor above what is open": ["counted", "s", "c", 1, 0, 1],
}


DEAD_WRONG: dict[str, tuple[str, list[Event]]] = {
    "twice": ("buried twice", [["dead", "s", [[1, 7, 70], [1, 7, 70]]]]),
    "given up and not there": ("lost", [["given up", "s", [1]], ["dead", "s", []]]),
    "there no more": ("lost", [["dead", "s", [[1, 7, 70]]], ["dead", "s", []]]),
    "done": ("in both", [given(), *GOOD, ["dead", "s", [[1, 7, 70]]]]),
    "other bytes": ("changed", [["dead", "s", [[1, 7, 71]]]]),
}


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_ledger_passes(name: str) -> None:
    assert broken(SOUND[name]) == set()


@pytest.mark.parametrize("rule", BROKEN)
def test_control_a_broken_promise_is_found(rule: str) -> None:
    assert broken(BROKEN[rule]) == {rule}


@pytest.mark.parametrize("name", MISCOUNTED)
def test_control_a_wrong_count_is_found(name: str) -> None:
    assert broken([*STREAM, *STORED, look([1, 7, 70]), MISCOUNTED[name]]) == {"miscounted"}


@pytest.mark.parametrize("counts", [(1, 0), (1, 1), (0, 0)])
def test_control_a_message_that_was_given_out_is_not_to_come(counts: tuple[int, int]) -> None:
    events = [*STREAM, *STORED, given(), look([1, 7, 70]), ["counted", "s", "c", *counts, 0]]
    assert broken(events) == {"miscounted"}


def test_control_each_number_is_held_by_itself() -> None:
    sent = [["publish", "s", [[8, "s.a", 80]]], ["published", "s", [[8, 2]]]]
    both = [*STREAM, *STORED, *sent, given(), look([1, 7, 70], [2, 8, 80])]
    assert broken([*both, ["counted", "s", "c", 1, 1, 0]]) == set()
    for pending, ack_pending in [(2, 0), (0, 2)]:
        found = broken([*both, ["counted", "s", "c", pending, ack_pending, 0]])
        assert found == ({"miscounted"} if pending else set()), "a delivery may have been lost"


@pytest.mark.parametrize("name", DEAD_WRONG)
def test_control_a_wrong_dead_letter_is_found(name: str) -> None:
    rule, events = DEAD_WRONG[name]
    assert broken([*STREAM, *STORED, *events]) == {rule}


def test_control_what_never_came_is_found() -> None:
    assert broken([*STREAM, *STORED, ["ended"]]) == {"lost"}
