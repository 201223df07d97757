"""All that can be searched: the words and the vectors of every card, and which are alive.

Owns how a search is carried out. Knows nothing of processes, frames and the store.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from mq9.registry.card_text import card_text
from mq9.registry.ranking import WORDS_SHARE, fused
from mq9.registry.text_index import TextIndex
from mq9.registry.vector_file import VectorFile, digest
from mq9.registry.vectors import Vectors

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from mq9.registry.embedder import Embedder

DEPTH = 1000
"""How many a search by meaning ranks, of each kind."""
# Cards looked at in one step.
_STEP = 256


@dataclass(slots=True)
class Card:
    """What is remembered of a card."""

    tags: tuple[str, ...]
    alive_until_ms: int
    text: bytes
    """The digest of its meaning."""


@dataclass(frozen=True, slots=True)
class _Model:
    embedder: Embedder
    file: VectorFile
    vectors: Vectors


@dataclass(frozen=True, slots=True)
class Found:
    """A page of a search: cards by number, how many there are in all, and the score of each."""

    numbers: list[int]
    total: int
    scores: list[float]


class Catalog:
    """The cards of all agents; found by their meaning once there is an embedder."""

    def __init__(self) -> None:
        self._model: _Model | None = None
        self._reads = True
        self._words = TextIndex()
        self._cards: dict[int, Card] = {}
        self._by_tag: dict[str, set[int]] = {}
        self._unread: dict[int, str] = {}

    def understand(self, embedder: Embedder, file: VectorFile) -> None:
        """From now on cards can be found by their meaning, too."""
        self._model = _Model(embedder, file, Vectors(embedder.dimensions))

    def ignore_meaning(self) -> None:
        """There will be no embedder."""
        self._reads = False
        self._unread.clear()

    @property
    def unread(self) -> int:
        """How many cards have no vector yet."""
        return len(self._unread)

    @property
    def is_behind(self) -> bool:
        """Whether there are changes that a commit would make visible."""
        return self._words.is_behind

    @property
    def commits(self) -> int:
        """How often changes were made visible."""
        return self._words.commits

    def add(
        self, number: int, address: str, tags: Sequence[str], alive_until_ms: int, body: bytes
    ) -> None:
        """A card that is not there yet."""
        text = card_text(json.loads(body))
        meaning = text.meaning or address
        key = digest(meaning)
        # Before the words: whatever happens, `remove` takes all of it out again.
        self._cards[number] = Card(tuple(tags), alive_until_ms, key)
        for tag in tags:
            self._by_tag.setdefault(tag, set()).add(number)
        self._words.add(number, address, text, tags)
        if self._reads:
            self._unread[number] = meaning
        if self._model and key in self._model.file:
            self._place(number, self._model)

    def remove(self, number: int) -> None:
        """A card is gone; no harm if it was never there."""
        card = self._cards.pop(number, None)
        if card is None:
            return
        self._words.remove(number)
        self._unread.pop(number, None)
        if self._model:
            self._model.vectors.remove(number)
        for tag in card.tags:
            holders = self._by_tag.get(tag, set())
            holders.discard(number)
            if not holders:
                self._by_tag.pop(tag, None)

    def seen(self, number: int, alive_until_ms: int) -> None:
        """An agent is alive for longer."""
        if card := self._cards.get(number):
            card.alive_until_ms = alive_until_ms
            if self._model:
                self._model.vectors.seen(number, alive_until_ms)

    def next_texts(self, count: int) -> dict[bytes, str]:
        """Texts to compute the vectors of, each under its key; none if all are known.

        Cards whose text was read before are placed at once.
        """
        model = self._model
        texts: dict[bytes, str] = {}
        if model is None:
            return texts
        for number in list(islice(self._unread, _STEP)):
            key = self._cards[number].text
            if key in model.file:
                self._place(number, model)
            elif len(texts) < count:
                texts[key] = self._unread[number]
        if not self._unread:
            model.file.tidy({card.text for card in self._cards.values()})
        return texts

    def learn(self, vectors: Sequence[tuple[bytes, NDArray[np.float32]]]) -> None:
        """Vectors of texts have been computed."""
        if (model := self._model) is not None:
            model.file.add([pair for pair in vectors if pair[0] not in model.file])

    def first_unread(self) -> int | None:
        """A card that has no vector yet."""
        return next(iter(self._unread), None)

    def read(self, number: int) -> None:
        """Compute the vector of such a card here and now."""
        if (model := self._model) is not None:
            key = self._cards[number].text
            if key not in model.file:
                [vector] = model.embedder.embed([self._unread[number]])
                model.file.add([(key, vector)])
            self._place(number, model)

    def give_up(self, text: bytes) -> list[int]:
        """The vectors of cards with this text will never be known; those cards."""
        given_up = [number for number in self._unread if self._cards[number].text == text]
        for number in given_up:
            del self._unread[number]
        return given_up

    def _place(self, number: int, model: _Model) -> None:
        card = self._cards[number]
        vector = model.file.get(card.text)
        del self._unread[number]
        model.vectors.add(number, vector, card.alive_until_ms)

    def commit(self) -> None:
        """From now on searches see all changes."""
        self._words.commit()

    def close(self) -> None:
        """Close the file with the vectors."""
        if self._model:
            self._model.file.close()

    def by_words(
        self, query: str, tags: Sequence[str], alive_at_ms: int | None, first: int, count: int
    ) -> Found:
        """A page of the cards with these words."""
        if alive_at_ms is None:
            ranked, total, _ = self._words.ranked(query, first + count, tags)
        else:
            ranked, _, _ = self._words.ranked(query, None, tags)
            ranked = [pair for pair in ranked if self._is_alive(pair[0], alive_at_ms)]
            total = len(ranked)
        return _page(ranked, total, first, count)

    def by_meaning(
        self, query: str, tags: Sequence[str], alive_at_ms: int | None, first: int, count: int
    ) -> Found:
        """A page of the cards nearest to this meaning; words stand in for those not read yet."""
        near: list[int] = []
        if self._model:
            among = self._tagged(tags) if tags else None
            [vector] = self._model.embedder.embed([query])
            near = self._model.vectors.nearest(vector, DEPTH, among=among, alive_at_ms=alive_at_ms)
        words, _, named = self._words.search(query, DEPTH, tags, WORDS_SHARE)
        with_words, others = self._unread_by_words(query, tags) if self._unread else ([], [])
        if alive_at_ms is not None:
            exact = self._alive(words[:named], alive_at_ms)
            words, named = exact + self._alive(words[named:], alive_at_ms), len(exact)
            with_words = self._alive(with_words, alive_at_ms)
            others = self._alive(others, alive_at_ms)
        ranked = fused([near, with_words, words], named, others)
        return _page(ranked, len(ranked), first, count)

    def _unread_by_words(self, query: str, tags: Sequence[str]) -> tuple[list[int], list[int]]:
        """Cards that have no vector yet: those with any of the words, best first, and others."""
        # Of many, those far down do not matter.
        most = None if len(self._unread) <= _STEP else DEPTH
        found, _, _ = self._words.search(query, most, tags)
        with_words = [number for number in found if number in self._unread][:DEPTH]
        known = set(with_words)
        among = self._tagged(tags) if tags else None
        others = (
            number
            for number in self._unread
            if number not in known and (among is None or number in among)
        )
        return with_words, list(islice(others, DEPTH - len(with_words)))

    def _is_alive(self, number: int, at_ms: int) -> bool:
        return self._cards[number].alive_until_ms > at_ms

    def _alive(self, numbers: list[int], at_ms: int) -> list[int]:
        return [number for number in numbers if self._is_alive(number, at_ms)]

    def _tagged(self, tags: Sequence[str]) -> set[int]:
        holders = sorted((self._by_tag.get(tag, set()) for tag in set(tags)), key=len)
        return set.intersection(*holders) if holders else set()


def _page(ranked: list[tuple[int, float]], total: int, first: int, count: int) -> Found:
    page = ranked[first : first + count]
    return Found([number for number, _ in page], total, [score for _, score in page])
