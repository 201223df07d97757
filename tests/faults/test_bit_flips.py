"""One bit turned in any file of a data directory that a killed broker left behind.

It costs one message at most, or undoes one effect, and is reported; no payload is ever changed.
"""

import os
import random
import shutil
import zlib
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.faults import segments
from tests.faults.ledger import events
from tests.faults.report import Row, record
from tests.faults.scene import BOX, Scene
from tests.faults.workload import uid_of
from tests.mail import Mail
from tests.peers import MQ9, start, until

from mq9.store import Store

# For each kind of file.
FLIPS = int(os.environ.get("MQ9_FAULTS_FLIPS", "25"))
BATCH = 40

KINDS = {
    "segment header": ("segment-*.log", 0, segments.FIRST_RECORD),
    "records": ("segment-*.log", segments.FIRST_RECORD, None),
    "checkpoint": ("checkpoint-*.mq9", 0, None),
    "token.secret": ("token.secret", 0, None),
}


@dataclass
class Left:
    """A data directory and what must be in it."""

    folder: Path
    there: dict[int, int]
    """CRC of each payload that nobody has confirmed, by uid."""
    confirmed: dict[int, int]


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Left:
    """What a broker leaves that is killed after some work; the books say what is in it."""
    folder = tmp_path_factory.mktemp("left")
    with Scene(folder) as scene:
        sent: dict[int, int] = {}
        for turn in range(12):
            assert scene.send(BATCH) == []
            if turn % 2:
                scene.take(BATCH)
        # Both checkpoints and log behind them.
        while len(list((folder / "data").glob("checkpoint-*.mq9"))) < 2:
            assert scene.send(BATCH) == []
            scene.take(BATCH)
        for _ in range(3):
            scene.restart()
            scene.send(BATCH)
            scene.take(BATCH // 2)
        scene.kill()
        check = scene.check()
        assert check.violations == []
        messages = check.boxes[BOX].messages
        for event in events(scene.ledger.path):
            if event[0] == "send":
                sent |= {uid: crc for uid, crc, *_ in event[4]}
    there = {uid: sent[uid] for uid, message in messages.items() if not message.may_be_gone}
    confirmed = {uid: crc for uid, crc in sent.items() if uid not in there}
    assert len(there) > 100
    assert len(confirmed) > 100
    return Left(folder / "data", there, confirmed)


@dataclass
class Found:
    """What is left of a damaged store."""

    lost: int
    back: int
    changed: int
    reported: list[str]


def found(data: Path, left: Left) -> Found:
    """Opens a store and compares it with the books."""
    with Store(data, sync="none", maintain_every_ms=0) as store:
        reported = [f"{damage.kind} {damage.text}" for damage in store.damage()]
        seen = {}
        for message in store.query(BOX, limit=1 << 30, max_bytes=1 << 40):
            seen[uid_of(message.payload.decode("utf-8", "replace"))] = zlib.crc32(message.payload)
        # Some damage is found when a message is read.
        reported += [f"{damage.kind} {damage.text}" for damage in store.damage()]
    known = left.there | left.confirmed
    return Found(
        lost=len(left.there.keys() - seen.keys()),
        back=len(seen.keys() & left.confirmed.keys()),
        changed=sum(known.get(uid) != crc for uid, crc in seen.items()),
        reported=reported,
    )


def flipped(left: Left, folder: Path, kind: str, choose: random.Random) -> tuple[Path, str]:
    """A copy with one bit turned, and where that is."""
    data = folder / "data"
    shutil.rmtree(data, ignore_errors=True)
    shutil.copytree(left.folder, data)
    pattern, low, high = KINDS[kind]
    # Not in reserved space behind the last record, where there is nothing to lose.
    ends = {file: high or len(file.read_bytes().rstrip(b"\0")) for file in data.glob(pattern)}
    file, end = choose.choice(sorted((file, end) for file, end in ends.items() if end > low))
    contents = bytearray(file.read_bytes())
    at = choose.randrange(low, end)
    bit = choose.randrange(8)
    contents[at] ^= 1 << bit
    file.write_bytes(contents)
    return data, f"bit {bit} of byte {at} of {file.name}"


def must_be_reported(kind: str, where: str, data: Path) -> bool:
    """Whether damage without effect is noticed as well.

    The other copy of a header, the older checkpoint, and records before the newest one that are no
    messages are not looked at.
    """
    newest = max(data.glob("checkpoint-*.mq9")).name
    return kind == "checkpoint" and where.endswith(newest)


def test_an_undamaged_copy_is_whole(left: Left, tmp_path: Path) -> None:
    shutil.copytree(left.folder, tmp_path / "data")
    assert found(tmp_path / "data", left) == Found(0, 0, 0, [])


@pytest.mark.parametrize("kind", KINDS)
def test_a_bit_costs_one_message_at_most_and_is_reported(
    left: Left, tmp_path: Path, kind: str
) -> None:
    choose = random.Random(kind)
    flips = lost = back = reported = 0
    # Which records are looked at is up to when the broker made its checkpoints.
    while flips < FLIPS or (kind == "records" and reported <= FLIPS / 2):
        assert flips < 4 * FLIPS, f"only {reported} of {flips} were reported"
        flips += 1
        data, where = flipped(left, tmp_path, kind, choose)
        after = found(data, left)
        assert after.changed == 0, (where, after)
        assert after.lost <= 1, (where, after)
        assert after.back <= BATCH, (where, after)
        assert after.reported or (after.lost, after.back) == (0, 0), (where, after)
        assert after.reported or not must_be_reported(kind, where, data), (where, after)
        lost, back = lost + after.lost, back + after.back
        reported += bool(after.reported)
    note = f"{reported} reported; {back} confirmed messages came back"
    record(Row("disk", f"a bit turned: {kind}", flips, lost=lost, note=note))
    # A header is there twice, and there are two checkpoints and the log.
    assert kind == "records" or lost == 0


@pytest.mark.parametrize("kind", ["records", "checkpoint"])
def test_a_broker_works_on_a_damaged_directory_and_its_log_says_what_is_damaged(
    left: Left, tmp_path: Path, kind: str
) -> None:
    choose = random.Random(5)
    where = "of segment"
    shutil.copytree(left.folder, tmp_path / "data")
    while kind == "checkpoint" and not must_be_reported(kind, where, tmp_path / "data"):
        _, where = flipped(left, tmp_path, kind, choose)
    if kind == "records":
        flipped(left, tmp_path, kind, choose)
    server = start(tmp_path, peer=MQ9)
    try:
        with Mail(server.url) as mail:
            seen = 0
            # A record behind the checkpoint is read when it is asked for.
            while batch := mail.fetch(BOX, "reader", num_msgs=100):
                seen += len(batch)
                mail.ack(BOX, "reader", batch[-1]["msg_id"])
        assert seen >= len(left.there) - 1
        until(lambda: "damage in the store" in server.log, "the log names the damage")
    finally:
        assert server.stop() == 0
    assert list((tmp_path / "data").glob("damaged-*")) != [], "what cannot be read is set aside"


def test_control_a_bit_that_the_checksum_does_not_tell_is_found_in_the_books(
    left: Left, tmp_path: Path
) -> None:
    """With its checksum made to match, the damage passes the store: only the comparison sees it."""
    data = tmp_path / "data"
    shutil.copytree(left.folder, data)
    files = {file: bytearray(file.read_bytes()) for file in sorted(data.glob("segment-*.log"))}
    messages = [
        (contents, each, uid)
        for contents in files.values()
        for each in segments.records(bytes(contents))
        if each.kind == segments.MESSAGE
        and (uid := uid_of((body := segments.payload(bytes(contents), each)).decode()))
        in left.there
        and len(body) > 20
    ]
    # Every tenth message, in all its records: a segment may hold a copy that is not read any more.
    changed = {uid for _, _, uid in messages[::10]}
    for contents, each, uid in messages:
        if uid in changed:
            contents[each.offset + each.length - 1] ^= 1
            segments.with_sound_checksum(contents, each)
    for file, contents in files.items():
        file.write_bytes(contents)
    assert changed
    after = found(data, left)
    assert (after.changed, after.lost, after.reported) == (len(changed), 0, [])
    note = "changed payloads are found, as they must be"
    record(Row("disk", "control: a bit turned, checksum made to match", len(changed), note=note))
