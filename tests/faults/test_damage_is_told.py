"""Damage is told however short the life in which it is found, until it is acknowledged."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.mail import Mail
from tests.peers import MQ9, Server, start, until

from mq9.store import Store

BOX = "box"
DOCTOR_S = 60


def damaged(data: Path, change: Callable[[bytearray, int], None]) -> None:
    """A store that was closed in order, and one of its ten messages damaged since."""
    with Store(data, maintain_every_ms=0) as store:
        store.create_mailbox(BOX)
        for number in range(10):
            store.send(BOX, f"message {number} of ten".encode())
    [segment] = data.glob("segment-*.log")
    contents = bytearray(segment.read_bytes())
    change(contents, contents.index(b"message 4 of ten"))
    segment.write_bytes(contents)


def turn_a_bit(contents: bytearray, at: int) -> None:
    contents[at] ^= 1


def erase_the_record(contents: bytearray, at: int) -> None:
    """A page that was never written, as a file system may leave it: nothing but zeros."""
    before = contents.rindex(b"message 3 of ten", 0, at) + len(b"message 3 of ten")
    contents[before : at + len(b"message 4 of ten")] = bytes(at + 16 - before)


def doctor(data: Path) -> tuple[int, dict[str, object]]:
    done = subprocess.run(
        [sys.executable, "-m", "mq9", "doctor", str(data), "--json"],
        capture_output=True,
        check=False,
        timeout=DOCTOR_S,
    )
    assert done.stderr == b""
    return done.returncode, json.loads(done.stdout)


def read_all(server: Server) -> int:
    with Mail(server.url) as mail:
        return len(mail.fetch(BOX, num_msgs=100))


@pytest.mark.parametrize("change", [turn_a_bit, erase_the_record])
def test_damage_found_just_before_the_end_is_told_in_this_life_and_the_next(
    tmp_path: Path, change: Callable[[bytearray, int], None]
) -> None:
    data = tmp_path / "data"
    damaged(data, change)
    server = start(tmp_path, peer=MQ9)
    try:
        assert "[ERR]" not in server.log, "control: nobody has read the message yet"
        assert server.monitor("/healthz") == {"status": "ok"}
        assert read_all(server) == 9
    finally:
        # At once: the server has not looked around again since.
        assert server.stop() == 0
    assert f"message 4 of {BOX}" in server.log, "told before the store was closed"
    assert "damage was found: 1 damaged-* file" in server.log

    status, report = doctor(data)
    assert (status, report["messages"], report["damage"]) == (1, 9, [])

    server = start(tmp_path, peer=MQ9)
    try:
        assert "damage was found: 1 damaged-* file" in server.log, "told by the next life"
        health = server.monitor("/healthz")
        assert health["status"] == "ok", "isolated damage does not make the broker unusable"
        assert health["warning"] == "damage was found: 1 damaged-* file in the data directory"
        told = server.monitor("/varz")["mq9"]["damage"]
        [file] = data.glob("damaged-*")
        size = file.stat().st_size
        assert told == {"found": 0, "set_aside_files": 1, "set_aside_bytes": size}

        # The operator has looked at it and takes it away: no restart is needed.
        file.rename(tmp_path / file.name)
        until(lambda: server.monitor("/healthz") == {"status": "ok"}, "the warning is gone", 20)
        until(lambda: "set aside no more" in server.log, "the log says so")
    finally:
        assert server.stop() == 0
    assert server.log.count("damage was found") == 1, "nothing is left to tell at the end"
    assert doctor(data)[0] == 0
