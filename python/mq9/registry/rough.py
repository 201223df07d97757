"""Preselects vectors that may be nearest: compares a byte per number, a quarter of the memory.
None is left out that could be one of them.

A vector is a row of whole numbers times a scale, and something that was rounded away. How long that
is tells how far a product may be off. Knows nothing of cards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mq9._core import Codes

if TYPE_CHECKING:
    from numpy.typing import NDArray

_FIRST_ROWS = 1024
_MOST = 127
# The products of a query and a row must not exceed 32 bits.
_MOST_IN_ALL = (1 << 24) - 1
_MOST_OF_QUERY = (1 << 15) - 1
# Each step of a product in single precision may round by half as much.
_ROUNDING = 2.0**-23


class Rough:
    """Vectors as rows of bytes, without gaps; the last one takes the place of one removed."""

    def __init__(self, dimensions: int) -> None:
        self._dimensions = dimensions
        self._codes = Codes(dimensions)
        self._steps = min(_MOST_OF_QUERY, _MOST_IN_ALL // dimensions)
        # Of each row: its scale, the length of what was rounded away, and its length.
        self._columns = np.empty((3, _FIRST_ROWS), np.float32)

    def add(self, vector: NDArray[np.float32]) -> None:
        """Add a row."""
        row = len(self._codes)
        if row == self._columns.shape[1]:
            self._columns = np.concatenate([self._columns, np.empty_like(self._columns)], axis=1)
        scale = np.float32(np.abs(vector).max() / _MOST) or np.float32(1)
        codes = np.rint(vector / scale)
        lost = vector - codes * scale
        self._codes.append(codes.astype(np.int8).tobytes())
        self._columns[:, row] = scale, _length(lost), _length(vector)

    def remove(self, row: int) -> None:
        """Remove a row."""
        self._codes.remove(row)
        self._columns[:, row] = self._columns[:, len(self._codes)]

    def may_be_nearest(
        self, vector: NDArray[np.float32], count: int, rows: NDArray[np.intp] | None = None
    ) -> NDArray[np.intp]:
        """The rows of which `count` are the nearest; only some of all, if they are given."""
        scale = np.float32(np.abs(vector).max() / self._steps) or np.float32(1)
        codes = np.rint(vector / scale)
        products = np.frombuffer(self._codes.products(codes.astype(np.int16).tobytes()), np.int32)
        scales, lost, lengths = self._columns[:, : len(products)]
        nearness = products * (scales * scale)
        # What either side has lost, times the other side. Rounding in single precision, here and
        # where the products are computed in full, is far less than twice its bound for one product.
        length = _length(vector)
        rounding = 2 * _ROUNDING * self._dimensions * length
        doubt = lost * length + (lengths + lost) * (_length(vector - codes * scale) + rounding)
        if rows is not None:
            nearness, doubt = nearness[rows], doubt[rows]
        if len(nearness) > count:
            least = np.partition(nearness - doubt, -count)[-count]
            near = np.flatnonzero(nearness + doubt >= least)
            rows = near if rows is None else rows[near]
        return np.arange(len(nearness)) if rows is None else rows


def _length(vector: NDArray[np.float32]) -> float:
    return float(np.sqrt(np.dot(vector, vector)))
