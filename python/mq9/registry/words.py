"""Words of a text, for the index and for queries: what a reader takes for one, in any script.

Chinese, Japanese, Korean and others that need no spaces are cut into overlapping pairs of
characters, so that a query finds any part of a sentence. Knows nothing of the index.
"""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

MAX_WORDS = 64
"""Words of a query that count."""
MAX_PATTERNS = 8
"""Beginnings of words, and single characters of scripts without spaces, that count: each is looked
for among all words of all cards."""
MAX_CHARS = 4096
"""Characters of a query that count."""

# Thai, Lao, Myanmar, Khmer; Hangul jamo; kana and Han with their extensions; Hangul syllables.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029"
    "\u3040-\u30ff\u3130-\u318f\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff"
    "\uf900-\ufaff\U00020000-\U0003ffff]+"
)
# An upper-case letter behind a lower-case one begins a word, and so does the last of several.
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_PART = re.compile(r'"([^"]*)"?|([^\s"]+)')

_COMMON = frozenset(
    re.findall(
        r"\w+",
        "a an and are as at be by can do does for from has have how i if in into is it its me my "
        "of on or our please so some than that the their them then there these they this to us we "
        "what when where which who will with you your",
    )
)


def spaced(text: str) -> str:
    """The text with spaces around all that is a word of its own."""
    # Most texts are plain, and agents are many.
    return text if text.isascii() else _UNSPACED.sub(_pairs, unicodedata.normalize("NFKC", text))


def indexed(text: str) -> str:
    """The same with the parts of words like `OpenTicket` behind it, to be found by each of them."""
    text = spaced(text)
    if not _HUMP.search(text):
        return text
    split = dict.fromkeys(_HUMP.sub(" ", word) for word in text.split() if _HUMP.search(word))
    return f"{text} {' '.join(split)}"


def _pairs(run: re.Match[str]) -> str:
    characters = run[0]
    pairs = (characters[at : at + 2] for at in range(max(1, len(characters) - 1)))
    return f" {' '.join(pairs)} "


def is_unspaced(word: str) -> bool:
    """Whether a word is of a script without spaces."""
    return _UNSPACED.fullmatch(word) is not None


def name_key(name: str) -> str:
    """A name as it is compared with others: case and spaces do not matter."""
    return " ".join(unicodedata.normalize("NFKC", name).casefold().split())


@dataclass(frozen=True, slots=True)
class Part:
    """Something a query asks for: words, in this order if it is a phrase."""

    text: str
    is_phrase: bool = False
    is_prefix: bool = False

    @property
    def is_pattern(self) -> bool:
        """Whether many words may match."""
        return self.is_prefix or (len(self.text) == 1 and is_unspaced(self.text))


def parts(query: str) -> list[Part]:
    """What a query asks for; every text is a query."""
    # Each once: to find it again would change nothing but the time it takes.
    found = list(dict.fromkeys(_parts(query[:MAX_CHARS])))[:MAX_WORDS]
    patterns = [part for part in found if part.is_pattern]
    found = [part for part in found if part not in patterns[MAX_PATTERNS:]]
    telling = [part for part in found if part.is_phrase or part.text.casefold() not in _COMMON]
    return telling or found


def _parts(query: str) -> Iterator[Part]:
    for match in _PART.finditer(unicodedata.normalize("NFKC", query)):
        phrase, word = match[1], match[2]
        if phrase is not None:
            if phrase.strip():
                yield Part(spaced(phrase).strip(), is_phrase=True)
        elif word.endswith("*") and (bare := word.rstrip("*")):
            *whole, last = spaced(bare).split()
            yield from map(Part, whole)
            yield Part(last, is_prefix=True)
        else:
            yield from map(Part, spaced(word).split())
