"""How many queries a search answers with the right card, by words, by meaning, and by both.

Searches with the registry's own catalog. Run as a program it writes the table of all embedders:
`python -m tests.retrieval.scores`.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray
from tests.retrieval.material import Query, load_cards, load_queries

from mq9.registry.card_text import card_text
from mq9.registry.catalog import Catalog
from mq9.registry.embedder import Embedder, EmbedderMissingError, Name, load_embedder
from mq9.registry.vector_file import VectorFile

EMBEDDERS: tuple[Name, ...] = ("blend", "light", "minilm")


@dataclass(frozen=True)
class Score:
    """The place of the right card for each query; 0 if it was not found."""

    places: tuple[int, ...]

    def within(self, count: int) -> float:
        """The share of queries with the right card among the first `count`."""
        return sum(0 < place <= count for place in self.places) / len(self.places)


class Remembering:
    """An embedder that computes each vector once: here the same texts come again and again."""

    def __init__(self, embedder: Embedder) -> None:
        self.id, self.dimensions = embedder.id, embedder.dimensions
        self._embedder = embedder
        self._known: dict[str, NDArray[np.float32]] = {}

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One row per text."""
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        if new:
            self._known.update(zip(new, self._embedder.embed(new), strict=True))
        return np.array([self._known[text] for text in texts]).reshape(-1, self.dimensions)


class Bench:
    """The test set in a catalog, with one embedder."""

    def __init__(self, embedder: Embedder, folder: Path) -> None:
        """Fill a catalog with all cards and compute their vectors."""
        cards = load_cards()
        self.mailboxes = [str(card["mailbox"]) for card in cards]
        self.embedder = embedder = Remembering(embedder)
        self.vectors = embedder.embed([card_text(card).meaning for card in cards])
        self.catalog = Catalog()
        self.told: list[str] = []
        file = VectorFile(folder / "vectors", embedder.id, embedder.dimensions, self.told.append)
        self.catalog.understand(embedder, file)
        for number, card in enumerate(cards):
            self.catalog.add(number, self.mailboxes[number], (), 0, json.dumps(card).encode())
        while self.catalog.unread:
            texts = self.catalog.next_texts(64)
            vectors = embedder.embed(list(texts.values()))
            self.catalog.learn(list(zip(texts, vectors, strict=True)))
        self.catalog.commit()

    def by_words(self, queries: Sequence[Query]) -> Score:
        """DISCOVER with `text`."""
        found = (self.catalog.by_words(query.text, (), None, 0, 1000) for query in queries)
        return self._score(queries, [each.numbers for each in found])

    def by_meaning_alone(self, queries: Sequence[Query]) -> Score:
        """The vectors, and nothing else."""
        near = self.embedder.embed([query.text for query in queries]) @ self.vectors.T
        return self._score(queries, np.argsort(-near, axis=1, kind="stable").tolist())

    def fused(self, queries: Sequence[Query]) -> Score:
        """DISCOVER with `semantic`."""
        found = (self.catalog.by_meaning(query.text, (), None, 0, 1000) for query in queries)
        return self._score(queries, [each.numbers for each in found])

    def _score(self, queries: Sequence[Query], rankings: Sequence[list[int]]) -> Score:
        places = []
        for query, ranking in zip(queries, rankings, strict=True):
            right = self.mailboxes.index(query.mailbox)
            places.append(ranking.index(right) + 1 if right in ranking else 0)
        return Score(tuple(places))


def table(name: str, bench: Bench) -> list[str]:
    """The scores of one embedder, as rows of a Markdown table."""
    queries = [query for query in load_queries() if query.by_meaning]
    groups = {"all": queries, "held out": [query for query in queries if query.held_out]}
    rows = []
    for group, chosen in groups.items():
        ways = {
            "BM25 alone": bench.by_words(chosen),
            "semantic alone": bench.by_meaning_alone(chosen),
            "fused": bench.fused(chosen),
        }
        for way, score in ways.items():
            numbers = " | ".join(f"{score.within(count):.3f}" for count in (1, 3, 5))
            rows.append(f"| {name} | {way} | {group} ({len(chosen)}) | {numbers} |")
    return rows


HEAD = ["| embedder | search | queries | top-1 | top-3 | top-5 |", "|---|---|---|---|---|---|"]


def main() -> None:
    """Write the table of all embedders that are installed."""
    rows = [*HEAD]
    for name in EMBEDDERS:
        try:
            embedder = load_embedder(name)
        except EmbedderMissingError as error:
            rows.append(f"| {name} | skipped: {error} | | | | |")
            continue
        with TemporaryDirectory() as folder:
            rows += table(name, Bench(embedder, Path(folder)))
    sys.stdout.write("\n".join(rows) + "\n")


if __name__ == "__main__":
    main()
