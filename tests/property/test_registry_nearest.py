"""The nearest vectors are those of a full comparison, whatever was rounded on the way to them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from mq9._core import Codes
from mq9.registry.rough import Rough
from mq9.registry.vectors import Vectors

SIZES = st.integers(0, 400)
DIMENSIONS = st.integers(1, 130)


def draw(seed: int, size: int, dimensions: int, kind: str) -> NDArray[np.float32]:
    """Rows of some kind, and a last one to compare them with."""
    chance = np.random.default_rng(seed)
    rows = chance.standard_normal((size + 1, dimensions))
    if kind == "close":
        rows = rows[-1] + rows * 1e-3
    elif kind == "twins":
        rows = rows[chance.integers(0, 1 + size // 10, size + 1)]
    elif kind == "sparse":
        rows *= chance.random(rows.shape) < 0.1
    elif kind == "uneven":
        rows *= np.exp(5 * chance.standard_normal(rows.shape))
    # As they come from the file, and not all of one length.
    return rows.astype(np.float16 if kind != "uneven" else np.float32).astype(np.float32)


def in_order(
    rows: NDArray[np.float32], query: NDArray[np.float32], numbers: NDArray[np.int64]
) -> list[int]:
    scores = np.einsum("ij,j->i", rows[numbers], query)
    return [int(number) for number in numbers[np.lexsort((numbers, -scores))]]


@settings(deadline=None)
@given(
    st.integers(0, 2**32),
    SIZES,
    DIMENSIONS,
    st.sampled_from(["plain", "close", "twins", "sparse", "uneven"]),
    st.integers(1, 50),
    st.sampled_from([None, 2, 9]),
)
def test_the_nearest_are_those_of_a_full_comparison(
    seed: int, size: int, dimensions: int, kind: str, count: int, one_in: int | None
) -> None:
    *some, query = draw(seed, size, dimensions, kind)
    rows = np.array(some, np.float32).reshape(size, dimensions)
    vectors = Vectors(dimensions)
    for number, row in enumerate(rows):
        vectors.add(number, row, number)
    for number in range(0, size, 3):
        vectors.remove(number)
    kept = np.array([n for n in range(size) if n % 3], np.int64)
    among = None if one_in is None else range(0, size, one_in)
    if one_in is not None:
        kept = kept[kept % one_in == 0]
    expected = in_order(rows, query, kept)
    assert vectors.nearest(query, count, among=among) == expected[:count]
    # A longer list begins with the shorter one: pages fit each other.
    assert vectors.nearest(query, 2 * count, among=among)[:count] == expected[:count]


def test_few_rows_are_left_to_compare_in_full() -> None:
    rows = draw(1, 20_000, 256, "plain")
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    rough = Rough(256)
    for row in rows[:-1]:
        rough.add(row)
    assert 100 <= len(rough.may_be_nearest(rows[-1], 100)) < 1000


def test_codes_are_multiplied_and_the_last_takes_the_place_of_one_removed() -> None:
    chance = np.random.default_rng(2)
    rows = chance.integers(-128, 128, (50, 77), np.int8)
    query = chance.integers(-1000, 1000, 77, np.int16)
    codes = Codes(77)
    for row in rows:
        codes.append(row.tobytes())
    expected = rows.astype(np.int32) @ query.astype(np.int32)
    assert codes.products(query.tobytes()) == expected.tobytes()
    codes.remove(3)
    codes.remove(48)
    expected[3] = expected[49]
    assert codes.products(query.tobytes()) == expected[:48].tobytes()
    assert len(codes) == 48


def test_codes_of_a_wrong_length_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one dimension"):
        Codes(0)
    codes = Codes(3)
    with pytest.raises(ValueError, match="a row of 2 numbers: it must have 3"):
        codes.append(b"12")
    with pytest.raises(IndexError, match="row 0 of 0"):
        codes.remove(0)
    with pytest.raises(ValueError, match="a query of 2 numbers: it must have 3"):
        codes.products(np.zeros(2, np.int16).tobytes())
    with pytest.raises(ValueError, match="overflow"):
        Codes(1000).products(np.full(1000, 32767, np.int16).tobytes())
