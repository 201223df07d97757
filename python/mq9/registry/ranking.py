"""One order out of several, by meaning and by words: fused by reciprocal rank.

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


def fused(
    rankings: Sequence[Sequence[int]], named: int = 0, others: Sequence[int] = ()
) -> list[tuple[int, float]]:
    """All cards with their scores, best first; of the last ranking `named` have the query for a
    name. `others` come behind all that is ranked.
    """
    scores: dict[int, float] = {}
    for ranking in rankings:
        for rank, number in enumerate(ranking):
            scores[number] = scores.get(number, 0.0) + 1 / (K + rank)
    last = max(map(len, rankings), default=0)
    for rank, number in enumerate(others, start=last):
        scores.setdefault(number, 1 / (K + rank))
    if named:
        for rank, number in enumerate(rankings[-1][:named]):
            scores[number] = _FIRST + named - rank
    return sorted(scores.items(), key=lambda scored: (-scored[1], scored[0]))
