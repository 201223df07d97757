"""What the page of the file queue says of topics, sessions and `send`, statement by statement."""

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from tests.local.conftest import Folder

import zos_agent_mq
from mq9.local import (
    DEFAULT_BODY_THRESHOLD,
    TOPICS,
    Queue,
    QueueDisabledError,
    QueueError,
    TopicError,
)


def bodies(messages: list[dict[str, Any]]) -> list[str]:
    return [message["body"] for message in messages]


def test_the_module_zos_agent_mq_is_this_queue() -> None:
    assert zos_agent_mq.Queue is Queue
    assert zos_agent_mq.TOPICS is TOPICS


def test_the_set_of_topics_is_closed() -> None:
    assert frozenset({"ask", "answer", "broadcast", "spawn-request", "status"}) == TOPICS
    assert isinstance(TOPICS, frozenset)


@pytest.mark.parametrize("topic", ["question", "", "ASK", " ask", None, 7, ["ask"]])
def test_unknown_topics_are_rejected_on_send(queue: Queue, root: Path, topic: Any) -> None:  # noqa: ANN401
    with pytest.raises(TopicError, match="one of answer, ask, broadcast"):
        queue.send(topic, "x")
    assert not root.exists()


@pytest.mark.parametrize("topics", ["question", ["ask", "question"], [], [None], [["ask"]]])
def test_unknown_topics_are_rejected_on_poll_filters(queue: Queue, topics: Any) -> None:  # noqa: ANN401
    queue.send("ask", "x")
    with pytest.raises(TopicError):
        queue.poll("a", topics)
    assert bodies(queue.poll("a")) == ["x"]


def test_exceptions_are_what_the_page_says() -> None:
    assert issubclass(TopicError, QueueError)
    assert issubclass(TopicError, ValueError)
    assert issubclass(QueueDisabledError, QueueError)
    assert issubclass(QueueDisabledError, RuntimeError)


def test_attributes(queue: Queue, root: Path) -> None:
    assert queue.root == root
    assert isinstance(queue.root, Path)
    assert queue.body_threshold == DEFAULT_BODY_THRESHOLD == 3584
    assert queue.audit_path == root / "audit.jsonl"


def test_the_threshold_comes_from_the_environment(
    root: Path, folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZOS_MQ_BODY_THRESHOLD", "10")
    queue = Queue(root)
    assert queue.body_threshold == 10
    queue.send("ask", "x" * 10)
    queue.send("ask", "x" * 11)
    assert [line["body"][:6] for line in folder.lines()] == ["xxxxxx", "@file:"]


@pytest.mark.parametrize("written", ["many", "-1", "1.5", "٣", "9" * 20])
def test_a_threshold_that_is_no_number_is_refused(
    root: Path, written: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZOS_MQ_BODY_THRESHOLD", written)
    with pytest.raises(ValueError, match="ZOS_MQ_BODY_THRESHOLD"):
        Queue(root)


def test_where_the_root_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert Queue().root == tmp_path / "home/.zos/agent-mq"
    monkeypatch.setenv("ZOS_HOME", str(tmp_path / "zos"))
    assert Queue().root == tmp_path / "zos/agent-mq"
    monkeypatch.setenv("ZOS_MQ_ROOT", str(tmp_path / "root"))
    assert Queue().root == tmp_path / "root"
    assert Queue(str(tmp_path / "given")).root == tmp_path / "given"
    monkeypatch.chdir(tmp_path)
    relative = Queue("here")
    monkeypatch.chdir("/")
    relative.send("ask", "x")
    assert (tmp_path / "here/sessions/default/messages.jsonl").exists()


def test_send_returns_the_id_of_a_record_of_the_schema(queue: Queue, folder: Folder) -> None:
    before = int(time.time())
    msg_id = queue.send("ask", "What is it?", to="builder", ttl_s=600, sender="boss")
    [line] = folder.messages.read_text().splitlines()
    record = json.loads(line)
    assert list(record) == [
        *("msg_id", "ts", "from", "to", "topic", "body", "in_reply_to", "ttl_s")
    ]
    ts = record.pop("ts")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", ts)
    assert ts >= time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(before))
    assert record == {
        "msg_id": msg_id,
        "from": "boss",
        "to": "builder",
        "topic": "ask",
        "body": "What is it?",
        "in_reply_to": None,
        "ttl_s": 600,
    }
    queue.send("ask", "to all")
    assert (folder.lines()[1]["to"], folder.lines()[1]["ttl_s"]) == (None, None)


def test_every_message_has_an_id_of_its_own(queue: Queue) -> None:
    assert len({queue.send("status", "x") for _ in range(500)}) == 500


def test_bodies_over_the_threshold_go_to_a_side_file(queue: Queue, folder: Folder) -> None:
    short, long = "x" * 3584, "x" * 3585
    queue.send("ask", short)
    msg_id = queue.send("ask", long)
    # Bytes count, not characters.
    wide = queue.send("ask", "é" * 1793)
    lines = bodies(folder.lines())
    assert lines == [short, f"@file:{msg_id}.txt", f"@file:{wide}.txt"]
    assert (folder.session / "bodies" / f"{msg_id}.txt").read_text() == long
    assert folder.bodies() == {f"{msg_id}.txt", f"{wide}.txt"}


def test_every_line_stays_small_whatever_json_has_to_escape(queue: Queue, folder: Folder) -> None:
    name = "n" * 200
    for body in ("\n" * 3584, "\0" * 1000, '"' * 2500, "x" * 3584, "é" * 1792, "\x7f" * 3584):
        queue.send("spawn-request", body, to=name, sender=name, reply_to=name, ttl_s=1e9 / 3)
    assert max(map(len, folder.messages.read_bytes().splitlines(keepends=True))) <= 4096
    assert bodies(queue.poll(name))[:2] == ["\n" * 3584, "\0" * 1000]


@pytest.mark.parametrize("to", [None, "all", "broadcast"])
def test_a_message_to_nobody_in_particular_is_for_everybody(queue: Queue, to: str | None) -> None:
    queue.send("broadcast", "x", to=to)
    assert bodies(queue.poll("a")) == bodies(queue.poll("b")) == ["x"]


def test_a_message_to_an_agent_is_for_that_agent(queue: Queue) -> None:
    queue.send("ask", "x", to="a")
    assert queue.poll("b") == []
    assert bodies(queue.poll("a")) == ["x"]


@pytest.mark.parametrize("ttl_s", [-1, -0.001, float("nan"), float("inf"), True, "5", 10**400])
def test_a_lifetime_must_be_a_number_of_seconds(queue: Queue, ttl_s: Any) -> None:  # noqa: ANN401
    with pytest.raises(ValueError, match="ttl_s"):
        queue.send("ask", "x", ttl_s=ttl_s)
    assert queue.poll("a") == []


def test_without_a_lifetime_a_message_never_expires(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.send("ask", "x")
    later = time.time_ns() + 10**18
    monkeypatch.setattr(time, "time_ns", lambda: later)
    assert bodies(queue.poll("a")) == ["x"]


def test_a_lifetime_is_exact(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """`ts` has whole seconds; the lifetime does not begin before the message was sent."""
    now = 1_790_000_000_900_000_000
    monkeypatch.setattr(time, "time_ns", lambda: now)
    queue.send("ask", "second", ttl_s=1)
    queue.send("ask", "half", ttl_s=0.5)
    queue.send("ask", "over", ttl_s=0)
    assert bodies(queue.tail(9)) == ["second", "half"]
    now += 499_000_000
    assert bodies(queue.tail(9)) == ["second", "half"]
    now += 1_000_000
    assert bodies(queue.tail(9)) == ["second"]
    now += 499_000_000
    assert bodies(queue.tail(9)) == ["second"]
    now += 1_000_000
    assert queue.tail(9) == []


def test_sessions_do_not_see_each_other(queue: Queue) -> None:
    queue.send("ask", "one", session="one")
    queue.send("ask", "two", session="two")
    assert bodies(queue.poll("a", session="one")) == ["one"]
    assert bodies(queue.poll("a", session="two")) == ["two"]
    assert queue.poll("a") == []


def test_the_default_session(queue: Queue, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    queue.send("ask", "x")
    assert (root / "sessions/default/messages.jsonl").exists()
    monkeypatch.setenv("ZOS_MQ_SESSION", "other")
    queue.send("ask", "y")
    assert bodies(queue.poll("a")) == ["y"]
    assert (root / "sessions/other/messages.jsonl").exists()


def test_the_default_sender(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    queue.send("ask", "x")
    monkeypatch.setenv("ZOS_MQ_AGENT_ID", "worker-7")
    queue.send("ask", "y")
    queue.send("ask", "z", sender="me")
    assert [m["from"] for m in queue.poll("a")] == ["anonymous", "worker-7", "me"]


def test_an_answer_names_what_it_answers(queue: Queue) -> None:
    asked = queue.send("ask", "x", to="b")
    queue.send("answer", "y", reply_to=asked)
    assert [m["in_reply_to"] for m in queue.poll("b")] == [None, asked]


def test_the_kill_switch_refuses_to_send(
    queue: Queue, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZOS_MQ_DISABLED", "1")
    with pytest.raises(QueueDisabledError, match="ZOS_MQ_DISABLED"):
        queue.send("ask", "x")
    assert not root.exists()


@pytest.mark.parametrize("value", ["", "0"])
def test_the_kill_switch_is_one(queue: Queue, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZOS_MQ_DISABLED", value)
    queue.send("ask", "x")
    assert bodies(queue.poll("a")) == ["x"]


def test_the_kill_switch_loses_nothing(
    queue: Queue, folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.send("ask", "read")
    queue.poll("a")
    queue.send("ask", "waits")
    queue.send("ask", "over", ttl_s=0)
    files = {file: file.read_bytes() for file in folder.root.rglob("*") if file.is_file()}
    monkeypatch.setenv("ZOS_MQ_DISABLED", "1")
    assert queue.poll("a") == queue.wait("a", 0) == []
    assert queue.expire() == 0
    assert bodies(queue.tail(9)) == ["read", "waits"]
    assert {f: f.read_bytes() for f in folder.root.rglob("*") if f.is_file()} == files
    monkeypatch.delenv("ZOS_MQ_DISABLED")
    assert bodies(queue.poll("a")) == ["waits"]


BAD_NAMES = ["", ".", "..", "../x", "a/b", "-a", "_a", ".a", "a b", "a\n", "é", "a\0", "x" * 201]


@pytest.mark.parametrize("name", [*BAD_NAMES, 7, b"a"])
def test_names_that_are_no_names_are_refused(queue: Queue, root: Path, name: Any) -> None:  # noqa: ANN401
    calls: list[Any] = [
        lambda: queue.send("ask", "x", session=name),
        lambda: queue.send("ask", "x", sender=name),
        lambda: queue.send("ask", "x", to=name),
        lambda: queue.poll(name),
        lambda: queue.poll("a", session=name),
        lambda: queue.wait(name, 0),
        lambda: queue.tail(1, name),
        lambda: queue.expire(name),
        lambda: queue.status(name),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="a name has letters"):
            call()
    assert not root.exists()


@pytest.mark.parametrize("variable", ["ZOS_MQ_SESSION", "ZOS_MQ_AGENT_ID"])
def test_names_from_the_environment_are_looked_at(
    queue: Queue, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "../x")
    with pytest.raises(ValueError, match="a name has letters"):
        queue.send("ask", "x")


@pytest.mark.parametrize("name", ["a", "A9", "9", "a.b-c_D", "a" * 200])
def test_names_that_are_names(queue: Queue, name: str) -> None:
    queue.send("ask", "x", to=name, session=name, sender=name)
    assert bodies(queue.poll(name, session=name)) == ["x"]


@pytest.mark.parametrize("body", [b"bytes", None, 7, ["x"], {"a": 1}])
def test_bodies_that_are_no_text_are_refused(queue: Queue, root: Path, body: Any) -> None:  # noqa: ANN401
    with pytest.raises(TypeError, match="must be str"):
        queue.send("ask", body)
    assert not root.exists()


@pytest.mark.parametrize("body", ["\ud800", "x" * 4000 + "\udfff"])
def test_half_characters_are_refused(queue: Queue, root: Path, body: str) -> None:
    with pytest.raises(ValueError, match="no text"):
        queue.send("ask", body)
    assert not root.exists()


@pytest.mark.parametrize("reply_to", ["", 7, "x" * 256, "\ud800", "a\nb"])
def test_ids_that_are_none_are_refused(queue: Queue, reply_to: Any) -> None:  # noqa: ANN401
    with pytest.raises(ValueError, match="reply_to"):
        queue.send("answer", "x", reply_to=reply_to)


@pytest.mark.parametrize(
    "body",
    ["", "\n", "a\nb\r\nc\0", "é\u2028\u0085😀", "\\u0041", '"}\n{"', "@file:x.txt", " " * 5000],
)
def test_a_body_comes_out_as_it_went_in(queue: Queue, folder: Folder, body: str) -> None:
    queue.send("ask", body)
    [message] = queue.poll("a")
    assert message["body"] == body
    assert folder.messages.read_bytes().count(b"\n") == 1
