"""Finds the cards nearest to a vector: compares with all of them, which is exact.

Up to a hundred thousand or so they are first compared in a byte per number, and then those that may
be among the nearest in full; above that they are kept in half precision, which usearch compares
quickly where it is installed. Knows nothing of texts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mq9.registry.rough import Rough

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

MANY = 100_000
"""From here on vectors are kept in half precision."""
_FIRST_ROWS = 1024
# Less than one row in so many is few.
_FEW = 8
_BLOCK = 1 << 16
_COPIED = 128


class Vectors:
    """A row for each card that has a vector, without gaps."""

    def __init__(self, dimensions: int, many: int = MANY) -> None:
        self._many = many
        self._dimensions = dimensions
        self._matrix: NDArray[Any] = np.empty((_FIRST_ROWS, dimensions), np.float32)
        self._numbers = np.empty(_FIRST_ROWS, np.int64)
        self._alive_until_ms = np.empty(_FIRST_ROWS, np.int64)
        self._rows: dict[int, int] = {}
        # Not above `many`.
        self._rough: Rough | None = Rough(dimensions)

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, number: int) -> bool:
        return number in self._rows

    def add(self, number: int, vector: NDArray[np.float32], alive_until_ms: int) -> None:
        """A card that is not there yet."""
        row = len(self._rows)
        if row == len(self._matrix):
            self._grow()
        self._matrix[row] = vector
        self._numbers[row] = number
        self._alive_until_ms[row] = alive_until_ms
        self._rows[number] = row
        if self._rough is not None:
            self._rough.add(self._matrix[row])

    def remove(self, number: int) -> None:
        """A card is gone; the last one takes its row."""
        row = self._rows.pop(number, None)
        if row is None:
            return
        last = len(self._rows)
        if self._rough is not None:
            self._rough.remove(row)
        if row != last:
            for column in (self._matrix, self._numbers, self._alive_until_ms):
                column[row] = column[last]
            self._rows[int(self._numbers[row])] = row

    def seen(self, number: int, alive_until_ms: int) -> None:
        """A card is alive for longer."""
        if (row := self._rows.get(number)) is not None:
            self._alive_until_ms[row] = alive_until_ms

    def nearest(
        self,
        vector: NDArray[np.float32],
        count: int,
        *,
        among: Iterable[int] | None = None,
        alive_at_ms: int | None = None,
    ) -> list[int]:
        """The nearest cards, best first; of those as near, the older ones first."""
        size = len(self._rows)
        rows: NDArray[np.intp] | None = None
        if among is not None:
            known = (self._rows[number] for number in among if number in self._rows)
            rows = np.fromiter(known, np.intp)
        if alive_at_ms is not None:
            alive = self._alive_until_ms[:size] > alive_at_ms
            rows = np.flatnonzero(alive) if rows is None else rows[alive[rows]]
        if self._rough is None:
            return self._nearest_of_many(vector, size, rows, count)
        if rows is None or len(rows) >= size // _FEW:
            rows = self._rough.may_be_nearest(vector, count, rows)
        return _best(self._numbers[rows], self._scores(vector, rows), count)

    def _scores(self, vector: NDArray[np.float32], rows: NDArray[np.intp]) -> NDArray[np.float32]:
        scores = np.empty(len(rows), np.float32)
        # A few at a time, so that what was copied is still in the cache when it is multiplied.
        for start in range(0, len(rows), _COPIED):
            some = slice(start, start + _COPIED)
            # Row by row, unlike a product: cards of one text are as near, wherever they stand.
            np.einsum("ij,j->i", self._matrix[rows[some]], vector, out=scores[some])
        return scores

    def _nearest_of_many(
        self,
        vector: NDArray[np.float32],
        size: int,
        rows: NDArray[np.intp] | None,
        count: int,
    ) -> list[int]:
        numbers: list[NDArray[np.int64]] = []
        scores: list[NDArray[np.float32]] = []
        # Block by block, so that no more than one is ever copied.
        for start in range(0, size if rows is None else len(rows), _BLOCK):
            block = (
                slice(start, min(start + _BLOCK, size)) if rows is None else rows[start:][:_BLOCK]
            )
            near, near_scores = _compared(self._matrix[block], vector, count)
            numbers.append(self._numbers[block][near])
            scores.append(near_scores)
        if not numbers:
            return []
        return _best(np.concatenate(numbers), np.concatenate(scores), count)

    def _grow(self) -> None:
        rows = 2 * len(self._matrix)
        kind = np.float32 if rows <= 2 * self._many else np.float16
        matrix = np.empty((rows, self._dimensions), kind)
        matrix[: len(self._matrix)] = self._matrix
        self._matrix = matrix
        if kind == np.float16:
            self._rough = None
        self._numbers = np.resize(self._numbers, rows)
        self._alive_until_ms = np.resize(self._alive_until_ms, rows)


def _compared(
    matrix: NDArray[np.float16], vector: NDArray[np.float32], count: int
) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
    """The nearest rows of a block in half precision, and how near they are."""
    try:
        from usearch.compiled import MetricKind
        from usearch.index import search
    except ImportError:
        return np.arange(len(matrix)), matrix.astype(np.float32) @ vector
    half = vector.astype(np.float16)
    near = search(matrix, half, min(count, len(matrix)), MetricKind.IP, exact=True, threads=1)
    return near.keys.astype(np.intp), -near.distances


def _best(numbers: NDArray[np.int64], scores: NDArray[np.float32], count: int) -> list[int]:
    if len(scores) > count:
        # All that are as near as the last one, so that its place is not left to chance.
        least = np.partition(scores, len(scores) - count)[len(scores) - count]
        best = np.flatnonzero(scores >= least)
        numbers, scores = numbers[best], scores[best]
    order = np.lexsort((numbers, -scores))[:count]
    return [int(number) for number in numbers[order]]
