"""What the page of the file queue says of `poll`, `tail`, `expire`, `status` and the audit log."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.local.conftest import Folder

from mq9.local import Queue
from mq9.local import queue as queue_module


def bodies(messages: list[dict[str, Any]]) -> list[str]:
    return [message["body"] for message in messages]


def test_the_example_of_the_page(queue: Queue) -> None:
    msg_id = queue.send("ask", "What is the build status?", to="builder", ttl_s=600)
    for m in queue.poll("builder"):
        assert (m["from"], m["topic"]) == ("anonymous", "ask")
        queue.send("answer", "Build green.", to=m["from"], reply_to=m["msg_id"])
    [answer] = queue.poll("anonymous")
    assert (answer["body"], answer["in_reply_to"]) == ("Build green.", msg_id)


def test_poll_gives_what_came_since_the_cursor(queue: Queue) -> None:
    queue.send("ask", "one")
    assert bodies(queue.poll("a")) == ["one"]
    assert queue.poll("a") == []
    queue.send("ask", "two")
    queue.send("ask", "three")
    assert bodies(queue.poll("a")) == ["two", "three"]
    assert bodies(queue.poll("b")) == ["one", "two", "three"]


def test_a_cursor_outlives_the_process(queue: Queue, root: Path) -> None:
    queue.send("ask", "one")
    queue.poll("a")
    queue.send("ask", "two")
    assert bodies(Queue(root).poll("a")) == ["two"]


@pytest.mark.parametrize("topics", ["ask", ["ask"], ("ask", "ask"), {"ask"}, iter(["ask"])])
def test_a_filter_is_a_topic_or_several(queue: Queue, topics: Any) -> None:  # noqa: ANN401
    for topic in ("ask", "answer", "status"):
        queue.send(topic, topic)
    assert bodies(queue.poll("a", topics)) == ["ask"]


def test_a_filter_consumes_what_it_skips(queue: Queue) -> None:
    queue.send("ask", "x")
    queue.send("status", "y")
    assert bodies(queue.poll("a", ["status"])) == ["y"]
    assert queue.poll("a") == []


def test_the_cursor_moves_over_everything_that_was_scanned(queue: Queue, folder: Folder) -> None:
    queue.send("ask", "other agent", to="b")
    queue.send("status", "other topic")
    queue.send("ask", "expired", ttl_s=0)
    assert queue.poll("a", "ask") == []
    assert folder.cursor("a") == folder.messages.stat().st_size > 0


def test_the_cursor_is_flushed_before_messages_are_returned(
    queue: Queue, folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the last thing that `poll` does, the file has it already."""
    queue.send("ask", "x")
    seen = []

    def look(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401
        seen.append(folder.cursor("a"))
        return sorted(*arguments, **options)

    monkeypatch.setattr(queue_module, "sorted", look, raising=False)
    assert bodies(queue.poll("a", by_priority=True)) == ["x"]
    assert seen == [folder.messages.stat().st_size]


def test_who_has_polled_can_be_seen(queue: Queue, folder: Folder) -> None:
    assert queue.poll("a") == []
    assert folder.cursor("a") == 0
    assert queue.status()["default"]["cursors"] == {"a": 0}


def test_expired_messages_are_not_given_out(queue: Queue) -> None:
    queue.send("ask", "over", ttl_s=0)
    queue.send("ask", "lives", ttl_s=600)
    assert bodies(queue.poll("a")) == ["lives"]


def test_long_bodies_come_out_of_their_side_files(queue: Queue) -> None:
    queue.send("ask", "é" * 5000)
    queue.send("ask", "short")
    long, short = queue.poll("a")
    assert (long["body"], long["_body_source"]) == ("é" * 5000, "side-file")
    assert "_body_error" not in long
    assert short.keys().isdisjoint({"_body_source", "_body_error"})


@pytest.mark.parametrize("how", ["missing", "no text", "a folder"])
def test_a_side_file_that_cannot_be_read_is_told(queue: Queue, folder: Folder, how: str) -> None:
    msg_id = queue.send("ask", "x" * 5000)
    file = folder.session / "bodies" / f"{msg_id}.txt"
    file.unlink()
    if how == "no text":
        file.write_bytes(b"\xff")
    elif how == "a folder":
        file.mkdir()
    queue.send("ask", "next")
    broken, following = queue.poll("a")
    assert msg_id in broken["_body_error"]
    assert broken["body"] == f"@file:{msg_id}.txt"
    assert "_body_source" not in broken
    assert following["body"] == "next"


def test_a_body_that_names_a_file_does_not_open_it(queue: Queue, folder: Folder) -> None:
    other = queue.send("ask", "secret" * 1000, to="b")
    queue.send("ask", f"@file:{other}.txt")
    (folder.root / "sessions/secret.txt").write_text("secret")
    line = {"msg_id": "../../secret", "topic": "ask", "body": "@file:../../secret.txt"}
    with folder.messages.open("a") as file:
        file.write(json.dumps(line) + "\n")
    found = queue.poll("a")
    assert bodies(found) == [f"@file:{other}.txt", "@file:../../secret.txt"]


def test_a_torn_last_line_is_not_consumed(queue: Queue, folder: Folder) -> None:
    queue.send("ask", "one")
    whole = folder.messages.stat().st_size
    second = folder.messages.read_bytes().replace(b"one", b"two")
    with folder.messages.open("ab") as file:
        file.write(second[:-1])
        file.flush()
        assert bodies(queue.poll("a")) == ["one"]
        assert folder.cursor("a") == whole
        assert bodies(queue.tail(9)) == ["one"]
        assert queue.status()["default"]["messages"] == 1
        file.write(b"\n")
    assert bodies(queue.poll("a")) == ["two"]


def test_a_message_behind_a_torn_line_is_not_lost(queue: Queue, folder: Folder) -> None:
    queue.send("ask", "one")
    with folder.messages.open("ab") as file:
        file.write(b'{"msg_id": "torn", "to')
    queue.poll("a")
    queue.send("ask", "two")
    assert bodies(queue.poll("a")) == ["two"]
    assert bodies(queue.poll("b")) == ["one", "two"]


HOSTILE = [
    b"no json",
    b"[]",
    b"42",
    b"null",
    b"{}",
    b"",
    b"\xff\xfe",
    b"\x00" * 100,
    b"[" * 200_000,
    b'{"msg_id": 1, "topic": "ask", "body": "x"}',
    b'{"msg_id": "a", "topic": "ask", "body": ["x"]}',
    b'{"msg_id": "a", "topic": ["ask"], "body": "x"}',
    b'{"a": ' + b"9" * 5000 + b"}",
    b"\r",
]


@pytest.mark.parametrize("line", HOSTILE, ids=range(len(HOSTILE)))
def test_lines_that_are_no_messages_are_passed_over_and_kept(
    queue: Queue, folder: Folder, line: bytes
) -> None:
    queue.send("ask", "over", ttl_s=0)
    with folder.messages.open("ab") as file:
        file.write(line + b"\n")
    queue.send("ask", "x")
    assert bodies(queue.poll("a")) == ["x"]
    assert bodies(queue.tail(9)) == ["x"]
    assert queue.expire() == 1
    assert folder.messages.read_bytes().startswith(line + b"\n")
    assert queue.status()["default"]["unparseable"] == bool(line)
    assert queue.poll("a") == []


@pytest.mark.parametrize(
    "fields",
    [
        {"ttl_s": "soon"},
        {"ttl_s": True},
        {"ttl_s": 5, "ts": "yesterday"},
        {"ttl_s": 5, "ts": 7},
        {"ttl_s": 5, "ts": None},
        {"ttl_s": float("nan")},
        {"ttl_s": 10**300, "ts": "2020-01-01T00:00:00"},
    ],
)
def test_a_lifetime_that_cannot_be_read_does_not_end(
    queue: Queue, folder: Folder, fields: dict[str, Any]
) -> None:
    queue.send("ask", "x")
    record = folder.lines()[0] | {"ts": "2020-01-01T00:00:00Z"} | fields
    folder.messages.write_text(json.dumps(record) + "\n")
    assert queue.expire() == 0
    assert bodies(queue.poll("a")) == ["x"]


def test_tail_is_a_look_and_nothing_else(queue: Queue, folder: Folder) -> None:
    for number in range(5):
        queue.send("ask", f"{number}")
    queue.send("ask", "over", ttl_s=0)
    queue.send("ask", "long" * 1000)
    audited = folder.audit()
    files = {file for file in folder.root.rglob("*") if file.is_file()}
    assert bodies(queue.tail(3)) == ["3", "4", "long" * 1000]
    assert bodies(queue.tail(3, include_expired=True)) == ["4", "over", "long" * 1000]
    assert len(queue.tail(100)) == 6
    assert queue.tail(0) == []
    assert queue.tail(5, "nowhere") == []
    assert folder.audit() == audited
    assert {file for file in folder.root.rglob("*") if file.is_file()} == files
    assert len(queue.poll("a")) == 6


def test_tail_reads_backwards_over_any_length(queue: Queue, folder: Folder) -> None:
    queue.body_threshold = 10**7
    sent = ["a", "b" * 600_000, "c", "d" * 262_000, "", "e"]
    for body in sent:
        queue.send("ask", body)
    for n in range(8):
        assert bodies(queue.tail(n)) == sent[max(len(sent) - n, 0) :]
    assert bodies(queue.poll("a")) == sent
    with folder.messages.open("ab") as file:
        file.write(b"x" * 300_000)
    assert bodies(queue.tail(2)) == sent[-2:]


@pytest.mark.parametrize("n", [-1, 1.5, "3", None, True])
def test_tail_wants_a_count(queue: Queue, n: Any) -> None:  # noqa: ANN401
    with pytest.raises(ValueError, match="n is"):
        queue.tail(n)


def test_expire_drops_and_counts(queue: Queue, folder: Folder) -> None:
    for number in range(6):
        queue.send("ask", f"{number}", ttl_s=0 if number % 2 else None)
    assert queue.expire() == 3
    assert [line["body"] for line in folder.lines()] == ["0", "2", "4"]
    assert queue.expire() == 0
    assert queue.expire("nowhere") == 0


def test_expire_takes_side_files_along(queue: Queue, folder: Folder) -> None:
    queue.send("ask", "over" * 1000, ttl_s=0)
    kept = queue.send("ask", "lives" * 1000)
    queue.expire()
    assert folder.bodies() == {f"{kept}.txt"}
    assert bodies(queue.poll("a")) == ["lives" * 1000]


def test_expire_moves_every_cursor_along(queue: Queue, folder: Folder) -> None:
    for number in range(12):
        queue.poll(f"agent-{number}")
        queue.send("ask", f"{number}", ttl_s=0 if number % 3 else None)
    queue.poll("agent-12")
    assert queue.expire() == 8
    living = [0, 3, 6, 9]
    lines = folder.messages.read_bytes().splitlines(keepends=True)
    for number in range(1, 13):
        passed = sum(len(line) for body, line in zip(living, lines, strict=True) if body < number)
        assert folder.cursor(f"agent-{number}") == passed, number
    for number in range(13):
        expected = [f"{body}" for body in living if body >= number]
        assert bodies(queue.poll(f"agent-{number}")) == expected, number
    assert folder.cursor("agent-12") == folder.messages.stat().st_size


def test_expire_keeps_a_torn_line(queue: Queue, folder: Folder) -> None:
    queue.send("ask", "over", ttl_s=0)
    torn = b'{"msg_id": "t", "topic": "ask", "body": "@file:01a1ec1c8df0-516cefadfc9dc5e9.txt"'
    with folder.messages.open("ab") as file:
        file.write(torn)
    (folder.session / "bodies").mkdir()
    (folder.session / "bodies/01a1ec1c8df0-516cefadfc9dc5e9.txt").write_text("still needed")
    (folder.session / "bodies/01a1ec1c8df0-516cefadfc9dc5e0.txt").write_text("of a dead sender")
    assert queue.expire() == 1
    assert folder.messages.read_bytes() == torn
    assert folder.bodies() == {"01a1ec1c8df0-516cefadfc9dc5e9.txt"}


def test_expire_keeps_who_may_write(queue: Queue, folder: Folder) -> None:
    queue.send("ask", "over", ttl_s=0)
    folder.messages.chmod(0o660)
    queue.expire()
    assert folder.messages.stat().st_mode & 0o777 == 0o660


def test_status_counts(queue: Queue, folder: Folder) -> None:
    queue.send("ask", "x")
    queue.send("ask", "over", ttl_s=0)
    queue.poll("a")
    queue.send("status", "y")
    size = folder.messages.stat().st_size
    counts = {
        "messages": 3,
        "expired": 1,
        "unparseable": 0,
        "by_topic": {"ask": 2, "status": 1},
        "queue_bytes": size,
        "cursors": {"a": folder.cursor("a")},
    }
    assert queue.status("default") == {"default": counts}
    queue.send("ask", "x", session="other")
    assert queue.status().keys() == {"default", "other"}
    assert queue.status()["default"] == counts


def test_status_of_nothing(queue: Queue, root: Path) -> None:
    assert queue.status() == {}
    assert queue.status("nowhere")["nowhere"]["messages"] == 0
    assert not root.exists()


def test_every_send_poll_and_expire_is_audited(queue: Queue, folder: Folder) -> None:
    msg_id = queue.send("ask", "é" * 2000, to="a", ttl_s=600, sender="me")
    queue.poll("a", ["ask", "answer"], "default")
    queue.poll("a")
    queue.expire()
    sent, polled, idle, expired = folder.audit()
    for entry, operation in ((sent, "send"), (polled, "poll"), (idle, "poll"), (expired, "expire")):
        assert entry.pop("op") == operation
        assert entry.pop("ts").endswith("Z")
        assert entry.pop("session") == "default"
    assert sent == {
        "msg_id": msg_id,
        "topic": "ask",
        "to": "a",
        "from": "me",
        "body_bytes": 4000,
        "externalized": True,
        "ttl_s": 600,
    }
    size = folder.messages.stat().st_size
    cursors = {"cursor_from": 0, "cursor_to": size}
    assert polled == {"agent_id": "a", "topics": ["answer", "ask"], "matched": 1, **cursors}
    cursors = {"cursor_from": size, "cursor_to": size}
    assert idle == {"agent_id": "a", "topics": None, "matched": 0, **cursors}
    assert expired == {"dropped": 0}


def test_the_audit_log_has_no_bodies(queue: Queue, root: Path) -> None:
    queue.send("ask", "secret", ttl_s=0)
    queue.send("ask", "secret" * 1000)
    queue.poll("a")
    queue.expire()
    assert "secret" not in queue.audit_path.read_text()
    assert root.joinpath("audit.jsonl") == queue.audit_path


def test_layout_on_disk(queue: Queue, root: Path) -> None:
    msg_id = queue.send("ask", "x" * 5000, session="s")
    queue.poll("worker", session="s")
    seen = {file.relative_to(root).as_posix() for file in root.rglob("*") if file.is_file()}
    assert seen == {
        "audit.jsonl",
        "sessions/s/messages.jsonl",
        f"sessions/s/bodies/{msg_id}.txt",
        "sessions/s/cursors/worker.cursor",
        "sessions/s/.lock",
    }


def test_messages_by_priority(queue: Queue, folder: Folder) -> None:
    given: list[tuple[str, Any]] = [
        *(("a", None), ("b", "notify"), ("c", 1), ("d", "urgent"), ("e", 5)),
    ]
    for body, priority in given:
        queue.send("ask", body, priority=priority)
    assert [line.get("priority") for line in folder.lines()] == [None, 9, 1, 3, 5]
    assert bodies(queue.poll("a")) == ["a", "b", "c", "d", "e"]
    assert bodies(queue.poll("b", by_priority=True)) == ["c", "d", "a", "e", "b"]


@pytest.mark.parametrize("priority", [0, 11, "high", True, 2.5])
def test_a_priority_must_be_one(queue: Queue, priority: Any) -> None:  # noqa: ANN401
    with pytest.raises(ValueError, match="priority"):
        queue.send("ask", "x", priority=priority)
