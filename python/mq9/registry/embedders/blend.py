"""Several embedders as one: their vectors side by side, so that similarities add up.

Two models that err in different ways find more than either. Owns what a text's lines mean: each is
a passage, and the text's vector is the mean of theirs. Knows no model.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from mq9.registry.embedder import Embedder

# Further lines are joined to the last one.
MAX_PASSAGES = 8


class Part(Embedder, Protocol):
    """An embedder that knows which texts are not for it."""

    def reads(self, text: str) -> bool:
        """Whether the text is of a language that it was trained on."""


class BlendedEmbedder:
    """Each part has its share of the similarity; what a part cannot read is left to the others."""

    def __init__(self, *parts: tuple[float, Part]) -> None:
        """Take embedders, each with its share."""
        self._parts = parts
        self.dimensions = sum(part.dimensions for _, part in parts)
        self.id = "+".join(f"{share:.2f}*{part.id}" for share, part in parts)

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One row of length 1 per text."""
        shares = np.array([self._shares(text) for text in texts]).reshape(-1, len(self._parts))
        passages = [passages_of(text) for text in texts]
        vectors = np.zeros((len(texts), self.dimensions), dtype=np.float32)
        start = 0
        for column, (_, part) in enumerate(self._parts):
            end = start + part.dimensions
            rows = np.flatnonzero(shares[:, column])
            if len(rows):
                means = mean_vectors(part, [passages[row] for row in rows])
                vectors[rows, start:end] = means * np.sqrt(shares[rows, column, None])
            start = end
        return vectors

    def _shares(self, text: str) -> list[float]:
        """What each part counts for a text; together 1."""
        shares = [share if part.reads(text) else 0.0 for share, part in self._parts]
        if not any(shares):
            shares = [share for share, _ in self._parts]
        return [share / sum(shares) for share in shares]


def mean_vectors(embedder: Embedder, texts: Sequence[Sequence[str]]) -> NDArray[np.float32]:
    """For each text, the mean of its passages' vectors, scaled to length 1."""
    starts = [0, *accumulate(map(len, texts))][:-1]
    flat = [passage for passages in texts for passage in passages]
    sums: NDArray[np.float32] = np.add.reduceat(embedder.embed(flat), starts, axis=0)
    sums /= np.linalg.norm(sums, axis=1, keepdims=True)
    return sums


def passages_of(text: str) -> list[str]:
    """The lines of a text that say something; at least one."""
    lines = [line for line in map(str.strip, text.splitlines()) if line] or [""]
    return [*lines[: MAX_PASSAGES - 1], " ".join(lines[MAX_PASSAGES - 1 :])][: len(lines)]
