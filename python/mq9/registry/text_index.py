"""Cards found by their words: a tantivy index in memory.

Owns which field counts how much. It is filled anew whenever the worker starts, so a change costs
no sync of the disk, and there is nothing on it that could be damaged. Knows nothing of vectors.
"""

from __future__ import annotations

import re
from math import ceil
from typing import TYPE_CHECKING

import tantivy

from mq9.registry.words import MAX_WORDS, Part, indexed, name_key, parts

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mq9.registry.card_text import CardText

BOOSTS = {"name": 4.0, "skills": 2.0, "tags": 2.0, "description": 1.5, "rest": 0.5}
# A word that stands in several fields counts most where it counts most, and a little for the rest.
_OTHER_FIELDS = 0.1
_EXACT_NAME = 1_000_000.0
"""The score of a card whose name is the query."""
_HEAP_BYTES = 64_000_000
_MAX_WORD_BYTES = 80


class TextIndex:
    """The words of all cards, by the number of the card."""

    def __init__(self) -> None:
        builder = tantivy.SchemaBuilder()
        builder.add_text_field("key", tokenizer_name="raw", index_option="basic")
        builder.add_unsigned_field("id", fast=True)
        builder.add_text_field("title", tokenizer_name="raw", index_option="basic")
        builder.add_text_field("tag", tokenizer_name="raw", index_option="basic")
        for field in BOOSTS:
            builder.add_text_field(field, tokenizer_name="stems", index_option="position")
        builder.add_text_field("words", tokenizer_name="words", index_option="basic")
        self._schema = builder.build()
        self._index = tantivy.Index(self._schema)
        self._index.config_reader("manual")
        self._stems = _analyzer(stemming=True)
        self._words = _analyzer(stemming=False)
        self._index.register_tokenizer("stems", self._stems)
        self._index.register_tokenizer("words", self._words)
        self._writer = self._index.writer(_HEAP_BYTES, 1)
        self._searcher = self._index.searcher()
        self._changed = False
        self.commits = 0

    def add(self, number: int, address: str, text: CardText, tags: Iterable[str]) -> None:
        """A new card; its number must be new as well."""
        document = tantivy.Document()
        document.add_text("key", str(number))
        document.add_unsigned("id", number)
        for title in {name_key(text.name), name_key(address)}:
            document.add_text("title", title)
        for tag in tags:
            document.add_text("tag", tag)
        fields = {
            "name": text.name,
            "skills": text.skills,
            "tags": ", ".join(text.tags),
            "description": text.description,
            "rest": text.rest,
        }
        for field, content in fields.items():
            if content:
                prepared = indexed(content)
                document.add_text(field, prepared)
                document.add_text("words", prepared)
        self._writer.add_document(document)
        self._changed = True

    def remove(self, number: int) -> None:
        """A card is gone."""
        self._writer.delete_documents_by_term("key", str(number))
        self._changed = True

    @property
    def is_behind(self) -> bool:
        """Whether there are changes that searches do not see."""
        return self._changed

    def commit(self) -> None:
        """From now on searches see all changes."""
        if self._changed:
            self._writer.commit()
            self._index.reload()
            self._searcher = self._index.searcher()
            self._changed = False
            self.commits += 1

    def search(
        self, query: str, count: int | None, tags: Sequence[str] = (), share: float = 0.0
    ) -> tuple[list[int], int, int]:
        """As `ranked`, without scores."""
        found, total, exact = self.ranked(query, count, tags, share)
        return [number for number, _ in found], total, exact

    def ranked(
        self, query: str, count: int | None, tags: Sequence[str] = (), share: float = 0.0
    ) -> tuple[list[tuple[int, float]], int, int]:
        """The best `count` cards (None: all) with their scores, how many match, and how many are
        named exactly so.

        Cards with a smaller share of the query's words do not match; one word always has to.

        The order is the same each time: cards of the same score are in the order of their numbers.
        """
        wanted = self._query(query, tags, share)
        most = self._searcher.num_docs
        if wanted is None or most == 0:
            return [], 0, 0
        count = most if count is None else count
        take = min(count + 1, most)
        while True:
            result = self._searcher.search(wanted, take, count=True)
            hits = result.hits
            # The last one asked for may be as good as some that were not given.
            if len(hits) < take or take >= most or hits[-1][0] < hits[count - 1][0]:
                break
            take = min(take * 4, most)
        numbers = self._searcher.fast_field_values("id", [place for _, place in hits])
        ranked = sorted(
            (-score, int(number))
            for (score, _), number in zip(hits, numbers, strict=True)
            if number is not None
        )
        exact = sum(-score >= _EXACT_NAME for score, _ in ranked)
        found = [(number, -score) for score, number in ranked[:count]]
        return found, result.count, exact  # type: ignore[attr-defined]

    def _query(self, query: str, tags: Sequence[str], share: float) -> tantivy.Query | None:
        should: list[tantivy.Query] = []
        # A part may be cut into many words: no more of them count than of parts.
        left = MAX_WORDS
        for part in parts(query):
            words = (self._words if part.is_prefix else self._stems).analyze(part.text)[:left]
            left -= len(words)
            if words:
                should.append(self._clause(part, words))
        if not should:
            return None
        title = tantivy.Query.term_query(self._schema, "title", name_key(query))
        enough = tantivy.Query.boolean_query(
            [(tantivy.Occur.Should, clause) for clause in should],
            minimum_number_should_match=max(1, ceil(share * len(should))),
        )
        named = tantivy.Query.const_score_query(title, _EXACT_NAME)
        found = tantivy.Query.boolean_query(
            [(tantivy.Occur.Should, clause) for clause in (enough, named)]
        )
        if not tags:
            return found
        filters = [
            tantivy.Query.const_score_query(tantivy.Query.term_query(self._schema, "tag", tag), 0.0)
            for tag in tags
        ]
        return tantivy.Query.boolean_query(
            [(tantivy.Occur.Must, clause) for clause in (found, *filters)]
        )

    def _clause(self, part: Part, words: list[str]) -> tantivy.Query:
        """What finds a part of a query that consists of these words."""
        if part.is_prefix:
            return self._prefix(words)
        if part.is_pattern:
            return self._matching(f".?{re.escape(part.text)}.?")
        if part.is_phrase and len(words) > 1:
            return _best(
                {f: tantivy.Query.phrase_query(self._schema, f, list(words)) for f in BOOSTS}
            )
        clauses = [
            _best({f: tantivy.Query.term_query(self._schema, f, word) for f in BOOSTS})
            for word in words
        ]
        if len(clauses) == 1:
            return clauses[0]
        return tantivy.Query.boolean_query([(tantivy.Occur.Must, each) for each in clauses])

    def _prefix(self, words: list[str]) -> tantivy.Query:
        *whole, last = words
        clauses = [self._matching(f"{re.escape(last)}.*")]
        clauses += [tantivy.Query.term_query(self._schema, "words", word) for word in whole]
        return tantivy.Query.boolean_query([(tantivy.Occur.Must, each) for each in clauses])

    def _matching(self, pattern: str) -> tantivy.Query:
        return tantivy.Query.regex_query(self._schema, "words", pattern)


def _best(by_field: dict[str, tantivy.Query]) -> tantivy.Query:
    return tantivy.Query.disjunction_max_query(
        [tantivy.Query.boost_query(query, BOOSTS[field]) for field, query in by_field.items()],
        _OTHER_FIELDS,
    )


def _analyzer(*, stemming: bool) -> tantivy.TextAnalyzer:
    builder = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.simple())
    builder = builder.filter(tantivy.Filter.remove_long(_MAX_WORD_BYTES))
    builder = builder.filter(tantivy.Filter.lowercase()).filter(tantivy.Filter.ascii_fold())
    if stemming:
        builder = builder.filter(tantivy.Filter.stemmer("english"))
    return builder.build()
