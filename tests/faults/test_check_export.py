"""Rows of an export that are missing, twice, changed or invented are found in the ledger."""

import pytest
from tests.faults.check_export import ExportCheck
from tests.faults.ledger import Event

Fields = list[object]


def message(uid: int, delay_s: int = 0, ttl_s: int = 0) -> Fields:
    return [uid, 100 + uid, 5, "", delay_s, ttl_s]


def sent(uid: int, msg_id: int, box: str = "b") -> Event:
    return ["sent", box, "ada", 0, [[uid, msg_id]]]


def row(uid: int, msg_id: int) -> list[int]:
    return [msg_id, uid, 100 + uid, 5]


def exported(*rows: list[int], box: str = "b") -> Event:
    return ["exported", box, list(rows)]


ALL: Event = ["exported_all", 0]
POLICY = {"ack_wait_ms": 1000, "max_deliver": 2, "dead_letter": "dead"}
BOXES: list[Event] = [["box", "dead", [], [], True, {}], ["box", "b", ["g"], ["g"], True, POLICY]]
ASKED: Event = ["send", "b", "ada", 0, [message(1), message(2), message(3)]]
TWO = [*BOXES, ASKED, sent(1, 0), sent(2, 1)]
LATER: list[Event] = [*BOXES, ["send", "b", "ada", 0, [message(1, delay_s=1)]], sent(1, -1)]

SOUND: dict[str, list[Event]] = {
    "all of it": [*TWO, exported(row(1, 0), row(2, 1)), ALL],
    "what was under way may be there": [
        *TWO,
        exported(row(3, 2), row(1, 0)),
        exported(row(2, 1)),
        ALL,
    ],
    "a delayed message": [*LATER, exported(row(1, 0)), ALL],
    "one that may have expired before it was due": [
        *BOXES,
        ["send", "b", "ada", 0, [message(1, delay_s=2, ttl_s=1)]],
        sent(1, -1),
        ALL,
    ],
    "a dead letter": [
        *TWO,
        ["looked", "dead", 0, [row(1, 0)]],
        exported(row(1, 0), row(2, 1)),
        exported(row(1, 0), box="dead"),
        ALL,
    ],
}

BROKEN: dict[str, tuple[str, list[Event]]] = {
    "missing": ("not exported", [*TWO, exported(row(1, 0)), ALL]),
    "seen and missing": (
        "not exported",
        [*TWO, ["looked", "b", 0, [row(3, 2)]], exported(row(1, 0), row(2, 1)), ALL],
    ),
    "delivered and missing": (
        "not exported",
        [
            *TWO,
            ["got", "b", "g", "w", 1, 0, [[*row(3, 2), 1]]],
            exported(row(1, 0), row(2, 1)),
            ALL,
        ],
    ),
    "delayed and missing": ("not exported", [*LATER, ALL]),
    "a dead letter that is missing": (
        "not exported",
        [*TWO, ["looked", "dead", 0, [row(1, 0)]], exported(row(1, 0), row(2, 1)), ALL],
    ),
    "a part of the log left out": (
        "not exported",
        [*TWO, exported(row(1, 0), row(2, 1)), ["exported_all", 1]],
    ),
    "twice": ("exported twice", [*TWO, exported(row(1, 0), row(2, 1)), exported(row(2, 1)), ALL]),
    "twice, under two ids": (
        "exported twice",
        [*TWO, exported(row(1, 0), row(2, 1), row(3, 2), row(3, 3)), ALL],
    ),
    "that nobody sent": ("invented", [*TWO, exported(row(1, 0), row(2, 1), row(7, 2)), ALL]),
    "that was refused": (
        "invented",
        [*TWO, ["refused", "b", "ada", 0, [3]], exported(row(1, 0), row(2, 1), row(3, 2)), ALL],
    ),
    "in another mailbox": (
        "invented",
        [*TWO, exported(row(1, 0), row(2, 1)), exported(row(3, 0), box="c"), ALL],
    ),
    "with other bytes": ("changed", [*TWO, exported([0, 1, 999, 5], row(2, 1)), ALL]),
    "with another level": ("changed", [*TWO, exported([0, 1, 101, 6], row(2, 1)), ALL]),
    "with the id of another": ("changed", [*TWO, exported(row(2, 0), row(1, 1)), ALL]),
}


def checked(events: list[Event]) -> ExportCheck:
    check = ExportCheck()
    check.feed(events)
    return check


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_export_passes(name: str) -> None:
    assert checked(SOUND[name]).violations == []


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_export_is_found(name: str) -> None:
    rule, events = BROKEN[name]
    assert rule in checked(events).broken, checked(events).violations
