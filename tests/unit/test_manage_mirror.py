"""What management says of queues: rates, outlook and order, as time passes."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from mq9.manage.mirror import Mirror

BEGAN = 1_700_000_000.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Sets the time, in seconds from the beginning."""
    now = [BEGAN]
    monkeypatch.setattr("mq9.manage.mirror.time", SimpleNamespace(time=lambda: now[0]))

    def set_to(seconds: float) -> None:
        now[0] = BEGAN + seconds

    return set_to


def group(**numbers: int) -> dict[str, Any]:
    zero = dict.fromkeys(("lag", "outstanding", "members", "oldest_ms", "delivered"), 0)
    zero |= dict.fromkeys(("redelivered", "acked", "returned", "dead"), 0)
    return {"name": "g", "used_ms": int(BEGAN * 1000), "durations": [], **zero, **numbers}


def row(slot: int, name: str, messages: int = 0, *groups: dict[str, Any], **more: Any) -> Any:  # noqa: ANN401
    return {
        "slot": slot,
        "address": name,
        "created_ms": 1,
        "next_id": messages,
        "delayed": 0,
        "bytes": 0,
        "oldest_ms": 0,
        "levels": [(5, messages)] if messages else [],
        "dead_letter": "",
        "group_count": len(groups),
        "groups": groups,
        **more,
    }


def looked(mirror: Mirror, *rows: Any) -> None:  # noqa: ANN401
    """A look at the broker, with what has changed."""
    mirror.apply(rows)
    mirror.looked()


@pytest.fixture
def mirror() -> Mirror:
    found = Mirror()
    found.whole = True
    return found


def outlooks(mirror: Mirror) -> list[tuple[str, str]]:
    return [(each.name, each.outlook) for each in mirror.page()[0]]


def test_a_rate_is_of_the_last_look_not_of_the_last_change(
    mirror: Mirror, clock: Callable[[float], None]
) -> None:
    looked(mirror, row(0, "a"))
    for second in (3599, 3600):
        clock(second)
        looked(mirror)
    clock(3601)
    looked(mirror, row(0, "a", 1000))
    [found], _ = mirror.page()
    assert found.rate_in == 1000, "an idle hour before does not count"
    clock(3610)
    [found], _ = mirror.page()
    assert found.rate_in == 0


def test_acknowledgements_that_end_are_a_rate_no_longer(
    mirror: Mirror, clock: Callable[[float], None]
) -> None:
    looked(mirror, row(0, "a", 10, group(lag=5)))
    clock(1)
    looked(mirror, row(0, "a", 10, group(lag=3, acked=2)))
    [found] = mirror.all_groups()
    assert found.ack_rate(BEGAN + 1) == 2
    assert found.ack_rate(BEGAN + 60) == 0


def test_a_queue_that_nobody_reads_comes_first_though_nothing_changes(
    mirror: Mirror, clock: Callable[[float], None]
) -> None:
    rows = row(0, "busy", 900, group(lag=900, members=1)), row(1, "left", 3, group(lag=3))
    looked(mirror, *rows)
    assert [name for name, _ in outlooks(mirror)] == ["busy", "left"]
    clock(90)
    looked(mirror)
    assert outlooks(mirror)[0] == ("left", "nobody reads")
    looked(mirror, row(1, "left", 3, group(lag=3, members=1)))
    assert outlooks(mirror)[0][0] == "busy"


def test_what_grew_once_is_not_worse_for_ever(
    mirror: Mirror, clock: Callable[[float], None]
) -> None:
    before = row(0, "old", 0, group(members=1)), row(1, "more", 50, group(lag=50, members=1))
    looked(mirror, *before)
    clock(1)
    looked(mirror, row(0, "old", 20, group(lag=20, members=1)))
    assert outlooks(mirror)[0] == ("old", "growing")
    clock(60)
    assert [name for name, _ in outlooks(mirror)] == ["more", "old"]


def test_growing_is_told_after_a_while_without_a_pause(
    mirror: Mirror, clock: Callable[[float], None]
) -> None:
    def grow(begin: int, end: int) -> None:
        for second in range(begin, end, 2):
            clock(second)
            looked(mirror, row(0, "a", 10 * second, group(lag=10 * second, members=1)))

    grow(0, 500)
    assert mirror.growing(600, 1000) == []
    grow(500, 640)
    assert [found.name for found in mirror.growing(600, 1000)] == ["a"]
    assert mirror.growing(600, 100_000) == []
    grow(700, 800)
    assert mirror.growing(600, 1000) == [], "it had stopped"


def test_a_stream_may_be_called_like_a_mailbox(mirror: Mirror) -> None:
    stream = row(1, "$js.7", 4, group(lag=1, members=1), stream="Jobs")
    looked(mirror, row(0, "jobs", 2), stream, row(2, "Jobs2", 0))
    place = mirror.find("Jobs", None)
    assert place == mirror.find("Jobs", "stream") == 1
    assert mirror.find("Jobs") is None
    assert mirror.find("jobs", None) == 0
    assert (mirror.count, mirror.streams) == (3, 1)
    assert [found.name for found in mirror.page(kind="stream")[0]] == ["Jobs"]
    assert mirror.page(search="jobs")[1] == 3
    assert int(mirror.levels.sum()) == 2, "what a stream keeps does not wait"
    mirror.apply((), gone=[1])
    assert (mirror.find("Jobs", None), mirror.count, mirror.streams) == (None, 2, 0)


def test_where_dead_letters_go_is_known_as_long_as_somebody_sends_them_there(
    mirror: Mirror,
) -> None:
    looked(mirror, row(0, "a", dead_letter="dead"), row(1, "b", dead_letter="dead"))
    assert mirror.dead_letter_mailboxes() == {"dead"}
    looked(mirror, row(0, "a", dead_letter="other"))
    assert mirror.dead_letter_mailboxes() == {"dead", "other"}
    mirror.apply((), gone=[1])
    assert mirror.dead_letter_mailboxes() == {"other"}
