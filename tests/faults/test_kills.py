"""Kills and power cuts under mixed load lose nothing; and what would lose something is noticed."""

from pathlib import Path

import pytest
from tests.faults import shim
from tests.faults.kills import Outcome, Run
from tests.faults.power import PowerRun
from tests.faults.report import Row, record

KILLS = 10
CUTS = 6
EACH = 1200

needs_shim = pytest.mark.skipif(shim.missing() is not None, reason=str(shim.missing()))


def row(part: str, fault: str, outcome: Outcome, note: str = "") -> Row:
    """What a run came to, for the report."""
    return Row(
        part,
        fault,
        outcome.kills,
        outcome.acknowledged,
        outcome.broken["lost"],
        outcome.broken["duplicated"] + outcome.broken["came back"],
        outcome.times.ready_s[1:],
        outcome.times.fetch_s[1:],
        note,
    )


@pytest.mark.parametrize("sync", ["always", "interval"])
def test_kills_lose_nothing(tmp_path: Path, sync: str) -> None:
    """In either mode: what a killed process has written is with the operating system."""
    outcome = Run(tmp_path, sync, seed=1).play(KILLS, EACH)
    record(row("kill", f"SIGKILL, sync {sync}", outcome))
    assert outcome.violations == []
    assert outcome.kills >= KILLS
    assert outcome.acknowledged > KILLS * EACH / 2
    assert outcome.segments_gone > 0, "upkeep did nothing: the kills could not hit it"
    assert outcome.repeated > 0, "no delivery was repeated: the kills hit nothing"


@needs_shim
def test_power_cuts_lose_nothing(tmp_path: Path) -> None:
    run = PowerRun(tmp_path, "always", seed=1)
    outcome = run.play(CUTS, EACH)
    note = f"{run.undone} changes that were not synced taken back"
    record(row("power", "power cut under the broker, sync always", outcome, note))
    assert outcome.violations == []
    assert run.undone > 0, "everything was synced: the cuts hit nothing"


@needs_shim
@pytest.mark.parametrize(("sync", "lie"), [("always", True), ("interval", False), ("none", False)])
def test_control_power_cuts_without_syncs_are_noticed(tmp_path: Path, sync: str, lie: bool) -> None:
    outcome = PowerRun(tmp_path, sync, seed=2, lie=lie).play(CUTS, EACH)
    fault = f"control: power cut, {'syncs that do nothing' if lie else f'sync {sync}'}"
    record(row("power", fault, outcome, "losses are found, as they must be"))
    assert outcome.broken["lost"] + outcome.broken["came back"] > 0


@needs_shim
def test_control_writes_that_never_happen_are_noticed(tmp_path: Path) -> None:
    """Kills alone lose nothing that was written; so for once it is not written."""
    faults = shim.Shim(tmp_path / "shim", tmp_path / "data")
    run = Run(tmp_path, "always", seed=3, around=faults.around)
    run.began = lambda: faults.set("lose_writes", 1)
    run.restarting = lambda: faults.set("lose_writes", 0)
    outcome = run.play(1, EACH)
    record(row("kill", "control: writes that do nothing", outcome, "losses are found"))
    assert outcome.broken["lost"] > 0
