"""The cards and queries that searching is measured with, and what counts as a content word.

Knows nothing of embedders and of how a search is carried out.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import tantivy

FOLDER = Path(__file__).parent

# Pronouns, auxiliaries, prepositions, conjunctions and the like. Verbs such as `make` or `find` are
# content words.
FUNCTION_WORDS = frozenset(
    re.findall(
        r"\w+",
        """
    a about above after again all also am an and any anyone anything are as at be because been
    before being below between both but by can cannot could did do does down during each else every
    everybody everyone everything for from had has have having he her here hers herself him himself
    his how i if in into is it its itself just may me might mine more most must my myself no nobody
    none nor not nothing now of off on once one only onto or other others our ours ourselves out
    over own per same shall she should so some somebody someone something such than that the their
    theirs them themselves then there these they this those through to too under until up upon us
    very via was we were what when where whether which while who whom whose why will with within
    without would yet you your yours yourself
        """,
    )
)


@dataclass(frozen=True)
class Query:
    """What a user asks, and the address of the one card that answers it."""

    text: str
    mailbox: str
    by_meaning: bool
    held_out: bool
    """Written after models, passages and shares were chosen, and used for none of that."""


def load_cards() -> list[dict[str, object]]:
    """All cards."""
    return [json.loads(line) for line in lines("cards.jsonl")]


def load_queries() -> list[Query]:
    """All queries."""
    return [
        Query(
            text=query.get("semantic") or query["text"],
            mailbox=query["mailbox"],
            by_meaning="semantic" in query,
            held_out=query.get("held_out", False),
        )
        for query in map(json.loads, lines("queries.jsonl"))
    ]


def lines(name: str) -> list[str]:
    """The lines of a file of the test set."""
    return (FOLDER / name).read_text(encoding="utf-8").splitlines()


def strings(value: object) -> Iterator[str]:
    """All strings in a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from strings(each)
    elif isinstance(value, list):
        for each in value:
            yield from strings(each)


def content_words(text: str) -> set[str]:
    """The stems of all words that say something."""
    return set(STEMS.analyze(text)) - FUNCTION_STEMS


def _stems() -> tantivy.TextAnalyzer:
    builder = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.simple())
    builder = builder.filter(tantivy.Filter.lowercase()).filter(tantivy.Filter.ascii_fold())
    return builder.filter(tantivy.Filter.stemmer("english")).build()


STEMS = _stems()
FUNCTION_STEMS = {*FUNCTION_WORDS, *STEMS.analyze(" ".join(FUNCTION_WORDS))}
