"""Kills and power cuts under mixed load lose nothing; and what would lose something is noticed."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.faults import poison, shim
from tests.faults.check import Check
from tests.faults.check_export import ExportCheck
from tests.faults.exports import Exported
from tests.faults.kills import Outcome, Run
from tests.faults.ledger import Event, Ledger, events
from tests.faults.power import PowerRun
from tests.faults.report import Row, record
from tests.mail import Json, Mail

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
        outcome.lost,
        outcome.doubled,
        outcome.times.ready_s[1:],
        outcome.times.fetch_s[1:],
        note,
    )


@pytest.mark.parametrize("sync", ["always", "interval"])
def test_kills_lose_nothing(tmp_path: Path, sync: str) -> None:
    """In either mode: what a killed process has written is with the operating system."""
    run = Run(tmp_path, sync, seed=1)
    outcome = run.play(KILLS, EACH)
    record(row("kill", f"SIGKILL, sync {sync}", outcome))
    assert outcome.violations == []
    assert outcome.kills >= KILLS
    assert outcome.acknowledged > KILLS * EACH / 2
    assert outcome.segments_gone > 0, "upkeep did nothing: the kills could not hit it"
    assert outcome.repeated > 0, "no delivery was repeated: the kills hit nothing"
    assert outcome.pushed > 0, "nothing was pushed: the kills could not hit it"
    assert outcome.pushed_again > 0, "nothing was pushed again: no kill hit a push"
    assert outcome.dead > 0, "no message became a dead letter: the kills could not hit that"
    assert run.exported.files > KILLS, "hardly anything was exported: the kills could not hit that"
    assert outcome.exported > 0


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


def copied(mail: Mail, entry: Json) -> None:
    headers = {"mq9-priority": entry["priority"]}
    mail.done(f"MSG.SEND.{poison.DEAD}", entry["payload"].encode(), headers)


def deleted(mail: Mail, entry: Json) -> None:
    mail.done(f"MSG.DELETE.{poison.BOX}.{entry['msg_id']}")


class Sabotaged(Run):
    """Somebody who keeps no books meddles with the dead letters before each look."""

    meddle: Callable[[Mail, Json], None]

    def look(self, url: str) -> None:
        with Mail(url) as mail:
            for entry in mail.done(f"MSG.QUERY.{poison.BOX}", {"limit": 5})["messages"]:
                self.meddle(mail, entry)
        super().look(url)


@pytest.mark.parametrize(("meddle", "rule"), [(copied, "in both"), (deleted, "lost")])
def test_control_dead_letters_that_are_none_are_noticed(
    tmp_path: Path, meddle: Callable[[Mail, Json], None], rule: str
) -> None:
    """A message both in its mailbox and among the dead letters, or in neither."""
    run = Sabotaged(tmp_path, "interval", seed=4)
    run.meddle = meddle
    outcome = run.play(3, EACH)
    name = "a copy among the dead letters" if meddle is copied else "neither dead nor alive"
    record(row("kill", f"control: {name}", outcome, f"{outcome.broken[rule]} found"))
    assert outcome.broken[rule] > 0


def doubled(file: Path) -> None:
    """The rows of a piece, under another name as well."""
    shutil.copy(file, file.with_name("part-0000000001-0000000001.parquet"))


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-100])


TAMPERED: dict[str, tuple[Callable[[Path], None], str]] = {
    "a file removed": (Path.unlink, "not exported"),
    "a file twice": (doubled, "exported twice"),
    "a file cut off": (cut, "half written"),
}


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a short run leaves: its ledger and its export."""
    folder = tmp_path_factory.mktemp("played")
    assert Run(folder, "interval", seed=5).play(1, EACH).violations == []
    return folder


def broken_by(folder: Path, out: Path) -> set[str]:
    """The rules that an export breaks, by the ledger of a run."""
    ledger = Ledger(out.parent / "rows.jsonl")
    reader = Exported(out, ledger)
    reader.look()
    found: list[Event] = events(ledger.path)
    if not found:
        reader.write_rows()
        found = events(ledger.path)
    ledger.close()
    check, rows = Check(), ExportCheck()
    check.feed(found)
    kept = ("exported", "exported_all")
    rows.feed(event for event in events(folder / "ledger.jsonl") if event[0] not in kept)
    rows.feed(found)
    return set(check.broken) | set(rows.broken)


def test_an_export_that_nobody_touched_is_sound(played: Path) -> None:
    assert broken_by(played, played / "export") == set()


@pytest.mark.parametrize("how", TAMPERED)
def test_control_an_export_that_was_tampered_with_is_noticed(
    played: Path, tmp_path: Path, how: str
) -> None:
    tamper, rule = TAMPERED[how]
    shutil.copytree(played / "export", tmp_path / "export")
    tamper(max((tmp_path / "export" / "messages").rglob("*.parquet")))
    assert broken_by(played, tmp_path / "export") == {rule}
    record(Row("kill", f"control: export, {how}", 1, note=f"found: {rule}"))
