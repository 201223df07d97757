"""Any sequence of operations does what a queue in a few lines of Python does."""

import os
import shutil
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from mq9.local import TOPICS, Queue

AGENTS = st.sampled_from(["a", "b", "B.x-1"])
RECIPIENTS = st.sampled_from([None, "all", "broadcast", "a", "b", "B.x-1", "nobody"])
TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
BODIES = TEXT | st.builds(lambda text, n: text * n, TEXT, st.integers(1, 400))
TTLS = st.sampled_from([None, 0, 0.5, 1, 2.5, 10])
FILTERS = st.none() | st.sets(st.sampled_from(sorted(TOPICS)), min_size=1)


@dataclass
class Sent:
    """A message as the model knows it."""

    msg_id: str
    topic: str
    body: str
    to: str | None
    sent_ms: int
    ttl_s: float | None
    removed: bool = False

    def lives(self, now_ms: int) -> bool:
        return self.ttl_s is None or now_ms < self.sent_ms + self.ttl_s * 1000


@dataclass
class Naive:
    """A session: everything that was sent, and how much of it each agent has passed."""

    sent: list[Sent] = field(default_factory=list)
    passed: dict[str, int] = field(default_factory=dict)

    def poll(self, agent: str, topics: set[str] | None, now_ms: int) -> list[str]:
        new = self.sent[self.passed.get(agent, 0) :]
        self.passed[agent] = len(self.sent)
        return [
            m.body
            for m in new
            if m.to in {None, "all", "broadcast", agent}
            and (topics is None or m.topic in topics)
            and m.lives(now_ms)
        ]

    def expire(self, now_ms: int) -> int:
        over = [m for m in self.sent if not m.removed and not m.lives(now_ms)]
        for message in over:
            message.removed = True
        return len(over)


class Comparison(RuleBasedStateMachine):
    """The queue beside the model."""

    sessions = st.sampled_from(["one", "two"])

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="mq9-model-", dir=memory()))
        self.now_ms = 1_790_000_000_123
        self.clock = pytest.MonkeyPatch()
        self.clock.setattr(time, "time_ns", lambda: self.now_ms * 1_000_000)
        self.queue = Queue(self.root)
        self.model = {"one": Naive(), "two": Naive()}

    def teardown(self) -> None:
        self.clock.undo()
        shutil.rmtree(self.root)

    @rule(
        session=sessions,
        topic=st.sampled_from(sorted(TOPICS)),
        body=BODIES,
        to=RECIPIENTS,
        ttl_s=TTLS,
    )
    def send(self, session: str, topic: str, body: str, to: str | None, ttl_s: float) -> None:
        msg_id = self.queue.send(topic, body, to, ttl_s, session)
        sent = Sent(msg_id, topic, body, to, self.now_ms, ttl_s)
        self.model[session].sent.append(sent)

    @rule(session=sessions, agent=AGENTS, topics=FILTERS)
    def poll(self, session: str, agent: str, topics: set[str] | None) -> None:
        found = self.queue.poll(agent, topics, session)
        expected = self.model[session].poll(agent, topics, self.now_ms)
        assert [m["body"] for m in found] == expected

    @rule(session=sessions)
    def expire(self, session: str) -> None:
        assert self.queue.expire(session) == self.model[session].expire(self.now_ms)

    @rule(session=sessions, n=st.integers(0, 5), expired=st.booleans())
    def tail(self, session: str, n: int, expired: bool) -> None:
        sent = [m for m in self.model[session].sent if not m.removed]
        living = [m.body for m in sent if expired or m.lives(self.now_ms)]
        found = self.queue.tail(n, session, expired)
        assert [m["body"] for m in found] == living[max(len(living) - n, 0) :]

    @rule(ms=st.sampled_from([1, 499, 500, 1000, 10_000]))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms

    @rule()
    def begin_again(self) -> None:
        self.queue = Queue(self.root)

    @rule(session=sessions, text=st.sampled_from([b"junk\n", b"\n", b"[1]\n", b'{"torn', b"\xff"]))
    def somebody_writes_nonsense(self, session: str, text: bytes) -> None:
        path = self.root / "sessions" / session / "messages.jsonl"
        if path.exists():
            with path.open("ab") as file:
                file.write(text)

    @rule(threshold=st.sampled_from([0, 10, 3584]))
    def long_is_something_else(self, threshold: int) -> None:
        self.queue.body_threshold = threshold

    @invariant()
    def counts_are_right(self) -> None:
        for session, counts in self.queue.status().items():
            sent = [m for m in self.model[session].sent if not m.removed]
            assert counts["messages"] == len(sent)
            assert counts["expired"] == sum(not m.lives(self.now_ms) for m in sent)
            ids = [m["msg_id"] for m in self.queue.tail(10**6, session, include_expired=True)]
            assert ids == [m.msg_id for m in sent]


def memory() -> str | None:
    """A folder in memory, where there is one."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


TestComparison: Any = Comparison.TestCase
TestComparison.settings = hypothesis.settings(
    max_examples=int(os.environ.get("MQ9_TEST_EXAMPLES", "40")),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(hypothesis.HealthCheck),
)
