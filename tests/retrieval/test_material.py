"""The test set is what it says: large enough, and no query gives its card away."""

from collections import Counter

import pytest
from tests.retrieval.material import (
    Query,
    content_words,
    load_cards,
    load_queries,
    strings,
)

CARDS = {str(card["mailbox"]): card for card in load_cards()}
QUERIES = load_queries()
BY_MEANING = [query for query in QUERIES if query.by_meaning]


def test_it_is_large_enough_and_of_many_domains() -> None:
    domains = Counter(mailbox.removeprefix("mq9://broker/").split(".")[0] for mailbox in CARDS)
    assert len(CARDS) == len(load_cards()) >= 100
    assert len([domain for domain, count in domains.items() if count >= 8]) >= 12
    assert len(BY_MEANING) >= 60
    assert len([query for query in BY_MEANING if query.held_out]) >= 30
    assert len(QUERIES) - len(BY_MEANING) >= 24


def test_every_query_is_different_and_has_a_card() -> None:
    assert len({query.text for query in QUERIES}) == len(QUERIES)
    assert {query.mailbox for query in QUERIES} <= CARDS.keys()
    held_out = {query.mailbox for query in QUERIES if query.held_out}
    assert not held_out & {query.mailbox for query in BY_MEANING if not query.held_out}


@pytest.mark.parametrize("query", BY_MEANING, ids=lambda query: query.text)
def test_a_query_by_meaning_shares_no_content_word_with_its_card(query: Query) -> None:
    asked = content_words(query.text)
    assert asked, "a query without content words asks for nothing"
    assert not asked & content_words(" ".join(strings(CARDS[query.mailbox])))


def test_content_words_are_compared_by_their_stems() -> None:
    assert content_words("the Invoices were matched") == content_words("invoice matching")
    assert not content_words("what should I do about it")
