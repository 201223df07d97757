"""`mq9 doctor` looks at what a broker left, whatever it is, and changes not a byte of it."""

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.faults.room import NoRoomError, Room
from tests.faults.scene import BOX, Scene
from tests.peers import MQ9, start, until

from mq9.store import Store

DEADLINE_S = 60
MESSAGES = 600
Print = dict[str, tuple[int, int, int, str]]


def doctor(data: Path, around: Sequence[str] = ()) -> tuple[int, dict[str, Any]]:
    """The exit status and the report."""
    done = subprocess.run(
        [*around, sys.executable, "-m", "mq9", "doctor", str(data), "--json"],
        capture_output=True,
        check=False,
        timeout=DEADLINE_S,
    )
    assert done.stderr == b""
    return done.returncode, json.loads(done.stdout)


def prints(data: Path) -> Print:
    """Everything about a directory that a write would change."""
    found = {}
    for file in [data, *sorted(data.iterdir())]:
        status = file.stat()
        contents = b"" if file == data else file.read_bytes()
        digest = hashlib.sha256(contents).hexdigest()
        found[file.name] = (status.st_ino, status.st_mtime_ns, status.st_ctime_ns, digest)
    return found


def closed(data: Path) -> None:
    """A store of several segments that was closed in order."""
    with Store(data, segment_bytes=65536, allocate_bytes=65536, maintain_every_ms=0) as store:
        store.create_mailbox(BOX)
        for number in range(MESSAGES):
            store.send(BOX, b"message %d " % number + bytes(400))
    assert len(list(data.glob("segment-*.log"))) > 3


def nothing(_data: Path) -> None:
    pass


def half_written(data: Path) -> None:
    """A checkpoint that was not finished, and a record that was torn."""
    (data / "checkpoint-0000000009.mq9.tmp").write_bytes(b"not finished")
    with max(data.glob("segment-*.log")).open("ab") as segment:
        segment.write(b"torn")


def turned_bit(data: Path) -> None:
    segment = min(data.glob("segment-*.log"))
    contents = bytearray(segment.read_bytes())
    contents[contents.index(b"message 7 ")] ^= 1
    segment.write_bytes(contents)


def missing_segment(data: Path) -> None:
    sorted(data.glob("segment-*.log"))[1].unlink()


def unreadable_header(data: Path) -> None:
    segment = sorted(data.glob("segment-*.log"))[1]
    contents = bytearray(segment.read_bytes())
    contents[:80] = b"\xff" * 80
    segment.write_bytes(contents)


def unreadable_checkpoint(data: Path) -> None:
    checkpoint = max(data.glob("checkpoint-*.mq9"))
    contents = bytearray(checkpoint.read_bytes())
    contents[len(contents) // 2] ^= 1
    checkpoint.write_bytes(contents)


def never_locked(data: Path) -> None:
    """A copy of the files that hold data."""
    (data / "LOCK").unlink()


@pytest.mark.parametrize(
    ("change", "status"),
    [
        (nothing, 0),
        (never_locked, 0),
        (half_written, 1),
        (turned_bit, 1),
        (missing_segment, 1),
        (unreadable_header, 1),
        (unreadable_checkpoint, 1),
    ],
)
def test_doctor_writes_nothing(tmp_path: Path, change: Callable[[Path], None], status: int) -> None:
    data = tmp_path / "data"
    closed(data)
    change(data)
    before = prints(data)
    said, report = doctor(data)
    assert prints(data) == before
    assert said == status, report
    assert bool(report["damage"]) == bool(status)
    assert all(damage["text"].count("kept in") == 0 for damage in report["damage"])
    # It has seen what a broker would see: the same messages, and the same damage.
    with Store(data, maintain_every_ms=0) as store:
        assert store.mailbox(BOX).messages - (change == turned_bit) == report["messages"]
        assert prints(data) != before, "control: an open of the usual kind does write"


def test_doctor_writes_nothing_after_a_kill(tmp_path: Path) -> None:
    with Scene(tmp_path) as scene:
        scene.send(200)
        scene.take(50)
        scene.kill()
        before = prints(tmp_path / "data")
        status, report = doctor(tmp_path / "data")
        assert prints(tmp_path / "data") == before
        assert (status, report["damage"]) == (0, [])
        assert report["messages"] >= 150
        scene.start()


def test_doctor_works_on_a_read_only_file_system(tmp_path: Path) -> None:
    try:
        small = Room(tmp_path / "data", 8 << 20)
    except (NoRoomError, FileNotFoundError) as error:
        pytest.skip(str(error))
    with small:
        closed(tmp_path / "elsewhere")
        turned_bit(tmp_path / "elsewhere")
        small.run("sh", "-c", f"cp {tmp_path}/elsewhere/* {small.folder}")
        small.run("mount", "-o", "remount,ro", str(small.folder))
        status, report = doctor(small.folder, small.around)
        assert (status, report["messages"]) == (1, MESSAGES - 1)
        assert [damage["msg_id"] for damage in report["damage"]] == [7]


def test_doctor_says_that_a_broker_is_running_and_leaves_it_alone(tmp_path: Path) -> None:
    server = start(tmp_path, peer=MQ9)
    try:
        command = [sys.executable, "-m", "mq9", "doctor", str(tmp_path / "data")]
        done = subprocess.run(command, capture_output=True, check=False, timeout=DEADLINE_S)
        assert done.returncode == 3
        assert b"A broker has it open" in done.stdout
        assert doctor(tmp_path / "data")[1]["in_use"] is True
    finally:
        assert server.stop() == 0
    # Two may look at the same time, and no broker starts meanwhile.
    with Store(tmp_path / "data", read_only=True):
        assert doctor(tmp_path / "data")[0] == 0


def test_a_missing_segment_is_one_line_with_numbers(tmp_path: Path) -> None:
    data = tmp_path / "data"
    closed(data)
    missing_segment(data)
    _, report = doctor(data)
    [damage] = report["damage"]
    lost = MESSAGES - report["messages"]
    assert lost > 100
    assert (damage["kind"], damage["file"]) == ("segment", "segment-0000000002.log")
    assert damage["messages"] == lost
    server = start(tmp_path, peer=MQ9)
    try:
        lines = [line for line in server.log.splitlines() if "damage in the store" in line]
        assert len(lines) == 1
        assert f"segment is missing or unreadable; {lost} messages are lost: " in lines[0]
        assert f"{lost} of {BOX} (msg_id " in lines[0]
        # Nothing is left that could be set aside: what was lost is written down instead.
        until(lambda: "damage was found: 1 damaged-* file" in server.log, "it is told")
        note = data / "damaged-segment-0000000002.log-lost"
        assert f"{lost} messages are lost" in note.read_text("utf-8")
    finally:
        assert server.stop() == 0
    status, report = doctor(data)
    assert (status, report["damage"]) == (1, []), "until somebody takes the note away"
