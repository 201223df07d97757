"""Searching finds the right card: by words always, by meaning nearly always.

The table of scores is written to the terminal, whatever the result.
"""

import sys
from collections.abc import Iterator

import pytest
from tests.retrieval.material import load_cards, load_queries
from tests.retrieval.scores import EMBEDDERS, HEAD, Bench, table

from mq9.registry.embedder import EmbedderMissingError, Name, load_embedder

CARD_NAMES = {str(card["mailbox"]): card["name"] for card in load_cards()}
BY_MEANING = [query for query in load_queries() if query.by_meaning]
BY_WORDS = [query for query in load_queries() if not query.by_meaning]


@pytest.fixture(scope="module", params=EMBEDDERS)
def bench(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Name, Bench]]:
    """The test set with each embedder that is installed."""
    name: Name = request.param
    try:
        embedder = load_embedder(name)
    except EmbedderMissingError as error:
        pytest.skip(str(error))
    bench = Bench(embedder, tmp_path_factory.mktemp(name))
    yield name, bench
    bench.catalog.close()
    assert not bench.told


def test_scores(bench: tuple[Name, Bench], capsys: pytest.CaptureFixture[str]) -> None:
    name, cards = bench
    with capsys.disabled():
        sys.stdout.write("\n" + "\n".join([*HEAD, *table(name, cards)]) + "\n")
    fused, alone = cards.fused(BY_MEANING), cards.by_meaning_alone(BY_MEANING)
    assert fused.within(1) >= alone.within(1) - 0.01, "words must not drown the meaning"
    assert fused.within(5) >= alone.within(5) - 0.01, "words must not drown the meaning"
    if name == "blend":
        assert fused.within(1) >= 0.80
        assert fused.within(5) >= 0.95


def test_words_of_a_card_find_it_first(bench: tuple[Name, Bench]) -> None:
    _, cards = bench
    places = cards.by_words(BY_WORDS).places
    assert [query for query, place in zip(BY_WORDS, places, strict=True) if place != 1] == []


def test_a_name_asked_for_by_meaning_comes_first(bench: tuple[Name, Bench]) -> None:
    _, cards = bench
    for number, mailbox in enumerate(cards.mailboxes):
        name = str(CARD_NAMES[mailbox])
        assert cards.catalog.by_meaning(name, (), None, 0, 1).numbers == [number], name


def test_words_of_a_card_find_it_by_meaning_too(bench: tuple[Name, Bench]) -> None:
    _, cards = bench
    score = cards.fused(BY_WORDS)
    assert [query for query, place in zip(BY_WORDS, score.places, strict=True) if place != 1] == []
