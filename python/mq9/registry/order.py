"""Agents in the order of their cards' numbers, any part of it found without going through the rest.

Knows of an agent only its number.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import islice
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator


class Numbered(Protocol):
    """What has a number."""

    @property
    def number(self) -> int: ...


Item = TypeVar("Item", bound=Numbered)

_CHUNK = 1024


def _number(item: Numbered) -> int:
    return item.number


class Order(Generic[Item]):
    """Items sorted by number, in short lists: adding and removing move few of them."""

    def __init__(self) -> None:
        self._chunks: list[list[Item]] = []
        # The first number of each chunk.
        self._heads: list[int] = []
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, item: Item) -> None:
        """Most often the last one; its number must be new."""
        self._size += 1
        at = bisect_right(self._heads, item.number) - 1
        if at < 0:
            self._chunks.insert(0, [item])
            self._heads.insert(0, item.number)
            return
        chunk = self._chunks[at]
        if chunk[-1].number < item.number:
            if len(chunk) >= _CHUNK:
                self._chunks.insert(at + 1, [item])
                self._heads.insert(at + 1, item.number)
            else:
                chunk.append(item)
            return
        chunk.insert(bisect_left(chunk, item.number, key=_number), item)
        if len(chunk) > 2 * _CHUNK:
            half = chunk[_CHUNK:]
            del chunk[_CHUNK:]
            self._chunks.insert(at + 1, half)
            self._heads.insert(at + 1, half[0].number)

    def remove(self, number: int) -> None:
        """Take out the item of this number, which must be there."""
        at = bisect_right(self._heads, number) - 1
        chunk = self._chunks[at]
        del chunk[bisect_left(chunk, number, key=_number)]
        self._size -= 1
        if not chunk:
            del self._chunks[at]
            del self._heads[at]

    def find(self, number: int) -> Item | None:
        """The item of this number."""
        found = next(self.behind(number - 1), None)
        return found if found is not None and found.number == number else None

    def behind(self, number: int) -> Iterator[Item]:
        """All with a greater number, while nothing is changed."""
        at = max(bisect_right(self._heads, number) - 1, 0)
        if at < len(self._chunks):
            chunk = self._chunks[at]
            yield from islice(chunk, bisect_right(chunk, number, key=_number), None)
            for chunk in islice(self._chunks, at + 1, None):
                yield from chunk

    def count_behind(self, number: int) -> int:
        """How many have a greater number."""
        at = max(bisect_right(self._heads, number) - 1, 0)
        if at >= len(self._chunks):
            return 0
        chunk = self._chunks[at]
        rest = sum(map(len, islice(self._chunks, at + 1, None)))
        return len(chunk) - bisect_right(chunk, number, key=_number) + rest

    def part(self, first: int, count: int) -> list[Item]:
        """So many from this place on, counted from 0."""
        found: list[Item] = []
        for chunk in self._chunks:
            if first >= len(chunk):
                first -= len(chunk)
                continue
            found += chunk[first : first + count - len(found)]
            first = 0
            if len(found) >= count:
                break
        return found

    @property
    def last(self) -> int:
        """The greatest number; -1 if there is none."""
        return self._chunks[-1][-1].number if self._chunks else -1
