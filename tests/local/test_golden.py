"""The files of docs/formats.md, byte by byte: read as they were written, and written the same."""

import json
import secrets
import time
from pathlib import Path

import pytest
from tests.local.conftest import Folder

from mq9.local import Queue

NOW_S = 1_781_049_600
LINES = (
    '{"msg_id": "019eaed42800-0000000000000001", "ts": "2026-06-10T00:00:00Z", "from": "boss", '
    '"to": null, "topic": "ask", "body": "Grüße", "in_reply_to": null, "ttl_s": 600}\n'
    '{"msg_id": "019eaed42800-0000000000000002", "ts": "2026-06-10T00:00:00Z", "from": "boss", '
    '"to": "a", "topic": "answer", "body": "@file:019eaed42800-0000000000000002.txt", '
    '"in_reply_to": "019eaed42800-0000000000000001", "ttl_s": null, "priority": 3}\n'
)
AUDIT = (
    '{"ts": "2026-06-10T00:00:00Z", "op": "poll", "session": "default", "agent_id": "a", '
    '"topics": null, "matched": 2, "cursor_from": 0, "cursor_to": 421}\n'
)


@pytest.fixture(autouse=True)
def _fixed(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = iter(range(1, 100))
    monkeypatch.setattr(time, "time_ns", lambda: NOW_S * 10**9)
    monkeypatch.setattr(secrets, "token_hex", lambda _bytes: f"{next(numbers):016x}")


def test_what_is_written(queue: Queue, folder: Folder) -> None:
    first = queue.send("ask", "Grüße", ttl_s=600, sender="boss")
    queue.send("answer", "x" * 4000, "a", sender="boss", reply_to=first, priority="urgent")
    assert len(queue.poll("a")) == 2
    assert folder.messages.read_text("utf-8") == LINES
    assert (folder.root / "audit.jsonl").read_text("utf-8").endswith(AUDIT)
    assert (folder.session / "cursors/a.cursor").read_text() == f"{len(LINES.encode())}\n"


def test_what_was_written_is_read(queue: Queue, folder: Folder) -> None:
    (folder.session / "bodies").mkdir(parents=True)
    (folder.session / "cursors").mkdir()
    folder.messages.write_text(LINES, "utf-8")
    (folder.session / "bodies/019eaed42800-0000000000000002.txt").write_text("long")
    first = len(LINES.encode().splitlines(keepends=True)[0])
    (folder.session / "cursors/b.cursor").write_text(f"{first}\n")
    assert [m["body"] for m in queue.poll("a")] == ["Grüße", "long"]
    assert queue.poll("b") == []


@pytest.mark.parametrize("replaced", [True, False])
def test_the_journal_of_an_expire(queue: Queue, folder: Folder, replaced: bool) -> None:
    first, second = LINES.encode().splitlines(keepends=True)
    (folder.session / "bodies").mkdir(parents=True)
    (folder.session / "cursors").mkdir()
    cursor = folder.session / "cursors/a.cursor"
    folder.messages.write_bytes(second if replaced else first + second)
    cursor.write_text(f"{len(first)}\n")
    side_file = folder.session / "bodies/gone.txt"
    side_file.write_text("x")
    journal = {"cursors": {"a": 0}, "bodies": ["gone.txt"]}
    (folder.session / ".expire").write_text(json.dumps(journal))
    if not replaced:
        (folder.session / ".expire.messages").write_bytes(second)
    assert [m["msg_id"][-1] for m in queue.poll("a")] == ["2"]
    assert side_file.exists() != replaced
    left = {path.name for path in Path(folder.session).glob(".e*")}
    assert left == set()
