"""The check finds each broken promise in a ledger, and nothing in a sound one: its controls."""

from typing import Any

import pytest
from tests.faults.check import ACK_WAIT_NS, Check
from tests.faults.ledger import Event

S = 1_000_000_000


def box(*, work_queue: bool = False, groups: tuple[str, ...] = ("g",)) -> Event:
    return ["box", "b", list(groups), ["g"], work_queue]


def send(uid: int, at_ns: int = 0, **said: Any) -> Event:  # noqa: ANN401
    fields = [said.get(name, "" if name == "key" else 0) for name in ("key", "delay_s", "ttl_s")]
    return ["send", "b", "ada", at_ns, [[uid, 100 + uid, said.get("level", 5), *fields]]]


def sent(uid: int, msg_id: int, at_ns: int = 0) -> Event:
    return ["sent", "b", "ada", at_ns, [[uid, msg_id]]]


def stored(uid: int, msg_id: int, **said: Any) -> list[Event]:  # noqa: ANN401
    return [send(uid, **said), sent(uid, msg_id)]


def entry(uid: int, msg_id: int, level: int = 5) -> list[int]:
    return [msg_id, uid, 100 + uid, level]


def fetch(number: int, at_ns: int = 0, worker: str = "w", group: str = "g") -> Event:
    return ["fetch", "b", group, worker, number, at_ns]


def got(
    number: int,
    *entries: list[int],
    at_ns: int = 0,
    worker: str = "w",
    group: str = "g",
    times: int = 1,
) -> Event:
    return ["got", "b", group, worker, number, at_ns, [[*each, times] for each in entries]]


def fetched(number: int, *entries: list[int], **other: Any) -> list[Event]:  # noqa: ANN401
    asked = {name: other[name] for name in ("worker", "group", "at_ns") if name in other}
    return [fetch(number, **asked), got(number, *entries, **other)]


def mortal() -> list[Event]:
    """A work queue whose messages become dead letters after two deliveries."""
    policy = {"ack_wait_ms": 1000, "max_deliver": 2, "dead_letter": "dead"}
    return [["box", "dead", ["g"], ["g"], True, {}], ["box", "b", ["g"], [], True, policy]]


def nak(*ids: int, worker: str = "w") -> Event:
    return ["nak", "b", "g", worker, list(ids)]


def failed(uid: int, msg_id: int, deliveries: int = 2) -> list[Event]:
    """Delivered so often, and given back each time."""
    found: list[Event] = []
    for number in range(1, deliveries + 1):
        found += [*fetched(100 + number, entry(uid, msg_id), times=number), nak(msg_id)]
    return found


def dead(uid: int, dead_id: int, msg_id: int, deliveries: int = 2) -> list[Event]:
    """Seen in the dead-letter mailbox, with its history."""
    return [
        ["look", "dead", 0],
        ["looked", "dead", 0, [entry(uid, dead_id)]],
        ["buried", "dead", [[uid, msg_id, deliveries]]],
    ]


def acked(*ids: int, worker: str = "w", group: str = "g", only: bool = True) -> list[Event]:
    place = ["b", group, worker]
    return [["ack", *place, only, list(ids)], ["acked", *place, list(ids)]]


def looked(*entries: list[int], at_ns: int = 0) -> list[Event]:
    return [["look", "b", at_ns], ["looked", "b", at_ns, list(entries)]]


def pushed(conn: str, *entries: list[int]) -> Event:
    return ["pushed", "b", "r", conn, 0, list(entries)]


def answering(*ids: int) -> Event:
    return ["answering", "b", list(ids)]


KILLED: Event = ["killed", 1]
FORGOT: Event = ["forgot"]
END: Event = ["end"]

TWO = [*stored(1, 0), *stored(2, 1)]
KEYED = [send(1, key="k"), sent(1, 0), send(2, key="k"), sent(2, 1)]

SOUND: dict[str, list[Event]] = {
    "sent, seen, delivered, confirmed": [
        box(),
        *TWO,
        *looked(entry(1, 0), entry(2, 1)),
        *fetched(1, entry(1, 0), entry(2, 1)),
        *acked(0, 1),
        KILLED,
        *looked(entry(1, 0), entry(2, 1)),
        END,
    ],
    "what nobody confirmed comes again": [
        box(),
        *TWO,
        *fetched(1, entry(1, 0), entry(2, 1)),
        KILLED,
        *fetched(1, entry(1, 0), entry(2, 1), times=2),
        END,
    ],
    "a delivery may be forgotten when the power goes": [
        box(),
        *TWO,
        *fetched(1, entry(1, 0), entry(2, 1)),
        KILLED,
        FORGOT,
        *fetched(1, entry(1, 0), entry(2, 1), times=1),
        END,
    ],
    "a send without a reply may be there or not": [
        box(),
        send(1),
        KILLED,
        send(2),
        KILLED,
        *looked(entry(2, 0)),
        *fetched(1, entry(2, 0)),
        END,
    ],
    "an ACK without a reply may count or not": [
        box(work_queue=True),
        *TWO,
        *fetched(1, entry(1, 0), entry(2, 1)),
        acked(0)[0],
        acked(1)[0],
        KILLED,
        *looked(entry(2, 1)),
        *fetched(1, entry(2, 1), times=2),
    ],
    "asked before the ACK was confirmed": [
        box(),
        *stored(1, 0),
        *fetched(1, entry(1, 0), worker="v"),
        KILLED,
        fetch(2),
        *acked(0, worker="v"),
        got(2, entry(1, 0), times=2),
    ],
    "only the newest of a key": [
        box(),
        *KEYED,
        *looked(entry(2, 1)),
        *fetched(1, entry(2, 1)),
        END,
    ],
    "an expired message is gone": [box(), *stored(1, 0, ttl_s=1), *looked(at_ns=2 * S), END],
    "a delayed message comes when it is due": [
        box(),
        *stored(1, -1, delay_s=1),
        *looked(at_ns=S // 2),
        *looked(entry(1, 0), at_ns=2 * S),
        *fetched(1, entry(1, 0), at_ns=2 * S),
        END,
    ],
    "processed, or a dead letter": [
        *mortal(),
        *TWO,
        *failed(1, 0),
        *dead(1, 0, 0),
        *fetched(1, entry(2, 1)),
        *acked(1),
        *looked(),
        ["fetch", "dead", "g", "w", 1, 0],
        ["got", "dead", "g", "w", 1, 0, [[*entry(1, 0), 1]]],
        END,
    ],
    "a dead letter that was moved while nobody looked": [
        *mortal(),
        *stored(1, 0),
        *fetched(1, entry(1, 0)),
        KILLED,
        *dead(1, 0, 0),
        *looked(),
    ],
    "an ACK under way when the broker died, and a dead letter": [
        *mortal(),
        *stored(1, 0),
        *failed(1, 0),
        acked(0)[0],
        KILLED,
        *dead(1, 0, 0),
    ],
    "given back, and given to another": [
        *mortal(),
        *stored(1, 0),
        *fetched(1, entry(1, 0), worker="v"),
        nak(0, worker="v"),
        *fetched(1, entry(1, 0), times=2),
        *acked(0),
        END,
    ],
    "others get what a lease has set free": [
        box(groups=("g", "h")),
        *stored(1, 0),
        *fetched(1, entry(1, 0), worker="v", group="h"),
        *fetched(1, entry(1, 0), group="h", at_ns=ACK_WAIT_NS + S, times=2),
    ],
}

SOUND |= {
    "pushed, and again after the connection broke": [
        box(),
        *TWO,
        pushed("c1", entry(1, 0)),
        KILLED,
        pushed("c2", entry(1, 0), entry(2, 1)),
        answering(0, 1),
        END,
    ],
    "pushed again after it was given up": [
        box(),
        *TWO,
        pushed("c1", entry(1, 0)),
        ["dropped", "b", "c1"],
        pushed("c2", entry(1, 0), entry(2, 1)),
        answering(0, 1),
        END,
    ],
    "read, and again after a power cut": [
        box(),
        *TWO,
        pushed("c1", entry(1, 0)),
        answering(0),
        ["read", "b", [0]],
        KILLED,
        FORGOT,
        pushed("c2", entry(1, 0), entry(2, 1)),
        answering(0, 1),
        END,
    ],
    "answered, when nobody knows whether the broker heard it": [
        box(),
        *TWO,
        pushed("c1", entry(1, 0)),
        answering(0),
        KILLED,
        pushed("c2", entry(2, 1)),
        answering(1),
        END,
    ],
}

BROKEN: dict[str, tuple[str, list[Event]]] = {
    "gone after a kill": ("lost", [box(), *TWO, KILLED, *looked(entry(1, 0))]),
    "never pushed": ("lost", [box(), *TWO, pushed("c1", entry(1, 0)), answering(0), END]),
    "pushed, given up and never again": (
        "lost",
        [
            box(),
            *TWO,
            pushed("c1", entry(1, 0)),
            ["dropped", "b", "c1"],
            pushed("c2", entry(2, 1)),
            answering(1),
            END,
        ],
    ),
    "pushed, killed and never again": (
        "lost",
        [
            box(),
            *TWO,
            pushed("c1", entry(1, 0)),
            KILLED,
            pushed("c2", entry(2, 1)),
            answering(1),
            END,
        ],
    ),
    "pushed to two at once": (
        "given twice",
        [box(), *TWO, pushed("c1", entry(1, 0)), pushed("c2", entry(1, 0))],
    ),
    "pushed twice on one connection": (
        "given twice",
        [box(), *TWO, pushed("c1", entry(1, 0)), pushed("c1", entry(1, 0))],
    ),
    "pushed again after it was read": (
        "duplicated",
        [
            box(),
            *TWO,
            pushed("c1", entry(1, 0)),
            ["read", "b", [0]],
            KILLED,
            pushed("c2", entry(1, 0)),
        ],
    ),
    "never delivered": ("lost", [box(), *TWO, *fetched(1, entry(2, 1)), END]),
    "seen once and gone": ("lost", [box(), send(1), *looked(entry(1, 0)), *looked()]),
    "a delayed message that never comes": (
        "lost",
        [box(), *stored(1, -1, delay_s=1), *looked(at_ns=3 * S)],
    ),
    "expired too early": ("lost", [box(), *stored(1, 0, ttl_s=9), *looked(at_ns=5 * S)]),
    "again after its ACK": (
        "duplicated",
        [
            box(),
            *stored(1, 0),
            *fetched(1, entry(1, 0)),
            *acked(0),
            *fetched(2, entry(1, 0), times=2),
        ],
    ),
    "two members at once": (
        "given twice",
        [
            box(),
            *stored(1, 0),
            *fetched(1, entry(1, 0), worker="v"),
            *fetched(1, entry(1, 0), times=2),
        ],
    ),
    "a confirmed delivery that comes again after a power cut": (
        "duplicated",
        [
            box(),
            *stored(1, 0),
            *fetched(1, entry(1, 0)),
            *acked(0),
            KILLED,
            FORGOT,
            *fetched(1, entry(1, 0), times=1),
        ],
    ),
    "a repetition that is not marked": (
        "not marked",
        [box(), *stored(1, 0), *fetched(1, entry(1, 0)), KILLED, *fetched(1, entry(1, 0))],
    ),
    "a confirmed message back in a work queue": (
        "came back",
        [box(work_queue=True), *TWO, *fetched(1, entry(1, 0)), *acked(0), *looked(entry(1, 0))],
    ),
    "a deleted message back": (
        "came back",
        [box(), *stored(1, 0), ["delete", "b", [0]], ["deleted", "b", [0]], *looked(entry(1, 0))],
    ),
    "a refused message there": (
        "came back",
        [box(), send(1), ["refused", "b", "ada", 0, [1]], *looked(entry(1, 0))],
    ),
    "the older of a key": ("came back", [box(), *KEYED, *fetched(1, entry(1, 0))]),
    "the newest of a key gone": ("lost", [box(), *KEYED, *looked()]),
    "out of order in a batch": ("reordered", [box(), *TWO, *fetched(1, entry(2, 1), entry(1, 0))]),
    "out of order over batches": (
        "reordered",
        [box(), *TWO, *fetched(1, entry(2, 1)), *fetched(2, entry(1, 0))],
    ),
    "out of order over a kill": (
        "reordered",
        [box(), *TWO, *fetched(1, entry(2, 1)), KILLED, *fetched(1, entry(1, 0))],
    ),
    "less important first": (
        "reordered",
        [
            box(),
            *stored(1, 0, level=9),
            *stored(2, 1, level=1),
            *fetched(1, entry(1, 0, 9), entry(2, 1, 1)),
        ],
    ),
    "stored in another order than sent": ("reordered", [box(), *stored(1, 1), *stored(2, 0)]),
    "delivered before it is due": (
        "early",
        [box(), *stored(1, -1, delay_s=2), *fetched(1, entry(1, 0), at_ns=S)],
    ),
    "delivered after its lifetime": (
        "late",
        [box(), *stored(1, 0, ttl_s=1), *fetched(1, entry(1, 0), at_ns=2 * S)],
    ),
    "neither processed nor a dead letter": ("left over", [*mortal(), *TWO, *failed(1, 0), END]),
    "gone, and no dead letter": ("lost", [*mortal(), *TWO, *failed(1, 0), *looked(entry(2, 1))]),
    "a dead letter that is lost": (
        "lost",
        [
            *mortal(),
            *TWO,
            *failed(1, 0),
            *dead(1, 0, 0),
            ["look", "dead", 0],
            ["looked", "dead", 0, []],
        ],
    ),
    "processed and a dead letter": (
        "in both",
        [*mortal(), *stored(1, 0), *fetched(1, entry(1, 0)), *acked(0), *dead(1, 0, 0)],
    ),
    "a dead letter that is then processed": (
        "in both",
        [*mortal(), *stored(1, 0), *failed(1, 0), *dead(1, 0, 0), *acked(0)],
    ),
    "a dead letter that is delivered again": (
        "in both",
        [
            *mortal(),
            *stored(1, 0),
            *failed(1, 0, 1),
            *dead(1, 0, 0),
            *fetched(2, entry(1, 0), times=2),
        ],
    ),
    "a dead letter that is still in its mailbox": (
        "in both",
        [*mortal(), *stored(1, 0), *failed(1, 0), *dead(1, 0, 0), *looked(entry(1, 0))],
    ),
    "two dead letters of one message": (
        "stored twice",
        [*mortal(), *stored(1, 0), *failed(1, 0), *dead(1, 0, 0), *dead(1, 1, 0)],
    ),
    "a dead letter that nobody sent": ("invented", [*mortal(), *dead(7, 0, 0)]),
    "a dead letter with another payload": (
        "changed",
        [*mortal(), *stored(1, 0), ["look", "dead", 0], ["looked", "dead", 0, [[0, 1, 999, 5]]]],
    ),
    "a dead letter with another history": (
        "changed",
        [*mortal(), *TWO, *failed(1, 0), *dead(1, 0, 1)],
    ),
    "delivered more often than allowed": (
        "too often",
        [*mortal(), *stored(1, 0), *failed(1, 0, 3)],
    ),
    "a dead letter before its time": (
        "buried early",
        [*mortal(), *stored(1, 0), *failed(1, 0, 1), *dead(1, 0, 0, deliveries=1)],
    ),
    "two members at once, in spite of a short lease": (
        "given twice",
        [
            *mortal(),
            *stored(1, 0),
            *fetched(1, entry(1, 0), worker="v"),
            *fetched(1, entry(1, 0), at_ns=S // 2, times=2),
        ],
    ),
    "a file that a reader cannot read": ("half written", [["unreadable", "x.parquet", "no magic"]]),
    "another payload": ("changed", [box(), *stored(1, 0), *looked([0, 1, 999, 5])]),
    "another level": ("changed", [box(), *stored(1, 0), *looked(entry(1, 0, level=6))]),
    "a message that nobody sent": ("invented", [box(), *looked(entry(7, 0))]),
    "two messages with one id": (
        "id reused",
        [box(), *stored(1, 0), send(2), *looked(entry(2, 0))],
    ),
    "one message with two ids": (
        "stored twice",
        [box(), *stored(1, 0), *looked(entry(1, 0), entry(1, 1))],
    ),
}


def checked(events: list[Event]) -> Check:
    check = Check()
    check.feed(events)
    return check


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_ledger_passes(name: str) -> None:
    assert checked(SOUND[name]).violations == []


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_promise_is_found(name: str) -> None:
    rule, events = BROKEN[name]
    assert rule in checked(events).broken, checked(events).violations
