"""Splits text into the tokens that uncased BERT models are trained with.

Owns the vocabulary file; knows no model. Gives the same tokens as the reference implementation,
without its dependencies.
"""

import unicodedata
from functools import lru_cache
from pathlib import Path

VOCABULARY = Path(__file__).with_name("minilm_vocabulary.txt")
MAX_WORD_CHARS = 100

# Blocks of characters that are written without spaces: each is a word of its own.
IDEOGRAPHS = (
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B920, 0x2CEAF),
    (0x2F800, 0x2FA1F),
)


class WordPiece:
    """Greedy, longest piece first, over words in lower case without accents."""

    def __init__(self) -> None:
        """Read the vocabulary; a token's id is its line."""
        tokens = VOCABULARY.read_text(encoding="utf-8").split("\n")[:-1]
        self._ids = {token: number for number, token in enumerate(tokens)}
        self._unknown = self._ids["[UNK]"]
        self._first = self._ids["[CLS]"]
        self._last = self._ids["[SEP]"]

    def encode(self, text: str, max_tokens: int) -> list[int]:
        """The ids of the text between its two markers, `max_tokens` at most."""
        ids = [self._first]
        for word in words(text):
            ids += self._pieces(word)
            if len(ids) >= max_tokens:
                break
        return [*ids[: max_tokens - 1], self._last]

    def known_share(self, text: str) -> float:
        """The share of the letters that stand in words of the vocabulary; 1 if there are none."""
        spelled = [word for word in words(text) if word[0].isalpha()]
        letters = sum(map(len, spelled))
        # A single ideograph is in the vocabulary of a model that knows no Chinese.
        known = sum(len(word) for word in spelled if word.isascii() and word in self._ids)
        return known / letters if letters else 1.0

    def _pieces(self, word: str) -> list[int]:
        if len(word) > MAX_WORD_CHARS:
            return [self._unknown]
        pieces = []
        start = 0
        while start < len(word):
            for end in range(len(word), start, -1):
                piece = word[start:end] if start == 0 else "##" + word[start:end]
                if piece in self._ids:
                    pieces.append(self._ids[piece])
                    start = end
                    break
            else:
                return [self._unknown]
        return pieces


def words(text: str) -> list[str]:
    """The words and signs of the text, in lower case, without accents."""
    spaced = "".join(kind(char) for char in text)
    bare = "".join(
        char for char in unicodedata.normalize("NFD", spaced) if unicodedata.category(char) != "Mn"
    ).lower()
    return "".join(f" {char} " if is_sign(char) else char for char in bare).split()


@lru_cache(maxsize=4096)
def kind(char: str) -> str:
    """The character as the splitting needs it: spaced, dropped or as it is."""
    code = ord(char)
    if char in "\t\n\r":
        return " "
    category = unicodedata.category(char)
    if code in (0, 0xFFFD) or category in ("Cc", "Cf", "Co", "Cs"):
        return ""
    if category == "Zs":
        return " "
    if any(low <= code <= high for low, high in IDEOGRAPHS):
        return f" {char} "
    return char


@lru_cache(maxsize=4096)
def is_sign(char: str) -> bool:
    """Whether the character stands alone: punctuation, and ASCII that is no letter or digit."""
    return (char.isascii() and char.isprintable() and not char.isalnum() and char != " ") or (
        unicodedata.category(char).startswith("P")
    )
