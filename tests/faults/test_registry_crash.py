"""The registry after a crash: what was acknowledged is found, whatever became of the index."""

import os
import random
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.agents import LIGHT, card, found, mailboxes, register, settled
from tests.faults.report import Row, record
from tests.mail import Mail
from tests.peers import until
from tests.restarts import Restarting

from mq9.registry.vector_file import VectorFile

FLIPS = int(os.environ.get("MQ9_FAULTS_FLIPS", "25"))
JOBS = (
    "reads supplier bills and books them",
    "tells whether it is going to rain",
    "turns documents into other languages",
    "finds cheap flights and hotels",
)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Restarting]:
    broker = Restarting(tmp_path, LIGHT)
    yield broker
    broker.stop()


def vectors(broker: Restarting) -> Path:
    return broker.folder / "data" / "agents" / "vectors.mq9"


def test_every_acknowledged_agent_is_found_after_a_kill(broker: Restarting) -> None:
    acknowledged: list[int] = []

    def burst(first: int, mail: Mail) -> None:
        with mail:
            asked = []
            try:
                for number in range(first, first + 100):
                    body = card(f"agent.n{number}", name=f"n{number}x", job=JOBS[number % 4])
                    asked.append((number, mail.begin("AGENT.REGISTER", body)))
                    if number % 5 == 0:
                        for done, subject in asked:
                            assert mail.answer(subject)["error"] == ""
                            acknowledged.append(done)
                        asked.clear()
            except (OSError, TimeoutError, EOFError, ConnectionError):
                return

    # Connected before it begins: the kill may come before the last of them has said anything.
    threads = [
        threading.Thread(target=burst, args=(first, Mail(broker.url))) for first in (0, 1000, 2000)
    ]
    for thread in threads:
        thread.start()
    until(lambda: len(acknowledged) > 40, "some were acknowledged")
    broker.restart(kill=True)
    for thread in threads:
        thread.join()
    with broker.connect() as mail:
        mail.deadline_s = 60.0
        everyone = set(settled_all(mail))
        assert {f"agent.n{number}" for number in acknowledged} <= everyone
        for number in random.Random(7).sample(acknowledged, 10):
            assert found(mail, text=f"n{number}x") == [f"agent.n{number}"]
        answer = settled(mail, semantic="will it be wet tomorrow", limit=1000)
        assert answer["total"] == len(everyone)
        assert set(mailboxes(answer)) == everyone
        best = mailboxes(answer)[0]
        assert int(best.removeprefix("agent.n")) % 4 == 1


def settled_all(mail: Mail) -> list[str]:
    return found(mail, limit=1000)


def damage_nothing(file: Path) -> None:
    assert file.stat().st_size > 0


def flip_bytes(file: Path) -> None:
    data = bytearray(file.read_bytes())
    for at in range(60, len(data), 997):
        data[at] ^= 0xFF
    file.write_bytes(data)


def flip_header(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[9] ^= 0xFF
    file.write_bytes(data)


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-7])


def empty(file: Path) -> None:
    file.write_bytes(b"")


def remove(file: Path) -> None:
    file.unlink()


def remove_folder(file: Path) -> None:
    file.unlink()
    file.parent.rmdir()


def make_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def make_newer(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[8:12] = (99).to_bytes(4, "little")
    file.write_bytes(data)


DAMAGES: dict[Callable[[Path], None], bool] = {
    damage_nothing: False,
    flip_bytes: True,
    flip_header: True,
    truncate: True,
    empty: False,
    remove: False,
    remove_folder: False,
    make_newer: True,
    make_folder: True,
}
"""Each with whether the log tells of it."""


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Restarting]:
    """A broker with some agents, all of them read."""
    broker = Restarting(tmp_path_factory.mktemp("filled"), LIGHT)
    with broker.connect() as mail:
        mail.deadline_s = 60.0
        register(mail, [card(f"agent.n{at}", job=job) for at, job in enumerate(JOBS)])
        settled(mail, semantic="umbrella")
    yield broker
    broker.stop()


@pytest.mark.parametrize("damage", [damage_nothing, flip_bytes, make_folder])
def test_a_damaged_index_is_made_anew(filled: Restarting, damage: Callable[[Path], None]) -> None:
    filled.server.stop()
    damage(vectors(filled))
    filled.restart()
    with filled.connect() as mail:
        mail.deadline_s = 60.0
        assert found(mail, text="flights") == ["agent.n3"]
        answer = settled(mail, semantic="will it be wet tomorrow")
        assert answer["total"] == len(JOBS)
        assert mailboxes(answer)[0] == "agent.n1"
    assert ("vectors of agents" in filled.server.log) == DAMAGES[damage]


class Left:
    """The vectors that a broker has left, opened as the next one would, after any damage."""

    def __init__(self, file: Path, folder: Path) -> None:
        self.sound = file.read_bytes()
        self.file = folder / "agents" / "vectors.mq9"
        self.dimensions, named = struct.unpack_from("<IH", self.sound, 12)
        self.embedder_id = self.sound[18 : 18 + named].decode()
        self.header_bytes = 22 + named
        starts = range(self.header_bytes, len(self.sound), 20 + 2 * self.dimensions)
        self.keys = [self.sound[at : at + 16] for at in starts]
        self.told: list[str] = []
        self.whole = self.read(self.sound)
        assert len(self.whole) == len(self.keys) == len(JOBS)
        assert self.told == []

    def opened(self) -> VectorFile:
        self.told.clear()
        return VectorFile(self.file, self.embedder_id, self.dimensions, self.told.append)

    def read(self, contents: bytes | None = None) -> dict[bytes, bytes]:
        """The vectors that can be read."""
        if contents is not None:
            self.file.parent.mkdir(exist_ok=True)
            self.file.write_bytes(contents)
        opened = self.opened()
        try:
            return {key: opened.get(key).tobytes() for key in self.keys if key in opened}
        finally:
            opened.close()


@pytest.fixture
def left(filled: Restarting, tmp_path: Path) -> Left:
    filled.server.stop()
    return Left(vectors(filled), tmp_path)


@pytest.mark.parametrize("damage", DAMAGES)
def test_vectors_that_cannot_be_read_are_kept_again_when_computed_anew(
    left: Left, damage: Callable[[Path], None]
) -> None:
    damage(left.file)
    found = left.read()
    assert found.items() <= left.whole.items()
    assert (found == left.whole) == (damage is damage_nothing)
    assert bool(left.told) == DAMAGES[damage]
    opened = left.opened()
    computed = [(key, np.frombuffer(left.whole[key], "<f4")) for key in left.keys]
    opened.add([(key, vector) for key, vector in computed if key not in opened])
    opened.close()
    assert left.read() == left.whole


def test_a_bit_turned_in_the_vectors_costs_one_of_them_at_most_or_all(left: Left) -> None:
    """In the header all, in a record that one; none is ever another than it was."""
    choose = random.Random(8)
    for number in range(FLIPS):
        turned = bytearray(left.sound)
        # The header is small: a share of the bits is for it.
        end = left.header_bytes if number % 5 == 0 else len(turned)
        at = choose.randrange(end)
        turned[at] ^= 1 << choose.randrange(8)
        found = left.read(bytes(turned))
        assert found.items() <= left.whole.items(), at
        assert len(found) == (0 if at < left.header_bytes else len(left.whole) - 1), at
        assert len(left.told) == 1, at
    note = f"all {FLIPS} reported; what is lost is computed again"
    record(Row("disk", "a bit turned: vectors of agents", FLIPS, note=note))


def test_vectors_are_not_computed_again_after_a_restart(broker: Restarting) -> None:
    with broker.connect() as mail:
        mail.deadline_s = 60.0
        register(mail, [card(f"agent.n{at}", job=job) for at, job in enumerate(JOBS)])
        settled(mail, semantic="umbrella")
        before = vectors(broker).read_bytes()
    broker.restart(kill=True)
    with broker.connect() as mail:
        mail.deadline_s = 60.0
        # The same card again, and the same text under another address.
        register(mail, [card("agent.n1", job=JOBS[1]), card("agent.n9", job=JOBS[1])])
        assert set(mailboxes(settled(mail, semantic="umbrella"))[:2]) == {"agent.n1", "agent.n9"}
    assert vectors(broker).read_bytes() == before


def test_an_agent_expires_while_the_broker_is_down(broker: Restarting) -> None:
    with broker.connect() as mail:
        register(mail, [card("short", name="short", ttl=2), card("long", name="long", ttl=600)])
        mail.done("AGENT.REPORT", card("short"))
        expires = time.time() + 2
        assert found(mail) == ["short", "long"]
    broker.server.stop()
    until(lambda: time.time() > expires, "its time was over")
    broker.restart()
    with broker.connect() as mail:
        assert found(mail) == ["long"]
        assert found(mail, text="short") == []
        assert mail.ask("AGENT.REPORT", card("short"))["error"] == "agent short is not registered"
        assert mail.done("AGENT.DISCOVER", {"status": True})["statuses"][0]["report"] is None


def test_reports_survive_and_keep_an_agent_alive_across_a_restart(broker: Restarting) -> None:
    with broker.connect() as mail:
        register(mail, [card("a", ttl=60)])
        until(lambda: age(mail) >= 2, "a second had passed")
        mail.done("AGENT.REPORT", card("a", load=7))
        reported = time.time()
    broker.restart(kill=True)
    with broker.connect() as mail:
        [status] = mail.done("AGENT.DISCOVER", {"status": True})["statuses"]
        assert status["report"]["load"] == 7
        assert abs(status["last_seen"] - reported) <= 1
        assert status["last_seen"] > status["registered"]


def age(mail: Mail) -> float:
    [status] = mail.done("AGENT.DISCOVER", {"status": True})["statuses"]
    return float(time.time() - status["registered"])
