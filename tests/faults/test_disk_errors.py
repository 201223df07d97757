"""A disk that is full, read-only or broken: clear errors, and nothing acknowledged is lost."""

import errno
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.faults import shim
from tests.faults.check import Check
from tests.faults.ledger import events
from tests.faults.report import record
from tests.faults.room import NoRoomError, Room
from tests.faults.scene import BOX, GROUP, Scene
from tests.faults.shim import Shim
from tests.mail import Mail, ids
from tests.peers import ServerDiedError, until

SMALL_DISK_BYTES = 8 << 20

needs_shim = pytest.mark.skipif(shim.missing() is not None, reason=str(shim.missing()))


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Room]:
    try:
        small = Room(tmp_path / "data", SMALL_DISK_BYTES)
    except (NoRoomError, FileNotFoundError) as error:
        pytest.skip(str(error))
    with small:
        yield small


def fill(scene: Scene) -> list[str]:
    """Sends until nothing at all is taken; what was said to that.

    A first refusal is not the end: upkeep may find space to give back.
    """
    scene.sender.mean_bytes = 8000
    refused = []
    for _ in range(1000):
        refused += scene.send(20)
        if len(refused) > 200:
            return refused
    raise AssertionError("the small disk was never full")


def test_a_full_disk_refuses_sends_and_can_be_emptied(tmp_path: Path, room: Room) -> None:
    with Scene(tmp_path, room.around) as scene:
        errors = fill(scene)
        assert all(error.startswith("the disk is full: No space left") for error in errors)
        refused = len(errors)
        # A start needs some room as well: the reserve is for that.
        scene.restart()
        scene.look()
        assert scene.take(50) != [], "a full disk must not keep workers from their work"

        def emptied() -> bool:
            scene.take(50)
            scene.sender.mean_bytes = 2000
            return scene.send(20) == []

        until(emptied, "there was room for new messages", 20)
        scene.restart()
        scene.look()
        scene.drain()
        check = scene.check()
        assert check.violations == []
        record(scene.row("disk", "full (8 MiB tmpfs)", check, f"{refused} sends refused"))
        # Control: had those been acknowledged, their loss would be found.
        lied = believed(scene)
        assert lied.lost >= refused
        record(scene.row("disk", "control: full, refused sends booked as sent", lied))


def test_a_read_only_disk_keeps_the_broker_from_starting(tmp_path: Path, room: Room) -> None:
    with Scene(tmp_path, room.around) as scene:
        scene.send(50)
        scene.take(5)
        scene.kill()
        room.run("mount", "-o", "remount,ro", str(room.folder))
        with pytest.raises(ServerDiedError) as died:
            scene.start()
        said = str(died.value)
        assert "ended with 1 before" in said
        assert f"cannot open the data directory {room.folder}" in said
        assert "Read-only file system" in said
        assert "Traceback" not in said
        room.run("mount", "-o", "remount,rw", str(room.folder))
        scene.start()
        scene.look()
        scene.drain()
        check = scene.check()
        assert check.violations == []
        record(scene.row("disk", "read-only at the start", check, "does not start, and says why"))


@needs_shim
def test_a_disk_that_becomes_read_only_refuses_what_needs_a_new_file(tmp_path: Path) -> None:
    faults = Shim(tmp_path / "shim", tmp_path / "data")
    with Scene(tmp_path, faults.around) as scene:
        scene.send(50)
        faults.set("open_errno", errno.EROFS)
        scene.sender.mean_bytes = 8000
        errors: list[str] = []
        # Two segments at most: the one in use, and one that was made ahead.
        for _ in range(20):
            errors = errors or scene.send(20)
        assert errors
        assert all("Read-only file system" in error for error in errors)
        assert faults.get("hits") > 0
        until(lambda: "upkeep of the store failed" in scene.server.log, "the log says so")
        faults.set("open_errno", 0)
        assert scene.send(20) == []
        until(lambda: "upkeep of the store works again" in scene.server.log, "the log says so")
        scene.take(10)
        scene.restart()
        scene.look()
        scene.drain()
        check = scene.check()
        assert check.violations == []
        record(scene.row("disk", "read-only under a running broker", check))


def believed(scene: Scene) -> Check:
    """The same books, had every send been confirmed."""
    found = events(scene.ledger.path)
    confirmed = {uid for event in found if event[0] == "sent" for uid, _ in event[4]}
    check = Check()
    for event in found:
        if event[0] == "refused":
            continue
        check.feed([event])
        if event[0] == "send":
            lies = [[uid, 10**6 + uid] for uid, *_ in event[4] if uid not in confirmed]
            check.feed([["sent", *event[1:4], lies]])
    return check


def reads_on(scene: Scene) -> bool:
    """Whether messages can still be read without a group, which writes nothing."""
    with Mail(scene.server.url) as mail:
        return len(mail.fetch(BOX)) >= 40


@needs_shim
def test_a_failed_write_is_not_acknowledged(tmp_path: Path) -> None:
    """Whether it counts later is open, as after a lost connection."""
    faults = Shim(tmp_path / "shim", tmp_path / "data", undo=True)
    with Scene(tmp_path, faults.around) as scene:
        scene.send(50)
        held = ids(scene.worker.fetch(5, wait_ms=0))
        acknowledged = scene.ledger.acknowledged
        faults.set("write_errno", errno.EIO)
        assert all("Input/output error" in error for error in scene.send(1))
        scene.ledger.write("ack", BOX, GROUP, scene.worker.member, False, held)
        answer = scene.link.ask(f"MSG.ACK.{BOX}", {"group_name": GROUP, "msg_id": held[-1]})
        assert "Input/output error" in answer["error"]
        assert reads_on(scene)
        assert faults.get("hits") > 0
        assert scene.ledger.acknowledged == acknowledged
        faults.set("write_errno", 0)
        assert scene.send(10) == [], "a disk that works again is used again"
        scene.kill()
        faults.cut_power(random.Random(1))
        scene.start()
        scene.look()
        scene.drain()
        check = scene.check()
        assert check.violations == []
        record(scene.row("disk", "EIO on write, then a power cut", check))


@needs_shim
def test_a_failed_sync_stops_writes_until_a_restart(tmp_path: Path) -> None:
    """After it nothing is acknowledged, and a power cut takes only what never was."""
    faults = Shim(tmp_path / "shim", tmp_path / "data", undo=True)
    with Scene(tmp_path, faults.around) as scene:
        scene.send(50)
        scene.take(5)
        acknowledged = scene.ledger.acknowledged
        faults.set("sync_errno", errno.EIO)
        stopped = "writes stopped after a failed sync (Input/output error (os error 5)); "
        assert all(error.startswith(stopped) for error in scene.send(10))
        # A second sync that succeeds would prove nothing.
        faults.set("sync_errno", 0)
        assert len(scene.send(10)) == 10
        answer = scene.link.ask(f"MSG.FETCH.{BOX}", {"group_name": GROUP})
        assert answer["error"].startswith(stopped)
        assert reads_on(scene)
        until(lambda: "the store takes no more writes" in scene.server.log, "the log says so")
        assert scene.ledger.acknowledged == acknowledged
        scene.kill()
        faults.cut_power(random.Random(2))
        scene.start()
        scene.look()
        assert scene.send(10) == []
        scene.drain()
        check = scene.check()
        assert check.violations == []
        record(
            scene.row("disk", "EIO on sync, then a power cut", check, "writes stop, reads go on")
        )
        # Control: had what was sent in vain been acknowledged, its loss would be found.
        lied = believed(scene)
        assert lied.lost > 0
        record(scene.row("disk", "control: EIO on sync, failed sends booked as sent", lied))


@needs_shim
def test_a_failed_read_is_an_error_and_no_damage(tmp_path: Path) -> None:
    faults = Shim(tmp_path / "shim", tmp_path / "data")
    with Scene(tmp_path, faults.around) as scene:
        scene.send(50)
        # What is written last is in memory.
        scene.send(1)
        faults.set("read_errno", errno.EIO)
        with Mail(scene.server.url) as mail:
            read = {"deliver": "earliest", "config": {"max_wait_ms": 0}}
            assert "Input/output error" in mail.ask(f"MSG.FETCH.{BOX}", read)["error"]
        assert faults.get("hits") > 0
        faults.set("read_errno", 0)
        scene.take(10)
        scene.kill()
        # A start that cannot read must not take what is there for nothing.
        faults.set("read_errno", errno.EIO)
        with pytest.raises(ServerDiedError, match="Input/output error"):
            scene.start()
        faults.set("read_errno", 0)
        scene.start()
        scene.look()
        scene.drain()
        check = scene.check()
        assert check.violations == []
        assert "damage" not in scene.server.log
        record(scene.row("disk", "EIO on read, running and starting", check))
