"""Searching: words of all scripts, stable order, vectors that are kept, and the fusion of both."""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from mq9.registry import frames
from mq9.registry.card_text import card_text
from mq9.registry.catalog import Catalog
from mq9.registry.ranking import fused
from mq9.registry.text_index import TextIndex
from mq9.registry.vector_file import VectorFile, digest
from mq9.registry.vectors import Vectors
from mq9.registry.words import indexed, parts, spaced


def index(*cards: dict[str, object]) -> TextIndex:
    texts = TextIndex()
    for number, each in enumerate(cards):
        texts.add(number, f"a{number}", card_text(each), ())
    texts.commit()
    return texts


def test_scripts_without_spaces_are_cut_into_pairs() -> None:
    assert spaced("翻译文档 now").split() == ["翻译", "译文", "文档", "now"]
    assert spaced("字").split() == ["字"]
    assert spaced("plain") == "plain"
    assert indexed("OpenTicket HTTPServer").split() == [
        *("OpenTicket", "HTTPServer"),
        *("Open", "Ticket", "HTTP", "Server"),
    ]


def test_a_query_is_words_phrases_and_prefixes() -> None:
    found = parts('find "two words" transl* the 翻译文')
    assert [(part.text, part.is_phrase, part.is_prefix) for part in found] == [
        ("find", False, False),
        ("two words", True, False),
        ("transl", False, True),
        ("翻译", False, False),
        ("译文", False, False),
    ]
    assert [part.text for part in parts("what is it")] == ["what", "is", "it"]


def test_of_a_query_64_words_count_and_8_beginnings() -> None:
    texts = index({"name": "ninth"}, {"name": "first"}, {"name": "字面"})
    beginnings = " ".join(f"{letter}*" for letter in "fbcdeghi")
    assert texts.search(f"{beginnings} nin*", 10)[0] == [1]
    assert texts.search(f"{beginnings} 字", 10)[0] == [1]
    assert texts.search(f"{beginnings} ninth", 10)[0] == [0, 1]
    # To ask twice is to ask once.
    assert texts.search(f"{'f* ' * 20} nin*", 10)[0] == [0, 1]
    some = [f"word{number}" for number in range(63)]
    for separator in (" ", "."):
        assert texts.search(f"{separator.join(some)} ninth", 10)[0] == [0]
        assert texts.search(f"{separator.join(some)} other ninth", 10)[0] == []


@settings(deadline=None)
@given(st.text())
def test_every_text_is_a_query(text: str) -> None:
    numbers, total, _ = INDEX.search(text, 10)
    assert len(numbers) == total


INDEX = index({"name": "Ålesund (C++) *bot*", "description": '"quoted" AND: 翻译'}, {"name": "b"})


def test_a_name_counts_more_than_a_description_and_an_exact_one_most() -> None:
    others: list[dict[str, object]] = [
        {"name": f"other {n}", "description": "ledger" * (n % 4 == 0), "skills": ["to cook food"]}
        for n in range(40)
    ]
    found = index(
        {"name": "x", "notes": "ledger"},
        {"name": "x", "skills": [{"name": "ledger"}]},
        {"name": "ledger of all things"},
        {"name": "The Ledger", "description": "very long " * 50},
        *others,
    )
    ranked, total, named = found.search("ledger", 50)
    assert ranked[0] == 3
    assert set(ranked[:3]) == {1, 2, 3}
    assert ranked[-1] == 0
    assert (total, named) == (14, 0)
    assert found.search("  THE   ledger ", 1) == ([3], 14, 1)
    assert found.search("a2", 10) == ([2], 1, 1)


def test_cards_of_the_same_score_are_in_their_order_on_any_page() -> None:
    texts = TextIndex()
    for number in reversed(range(500)):
        texts.add(number, f"a{number}", card_text({"name": "twin"}), ())
        if number % 100 == 0:
            texts.commit()
    for count in (1, 7, 100, 499, 500, 1000):
        assert texts.search("twin", count)[0] == list(range(500))[:count]


def test_removed_cards_and_tags() -> None:
    texts = TextIndex()
    for number in range(10):
        texts.add(number, f"a{number}", card_text({"name": "twin"}), ("even",) * (number % 2 == 0))
    texts.remove(4)
    assert texts.is_behind
    texts.commit()
    assert texts.search("twin", 10, ["even"])[0] == [0, 2, 6, 8]
    assert texts.search("twin", 3, ["odd"]) == ([], 0, 0)


class Letters:
    """An embedder that counts letters: the same letters are the same meaning."""

    dimensions = 32

    def __init__(self, name: str = "letters") -> None:
        self.id = name
        self.texts: list[str] = []

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.texts += texts
        rows = np.zeros((len(texts), self.dimensions), np.float32)
        for row, text in zip(rows, texts, strict=True):
            for letter in text.lower():
                row[ord(letter) % self.dimensions] += 1.0
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        return rows


def catalog(path: Path, embedder: Letters, told: list[str] | None = None) -> Catalog:
    catalog = Catalog()
    told = [] if told is None else told
    catalog.understand(embedder, VectorFile(path, embedder.id, embedder.dimensions, told.append))
    return catalog


def fill(catalog: Catalog, count: int) -> None:
    for number in range(count):
        body = f'{{"name":"{chr(97 + number % 26) * 5}"}}'.encode()
        catalog.add(number, f"a{number}", ("even",) * (number % 2 == 0), number, body)


def read_all(catalog: Catalog, embedder: Letters) -> None:
    catalog.commit()
    while catalog.unread:
        if texts := catalog.next_texts(8):
            catalog.learn(list(zip(texts, embedder.embed(list(texts.values())), strict=True)))


def test_many_changes_are_one_commit_and_one_text_is_read_once(tmp_path: Path) -> None:
    letters = Letters()
    cards = catalog(tmp_path / "v", letters)
    fill(cards, 2000)
    read_all(cards, letters)
    assert cards.commits == 1
    assert len(letters.texts) == 26
    assert cards.by_meaning("b", (), None, 0, 3).numbers == [1, 27, 53]
    assert cards.by_meaning("b", ("even",), None, 0, 1).numbers[0] % 2 == 0
    assert cards.by_meaning("b", (), 1998, 0, 5).numbers == [1999]
    assert cards.by_words("bbbbb", (), 1900, 0, 2).numbers == [1925, 1951]
    assert cards.by_words("bbbbb", (), 1900, 2, 2).total == 3
    cards.seen(1, 10**9)
    assert cards.by_words("bbbbb", (), 1900, 0, 1).numbers == [1]
    cards.remove(1)
    cards.remove(1)
    cards.commit()
    assert cards.by_meaning("b", (), None, 0, 1).numbers == [27]
    cards.close()


def test_another_embedder_starts_anew(tmp_path: Path) -> None:
    told: list[str] = []
    read: list[int] = []
    path = tmp_path / "agents" / "v"
    for letters in (Letters("one"), Letters("one"), Letters("two")):
        cards = catalog(path, letters, told)
        fill(cards, 26)
        read_all(cards, letters)
        read.append(len(letters.texts))
        cards.close()
    assert read == [26, 0, 26]
    assert told == ["the vectors of agents are damaged, or not this embedder's: removed"]


def vector(*values: float) -> NDArray[np.float32]:
    return np.array(values, np.float32)


def test_vectors_on_disk_are_kept_and_damage_costs_only_what_it_hits(tmp_path: Path) -> None:
    path, told = tmp_path / "v", list[str]()
    file = VectorFile(path, "e", 2, told.append)
    keys = [digest(str(number)) for number in range(10)]
    file.add((key, vector(number, 1)) for number, key in enumerate(keys))
    file.close()
    data = bytearray(path.read_bytes())
    data[-30] ^= 1  # In the last but one.
    path.write_bytes(data[:-3])  # And the last one is cut short.
    file = VectorFile(path, "e", 2, told.append)
    assert [key in file for key in keys] == [True] * 8 + [False] * 2
    assert file.get(keys[7]).tolist() == [7, 1]
    assert told == ["2 vectors of agents were damaged: computed anew"]
    file.add((key, vector(9, 9)) for key in keys[8:])
    file.close()
    again = VectorFile(path, "e", 2, told.append)
    assert [key in again for key in keys] == [True] * 10
    again.close()


def test_vectors_that_nobody_wants_are_dropped_when_they_are_many(tmp_path: Path) -> None:
    path = tmp_path / "v"
    file = VectorFile(path, "e", 2, print)
    keys = [digest(str(number)) for number in range(3000)]
    file.add((key, vector(number, 1)) for number, key in enumerate(keys))
    file.tidy(set(keys[:1500]))
    assert len(file) == 3000
    file.tidy(set(keys[10:20]))
    assert len(file) == 10
    assert file.get(keys[15]).tolist() == [15, 1]
    file.add([(keys[0], vector(5, 5))])
    file.close()
    again = VectorFile(path, "e", 2, print)
    assert len(again) == 11
    again.close()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_where_nothing_can_be_written_vectors_are_kept_in_memory(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    told: list[str] = []
    file = VectorFile(tmp_path / "agents" / "v", "e", 2, told.append)
    file.add([(digest("x"), vector(1, 2))])
    assert file.get(digest("x")).tolist() == [1, 2]
    assert len(told) == 1


def test_a_folder_that_is_a_file_costs_only_the_keeping(tmp_path: Path) -> None:
    (tmp_path / "agents").write_text("not a folder")
    told: list[str] = []
    file = VectorFile(tmp_path / "agents" / "v", "e", 2, told.append)
    file.add([(digest("x"), vector(1, 2))])
    assert digest("x") in file
    assert file.get(digest("x")).tolist() == [1, 2]
    assert len(told) == 1


@pytest.mark.parametrize("many", [100_000, 0])
def test_the_nearest_are_those_of_a_full_comparison(many: int) -> None:
    chance = np.random.default_rng(3)
    rows = chance.standard_normal((3000, 16)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    vectors = Vectors(16, many)
    for number, row in enumerate(rows):
        vectors.add(number, row, number)
    for number in range(0, 3000, 7):
        vectors.remove(number)
    kept = np.array([number for number in range(3000) if number % 7])
    for query in rows[:5]:
        expected = kept[np.argsort(-(rows[kept] @ query), kind="stable")]
        found = vectors.nearest(query, 50)
        # Half precision may swap neighbours.
        agreed = len(set(found) & set(expected[:50].tolist()))
        assert found == expected[:50].tolist() if many else agreed >= 48
        alive = vectors.nearest(query, 10, alive_at_ms=2000)
        assert alive[0] == expected[expected > 2000][0]
        some = vectors.nearest(query, 10, among=range(100, 120), alive_at_ms=110)
        assert set(some) == {number for number in range(111, 120) if number % 7}
    assert vectors.nearest(rows[0], 5, among=[]) == []


def test_a_share_of_the_words_may_be_asked_for() -> None:
    texts = index({"name": "one two three four"}, {"name": "one two three"}, {"name": "one"})
    assert sorted(texts.search("one two three four", 10)[0]) == [0, 1, 2]
    assert sorted(texts.search("one two three four", 10, share=0.75)[0]) == [0, 1]
    assert sorted(texts.search("one two three four", 10, share=1.0)[0]) == [0]
    assert sorted(texts.search("one", 10, share=0.75)[0]) == [0, 1, 2]
    # A name is enough, whatever the share.
    assert texts.search("one", 10, share=1.0)[2] == 1


def test_twins_are_in_their_order() -> None:
    vectors = Vectors(2)
    for number in reversed(range(2000)):
        vectors.add(number, vector(1, 0), 0)
    for count in (1, 10, 1999):
        assert vectors.nearest(vector(1, 0), count) == list(range(count))


def test_meaning_and_words_help_each_other_and_a_name_comes_first() -> None:
    assert order([1, 2, 3], []) == [1, 2, 3]
    assert order([], [7, 8]) == [7, 8]
    assert order([1, 2, 3, 4], [9, 3]) == [3, 1, 9, 2, 4]
    assert order([1, 2, 3, 4], [4]) == [4, 1, 2, 3]
    assert order(range(20), [99]).index(99) < 2
    assert order([1, 2, 3], [9, 8], named=2)[:2] == [9, 8]
    assert sorted(order(range(100), range(50, 150))) == list(range(150))


def test_what_is_not_ranked_comes_behind() -> None:
    assert order([1, 2, 3], [], others=[7, 8]) == [1, 2, 3, 7, 8]
    assert order([], [], others=[7, 8]) == [7, 8]
    scores = [score for _, score in fused([[1, 2], [3]], 0, [9])]
    assert scores == sorted(scores, reverse=True)


def order(
    by_meaning: Sequence[int], by_words: Sequence[int], named: int = 0, others: Sequence[int] = ()
) -> list[int]:
    return [number for number, _ in fused([by_meaning, by_words], named, others)]


def test_words_stand_in_for_what_is_not_read_yet(tmp_path: Path) -> None:
    letters = Letters()
    cards = catalog(tmp_path / "v", letters)
    names = ["plumber in town", "gardener", "plumber", "baker"]
    for number, name in enumerate(names):
        cards.add(number, f"a{number}", (), number, f'{{"name":"{name}"}}'.encode())
    cards.commit()
    assert cards.by_meaning("a plumber for my house", (), None, 0, 9).numbers == [2, 0, 1, 3]
    assert cards.by_meaning("a plumber for my house", (), 1, 0, 9).numbers == [2, 3]
    cards.read(3)
    assert cards.unread == 3
    found = cards.by_meaning("a plumber for my house", (), None, 0, 9)
    assert sorted(found.numbers) == [0, 1, 2, 3]
    assert found.scores == sorted(found.scores, reverse=True)
    assert cards.give_up(digest("gardener")) == [1]
    assert cards.unread == 2
    assert 1 not in cards.by_meaning("umbrella", (), None, 0, 9).numbers
    assert cards.by_words("gardener", (), None, 0, 9).numbers == [1]
    cards.close()


def test_most_words_of_a_query_must_be_there_if_asked_for() -> None:
    found = index({"name": "red green blue"}, {"name": "red"}, {"name": "red green blue black"})
    assert found.search("red green blue black", 10)[1] == 3
    assert found.search("red green blue black", 10, share=0.75)[0] == [2, 0]
    assert found.search("white", 10, share=0.75) == ([], 0, 0)


@given(st.lists(st.binary(max_size=50), max_size=20), st.integers(1, 9))
def test_frames_survive_any_cutting(bodies: list[bytes], step: int) -> None:
    said = b"".join(frames.encode({"n": at}, body) for at, body in enumerate(bodies))
    decoder, found = frames.Decoder(), list[frames.Frame]()
    for start in range(0, len(said), step):
        found += decoder.feed(said[start : start + step])
    assert [(each.head["n"], each.body) for each in found] == list(enumerate(bodies))


def test_numbers_survive_a_frame() -> None:
    assert list(frames.unpack(frames.pack([0, 1, 2**62, -5]))) == [0, 1, 2**62, -5]
    with pytest.raises(frames.BrokenFrameError):
        list(frames.Decoder().feed(b"\xff" * 8))
