"""One order out of two: by meaning and by words, fused by reciprocal rank.

Words count only where most of a query's words are on the card: a request in plain language shares
a word or two with many cards that have nothing to do with it. A card whose name is the query always
comes first.
"""

from collections.abc import Sequence

K = 60.0
"""How little the first places are ahead of the next."""
WORDS_SHARE = 0.75
"""The share of a query's words a card must have for them to count in a search by meaning."""

# More than any two ranks give.
_FIRST = 10.0


def fused(by_meaning: Sequence[int], by_words: Sequence[int], named: int = 0) -> list[int]:
    """All cards of both, best first; the first `named` by words have the query for a name."""
    scores: dict[int, float] = {}
    for ranking in (by_meaning, by_words):
        for rank, number in enumerate(ranking):
            scores[number] = scores.get(number, 0.0) + 1 / (K + rank)
    for rank, number in enumerate(by_words[:named]):
        scores[number] = _FIRST + named - rank
    return sorted(scores, key=lambda number: (-scores[number], number))
