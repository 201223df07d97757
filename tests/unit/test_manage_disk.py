"""When the disk is full, as far as can be told from how it filled."""

from typing import Any

import pytest

from mq9.manage.attention import attention
from mq9.manage.disk import DiskTrend
from mq9.manage.follower import Follower
from mq9.manage.link import Link
from mq9.manage.settings import Settings

GIB = 1 << 30
HOUR = 3600.0


def watched(*free: float) -> DiskTrend:
    """One sample every hour, in GiB."""
    trend = DiskTrend()
    for hour, each in enumerate(free):
        trend.add(int(each * GIB), hour * HOUR)
    return trend


def test_it_is_full_when_the_pace_says_so() -> None:
    left, over = watched(100, 99, 98).full_in() or (0, 0)
    assert (round(left / HOUR), over) == (98, 2 * HOUR)


@pytest.mark.parametrize("free", [(), (100,), (100, 100), (100, 90, 101), (50, 60)])
def test_nothing_is_said_of_a_disk_that_does_not_fill_or_is_new(free: tuple[float, ...]) -> None:
    assert watched(*free).full_in() is None


def test_a_few_minutes_are_no_pace() -> None:
    trend = DiskTrend()
    trend.add(100 * GIB, 0)
    trend.add(50 * GIB, 1800)
    assert trend.full_in() is None


def test_what_was_a_day_ago_is_forgotten() -> None:
    trend = DiskTrend()
    for minute in range(0, 3 * 24 * 60, 5):
        # It filled on the first day, and has not since.
        trend.add(GIB * max(200 - minute // 60, 176), minute * 60.0)
    assert trend.full_in() is None


@pytest.mark.parametrize(
    ("free", "text"),
    [
        (80, "The disk is full in 32 h at the pace of the last 8 h"),
        (97, "The disk is full in 10 d at the pace of the last 8 h"),
        (4, "The disk has 4% left"),
    ],
)
def test_attention_is_drawn_to_it_a_week_before(free: int, text: str) -> None:
    follower = Follower(Link(Settings()))
    follower.server = {"disk": {"total": 100 * GIB, "free": free * GIB}}
    follower.disk_trend.add(100 * GIB, 0)
    follower.disk_trend.add(free * GIB, 8 * HOUR)
    told: list[dict[str, Any]] = [each for each in attention(follower) if each["kind"] == "disk"]
    wanted = [] if "10 d" in text else [text]
    assert [each["text"] for each in told] == wanted
