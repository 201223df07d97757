"""Kills and power cuts under the load of streams lose nothing; control: losses are noticed."""

from pathlib import Path

import pytest
from tests.faults import shim
from tests.faults.report import record
from tests.faults.streams import StreamPowerRun, StreamRun
from tests.faults.test_kills import needs_shim, row

KILLS = 6
CUTS = 4
EACH = 1500


@pytest.mark.parametrize("sync", ["always", "interval"])
def test_kills_lose_nothing_of_streams(tmp_path: Path, sync: str) -> None:
    run = StreamRun(tmp_path, sync, seed=1)
    outcome = run.play(KILLS, EACH)
    record(row("kill", f"SIGKILL, streams, sync {sync}", outcome))
    assert outcome.violations == []
    assert outcome.kills >= KILLS
    assert outcome.acknowledged > KILLS * EACH / 2
    assert outcome.repeated > 0, "no delivery was repeated: the kills hit nothing"
    assert run.dead() > run.given_up() > 0, "nothing became a dead letter for want of an answer"


@needs_shim
def test_power_cuts_lose_nothing_of_streams(tmp_path: Path) -> None:
    run = StreamPowerRun(tmp_path, "always", seed=1)
    outcome = run.play(CUTS, EACH)
    note = f"{run.undone} changes that were not synced taken back"
    record(row("power", "power cut, streams, sync always", outcome, note))
    assert outcome.violations == []
    assert run.undone > 0, "everything was synced: the cuts hit nothing"


@needs_shim
def test_control_writes_of_streams_that_never_happen_are_noticed(tmp_path: Path) -> None:
    faults = shim.Shim(tmp_path / "shim", tmp_path / "data")
    run = StreamRun(tmp_path, "always", seed=3, around=faults.around)
    run.began = lambda: faults.set("lose_writes", 1)
    run.restarting = lambda: faults.set("lose_writes", 0)
    outcome = run.play(1, EACH)
    record(row("kill", "control: streams, writes that do nothing", outcome, "losses are found"))
    assert outcome.broken["lost"] > 0
