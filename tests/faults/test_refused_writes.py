"""A store that refuses writes for a while: `/healthz` and the log say so, and when it is over."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.faults.room import NoRoomError, Room
from tests.faults.scene import Scene
from tests.faults.test_disk_errors import SMALL_DISK_BYTES, fill
from tests.mail import Mail
from tests.peers import MQ9, Server, start, until

BEGUN = "[ERR] the store refuses writes: "
OVER = "[INF] the store takes writes again"
# The server looks every two seconds; this is for a busy machine.
PATIENCE_S = 30.0


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Room]:
    try:
        small = Room(tmp_path / "data", SMALL_DISK_BYTES)
    except (NoRoomError, FileNotFoundError) as error:
        pytest.skip(str(error))
    with small:
        yield small


def health(server: Server) -> tuple[int, dict[str, str]]:
    assert server.monitor_url is not None
    try:
        with urllib.request.urlopen(server.monitor_url + "/healthz", timeout=10) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def test_a_full_disk_is_told_and_so_is_its_end(tmp_path: Path, room: Room) -> None:
    with Scene(tmp_path, room.around) as scene:
        assert health(scene.server) == (200, {"status": "ok"})
        assert BEGUN not in scene.server.log
        refused = len(fill(scene))

        def unhealthy() -> dict[str, str] | None:
            # Upkeep may have found room for a few.
            nonlocal refused
            refused += len(scene.send(20))
            status, said = health(scene.server)
            return said if status == 503 else None

        said = until(unhealthy, "it says that it is full", PATIENCE_S)
        assert said is not None
        assert said["status"] == "unavailable"
        assert said["error"].startswith("the store refuses writes: the disk is full: No space left")
        begun = f"{BEGUN}the disk is full: No space left"
        until(lambda: begun in scene.server.log, "the log says why", PATIENCE_S)
        refused += len(scene.send(200))
        assert refused > 400
        assert scene.server.log.count(BEGUN) == 1, "a line, not one for each message"

        # Workers make room. Nobody sends meanwhile: whoever asks /healthz sends elsewhere.
        def emptied() -> bool:
            scene.take(50)
            return health(scene.server)[0] == 200

        until(emptied, "writes are taken again", PATIENCE_S)
        until(lambda: OVER in scene.server.log, "the log says so", PATIENCE_S)
        [line] = [line for line in scene.server.log.splitlines() if OVER in line]
        assert int(line.rpartition("refused=")[2]) >= refused
        scene.sender.mean_bytes = 2000
        assert scene.send(20) == []
        scene.drain()
        assert scene.check().violations == []


@pytest.mark.parametrize("replaced", [False, True])
def test_a_data_directory_that_was_moved_away_is_told_before_a_new_file_is_needed(
    tmp_path: Path, *, replaced: bool
) -> None:
    server = start(tmp_path, peer=MQ9)
    data, away = tmp_path / "data", tmp_path / "away"
    try:
        with Mail(server.url) as mail:
            mail.ask("MAILBOX.CREATE", {"name": "box"})
            assert mail.ask("MSG.SEND.box", b"before")["error"] == ""
            data.rename(away)
            if replaced:
                data.mkdir()
            until(lambda: health(server)[0] == 503, "it was noticed", PATIENCE_S)
            cause = "cannot find the data directory: it was moved away, removed or replaced"
            assert cause in health(server)[1]["error"]
            until(lambda: f"{BEGUN}{cause}" in server.log, "the log says so", PATIENCE_S)
            # What is acknowledged now would not be found by the next broker.
            assert cause in mail.ask("MSG.SEND.box", b"lost")["error"]
            assert [entry["payload"] for entry in mail.fetch("box")] == ["before"]
            if replaced:
                assert list(data.iterdir()) == [], "another's directory is left alone"
                data.rmdir()
            away.rename(data)
            until(lambda: health(server)[0] == 200, "it is back", PATIENCE_S)
            until(lambda: OVER in server.log, "the log says so", PATIENCE_S)
            assert mail.ask("MSG.SEND.box", b"after")["error"] == ""
    finally:
        assert server.stop() == 0
    server = start(tmp_path, peer=MQ9)
    try:
        with Mail(server.url) as mail:
            assert [entry["payload"] for entry in mail.fetch("box")] == ["before", "after"]
    finally:
        assert server.stop() == 0
