"""What management says of queues: rates, outlook and order, as time passes."""

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from mq9.manage.mirror import Mirror
from mq9.manage.rows import Group

BEGAN = 1_700_000_000.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Sets the time, in seconds from the beginning."""
    now = [BEGAN]
    told = SimpleNamespace(time=lambda: now[0])
    for module in ("mirror", "groups"):
        monkeypatch.setattr(f"mq9.manage.{module}.time", told)

    def set_to(seconds: float) -> None:
        now[0] = BEGAN + seconds

    return set_to


def group(**numbers: Any) -> dict[str, Any]:  # noqa: ANN401
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


def every_group(mirror: Mirror, **choice: Any) -> tuple[list[Group], int]:  # noqa: ANN401
    wanted = {"search": "", "sort": "name", "offset": 0, "limit": 50, "kind": None, **choice}
    return mirror.groups.page(**wanted)


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
    [[found], _] = every_group(mirror)
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


def test_a_row_that_has_no_room_for_all_groups_leaves_the_others(mirror: Mirror) -> None:
    names = [f"g{number:02}" for number in range(80)]
    rows = [group(name=name, lag=1, outstanding=2, acked=1) for name in names]
    looked(mirror, row(0, "a", 9, *rows[:32], group_count=80))
    assert mirror.crowded() == [0]
    for first in (32, 60):
        mirror.apply_groups(0, rows[first : first + 28])
    mirror.keep_groups(0, set(names))
    found, total = every_group(mirror, limit=100)
    assert ([each.name for each in found], total) == (names, 80)
    assert (mirror.crowded(), mirror.row(0).in_flight, mirror.totals["acked"]) == ([], 160, 80)
    looked(mirror, row(0, "a", 9, *rows[:32], group_count=80))
    assert every_group(mirror)[1] == 80, "the row says nothing of the others"
    mirror.keep_groups(0, set(names[:50]))
    assert (every_group(mirror)[1], mirror.totals["in_flight"]) == (50, 100)
    looked(mirror, row(0, "a", 9, rows[0]))
    assert every_group(mirror)[1] == 1, "the row tells of all there are"
    mirror.apply((), gone=[0])
    assert (every_group(mirror), mirror.totals["in_flight"]) == (([], 0), 0)


def test_groups_are_found_sorted_and_paged(mirror: Mirror) -> None:
    looked(
        mirror,
        row(0, "a", 5, group(name="work\0er", lag=5), group(name="work", lag=1)),
        row(1, "b", 5, group(name="work", lag=9), group(name="WORK\nERS")),
        row(2, "$js.1", 5, group(name="work", lag=3), stream="S"),
    )

    def shown(**choice: Any) -> list[tuple[str, str]]:  # noqa: ANN401
        return [(each.queue, each.name) for each in every_group(mirror, **choice)[0]]

    assert shown(sort="lag", limit=3) == [("b", "work"), ("a", "work\0er"), ("S", "work")]
    assert shown(sort="-lag", limit=2) == [("b", "WORK\nERS"), ("a", "work")]
    assert shown(search="ERS") == [("b", "WORK\nERS")]
    assert shown(kind="stream", sort="name") == [("S", "work")]
    assert shown(sort="-name", kind="mailbox", limit=2) == [("a", "work\0er"), ("b", "work")]
    [first, second, third], total = mirror.groups.named("work", "", 0, 10)
    assert ([first.queue, second.queue, third.queue], total) == (["S", "a", "b"], 3)
    assert [each.queue for each in mirror.groups.named("work", "", 1, 1)[0]] == ["a"]
    assert mirror.groups.named("work", "b", 0, 10)[1] == 1
    assert mirror.groups.named("work\0er", "", 0, 10)[1] == 1
    assert mirror.groups.named("wor", "", 0, 10) == ([], 0)


def test_what_happened_while_all_is_read_anew_is_counted(mirror: Mirror) -> None:
    looked(mirror, row(0, "a", 10, group(acked=4, delivered=6)))
    before = mirror.totals["sent"], mirror.totals["acked"], mirror.totals["delivered"]
    assert before == (10, 4, 6)
    # The broker goes on meanwhile: its places are others by now, and one has come.
    fresh = mirror.begin_again(is_new_life=False)
    fresh.apply([row(3, "a", 12, group(acked=7, delivered=9)), row(0, "b", 5)])
    mirror.take_over(fresh)
    assert (mirror.totals["sent"], mirror.totals["acked"]) == (17, 7)
    # Another life of the broker: what groups did begins at nothing, messages go on.
    fresh = mirror.begin_again(is_new_life=True)
    fresh.apply([row(0, "a", 13, group(acked=8)), row(1, "b", 5, created_ms=2)])
    mirror.take_over(fresh)
    assert (mirror.totals["sent"], mirror.totals["acked"]) == (17 + 1 + 5, 7 + 8)


def test_what_was_there_before_this_process_is_not_counted() -> None:
    mirror = Mirror()
    fresh = mirror.begin_again(is_new_life=True)
    fresh.apply([row(0, "a", 10, group(acked=4))])
    mirror.take_over(fresh)
    assert (mirror.whole, mirror.totals["sent"], mirror.totals["acked"]) == (True, 0, 0)


def test_a_group_that_is_mended_is_forgiven_after_a_while(
    mirror: Mirror, clock: Callable[[float], None]
) -> None:
    """What it was given more than once counts for a quarter of an hour, not for ever."""
    told = {"lag": 5, "members": 1, "delivered": 1000, "redelivered": 500}
    looked(mirror, row(0, "a", 1000, group(**told)))
    count, first, share = mirror.groups.given_again(0.05, 100)
    assert (count, first and first.name, share) == (1, "g", 0.5)
    for minute in range(1, 21):
        clock(60 * minute)
        told["delivered"] += 200
        looked(mirror, row(0, "a", 1000 + 200 * minute, group(**told)))
        if minute == 5:
            assert mirror.groups.given_again(0.05, 100)[0] == 1
    assert mirror.groups.given_again(0.05, 100) == (0, None, 0.0)
    told |= {"delivered": told["delivered"] + 1000, "redelivered": 900}
    looked(mirror, row(0, "a", 7000, group(**told)))
    count, _, share = mirror.groups.given_again(0.05, 100)
    assert count == 1
    assert share > 0.1
    # It is not told of for ever if nothing happens any more.
    clock(60 * 40)
    assert mirror.groups.given_again(0.05, 100)[0] == 0


def test_two_that_changed_places_at_once_are_found(mirror: Mirror) -> None:
    looked(mirror, row(0, "a", 1), row(1, "b", 2))
    looked(mirror, row(1, "a", 3), row(0, "c", 4))
    assert [mirror.find(name) for name in ("a", "b", "c")] == [1, None, 0]
    assert [(each.name, each.depth) for each in mirror.page(sort="name")[0]] == [("a", 3), ("c", 4)]
    assert mirror.count == 2


def test_a_mailbox_that_is_told_twice_at_once_is_as_it_was_told_last(mirror: Mirror) -> None:
    looked(mirror, row(0, "a", 1))
    looked(mirror, row(0, "a", 2), row(0, "a", 5))
    assert mirror.row(0).depth == 5
    assert mirror.totals["sent"] == 5
    assert mirror.levels.tolist()[4] == 5


def test_rows_that_come_together_say_what_they_say_one_by_one(
    clock: Callable[[float], None],
) -> None:
    chance = random.Random(7)
    for _ in range(30):
        together, one_by_one = Mirror(), Mirror()
        together.whole = one_by_one.whole = chance.random() < 0.8
        for second in range(12):
            clock(second * chance.choice((1, 1, 70)))
            places = chance.sample(range(12), chance.randrange(1, 12))
            gone = chance.sample(range(12), chance.randrange(3))
            rows = [_any_row(chance, place) for place in places if place not in gone]
            together.apply(rows, gone)
            one_by_one.apply([], gone)
            for each in rows:
                one_by_one.apply([each])
            for mirror in (together, one_by_one):
                mirror.looked()
                mirror.whole |= second > 5
            assert _told(together) == _told(one_by_one)


def _any_row(chance: random.Random, place: int) -> Any:  # noqa: ANN401
    groups = [
        group(name=name, lag=chance.randrange(3), outstanding=chance.randrange(3), acked=second)
        for second, name in enumerate(chance.sample("gh", chance.choice((0, 0, 1, 2))))
    ]
    counts = {level: chance.randrange(9) for level in chance.sample(range(1, 11), 2)}
    # A place has a name of its own, or one of another kind: names come back, but not elsewhere.
    more: dict[str, Any] = {"stream": f"s{place}"} if chance.random() < 0.2 else {}
    return (
        row(place, f"m{place}", 0, *groups)
        | more
        | {
            "created_ms": chance.choice((1, 1, 1, 2)),
            "next_id": chance.randrange(100),
            "delayed": chance.randrange(5),
            "bytes": chance.randrange(1000),
            "oldest_ms": chance.randrange(3) * 1000,
            "levels": list(counts.items()),
            "dead_letter": chance.choice(("", "", "dead", "letters")),
        }
    )


def _told(mirror: Mirror) -> Any:  # noqa: ANN401
    rows, count = mirror.page(sort="name")
    groups, _ = every_group(mirror)
    sums = (mirror.totals, mirror.levels.tolist(), mirror.count, mirror.streams, count)
    growing = [each.name for each in mirror.growing(0.0, 0)]
    targets = mirror.dead_letter_mailboxes()
    order = [each.name for each in mirror.page()[0]]
    return rows, [(g.queue, g.name, g.lag, g.rate) for g in groups], sums, growing, targets, order
