"""A panic in the core ends the broker, which says where it was; the next start loses nothing.

It is brought about from outside: a write that reports more bytes than it was given, which no kernel
does, is taken for impossible by Rust's standard library, and panics in the middle of a flush.
"""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.faults import shim
from tests.faults.scene import Scene
from tests.faults.shim import Shim
from tests.peers import STOP_DEADLINE_S, until

pytestmark = pytest.mark.skipif(shim.missing() is not None, reason=str(shim.missing()))

ALL_THREADS, UPKEEP = 1, 2

LIBRARY = """
import sys
from mq9.errors import StoreError
from mq9.store import Store

store = Store(sys.argv[1], maintain_every_ms=0)
store.create_mailbox("a")
store.send("a", b"before")
store.wait_durable()
print("ready", flush=True)
sys.stdin.readline()
try:
    store.send("a", b"in the middle")
except BaseException as error:
    assert type(error).__name__ == "PanicException", error
else:
    raise AssertionError("no panic")
for _ in range(2):
    try:
        store.send("a", b"after")
    except StoreError as error:
        assert "close it and open it again" in str(error), error
    else:
        raise AssertionError("a store that is half changed was used")
try:
    store.close()
except StoreError as error:
    assert "was not saved" in str(error), error
else:
    raise AssertionError("a store that is half changed was closed as if it were whole")
assert store.closed
store.close()
print("alive", flush=True)
"""


def dead(process: "subprocess.Popen[bytes]") -> int:
    """Waits until it has ended by itself."""
    return process.wait(STOP_DEADLINE_S)


@pytest.mark.parametrize(("where", "thread"), [(ALL_THREADS, ""), (UPKEEP, "mq9-upkeep")])
def test_a_panic_ends_the_broker_and_loses_nothing(tmp_path: Path, where: int, thread: str) -> None:
    faults = Shim(tmp_path / "shim", tmp_path / "data")
    with Scene(tmp_path, faults.around) as scene:
        scene.send(200)
        scene.take(50)
        before = {file.name for file in (tmp_path / "data").glob("checkpoint-*.mq9")}
        faults.set("overlong_writes", where)
        # Upkeep writes when there is something to do; a client just sees the broker go.
        try:
            for _ in range(100):
                if scene.server.process.poll() is not None:
                    break
                scene.send(20)
        except (OSError, AssertionError):
            pass
        assert dead(scene.server.process) == -signal.SIGABRT
        assert faults.get("hits") > 0
        [line] = [line for line in scene.server.log.splitlines() if "[FTL]" in line]
        assert f"panic in thread {thread}" in line
        assert ".rs:" in line, "it says where"
        assert "Server Exiting" not in scene.server.log
        after = {file.name for file in (tmp_path / "data").glob("checkpoint-*.mq9")}
        assert where == UPKEEP or after == before, "nothing is saved of what may be half changed"
        faults.set("overlong_writes", 0)
        scene.restart()
        scene.look()
        assert scene.send(20) == []
        scene.drain()
        assert scene.check().violations == []


def test_the_log_file_has_the_line_too(tmp_path: Path) -> None:
    faults = Shim(tmp_path / "shim", tmp_path / "data")
    log = tmp_path / "broker.log"
    command = [*faults.around, sys.executable, "-m", "mq9", "serve", "-a", "127.0.0.1", "-p", "-1"]
    command += ["--data", str(tmp_path / "data"), "--log", str(log)]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        until(
            lambda: log.exists() and "Server is ready" in log.read_text("utf-8"), "it is ready", 20
        )
        # Closing writes a checkpoint.
        faults.set("overlong_writes", ALL_THREADS)
        process.terminate()
        _, said = process.communicate(timeout=STOP_DEADLINE_S)
    assert process.returncode == -signal.SIGABRT
    assert b"[FTL] panic in thread " in said
    assert log.read_text("utf-8").count("[FTL] panic in thread ") == 1


def test_a_program_that_uses_the_store_gets_an_exception_and_lives(tmp_path: Path) -> None:
    faults = Shim(tmp_path / "shim", tmp_path / "data")
    command = [*faults.around, sys.executable, "-c", LIBRARY, str(tmp_path / "data")]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        checkpoints = set((tmp_path / "data").glob("checkpoint-*"))
        faults.set("overlong_writes", ALL_THREADS)
        out, said = process.communicate(b"\n", timeout=STOP_DEADLINE_S)
    assert (out, process.returncode) == (b"alive\n", 0), said.decode()
    assert b"panicked at" in said, "the place is on the standard error output"
    assert set((tmp_path / "data").glob("checkpoint-*")) == checkpoints
