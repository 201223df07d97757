"""The log speaks of refused writes at the start, once a minute and at the end."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from mq9.server.logs import Log
from mq9.server.refusals import Refusals

FULL = "the disk is full"


class Told:
    """A log, what it said since it was asked last, and a clock to put forward."""

    def __init__(self, folder: Path) -> None:
        self.now_s = 0.0
        self.file = folder / "log"
        self.log = Log(file=self.file, time=False)
        self.refusals = Refusals(self.log, lambda: self.now_s)

    def look(self, cause: str | None, count: int) -> list[str]:
        before = len(self.file.read_text("utf-8"))
        self.refusals.look(cause or FULL, count, is_over=cause is None)
        text = self.file.read_text("utf-8")[before:]
        return [line.split("] ", 1)[1] for line in text.splitlines()]


@pytest.fixture
def told(tmp_path: Path) -> Iterator[Told]:
    told = Told(tmp_path)
    yield told
    told.log.close()


def test_a_long_refusal_is_told_at_its_start_once_a_minute_and_at_its_end(told: Told) -> None:
    assert told.look(None, 0) == []
    assert told.look(FULL, 3) == [f"[ERR] the store refuses writes: {FULL} refused=3"]
    lines = []
    for second in range(2, 150, 2):
        told.now_s = second
        lines += told.look(FULL, 3 + 1000 * second)
    assert lines == [
        f"[ERR] the store still refuses writes: {FULL} refused=60003",
        f"[ERR] the store still refuses writes: {FULL} refused=120003",
    ]
    assert told.look(None, 148003) == ["[INF] the store takes writes again refused=148003"]
    assert told.look(None, 148003) == []
    assert told.look(FULL, 148004) == [f"[ERR] the store refuses writes: {FULL} refused=1"]


def test_refusals_that_come_and_go_are_one_refusal(told: Told) -> None:
    assert told.look(None, 5) == [f"[ERR] the store refuses writes: {FULL} refused=5"]
    for count in range(6, 20):
        assert told.look(None, count) == []
        assert told.look(FULL, count) == []
    assert told.look(None, 19) == ["[INF] the store takes writes again refused=19"]


def test_a_refusal_that_nobody_met_is_told_too(told: Told) -> None:
    assert told.look("gone", 0) == ["[ERR] the store refuses writes: gone refused=0"]
    assert told.look(None, 0) == ["[INF] the store takes writes again refused=0"]
