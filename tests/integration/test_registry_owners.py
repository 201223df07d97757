"""Agents of users: who may change them, over restarts, and how many each may have."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.agents import card, found, register
from tests.mail import Mail
from tests.peers import MQ9, Serve
from tests.restarts import Restarting

USERS = """
authorization { users: [
  { user: ann, password: pw }
  { user: bob, password: pw }
  { user: ops, password: pw, permissions: { publish: [">", "$mq9.AI.ADMIN.>"] } }
] }
mq9 { embedder: none }
"""
NOBODY = "mq9 { embedder: none }"
DENIED = (
    "permission denied: agent {} was registered by another user; "
    "only that user and operators may do this"
)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Restarting]:
    broker = Restarting(tmp_path, USERS)
    yield broker
    broker.stop()


def connect(broker: Restarting, user: str) -> Mail:
    return Mail(broker.url.replace("nats://", f"nats://{user}:pw@"))


def test_an_agent_belongs_to_who_registered_it_over_restarts(broker: Restarting) -> None:
    with connect(broker, "ann") as ann:
        register(ann, [card("agent", name="Ann's")])
    for kill in (False, True):
        with connect(broker, "bob") as bob:
            for command in ("REGISTER", "REPORT", "UNREGISTER"):
                answer = bob.ask(f"AGENT.{command}", card("agent", name="Bob's"))
                assert answer == {"error": DENIED.format("agent")}
            by_name = bob.ask("AGENT.UNREGISTER", {"name": "Ann's"})
            assert by_name == {"error": DENIED.format("agent")}
            assert bob.done("AGENT.DISCOVER")["agents"] == [card("agent", name="Ann's")]
        with connect(broker, "ann") as ann:
            register(ann, [card("agent", name="Ann's")])
            ann.done("AGENT.REPORT", card("agent"))
        broker.restart(kill=kill)
    with connect(broker, "ann") as ann:
        ann.done("AGENT.UNREGISTER", card("agent"))
    with connect(broker, "bob") as bob:
        register(bob, [card("agent", name="Bob's")])


def test_operators_may_change_every_agent_and_take_none_over(broker: Restarting) -> None:
    with connect(broker, "ann") as ann, connect(broker, "ops") as ops:
        register(ann, [card("agent", name="first")])
        register(ops, [card("agent", name="mended")])
        ops.done("AGENT.REPORT", card("agent"))
        with connect(broker, "bob") as bob:
            assert "permission denied" in bob.ask("AGENT.REGISTER", card("agent"))["error"]
        register(ann, [card("agent", name="again")])
        ops.done("AGENT.UNREGISTER", card("agent"))


def test_what_was_registered_by_nobody_belongs_to_the_next(tmp_path: Path) -> None:
    broker = Restarting(tmp_path, NOBODY)
    try:
        # A name that nobody checks is no name.
        with connect(broker, "bob") as bob:
            register(bob, [card("agent"), card("other")])
        broker.config = USERS
        broker.restart()
        with connect(broker, "ann") as ann, connect(broker, "bob") as bob:
            register(ann, [card("agent")])
            assert "permission denied" in bob.ask("AGENT.UNREGISTER", card("agent"))["error"]
            bob.done("AGENT.UNREGISTER", card("other"))
        # Where nobody is asked, anybody may.
        broker.config = NOBODY
        broker.restart()
        with broker.connect() as anybody:
            anybody.done("AGENT.UNREGISTER", card("agent"))
    finally:
        broker.stop()


def test_an_agent_without_answer_has_an_owner_too(broker: Restarting) -> None:
    with connect(broker, "ann") as ann:
        ann.publish("$mq9.AI.AGENT.REGISTER", card("agent"))
    with connect(broker, "bob") as bob:
        assert found(bob) == ["agent"]
        assert "permission denied" in bob.ask("AGENT.REGISTER", card("agent"))["error"]


def test_there_may_be_so_many_agents(serve: Serve) -> None:
    server = serve("mq9 { embedder: none, max_agents: 3 }", peer=MQ9)
    with Mail(server.url) as mail:
        register(mail, [card(f"a{number}") for number in range(3)])
        answer = mail.ask("AGENT.REGISTER", card("a3"))
        assert answer == {"error": "there are 3 agents: no more are allowed (max_agents)"}
        # To replace one is not to add one.
        register(mail, [card("a0", name="new")])
        mail.done("AGENT.UNREGISTER", card("a1"))
        register(mail, [card("a3")])
        assert found(mail) == ["a2", "a0", "a3"]


def test_a_user_may_have_so_many_agents_over_restarts(tmp_path: Path) -> None:
    config = USERS.replace("embedder: none", "embedder: none, max_agents_per_user: 2")
    broker = Restarting(tmp_path, config)
    try:
        with connect(broker, "ann") as ann, connect(broker, "bob") as bob:
            register(ann, [card("a0"), card("a1")])
            register(bob, [card("b0")])
        for kill in (False, True):
            broker.restart(kill=kill)
            with connect(broker, "ann") as ann, connect(broker, "bob") as bob:
                found(ann)
                answer = ann.ask("AGENT.REGISTER", card("a2"))
                expected = "user ann has 2 agents: no more are allowed (max_agents_per_user)"
                assert answer == {"error": expected}
                register(bob, [card("b1")])
                bob.done("AGENT.UNREGISTER", card("b1"))
    finally:
        broker.stop()


MANY = 4000


@pytest.mark.parametrize(
    ("limit", "error"),
    [
        (f"max_agents_per_user: {MANY}", f"user ann has {MANY} agents"),
        ("max_agent_bytes_per_user: 200k", "more than 200000 bytes (max_agent_bytes_per_user)"),
    ],
)
def test_what_a_user_has_counts_while_agents_are_loaded(
    tmp_path: Path, limit: str, error: str
) -> None:
    config = USERS.replace("embedder: none", f"embedder: none, {limit}")
    broker = Restarting(tmp_path, config)
    try:
        with connect(broker, "ann") as ann:
            register(ann, [card(f"a{number}") for number in range(MANY)])
        broker.restart()
        with connect(broker, "ann") as ann:
            # The first request of all, and each behind it in its turn.
            one = ann.begin("AGENT.REGISTER", card("new", name="n" * 150_000))
            ann.begin("AGENT.UNREGISTER", card("a0"))
            again = ann.begin("AGENT.REGISTER", card("new", name="short"))
            assert error in ann.answer(one)["error"]
            assert ann.answer(again)["error"] == ""
    finally:
        broker.stop()


def test_cards_and_reports_may_take_so_many_bytes(serve: Serve) -> None:
    server = serve("mq9 { embedder: none, max_agent_bytes: 2500 }", peer=MQ9)
    with Mail(server.url) as mail:
        register(mail, [card("a0", name="n" * 1000), card("a1", name="n" * 1000)])
        expected = "the cards and reports of agents would take more than 2500 bytes"
        assert expected in mail.ask("AGENT.REGISTER", card("a2", name="n" * 500))["error"]
        assert expected in mail.ask("AGENT.REGISTER", card("a1", name="n" * 1500))["error"]
        assert expected in mail.ask("AGENT.REPORT", card("a0", load="x" * 500))["error"]
        # What takes less is taken, and what is gone makes room.
        register(mail, [card("a1", name="n" * 500)])
        mail.done("AGENT.REPORT", card("a0", load="x" * 500))
        # A new card leaves the report where it is.
        register(mail, [card("a0", name="m" * 1000)])
        assert expected in mail.ask("AGENT.REGISTER", card("a2", name="n" * 500))["error"]
        mail.done("AGENT.REPORT", card("a0"))
        register(mail, [card("a2", name="n" * 500)])
        mail.done("AGENT.UNREGISTER", card("a0"))
        register(mail, [card("a1", name="n" * 1500)])


def test_the_bytes_of_a_user_count_over_restarts(tmp_path: Path) -> None:
    config = USERS.replace("embedder: none", "embedder: none, max_agent_bytes_per_user: 2500")
    broker = Restarting(tmp_path, config)
    try:
        with connect(broker, "ann") as ann:
            register(ann, [card("a0", name="n" * 1000)])
            ann.done("AGENT.REPORT", card("a0", load="x" * 1000))
        for kill in (False, True):
            broker.restart(kill=kill)
            with connect(broker, "ann") as ann, connect(broker, "bob") as bob:
                found(ann)
                answer = ann.ask("AGENT.REGISTER", card("a1", name="n" * 500))
                assert "max_agent_bytes_per_user" in answer["error"]
                register(bob, [card("b", name="n" * 2000)])
                bob.done("AGENT.UNREGISTER", card("b"))
        # Beyond a lowered limit, what takes less than before is taken.
        broker.config = config.replace("2500", "1000")
        broker.restart()
        with connect(broker, "ann") as ann:
            found(ann)
            register(ann, [card("a0", name="n" * 900)])
            answer = ann.ask("AGENT.REGISTER", card("a0", name="n" * 901))
            assert "max_agent_bytes_per_user" in answer["error"]
    finally:
        broker.stop()
