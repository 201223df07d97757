"""The registry of agents over real connections: found by words, by meaning, by tags; in pages."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tests.agents import (
    LIGHT,
    MEANING_DEADLINE_S,
    all_pages,
    card,
    found,
    mailboxes,
    register,
    settled,
)
from tests.mail import Json, Mail
from tests.peers import MQ9, Serve, Server, start, until

import mq9

CARDS: list[Json] = [
    card(
        "invoices",
        name="Invoice Bot",
        description="Reads supplier invoices and books them",
        tags=["finance", "internal"],
        skills=[{"name": "Match purchase orders", "tags": ["erp"]}],
    ),
    card(
        "weather",
        name="Sky",
        description="Tells whether it is going to rain tomorrow",
        tags=["internal"],
    ),
    card("translate", name="OpenTongue", description="Translates documents between languages"),
    card("chinese", name="翻译官", description="把中文文档翻译成英文"),
    card("japanese", name="ドキュメント翻訳", description="日本語の文書を英語に翻訳します"),
    card("korean", name="송장 처리기", description="공급업체의 송장을 처리합니다"),
    card("rest", name="Plain", notes={"kept": ["anything at all: zeppelin"]}),
]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = start(tmp_path_factory.mktemp("registry"), LIGHT, peer=MQ9)
    with Mail(server.url) as mail:
        register(mail, CARDS)
    yield server
    server.stop()


@pytest.fixture
def mail(broker: Server) -> Iterator[Mail]:
    with Mail(broker.url, deadline_s=60.0) as mail:
        yield mail


def worker_of(server: Server) -> psutil.Process | None:
    """The process that searches."""
    children = psutil.Process(server.pid).children()
    return next((child for child in children if "mq9.registry.worker" in child.cmdline()), None)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("invoice", ["invoices"]),
        ("booking an INVOICE", ["invoices"]),
        ("purchase order", ["invoices"]),
        ("erp", ["invoices"]),
        ("tongue", ["translate"]),
        ("opentongue", ["translate"]),
        ("transl*", ["translate"]),
        ("translat*", ["translate"]),
        ('"between languages"', ["translate"]),
        ('"languages between"', []),
        ("zeppelin", ["rest"]),
        ("翻译", ["chinese"]),
        ("中文文档", ["chinese"]),
        ("译", ["chinese"]),
        ("翻訳", ["japanese"]),
        ("文書", ["japanese"]),
        ("송장", ["korean"]),
        ("weather", ["weather"]),
        ("nothing of this kind", []),
    ],
)
def test_words_find_agents(mail: Mail, text: str, expected: list[str]) -> None:
    assert found(mail, text=text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "(",
        "a AND",
        "name:",
        '"',
        "*",
        "**",
        "-",
        "\\",
        "[a TO",
        "^2",
        "~",
        "\x00",
        "🙂",
        "a" * 4096,
    ],
)
def test_every_text_is_a_query(mail: Mail, text: str) -> None:
    assert mail.done("AGENT.DISCOVER", {"text": text})["total"] <= len(CARDS)


def test_blank_text_lists_all_newest_last(mail: Mail) -> None:
    everyone = [each["mailbox"] for each in CARDS]
    for request in ({}, {"text": " "}, {"semantic": ""}, {"text": None}):
        answer = mail.done("AGENT.DISCOVER", request)
        assert mailboxes(answer) == everyone
        assert answer["total"] == len(CARDS)


def test_meaning_finds_what_shares_no_word(mail: Mail) -> None:
    answer = settled(mail, semantic="do I need an umbrella")
    assert mailboxes(answer)[0] == "weather"
    assert answer["total"] == len(CARDS)
    # One of them says so in Korean.
    both = mailboxes(settled(mail, semantic="pay what our vendors bill us"))[:2]
    assert set(both) == {"invoices", "korean"}


@pytest.mark.parametrize("embedder", ["light", "auto"])
def test_the_first_search_by_meaning_finds_what_was_registered(serve: Serve, embedder: str) -> None:
    server = serve(f"mq9 {{ embedder: {embedder} }}", peer=MQ9)
    with Mail(server.url, deadline_s=60.0) as mail:
        register(mail, CARDS)
        answer = mail.done("AGENT.DISCOVER", {"semantic": "do I need an umbrella"})
        assert set(mailboxes(answer)) == {each["mailbox"] for each in CARDS}
        assert answer["total"] == len(CARDS)
        if "pending" not in answer:
            assert mailboxes(answer)[0] == "weather"


async def test_a_client_is_told_how_many_its_first_search_has_not_read(tmp_path: Path) -> None:
    """Right after the first REGISTER, while what reading takes is not loaded yet."""
    file = tmp_path / "data" / "agents" / "vectors.mq9"
    file.parent.mkdir(parents=True)
    # Whoever reads it waits, as for a disk that is slow.
    os.mkfifo(file)
    server = start(tmp_path, LIGHT, peer=MQ9)
    try:
        async with mq9.Client(server.url, timeout=60) as client:
            await client.register({"mailbox": "weather", "description": "Tells when it rains"})
            cards = await client.discover(semantic="when it rains")
            # Words stand in for what is not read, and the client does not hide it.
            assert [found["mailbox"] for found in cards] == ["weather"]
            assert (cards.total, cards.pending) == (1, 1)
            page = await client.discover_page(semantic="when it rains")
            assert (page.total, page.pending) == (1, 1)
            # Its reader sees the end of it, and makes a new one.
            writer = os.open(file, os.O_WRONLY)
            file.unlink()
            os.close(writer)
            deadline = time.monotonic() + MEANING_DEADLINE_S
            while cards.pending:
                assert time.monotonic() < deadline
                cards = await client.discover(semantic="do I need an umbrella")
            assert [found["mailbox"] for found in cards] == ["weather"]
    finally:
        server.stop()


def test_a_name_is_found_first_whatever_it_means(mail: Mail) -> None:
    for each in CARDS:
        assert mailboxes(settled(mail, semantic=each["name"]))[0] == each["mailbox"]
        assert mailboxes(settled(mail, semantic=each["mailbox"]))[0] == each["mailbox"]


def test_semantic_wins_over_text(mail: Mail) -> None:
    answer = settled(mail, semantic="do I need an umbrella", text="invoice")
    assert mailboxes(answer)[0] == "weather"


def test_filters_hold_together_with_any_search(mail: Mail) -> None:
    assert found(mail, tags=["internal"]) == ["invoices", "weather"]
    assert found(mail, tags=["internal", "erp"]) == ["invoices"]
    assert found(mail, tags=["intern"]) == []
    assert found(mail, text="rain invoice", tags=["erp"]) == ["invoices"]
    assert mailboxes(settled(mail, semantic="umbrella", tags=["finance"])) == ["invoices"]
    assert found(mail, text="rain", alive=True) == ["weather"]
    assert mailboxes(settled(mail, semantic="umbrella", alive=True))[0] == "weather"


def test_fields_trim_each_card(mail: Mail) -> None:
    answer = mail.done("AGENT.DISCOVER", {"text": "invoice", "fields": ["name", "nothing"]})
    assert answer["agents"] == [{"mailbox": "invoices", "name": "Invoice Bot"}]
    assert mail.done("AGENT.DISCOVER", {"text": "zeppelin", "fields": []})["agents"] == [
        {"mailbox": "rest"}
    ]


def test_pages_are_parts_of_one_order(serve: Serve) -> None:
    server = serve(LIGHT, peer=MQ9)
    # All the same for a search by words; the fourth of the alphabet for one by meaning.
    cards = [card(f"agent.n{number}", name="twin", tags=[f"t{number % 3}"]) for number in range(97)]
    with Mail(server.url, deadline_s=60.0) as mail:
        register(mail, cards)
        everyone = [each["mailbox"] for each in cards]
        assert all_pages(mail, 10) == everyone
        assert all_pages(mail, 10, text="twin") == everyone
        assert all_pages(mail, 7, tags=["t1"]) == everyone[1::3]
        assert all_pages(mail, 7, text="twin", tags=["t1"], alive=True) == everyone[1::3]
        assert mail.done("AGENT.DISCOVER", {"text": "twin", "limit": 10})["total"] == 97
        settled(mail, semantic="someone who looks alike")
        pages = all_pages(mail, 10, semantic="someone who looks alike")
        assert sorted(pages) == sorted(everyone)


def test_a_large_reply_is_cut_and_says_so(serve: Serve) -> None:
    server = serve("mq9 { embedder: light, max_card: 500KB }", peer=MQ9)
    with Mail(server.url, deadline_s=60.0) as mail:
        register(mail, [card(f"big.{number}", data="x" * 400_000) for number in range(4)])
        answer = mail.done("AGENT.DISCOVER")
        assert mailboxes(answer) == ["big.0", "big.1"]
        assert answer["total"] == 4
        assert answer["more"] is True
        assert found(mail, limit=1, page=4) == ["big.3"]
        assert found(mail, fields=[]) == [f"big.{number}" for number in range(4)]


def test_ten_thousand_agents_are_visible_to_the_next_search(serve: Serve) -> None:
    server = serve("mq9 { embedder: none }", peer=MQ9)
    with Mail(server.url, deadline_s=60.0) as mail:
        register(
            mail,
            (card(f"a{n}", name=f"Agent {n}", description=f"word{n % 100}") for n in range(10_000)),
        )
        answer = settled(mail, text="word42", limit=1000)
        assert answer["total"] == 100
        assert len(answer["agents"]) == 100
        register(mail, [card("late", name="the late one")])
        assert found(mail, text="late") == ["late"]
        mail.done("AGENT.UNREGISTER", card("late"))
        assert found(mail, text="late") == []


def test_a_new_card_takes_the_place_of_the_old_one(serve: Serve) -> None:
    server = serve(LIGHT, peer=MQ9)
    with Mail(server.url, deadline_s=60.0) as mail:
        register(mail, [card("a", name="plumber", tags=["x"]), card("b", name="carpenter")])
        assert found(mail, text="plumber") == ["a"]
        register(mail, [card("mq9://anywhere/a", name="gardener")])
        assert found(mail, text="plumber") == []
        assert found(mail, tags=["x"]) == []
        assert found(mail, text="gardener") == ["mq9://anywhere/a"]
        assert found(mail) == ["b", "mq9://anywhere/a"]
        assert mailboxes(settled(mail, semantic="fix a leaking pipe"))[-1] != ""
        mail.done("AGENT.UNREGISTER", card("a"))
        assert found(mail) == ["b"]


def test_status_is_told_to_those_who_ask(serve: Serve) -> None:
    server = serve(LIGHT, peer=MQ9)
    with Mail(server.url) as mail:
        register(mail, [card("a"), card("b")])
        mail.done("AGENT.REPORT", b'{"mailbox":"a", "load": 0.50}')
        assert "statuses" not in mail.done("AGENT.DISCOVER")
        text = mail.text("AGENT.DISCOVER", {"status": True})
        assert '"report":{"mailbox":"a", "load": 0.50}}' in text
        first, second = mail.done("AGENT.DISCOVER", {"status": True})["statuses"]
        assert abs(first["last_seen"] - time.time()) < 60
        assert first["alive"]
        assert second["alive"]
        assert second["report"] is None
        # A new card keeps what was reported.
        register(mail, [card("a", name="new")])
        statuses = mail.done("AGENT.DISCOVER", {"status": True, "text": "new"})["statuses"]
        assert statuses[0]["report"]["load"] == 0.5


def test_a_silent_agent_expires_and_a_reporting_one_stays(serve: Serve) -> None:
    server = serve("mq9 { embedder: none }", peer=MQ9)
    with Mail(server.url) as mail:
        register(
            mail, [card("silent", name="s", ttl=1), card("loud", name="l", ttl=2), card("ever")]
        )
        assert found(mail) == ["silent", "loud", "ever"]

        def is_gone() -> bool:
            mail.done("AGENT.REPORT", card("loud"))
            return found(mail) == ["loud", "ever"]

        until(is_gone, "the silent agent was gone")
        assert found(mail, text="s") == []
        error = mail.ask("AGENT.REPORT", card("silent"))["error"]
        assert error == "agent silent is not registered"
        until(lambda: found(mail) == ["ever"], "the other one was gone as well")


def test_a_killed_worker_is_started_again_and_nothing_is_lost(serve: Serve) -> None:
    server = serve(LIGHT, peer=MQ9)
    with Mail(server.url, deadline_s=60.0) as mail:
        register(mail, [card("rain", name="Sky", description="tells whether it will rain")])
        assert found(mail, text="rain") == ["rain"]
        settled(mail, semantic="umbrella")
        for round_number in range(3):
            worker = until(lambda: worker_of(server), "there was a worker")
            assert worker is not None
            os.kill(worker.pid, signal.SIGKILL)
            register(mail, [card(f"new{round_number}", name=f"round{round_number}")])
            answer = settled(mail, text=f"round{round_number}")
            assert mailboxes(answer) == [f"new{round_number}"]
            assert found(mail, text="rain") == ["rain"]
        assert mailboxes(settled(mail, semantic="umbrella"))[0] == "rain"


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_no_process_outlives_the_broker(serve: Serve, end: signal.Signals) -> None:
    server = serve(LIGHT, peer=MQ9)
    with Mail(server.url) as mail:
        register(mail, [card(f"a{number}", name=f"number {number}") for number in range(500)])
        worker = until(lambda: worker_of(server), "there was a worker")
        assert worker is not None
        # The one that computes vectors, too.
        [reader] = until(worker.children, "there was a reader", 60)
        server.signal(end)
        # It first reads what it was given, in its low rank.
        _, alive = psutil.wait_procs([worker, reader], timeout=120)
        assert alive == []


def test_no_worker_without_agents(serve: Serve) -> None:
    server = serve(LIGHT, peer=MQ9)
    with Mail(server.url) as mail:
        mail.done("MAILBOX.CREATE", {"name": "box"})
        mail.deliver("box", b"message")
        assert worker_of(server) is None


def test_without_an_embedder_words_still_find(serve: Serve) -> None:
    server = serve("mq9 { embedder: none }", peer=MQ9)
    with Mail(server.url) as mail:
        register(mail, [card("a", name="plumber")])
        assert found(mail, text="plumber") == ["a"]
        answer = mail.ask("AGENT.DISCOVER", {"semantic": "plumber"})
        assert "embedder: none" in answer["error"]
        assert answer["agents"] == []


def test_operators_do_not_see_where_cards_are_kept(serve: Serve) -> None:
    server = serve(
        "authorization { users = [ { user: o, password: p, permissions: { publish: "
        '["$mq9.AI.>", "$mq9.AI.ADMIN.>", "_INBOX.>"] } } ] }',
        peer=MQ9,
    )
    with Mail(server.url.replace("nats://", "nats://o:p@")) as mail:
        mail.done("MAILBOX.CREATE", {"name": "box"})
        register(mail, [card("a")])
        mail.done("AGENT.REPORT", card("a"))
        answer = mail.done("ADMIN.MAILBOX.LIST")
        assert [each["mail_address"] for each in answer["mailboxes"]] == ["box"]
        assert answer["total"] == 1
        assert found(mail) == ["a"]
