"""Searches of one connection do not hold up those of others, whatever is searched for."""

import string
import sys
import time
from collections.abc import Iterator

import pytest
from tests.agents import card, found, register
from tests.mail import Mail
from tests.peers import MQ9, Server, start

AGENTS = 4000
HEAVY = 100
# All agents have words with all of these beginnings, and more than one with each.
LETTERS = string.ascii_lowercase
WORDS = [f"{letter}{end}" for letter in LETTERS for end in ("gent", "ide")]
QUERIES = {
    "beginnings": " ".join(f"{letter}*" for letter in LETTERS),
    "words in words": " ".join(
        ".".join(WORDS[(first + step) % len(WORDS)] for step in range(10)) for first in range(64)
    ),
    "single characters": " ".join("翻译文档服务" * 10),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A broker with agents that all have all of the words."""
    broker = start(tmp_path_factory.mktemp("broker"), "mq9 { embedder: none }", peer=MQ9)
    text = f"{' '.join(WORDS)} 翻译文档服务"
    try:
        with Mail(broker.url, deadline_s=120) as mail:
            cards = (card(f"n{n}", name=f"agent {n}", description=text) for n in range(AGENTS))
            register(mail, cards)
            assert found(mail, text="agent 7", limit=1) == ["n7"]
        yield broker
    finally:
        broker.stop()


def search(bystander: Mail, number: int) -> float:
    """Makes a light search; how long it took."""
    began = time.perf_counter()
    assert found(bystander, text=f"agent {number}", limit=1, fields=[]) == [f"n{number}"]
    return time.perf_counter() - began


def answered(busy: Mail) -> int:
    """How many of its requests have been answered by now."""
    busy.ping()
    return len(busy.arrived)


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_pipelined_searches_of_one_connection_do_not_hold_up_another(
    server: Server, query: str
) -> None:
    with (
        Mail(server.url, deadline_s=120) as busy,
        Mail(server.url, deadline_s=120) as bystander,
    ):
        quiet_s = max(search(bystander, number) for number in range(20))
        began = time.perf_counter()
        request = {"text": query, "fields": [], "limit": 1}
        asked = [busy.begin("AGENT.DISCOVER", request) for _ in range(HEAVY)]
        passed = []
        done = answered(busy)
        for number in range(20):
            search(bystander, number)
            passed.append(answered(busy) - done)
            done += passed[-1]
        for subject in asked:
            assert busy.answer(subject, 120.0)["total"] == AGENTS
        one_s = (time.perf_counter() - began) / HEAVY
    figures = f"heavy ones beside each: {passed}; {one_s:.3f} s each, quiet {quiet_s:.3f} s"
    sys.stdout.write(f"{figures}\n")
    # A search waits for those that are under way, not for a hundred; and none takes long.
    assert done < HEAVY, "the heavy ones were over before"
    assert max(passed) <= HEAVY // 4, figures
    assert one_s < 20 * quiet_s + 1, figures


def test_searches_of_clients_that_left_are_not_made(server: Server) -> None:
    request = {"text": QUERIES["beginnings"], "fields": [], "limit": 1}
    with Mail(server.url, deadline_s=120) as bystander:
        began = time.perf_counter()
        bystander.done("AGENT.DISCOVER", request)
        one_s = time.perf_counter() - began
        # A thousand searches.
        for _ in range(50):
            with Mail(server.url) as busy:
                for _ in range(20):
                    busy.begin("AGENT.DISCOVER", request)
                busy.ping()
        beside_s = max(search(bystander, number) for number in range(20))
        assert beside_s < 100 * one_s + 0.1, f"{beside_s:.3f} s, a heavy one {one_s:.3f} s"
