"""Embedders: the same vector for the same text, whatever the text, and no need of a network."""

import importlib.util
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from mq9.registry import embedder as embedder_module
from mq9.registry.embedder import Embedder, EmbedderMissingError, Name, load_embedder
from mq9.registry.embedders.blend import MAX_PASSAGES, BlendedEmbedder, passages_of
from mq9.registry.embedders.wordpiece import WordPiece

HAS_ONNXRUNTIME = importlib.util.find_spec("onnxruntime") is not None
needs_onnxruntime = pytest.mark.skipif(
    not HAS_ONNXRUNTIME, reason="onnxruntime is not installed: pip install 'mq9[semantic]'"
)

TEXTS = [
    "a bill has to be paid",
    "",
    " \n ",
    "支払いを処理する",
    "Счёт на оплату",
    "half of a pair \ud800",
    "word " * 20_000,
    "x" * 100_000,
    "\x00\x01\u200b",
    "one line\nand another\n\nand a third",
]

OFFLINE = """
import sys

def refuse(event, _):
    if event.startswith(("socket.", "urllib.", "http.", "ftplib.")):
        raise RuntimeError(f"the network was used: {event}")

sys.addaudithook(refuse)

from mq9.registry.embedder import load_embedder

vectors = load_embedder(sys.argv[1]).embed(["pay a bill", "settle an invoice", "feed the cat"])
assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2]
import socket
try:
    socket.create_connection(("127.0.0.1", 9))
except RuntimeError:
    sys.exit(0)
sys.exit("the guard did not see a connection")
"""


@pytest.fixture(scope="module", params=["blend", "light", "minilm"])
def embedder(request: pytest.FixtureRequest) -> Embedder:
    """Each of them, if its packages are there."""
    try:
        return load_embedder(request.param)
    except EmbedderMissingError as error:
        pytest.skip(str(error))


def test_any_text_has_one_row_of_length_one(embedder: Embedder) -> None:
    vectors = embedder.embed(TEXTS)
    assert vectors.shape == (len(TEXTS), embedder.dimensions)
    assert vectors.dtype == np.float32
    assert np.abs(np.linalg.norm(vectors, axis=1) - 1).max() < 1e-5
    assert embedder.embed([]).shape == (0, embedder.dimensions)


def test_a_text_has_the_same_vector_alone_and_in_company(embedder: Embedder) -> None:
    together = embedder.embed(TEXTS)
    alone = np.vstack([embedder.embed([text]) for text in reversed(TEXTS)])[::-1]
    assert np.abs(together - alone).max() < 1e-5
    assert np.array_equal(together, embedder.embed(TEXTS))


def test_meaning_is_nearer_than_words(embedder: Embedder) -> None:
    asked, paraphrase, same_words = embedder.embed(
        ["settle an invoice", "pay the bill we got", "settle in a new country"]
    )
    assert asked @ paraphrase > asked @ same_words


def test_ids_tell_embedders_apart() -> None:
    light, blend = load_embedder("light"), load_embedder("blend")
    assert light.id != blend.id
    assert light.dimensions != blend.dimensions
    assert load_embedder("blend").id == blend.id


@needs_onnxruntime
def test_onnxruntime_gives_the_same_vectors_as_numpy() -> None:
    blend, auto = load_embedder("blend"), load_embedder("auto")
    assert blend.id == auto.id
    assert np.abs(blend.embed(TEXTS) - auto.embed(TEXTS)).max() < 1e-4


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedder_module, "find_spec", lambda _: None)
    with pytest.raises(EmbedderMissingError, match=r"onnxruntime.*mq9\[semantic\]"):
        load_embedder("minilm")
    assert load_embedder("auto").id == load_embedder("blend").id


def test_an_unknown_name_is_refused() -> None:
    unknown: Name = "large"  # type: ignore[assignment]
    with pytest.raises(ValueError, match="choose auto, blend, light or minilm"):
        load_embedder(unknown)


@pytest.mark.parametrize("name", ["blend", "light", pytest.param("auto", marks=needs_onnxruntime)])
def test_no_network_is_used(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", OFFLINE, name],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_tokens_are_those_of_the_reference() -> None:
    expected = json.loads((Path(__file__).parent / "data/wordpiece_tokens.json").read_text())
    tokenizer = WordPiece()
    for each in expected:
        assert tokenizer.encode(each["text"], 256) == each["tokens"], each["text"]


def test_tokens_are_bounded() -> None:
    tokenizer = WordPiece()
    first, *_, last = tokenizer.encode("word " * 100, 10)
    assert len(tokenizer.encode("word " * 100, 10)) == 10
    assert [first, last] == tokenizer.encode("", 10)


class Lengths:
    """An embedder whose vectors say how long a text is."""

    id = "lengths"
    dimensions = 2

    def __init__(self, unread: str = "?") -> None:
        self._unread = unread

    def reads(self, text: str) -> bool:
        """All but one letter."""
        return self._unread not in text

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """A row per text."""
        angles = np.array([len(text) / 10 for text in texts])
        return np.column_stack([np.cos(angles), np.sin(angles)]).astype(np.float32)


def test_a_text_is_the_mean_of_its_lines() -> None:
    blend = BlendedEmbedder((0.25, Lengths()), (0.75, Lengths()))
    lines, middle = blend.embed(["aa\n\n  aaaa ", "aaa"])
    assert np.allclose(lines, middle)
    assert np.allclose(np.linalg.norm(lines[:2]), 0.5)
    assert blend.dimensions == 4
    assert blend.id == "0.25*lengths+0.75*lengths"


def test_what_a_part_cannot_read_is_left_to_the_others() -> None:
    blend = BlendedEmbedder((0.5, Lengths("x")), (0.5, Lengths("y")))
    left, right, both, none = blend.embed(["y", "x", "a", "xy"])
    assert np.allclose(np.linalg.norm(left), 1)
    assert not left[2:].any()
    assert not right[:2].any()
    assert both.all()
    assert none.all()


def test_english_is_told_from_other_languages() -> None:
    tokenizer = WordPiece()
    english = ("pay the bill we got yesterday", "Three-way match of invoices", "", "4711 / 12")
    others = ("wo ist mein Paket geblieben", "où puis-je garer ma voiture", "电费助手", "병원 예약")
    assert min(map(tokenizer.known_share, english)) >= 0.5
    assert max(map(tokenizer.known_share, others)) < 0.5


@pytest.mark.parametrize("name", ["blend", "light"])
def test_other_languages_are_understood(name: Name) -> None:
    embedder = load_embedder(name)
    cards = embedder.embed(
        [
            "Parking Guide. Shows free parking spaces near a destination",
            "Contract Analyst. Reads contracts and points out risky clauses",
            "Thermostat Tuner. Sets heating and cooling to save energy",
        ]
    )
    asked = embedder.embed(
        [
            "où puis-je garer ma voiture",
            "私の契約書を確認してください",
            "meine Heizung ist zu teuer",
        ]
    )
    assert (asked @ cards.T).argmax(axis=1).tolist() == [0, 1, 2]


def test_the_number_of_passages_is_bounded() -> None:
    assert passages_of("") == [""]
    assert passages_of("a\nb") == ["a", "b"]
    many = passages_of("\n".join("abcdefghijkl"))
    assert len(many) == MAX_PASSAGES
    assert many[-1] == "h i j k l"
