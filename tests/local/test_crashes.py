"""A process that dies, or a call that fails, at every system call of send, poll and expire."""

import itertools
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.local.stops import counting, stopped

from mq9.local import Queue, QueueError, compaction

HOWS = ("before", "after", "half")
ERRORS = ("ENOSPC", "EIO", "EROFS")
AGENTS = ("new", "half", "inside", "done")
LONG = "long " * 1000


def bodies(messages: list[dict[str, Any]]) -> list[str]:
    assert not [m for m in messages if "_body_error" in m]
    return [message["body"] for message in messages]


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one: what is synced is told by the calls, not the disk."""
    shared = Path("/dev/shm")
    if not os.access(shared, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="mq9-local-", dir=shared) as folder:
        yield Path(folder)


@pytest.fixture
def scene(memory: Path) -> Path:
    """A session that has been used: agents that have read some, long bodies, expired messages."""
    root = memory / "scene"
    queue = Queue(root)
    queue.send("ask", "one")
    queue.send("ask", "over", ttl_s=0)
    queue.send("ask", LONG)
    queue.poll("half")
    queue.send("ask", LONG, ttl_s=0)
    queue.poll("inside")
    queue.send("ask", "two")
    queue.send("ask", "over", ttl_s=0)
    queue.poll("done")
    return root


EXPECTED = {"new": ["one", LONG, "two"], "half": ["two"], "inside": ["two"], "done": []}


def cases(
    scene: Path, work: Callable[[Path], object], hows: tuple[str, ...]
) -> Iterator[tuple[Path, int, str]]:
    """A copy of the scene for every call that `work` makes, and every way to stop there."""
    copy = scene.with_name("copy")

    def fresh() -> Path:
        shutil.rmtree(copy, ignore_errors=True)
        return shutil.copytree(scene, copy)

    fresh()
    with counting() as made:
        work(copy)
    assert len(made) > 10
    for at, how in itertools.product(range(len(made)), hows):
        if how == "error":
            yield fresh(), at, ERRORS[at % len(ERRORS)]
        elif how != "half" or made[at] == "write":
            yield fresh(), at, how


def expire(root: Path) -> int:
    return Queue(root).expire()


def poll_done(root: Path) -> list[dict[str, Any]]:
    return Queue(root).poll("done")


def poll_new(root: Path) -> list[dict[str, Any]]:
    return Queue(root).poll("new")


def check_all_agents(root: Path, also: tuple[list[str], ...] = ([],)) -> None:
    """Everybody gets what is theirs, once; `also` is what may have been sent besides."""
    queue = Queue(root)
    found = {agent: bodies(queue.poll(agent)) for agent in AGENTS}
    assert [extra for extra in also if found == {a: EXPECTED[a] + extra for a in AGENTS}], found
    assert not any(queue.poll(agent) for agent in AGENTS)
    queue.send("status", "later")
    for agent in AGENTS:
        assert bodies(queue.poll(agent)) == ["later"], agent


@pytest.mark.parametrize(
    ("body", "durable"),
    [("new", False), (LONG + "new", False), (LONG + "new", True)],
    ids=["short", "long", "long and durable"],
)
def test_a_sender_that_dies_has_sent_all_or_nothing(scene: Path, body: str, durable: bool) -> None:
    def send(root: Path) -> None:
        Queue(root, durable=durable).send("ask", body)

    sent = []
    for root, at, how in cases(scene, send, HOWS):
        assert stopped(send, root, at, how)
        lines = (root / "sessions/default/messages.jsonl").read_bytes().split(b"\n")
        sent.append(len(lines) == 8 and lines[-1] == b"")
        check_all_agents(root, ([body],) if sent[-1] else ([],))
        queue = Queue(root)
        # What it left behind goes with the next expire.
        assert queue.expire() == 3
        in_use = {m["msg_id"] for m in queue.tail(99) if m.get("_body_source")}
        assert {f.stem for f in (root / "sessions/default/bodies").iterdir()} == in_use
    assert True in sent
    assert False in sent


@pytest.mark.parametrize("durable", [False, True])
def test_a_poller_that_dies_gets_nothing_twice(scene: Path, durable: bool) -> None:
    def poll(root: Path) -> None:
        delivered = Queue(root, durable=durable).poll("new")
        # The end of the world of this process: whatever comes now has been delivered.
        (root / "delivered").write_text(json.dumps(bodies(delivered)))

    again = set()
    for root, at, how in cases(scene, lambda root: Queue(root, durable=durable).poll("new"), HOWS):
        stopped(poll, root, at, how)
        delivered = root / "delivered"
        first = json.loads(delivered.read_text()) if delivered.exists() else []
        second = bodies(Queue(root).poll("new"))
        assert (first, second) in [([], EXPECTED["new"]), (EXPECTED["new"], []), ([], [])]
        again.add(len(second))
        queue = Queue(root)
        queue.send("ask", "later")
        assert bodies(queue.poll("new")) == ["later"]
        assert bodies(queue.poll("half")) == ["two", "later"]
    assert again == {0, 3}


def test_an_expire_that_dies_moves_nobody(scene: Path) -> None:
    for root, at, how in cases(scene, expire, HOWS):
        assert stopped(expire, root, at, how)
        check_all_agents(root)
        queue = Queue(root)
        assert queue.expire() in {0, 3}
        check_clean(root)


def check_clean(root: Path) -> None:
    """Nothing is left of an expire but its result."""
    queue = Queue(root)
    assert queue.status()["default"]["expired"] == 0
    names = {file.name for file in (root / "sessions/default").iterdir()}
    assert names == {"messages.jsonl", "bodies", "cursors", ".lock"}
    [long] = [m for m in queue.tail(99) if m.get("_body_source")]
    assert {f.stem for f in (root / "sessions/default/bodies").iterdir()} == {long["msg_id"]}


def test_who_finishes_for_the_dead_may_die_as_well(scene: Path) -> None:
    """An expire dies with its journal written; whoever comes next dies at every call too."""
    left = []
    for root, at, how in cases(scene, expire, ("before",)):
        stopped(expire, root, at, how)
        if (root / "sessions/default/.expire").exists():
            left.append(shutil.copytree(root, scene.with_name(f"left-{at}")))
    assert len(left) > 5
    for broken in left[:: max(len(left) // 2, 1)]:
        for root, at, how in cases(broken, poll_done, ("before",)):
            stopped(poll_done, root, at, how)
            check_all_agents(root)


def test_without_recovery_the_crash_of_an_expire_would_be_noticed(
    scene: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: these tests find out when nobody finishes."""
    monkeypatch.setattr(compaction, "recover", lambda _session: None)
    noticed = 0
    for root, at, how in cases(scene, expire, ("before",)):
        stopped(expire, root, at, how)
        try:
            check_all_agents(root)
        except AssertionError:
            noticed += 1
    assert noticed


def attempt(work: Callable[[Path], Any], root: Path, at: int, error: str) -> tuple[bool, Any]:
    """Whether it worked although a call failed, and its result; if not, it says so as a queue."""
    with counting(at, error):
        try:
            return True, work(root)
        except QueueError as raised:
            return False, str(raised)


@pytest.mark.parametrize(
    ("body", "durable"),
    [("new", False), (LONG + "new", False), (LONG + "new", True)],
    ids=["short", "long", "long and durable"],
)
def test_a_send_that_fails_has_not_sent(scene: Path, body: str, durable: bool) -> None:
    def send(root: Path) -> None:
        Queue(root, durable=durable).send("ask", body)

    failed = 0
    for root, at, error in cases(scene, send, ("error",)):
        worked, told = attempt(send, root, at, error)
        if not worked:
            assert "cannot send in session 'default'" in told
            failed += 1
        check_all_agents(root, ([body],) if worked else ([],))
        assert len(list((root / "sessions/default/bodies").iterdir())) == 2 + (
            worked and body != "new"
        )
    assert failed > 10


def test_a_poll_that_fails_loses_nothing(scene: Path) -> None:
    failed = 0
    for root, at, error in cases(scene, poll_new, ("error",)):
        worked, result = attempt(poll_new, root, at, error)
        if worked:
            found = [m["body"] for m in result if "_body_error" not in m]
            assert found in (EXPECTED["new"], ["one", "two"])
            assert poll_new(root) == []
        else:
            assert "cannot poll in session 'default'" in result
            failed += 1
            check_all_agents(root)
    assert failed > 10


def test_an_expire_that_fails_moves_nobody(scene: Path) -> None:
    failed = 0
    for root, at, error in cases(scene, expire, ("error",)):
        worked, _ = attempt(expire, root, at, error)
        failed += not worked
        check_all_agents(root)
        assert expire(root) in {0, 3}
        check_clean(root)
    assert failed > 10
