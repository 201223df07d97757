"""Cards that end, hang or fool whoever reads them: others are found all the same, and the log names
the agent. So it is for a card that was in the store when the broker started.

No card is known to do so. Faults are put into the search worker and the reader from outside: Python
runs `sitecustomize` before them, which makes a word in a card do what a bug would.
"""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.agents import LIGHT, card, found, mailboxes, register, settled
from tests.faults.attackers import ADDRESSES
from tests.mail import Json, Mail
from tests.peers import MQ9, Serve, Server, start, until

DEADLINE_S = 180.0

FAULTS = """
import os, signal, sys, time

def fault(kind):
    if kind == "abort":
        os.abort()
    if kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "raise":
        raise RuntimeError("a bug")
    if kind == "spin":
        while True:
            pass
    if kind == "hang":
        signal.pthread_sigmask(signal.SIG_BLOCK, range(1, signal.NSIG))
        time.sleep(10_000)

said = " ".join(sys.orig_argv)
if "mq9.registry.worker" in said:
    from mq9.registry import card_text as module

    whole = module.card_text

    def card_text(card):
        fault(card.get("fault"))
        return whole(card)

    module.card_text = card_text
elif "mq9.registry.reader" in said:
    from mq9.registry import embedder as module

    load = module.load_embedder

    class Poisoned:
        def __init__(self, name):
            self.real = load(name)

        def embed(self, texts):
            for text in texts:
                if "poison" in text:
                    fault("abort")
            return self.real.embed(texts)

    module.load_embedder = Poisoned
elif "serve" in said:
    from mq9.registry import link

    link._CARD_CPU_S, link._CARD_HANG_S, link._LOOK_S = 1.0, 6.0, 0.2
"""


@pytest.fixture
def around(tmp_path: Path) -> list[str]:
    """What puts the faults into every process of a broker."""
    folder = tmp_path / "faults"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(FAULTS)
    return ["env", f"PYTHONPATH={folder}"]


@pytest.fixture
def broker(tmp_path: Path, around: list[str]) -> Iterator[Server]:
    server = start(tmp_path / "broker", "mq9 { embedder: none }", peer=MQ9, around=around)
    yield server
    server.stop()


def eventually(mail: Mail, **request: object) -> list[str]:
    """Who is found, once the search is at work again."""
    answers: list[Json] = []

    def answer() -> bool:
        answers.append(mail.answer(mail.begin("AGENT.DISCOVER", request), DEADLINE_S))
        return answers[-1]["error"] == "" and "pending" not in answers[-1]

    until(answer, "a search was answered", DEADLINE_S)
    return mailboxes(answers[-1])


@pytest.mark.parametrize("fault", ["abort", "kill", "raise", "spin", "hang"])
def test_a_card_that_ends_the_search_is_set_aside(
    broker: Server, tmp_path: Path, around: list[str], fault: str
) -> None:
    with Mail(broker.url, deadline_s=DEADLINE_S) as mail:
        cards = [card("before", name="plumber"), card("bad", name="plumber", fault=fault)]
        register(mail, [*cards, card("after", name="plumber")])
        assert eventually(mail, text="plumber") == ["before", "after"]
        assert "set aside" in broker.log
        assert "agent=bad" in broker.log
        # Where it is certain that the card was at fault, the search ends once, else twice.
        ended = broker.log.count("the search of agents ended")
        # On a busy machine, a card that is given no processor time looks as if it hung.
        hung = fault == "spin" and "the search of agents hangs" in broker.log
        assert ended == {"raise": 0, "kill": 2, "hang": 2}.get(fault, 1) + hung
        # It is as registered as ever, and has its place when it is mended.
        assert found(mail) == ["before", "bad", "after"]
    broker.stop()
    again = start(tmp_path / "broker", "mq9 { embedder: none }", peer=MQ9, around=around)
    try:
        with Mail(again.url, deadline_s=DEADLINE_S) as mail:
            assert eventually(mail, text="plumber") == ["before", "after"]
            assert "agent=bad" in again.log
            register(mail, [card("bad", name="plumber")])
            assert eventually(mail, text="plumber") == ["before", "after", "bad"]
            mail.done("AGENT.UNREGISTER", card("bad"))
            assert eventually(mail, text="plumber") == ["before", "after"]
    finally:
        again.stop()


def test_a_text_that_ends_the_reader_is_found_by_its_words(
    tmp_path: Path, around: list[str]
) -> None:
    server = start(tmp_path / "broker", LIGHT, peer=MQ9, around=around)
    try:
        with Mail(server.url, deadline_s=DEADLINE_S) as mail:
            others = [card(f"n{number}", name=f"mends pipe {number}") for number in range(30)]
            register(mail, [*others[:5], card("bad", name="poison apple"), *others[5:]])
            register(mail, [card("rain", name="tells whether it will rain")])
            until(lambda: "agent=bad" in server.log, "the text was given up", DEADLINE_S)
            assert "words only" in server.log
            answer = settled(mail, semantic="do I need an umbrella", limit=100)
            assert mailboxes(answer)[0] == "rain"
            assert len(answer["agents"]) == len(others) + 1
            assert found(mail, text="apple") == ["bad"]
    finally:
        server.stop()


def test_without_a_worker_a_search_says_in_time_what_it_did_not_look_at(tmp_path: Path) -> None:
    """It took 13.5 s, longer than clients wait, and then failed."""
    folder = tmp_path / "faults"
    folder.mkdir()
    lost = "import os, sys\nif 'mq9.registry.worker' in sys.orig_argv:\n    os._exit(3)\n"
    (folder / "sitecustomize.py").write_text(lost)
    around = ["env", f"PYTHONPATH={folder}"]
    server = start(tmp_path / "broker", LIGHT, peer=MQ9, around=around)
    try:
        with Mail(server.url, deadline_s=DEADLINE_S) as mail:
            register(mail, [card("one", name="plumber"), card("two", name="plumber")])
            began = time.monotonic()
            answer = mail.ask("AGENT.DISCOVER", {"text": "plumber"})
            took_s = time.monotonic() - began
            assert answer == {"error": "", "agents": [], "total": 0, "pending": 2}
            # The last half second is for a busy machine.
            assert took_s < 5.5, took_s
            assert "the search of agents ended" in server.log
            # Who needs no search finds them.
            assert found(mail) == ["one", "two"]
    finally:
        server.stop()


def test_a_card_of_addresses_is_read_like_any_other(serve: Serve) -> None:
    """It took hours of the search, for everybody and over restarts."""
    server = serve(LIGHT, peer=MQ9)
    plain = {name: "a word of text " * (len(text) // 15) for name, text in ADDRESSES.items()}
    with Mail(server.url, deadline_s=DEADLINE_S) as mail:
        register(mail, [card("plumber", name="plumber")])
        settled(mail, semantic="fixes pipes")
        took_s: list[float] = []
        for kind, texts in (("plain", plain), ("hostile", ADDRESSES)):
            began = time.monotonic()
            for name, text in texts.items():
                fields: Json = {
                    "name": f"plumber {name}",
                    "description": text,
                    "x": [text[:40_000]],
                }
                register(mail, [card(f"{kind}.{name}", **fields)])
            assert len(found(mail, text="plumber", fields=[])) == len(texts) * (len(took_s) + 1) + 1
            settled(mail, semantic="fixes pipes")
            took_s.append(time.monotonic() - began)
        assert "set aside" not in server.log
    # It is the same work, on a machine that may do something else now and then.
    assert took_s[1] < 5 * took_s[0] + 1.0, took_s
