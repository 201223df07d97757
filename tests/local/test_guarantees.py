"""How the file queue keeps its promises: single writes, locks, atomic cursors, full disks."""

import contextlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.local.conftest import Folder
from tests.local.stops import counting, fork, forked
from tests.peers import until

from mq9.local import Queue, QueueError, QueueStorageError

SOURCE = Path(__file__).parents[2] / "python"

ALONE = """
import sys

class Nothing:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if name == "mq9._core" or (top not in sys.stdlib_module_names and top not in OURS):
            raise ImportError(f"{name} is not there")

OURS = {"mq9", "zos_agent_mq"}
sys.meta_path.insert(0, Nothing())
import mq9.local
import mq9.local.command
import zos_agent_mq
queue = zos_agent_mq.Queue(sys.argv[1])
queue.send("ask", "hello", to="a")
assert queue.wait("a", 5)[0]["body"] == "hello"
assert mq9.local.command.main(["--root", sys.argv[1], "status"]) == 0
others = {n for n in sys.modules if n.startswith("mq9.") and not n.startswith("mq9.local")}
assert not others, others
try:
    mq9.__version__
except ImportError:
    print("alone")
"""


def bodies(messages: list[dict[str, Any]]) -> list[str]:
    return [message["body"] for message in messages]


def test_it_needs_only_the_standard_library(root: Path) -> None:
    """Neither the native module nor any package is there, nor anything else of mq9 is loaded."""
    done = subprocess.run(
        [sys.executable, "-S", "-W", "error", "-c", ALONE, str(root)],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("alone\n")


def test_no_process_and_no_thread_is_started(queue: Queue) -> None:
    def running() -> tuple[int, set[int]]:
        return threading.active_count(), {p.pid for p in psutil.Process().children()}

    before = running()
    queue.send("ask", "x")
    queue.poll("a")
    queue.wait("a", 0.01)
    assert running() == before


def test_an_append_is_a_single_write(
    queue: Queue, folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To a descriptor that appends, whatever another process does in between."""
    queue.send("ask", "first")
    flags: dict[int, tuple[Any, int]] = {}
    written = []
    real_open, real_write = os.open, os.write

    def opened(path: Any, how: int, *rest: Any, **options: Any) -> int:  # noqa: ANN401
        fd = real_open(path, how, *rest, **options)
        flags[fd] = (path, how)
        return fd

    def wrote(fd: int, content: bytes) -> int:
        path, how = flags[fd]
        written.append((str(path), bool(how & os.O_APPEND), bytes(content)))
        return real_write(fd, content)

    monkeypatch.setattr(os, "open", opened)
    monkeypatch.setattr(os, "write", wrote)
    queue.send("ask", "x" * 3584)
    monkeypatch.undo()
    lines = folder.messages.read_bytes().splitlines(keepends=True)
    to_messages = [one for one in written if one[0] == str(folder.messages)]
    assert to_messages == [(str(folder.messages), True, lines[1])]
    assert len(lines[1]) <= 4096


def test_a_cursor_is_replaced_and_never_rewritten(
    queue: Queue, folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.send("ask", "one")
    queue.poll("a")
    path = folder.session / "cursors/a.cursor"
    replaced = []
    real = os.replace

    def replace(source: str, target: str) -> None:
        replaced.append((Path(source).read_text(), target))
        real(source, target)

    monkeypatch.setattr(os, "replace", replace)
    for number in range(5):
        inode = path.stat().st_ino
        queue.send("ask", f"{number}")
        with path.open() as reader:
            queue.poll("a")
            assert path.stat().st_ino != inode
            assert int(reader.read()) < folder.cursor("a")
        assert replaced[-2] == (f"{folder.messages.stat().st_size}\n", str(path))


def test_the_lock_keeps_everybody_out(queue: Queue, folder: Folder) -> None:
    """Sender, poller and expire of another process wait until the lock is free."""
    import fcntl

    queue.send("ask", "over", ttl_s=0)
    with (folder.session / ".lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        works: list[Any] = [lambda: queue.send("ask", "x"), lambda: queue.poll("a"), queue.expire]
        threads = [threading.Thread(target=work) for work in works]
        for thread in threads:
            thread.start()
        before = folder.messages.read_bytes()
        time.sleep(0.2)
        assert all(thread.is_alive() for thread in threads)
        assert folder.messages.read_bytes() == before
    for thread in threads:
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads)
    assert [m["body"] for m in queue.tail(9)] == ["x"]


def test_a_child_forked_under_the_lock_does_not_keep_it(
    queue: Queue, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.send("ask", "x")
    children: list[tuple[int, int]] = []
    real = os.fsync

    def fork_once(fd: int) -> None:
        if not children:
            reader, writer = os.pipe()
            child = fork()
            if child == 0:
                os.close(writer)
                os.read(reader, 1)
                os._exit(0)
            os.close(reader)
            children.append((child, writer))
        real(fd)

    monkeypatch.setattr(os, "fsync", fork_once)
    durable = Queue(root, durable=True)
    durable.send("ask", "y")
    # The child lives and has the descriptor of the lock; this would wait for it.
    taken = forked(lambda: [signal.alarm(20), Queue(root).send("ask", "z")])
    [(child, writer)] = children
    os.close(writer)
    os.waitpid(child, 0)
    assert taken == 0


def test_a_lock_file_that_was_removed_locks_nobody_out(queue: Queue, folder: Folder) -> None:
    queue.send("ask", "x")
    (folder.session / ".lock").unlink()
    queue.send("ask", "y")
    shutil.rmtree(folder.session)
    queue.send("ask", "z")
    assert bodies(queue.poll("a")) == ["z"]


def test_a_sender_that_waited_for_a_removed_lock_takes_the_new_one(
    queue: Queue, folder: Folder
) -> None:
    import fcntl

    queue.send("ask", "x")
    path = folder.session / ".lock"
    with path.open() as old:
        fcntl.flock(old, fcntl.LOCK_EX)
        sender = threading.Thread(target=queue.send, args=("ask", "y"))
        sender.start()
        until(lambda: opened_twice(path), "the sender has opened the lock")
        path.unlink()
        with path.open("w") as new:
            fcntl.flock(new, fcntl.LOCK_EX)
            fcntl.flock(old, fcntl.LOCK_UN)
            sender.join(0.2)
            assert sender.is_alive()
    sender.join(30)
    assert bodies(queue.tail(9)) == ["x", "y"]


def opened_twice(path: Path) -> bool:
    """Whether this process has the file open twice: for us, and for whoever waits."""
    names = []
    for file in Path("/proc/self/fd").iterdir():
        # The folder that is being listed is gone by then.
        with contextlib.suppress(FileNotFoundError):
            names.append(file.readlink())
    return names.count(path) >= 2


def test_a_signal_handler_that_sends_does_not_wait_for_itself(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = []
    real = os.write

    def write(fd: int, content: bytes) -> int:
        monkeypatch.undo()
        try:
            queue.send("ask", "from inside")
        except QueueError as error:
            refused.append(str(error))
        return real(fd, content)

    monkeypatch.setattr(os, "write", write)
    queue.send("ask", "outside")
    assert ["this very thread" in text for text in refused] == [True]
    queue.send("ask", "later")
    assert bodies(queue.poll("a")) == ["outside", "later"]


def test_threads_may_share_a_queue(queue: Queue) -> None:
    def send(name: str) -> None:
        for number in range(100):
            queue.send("ask", f"{number}", sender=name)

    threads = [threading.Thread(target=send, args=(f"t{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = queue.poll("a")
    for n in range(4):
        mine = [m["body"] for m in found if m["from"] == f"t{n}"]
        assert mine == [f"{number}" for number in range(100)]


def test_durable_syncs_file_and_folder_before_send_returns(
    root: Path, folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    real = os.fsync

    def fsync(fd: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{fd}").readlink()))
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    Queue(root).send("ask", "x")
    assert synced == []
    durable = Queue(root, durable=True)
    durable.send("ask", "x")
    assert {str(root), str(root / "sessions"), str(folder.session)} <= set(synced)
    synced.clear()
    msg_id = durable.send("ask", "x" * 5000)
    side_files = folder.session / "bodies"
    assert synced[-2:] == [str(folder.messages), str(folder.session)]
    assert {str(side_files / f"{msg_id}.txt"), str(side_files)} <= set(synced[:-2])
    synced.clear()
    durable.poll("a")
    cursors = folder.session / "cursors"
    assert synced[-2:] == [str(cursors / ".a.cursor.tmp"), str(cursors)]
    synced.clear()
    fresh = Queue(root / "new", durable=True)
    fresh.send("ask", "x")
    assert str(root) in synced


def test_a_root_that_is_a_file(tmp_path: Path) -> None:
    root = tmp_path / "file"
    root.write_text("precious")
    queue = Queue(root)
    for work in (
        lambda: queue.send("ask", "x"),
        lambda: queue.poll("a"),
        lambda: queue.wait("a", 0),
        queue.expire,
        queue.status,
        queue.tail,
    ):
        with pytest.raises(QueueStorageError, match="Not a directory"):
            work()
    assert root.read_text() == "precious"


READ_ONLY = """
import sys
from mq9.local import Queue, QueueStorageError
queue = Queue(sys.argv[1])
assert [m["body"] for m in queue.tail(9)] == ["x"]
assert queue.status()["default"]["messages"] == 1
for work in (lambda: queue.send("ask", "y"), lambda: queue.poll("a"), queue.expire):
    try:
        work()
    except QueueStorageError as error:
        assert isinstance(error, OSError) and error.errno and "cannot" in str(error), error
    else:
        raise AssertionError("it worked")
print("refused")
"""


def test_a_root_that_is_read_only(queue: Queue, folder: Folder) -> None:
    """Looking works; whatever would change something says why not."""
    queue.send("ask", "x")
    for path in [folder.root, *folder.root.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    read_only = [sys.executable, "-c", READ_ONLY, str(folder.root)]
    if os.geteuid() == 0:
        # For root nothing is read-only but what is mounted so.
        if not shutil.which("unshare"):
            pytest.skip("needs `unshare`, or another user than root")
        script = f'mount --bind "{folder.root}" "{folder.root}" && '
        script += f'mount -o remount,bind,ro "{folder.root}" && exec "$@"'
        read_only = ["unshare", "-m", "sh", "-c", script, "sh", *read_only]
    done = subprocess.run(read_only, capture_output=True, text=True, timeout=60, check=False)
    if "unshare" in done.stderr or "mount" in done.stderr:
        pytest.skip(f"may not mount here: {done.stderr}")
    assert (done.stdout, done.returncode) == ("refused\n", 0), done.stderr
    for path in folder.root.rglob("*"):
        path.chmod(0o777)
    assert bodies(queue.poll("a")) == ["x"]


@pytest.mark.parametrize("room", [0, 1, 40, 150])
def test_a_disk_that_is_full(queue: Queue, folder: Folder, room: int) -> None:
    """Files may not grow beyond a limit: writes are cut short, then refused."""
    for number in range(40):
        queue.send("ask", f"{number}")
    size = folder.messages.stat().st_size

    def fill() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        limit = size + room
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        for body in ("y", "long" * 5000):
            with pytest.raises(QueueStorageError, match="cannot send"):
                queue.send("ask", body)
        # A full audit log must not cost a message either.
        assert queue.audit_path.stat().st_size > limit
        with pytest.raises(QueueStorageError, match="cannot poll"):
            queue.poll("a")

    assert forked(fill) == 0
    assert folder.messages.stat().st_size == size
    assert folder.bodies() == set()
    queue.send("ask", "then")
    assert bodies(queue.poll("a")) == [*(f"{number}" for number in range(40)), "then"]
    assert {entry["op"] for entry in folder.audit()} == {"send", "poll"}


def test_foreign_files_and_older_layouts_are_left_alone(queue: Queue, folder: Folder) -> None:
    foreign = {
        "queue.jsonl": "an older layout",
        "default/messages.jsonl": "an older layout",
        "sessions/README": "not a session",
        "sessions/.hidden/messages.jsonl": "no name of a session",
        "sessions/default/messages.jsonl.bak": "x",
        "sessions/default/notes.txt": "x",
        "sessions/default/bodies/notes.txt": "x",
        "sessions/default/bodies/0123.txt": "x",
        "sessions/default/bodies/.01a1ec1c8df0-516cefadfc9dc5e9.txt.swp": "x",
        "sessions/default/cursors/README": "x",
        "sessions/default/cursors/.old": "7",
        "sessions/default/cursors/damaged.cursor": "seven",
        "sessions/default/cursors/empty.cursor": "",
        "sessions/default/cursors/-.cursor": "9999999",
        "sessions/default/cursors/x.cursor/file": "x",
    }
    for name, text in foreign.items():
        path = folder.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    old = {"msg_id": "Old-1", "ts": "2020-01-01T00:00:00Z", "from": "x", "topic": "gossip"}
    folder.messages.write_text(json.dumps(old | {"body": "old", "extra": [1]}) + "\n")
    queue.send("ask", "over" * 1000, ttl_s=0)
    queue.send("ask", "x")
    assert bodies(queue.poll("a")) == ["old", "x"]
    assert queue.expire() == 1
    assert queue.status().keys() == {"default"}
    assert queue.status()["default"]["cursors"].keys() == {"a"}
    for agent in ("damaged", "empty"):
        with pytest.raises(QueueError, match=r"is damaged.*remove it"):
            queue.poll(agent)
    assert {n: (folder.root / n).read_text() for n in foreign} == foreign
    assert folder.lines()[0]["extra"] == [1]


def test_a_file_that_became_shorter_is_not_read_twice(queue: Queue, folder: Folder) -> None:
    """As after a power cut: what was read is gone, and what comes now lies in its place."""
    for number in range(10):
        queue.send("ask", f"{number}")
    queue.poll("a")
    lines = folder.messages.read_bytes().splitlines(keepends=True)
    folder.messages.write_bytes(b"".join(lines[:5]) + lines[5][:20])
    restarted = Queue(folder.root)
    for number in range(20, 40):
        restarted.send("ask", f"{number}")
    assert bodies(restarted.poll("a")) == [f"{number}" for number in range(20, 40)]


def test_a_file_that_was_emptied_is_read_from_its_start(queue: Queue, folder: Folder) -> None:
    for number in range(10):
        queue.send("ask", f"{number}")
    queue.poll("a")
    folder.messages.write_bytes(b"")
    for number in range(20, 40):
        queue.send("ask", f"{number}")
    assert bodies(queue.poll("a")) == [f"{number}" for number in range(20, 40)]
    folder.messages.unlink()
    assert queue.poll("a") == []
    queue.send("ask", "x")
    assert bodies(queue.poll("a")) == ["x"]


def test_a_cursor_inside_a_line_goes_on_with_the_next(queue: Queue, folder: Folder) -> None:
    queue.send("ask", "one")
    queue.poll("a")
    queue.send("ask", "two")
    (folder.session / "cursors/a.cursor").write_text("7")
    assert bodies(queue.poll("a")) == ["two"]
    (folder.session / "cursors/a.cursor").write_text(f"{folder.messages.stat().st_size - 1}")
    assert queue.poll("a") == []
    assert folder.cursor("a") == folder.messages.stat().st_size


def test_the_end_of_a_line_is_no_message(queue: Queue, folder: Folder) -> None:
    queue.send("ask", "one")
    inside = b'{"msg_id": "i", "topic": "ask", "body": "inside"}\n'
    start = folder.messages.stat().st_size
    with folder.messages.open("ab") as file:
        file.write(b"foreign " + inside)
    (folder.session / "cursors").mkdir()
    (folder.session / "cursors/a.cursor").write_text(f"{start + len('foreign ') + 1}")
    queue.send("ask", "two")
    assert bodies(queue.poll("a")) == ["two"]


def test_a_damaged_journal_is_told(queue: Queue, folder: Folder) -> None:
    queue.send("ask", "x")
    (folder.session / ".expire").write_text("{")
    with pytest.raises(QueueError, match=r"\.expire is damaged.*remove it"):
        queue.poll("a")
    (folder.session / ".expire").unlink()
    assert bodies(queue.poll("a")) == ["x"]


@pytest.mark.parametrize("lines", [1_000, 20_000])
def test_what_was_read_before_costs_nothing(queue: Queue, folder: Folder, lines: int) -> None:
    """The same calls and the same bytes, however long the queue is."""
    queue.send("ask", "x" * 100, to="b")
    [line] = folder.messages.read_bytes().splitlines(keepends=True)
    folder.messages.write_bytes(line * lines)
    queue.poll("a")
    with counted_bytes() as read, counting() as made:
        queue.send("ask", "x" * 100, to="b")
        sent = list(made)
        queue.send("ask", "y", to="a")
        made.clear()
        assert bodies(queue.poll("a")) == ["y"]
        polled = list(made)
        queue.tail(2)
    assert len(sent) <= 22
    assert len(polled) <= 34
    assert sum(read) <= 2 * len(line) + 2 * (1 << 18)


class counted_bytes:  # noqa: N801
    """Collects how many bytes each read gave."""

    def __enter__(self) -> list[int]:
        self.real = os.read
        read: list[int] = []

        def counted(fd: int, count: int) -> bytes:
            content = self.real(fd, count)
            read.append(len(content))
            return content

        os.read = counted
        return read

    def __exit__(self, *_: object) -> None:
        os.read = self.real
