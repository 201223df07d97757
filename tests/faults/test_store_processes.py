"""Other processes: one that holds the directory, and one that is killed while it writes."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mq9._core import Store, StoreLocked

ROUNDS = 5
ACKNOWLEDGED = 50

HOLDER = """
import sys
from mq9._core import Store

with Store(sys.argv[1]):
    print("open", flush=True)
    sys.stdin.read()
"""

WRITER = """
import itertools, sys
from mq9._core import NewMessage, Store

store = Store(sys.argv[1], segment_bytes=1 << 20, checkpoint_bytes=1 << 16, maintain_every_ms=1)
first = store.mailbox("a").next_id
for start in itertools.count(first, 3):
    ids = store.append_many("a", [b"%d" % n * 50 for n in range(start, start + 3)])
    store.wait_durable()
    print(*ids, flush=True)
"""


@contextmanager
def running(script: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", script, folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def test_a_directory_belongs_to_one_process(tmp_path: Path) -> None:
    with running(HOLDER, tmp_path) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "open\n"
        with pytest.raises(StoreLocked, match="in use by another process"):
            Store(tmp_path)
        holder.communicate("")
        assert holder.returncode == 0
    Store(tmp_path).close()


def test_a_process_may_end_without_closing_its_store(tmp_path: Path) -> None:
    forgetful = "import sys; from mq9._core import Store; store = Store(sys.argv[1])"
    for _ in range(2):
        subprocess.run([sys.executable, "-c", forgetful, tmp_path], check=True, timeout=60)
    with Store(tmp_path) as store:
        assert store.info().epoch == 3


def test_a_killed_process_loses_nothing_that_it_acknowledged(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.create_mailbox("a")
    acknowledged: list[int] = []
    for turn in range(ROUNDS):
        with running(WRITER, tmp_path) as writer:
            assert writer.stdout is not None
            # A different number each time, so that the kill meets different moments.
            lines = [writer.stdout.readline() for _ in range(ACKNOWLEDGED + 7 * turn)]
            writer.kill()
            rest, _ = writer.communicate()
        # The last line may have been cut by the kill.
        complete = "".join(lines) + rest[: rest.rfind("\n") + 1]
        acknowledged += [int(word) for word in complete.split()]
        with Store(tmp_path) as store:
            found = store.query("a", limit=1 << 30, max_bytes=1 << 40)
            assert {message.msg_id for message in found} >= set(acknowledged)
            for message in found:
                assert message.payload == b"%d" % message.msg_id * 50
            assert [damage for damage in store.damage() if damage.kind != "torn_tail"] == []
    assert len(acknowledged) >= 3 * ACKNOWLEDGED * ROUNDS
    assert acknowledged == sorted(set(acknowledged))
