"""A small BERT, computed with numpy: tokens in, the mean of their last layer out.

Texts of a batch stand behind each other in one matrix, without padding, so that each weight is
read once per batch. Knows weights by name, neither files nor words.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float32]

HEADS = 12
EPSILON = 1e-12
# Enough for the weights to be read rarely, little enough to stay in the cache.
TOKENS_PER_BATCH = 512
# A product of so many rows, or a multiple, takes up to a third less time than one of fewer.
ROWS_AT_ONCE = 4


class Layer:
    """Attention, then two dense steps, each with a residual and a norm behind it."""

    def __init__(self, weights: Mapping[str, Matrix], prefix: str) -> None:
        """Take the weights of one layer."""
        parts = [f"{prefix}.attention.self.{part}" for part in ("query", "key", "value")]
        self._projection = np.hstack([weights[f"{part}.weight"] for part in parts])
        self._projection_bias = np.hstack([weights[f"{part}.bias"] for part in parts])
        scale = np.float32(1 / np.sqrt(self._projection.shape[0] / HEADS))
        width = self._projection.shape[0]
        # Scaled here once instead of in every product of queries and keys.
        self._projection[:, :width] *= scale
        self._projection_bias[:width] *= scale
        names = ("attention.output.dense", "intermediate.dense", "output.dense")
        self._mix, self._widen, self._narrow = (
            (weights[f"{prefix}.{name}.weight"], weights[f"{prefix}.{name}.bias"]) for name in names
        )
        self._norms = [
            (weights[f"{prefix}.{name}.weight"], weights[f"{prefix}.{name}.bias"])
            for name in ("attention.output.LayerNorm", "output.LayerNorm")
        ]

    def forward(self, states: Matrix, starts: Sequence[int]) -> Matrix:
        """The states behind this layer; `starts` has the first row of each text, and the end."""
        projected = states @ self._projection
        projected += self._projection_bias
        mixed = np.zeros_like(states)
        for start, end in pairwise(starts):
            mixed[start:end] = attention(projected[start:end])
        states = normed(dense(mixed, self._mix) + states, self._norms[0])
        wide = gelu(dense(states, self._widen))
        return normed(dense(wide, self._narrow) + states, self._norms[1])


class Bert:
    """Turns lists of token ids into one vector each."""

    def __init__(self, weights: Mapping[str, Matrix], prefix: str) -> None:
        """Take the weights of the whole model."""
        embeddings = f"{prefix}.embeddings"
        self._words = weights[f"{embeddings}.word_embeddings.weight"]
        self._places = (
            weights[f"{embeddings}.position_embeddings.weight"]
            + weights[f"{embeddings}.token_type_embeddings.weight"][0]
        )
        self._norm = (
            weights[f"{embeddings}.LayerNorm.weight"],
            weights[f"{embeddings}.LayerNorm.bias"],
        )
        self._layers: list[Layer] = []
        while f"{prefix}.encoder.layer.{len(self._layers)}.output.dense.bias" in weights:
            self._layers.append(Layer(weights, f"{prefix}.encoder.layer.{len(self._layers)}"))

    def embed(self, texts: Sequence[Sequence[int]]) -> Matrix:
        """The mean over each text's tokens, as a row of length 1."""
        rows = []
        batch: list[Sequence[int]] = []
        for tokens in texts:
            if batch and sum(map(len, batch)) + len(tokens) > TOKENS_PER_BATCH:
                rows.append(self._embed_batch(batch))
                batch = []
            batch.append(tokens)
        if batch:
            rows.append(self._embed_batch(batch))
        return np.vstack(rows)

    def _embed_batch(self, texts: Sequence[Sequence[int]]) -> Matrix:
        starts = [0, *np.cumsum([len(tokens) for tokens in texts]).tolist()]
        # Nothing comes of the rows behind the last text.
        spare = np.zeros(-starts[-1] % ROWS_AT_ONCE, int)
        ids = np.concatenate([*texts, spare])
        places = np.concatenate([*(np.arange(len(tokens)) for tokens in texts), spare])
        states = normed(self._words[ids] + self._places[places], self._norm)
        for layer in self._layers:
            states = layer.forward(states, starts)
        sums: Matrix = np.add.reduceat(states[: starts[-1]], starts[:-1], axis=0)
        sums /= np.linalg.norm(sums, axis=1, keepdims=True)
        return sums


def attention(projected: Matrix) -> Matrix:
    """What the tokens of one text take from each other, given queries, keys and values."""
    tokens = projected.shape[0]
    queries, keys, values = projected.reshape(tokens, 3, HEADS, -1).transpose(1, 2, 0, 3)
    scores: Matrix = queries @ keys.transpose(0, 2, 1)
    scores -= scores.max(axis=2, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=2, keepdims=True)
    mixed: Matrix = (scores @ values).transpose(1, 0, 2).reshape(tokens, -1)
    return mixed


def dense(states: Matrix, weights: tuple[Matrix, Matrix]) -> Matrix:
    """A product and a bias."""
    product: Matrix = states @ weights[0]
    product += weights[1]
    return product


def normed(states: Matrix, weights: tuple[Matrix, Matrix]) -> Matrix:
    """Each row with mean 0 and variance 1, then scaled and shifted; changes `states`."""
    states -= states.mean(axis=1, keepdims=True)
    variance = np.einsum("ij,ij->i", states, states) / np.float32(states.shape[1])
    states *= np.reciprocal(np.sqrt(variance + np.float32(EPSILON)))[:, None]
    states *= weights[0]
    states += weights[1]
    return states


def gelu(states: Matrix) -> Matrix:
    """The activation between the dense steps; numpy has no erf, so by a formula good to 1e-7."""
    size = np.abs(states)
    size *= np.float32(np.sqrt(0.5))
    falling = np.reciprocal(np.float32(0.3275911) * size + np.float32(1))
    series = np.full_like(falling, 1.061405429)
    for factor in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
        series *= falling
        series += np.float32(factor)
    series *= falling
    np.multiply(size, size, out=size)
    np.negative(size, out=size)
    np.exp(size, out=size)
    series *= size
    # `series` is 1 - erf(|x| / sqrt 2): half of it is what is missing from 1, or all of it below 0.
    series *= np.float32(0.5)
    share: Matrix = np.where(states >= 0, np.float32(1) - series, series)
    share *= states
    return share
