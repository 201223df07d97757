"""`wait`: sleeps until there is a message, without looking all the time."""

import resource
import shutil
import threading
import time
from pathlib import Path

import pytest
from tests.local.conftest import Folder

from mq9.local import Queue, waiting

DEADLINE_S = 30


def later(work: object, delay_s: float = 0.2) -> threading.Timer:
    timer = threading.Timer(delay_s, work)  # type: ignore[arg-type]
    timer.start()
    return timer


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.fixture(params=["inotify", "looking"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With the file system's help, and without."""
    if request.param == "looking":
        monkeypatch.setattr(waiting, "_inotify", lambda _folder: None)
    return str(request.param)


@pytest.mark.usefixtures("way")
def test_a_message_ends_the_wait(queue: Queue, root: Path) -> None:
    timer = later(lambda: Queue(root).send("ask", "x"))
    [message] = queue.wait("a", DEADLINE_S)
    assert message["body"] == "x"
    timer.join()


@pytest.mark.usefixtures("way")
def test_what_is_there_is_returned_at_once(queue: Queue) -> None:
    queue.send("ask", "x")
    assert [m["body"] for m in queue.wait("a")] == ["x"]
    assert queue.wait("a", 0) == []


@pytest.mark.usefixtures("way")
def test_other_agents_messages_do_not_end_it(queue: Queue, root: Path) -> None:
    def send() -> None:
        other = Queue(root)
        for _ in range(5):
            other.send("ask", "theirs", to="b")
        other.send("status", "other topic")
        other.send("ask", "mine", to="a")

    timer = later(send)
    assert [m["body"] for m in queue.wait("a", DEADLINE_S, "ask")] == ["mine"]
    timer.join()


def test_the_way_inotify_is_used_where_it_is(queue: Queue) -> None:
    queue.send("ask", "x")
    with waiting.Watch(str(queue.root), str(queue.audit_path)) as watch:
        before = open_files()
        assert watch._fd is not None
    assert open_files() == before - 1


@pytest.mark.usefixtures("way")
def test_sleeping_costs_next_to_nothing(queue: Queue, folder: Folder) -> None:
    queue.send("ask", "x", to="b")
    before = resource.getrusage(resource.RUSAGE_THREAD)
    assert queue.wait("a", 1.5) == []
    after = resource.getrusage(resource.RUSAGE_THREAD)
    used_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert used_s < 0.2
    # It does not poll while nothing changes, so the audit log does not grow.
    assert len(folder.audit()) <= 3


def test_a_session_that_is_removed_and_made_anew(queue: Queue, folder: Folder) -> None:
    queue.send("ask", "old", to="b")

    def renew() -> None:
        shutil.rmtree(folder.session)
        Queue(folder.root).send("ask", "new")

    timer = later(renew)
    assert [m["body"] for m in queue.wait("a", DEADLINE_S)] == ["new"]
    timer.join()


@pytest.mark.parametrize("timeout", [-1, float("nan")])
def test_a_timeout_must_be_one(queue: Queue, timeout: float) -> None:
    with pytest.raises(ValueError, match="timeout"):
        queue.wait("a", timeout)


def test_the_kill_switch_lets_it_sleep(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    queue.send("ask", "x")
    monkeypatch.setenv("ZOS_MQ_DISABLED", "1")
    began = time.monotonic()
    assert queue.wait("a", 0.3) == []
    assert time.monotonic() - began >= 0.3
