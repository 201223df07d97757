"""Names of a million things: in order, and by what is in them.

Owns two indexes that change with each name that comes or goes, at a cost that does not grow with
how many there are. Places are small numbers; the owner of the things chooses them.
"""

from bisect import bisect_left, bisect_right

import numpy as np
import numpy.typing as npt

Places = npt.NDArray[np.int64]

_CHUNK = 1024
_BLOCK = 4096
_NONE: Places = np.zeros(0, np.int64)


class Order:
    """Names from a to z, each once: in chunks, so that one more moves a few of them."""

    def __init__(self) -> None:
        self._firsts: list[str] = []
        self._names: list[list[str]] = []
        self._places: list[list[int]] = []
        self._arrays: list[Places | None] = []

    def add(self, name: str, place: int) -> None:
        """A name that was not there."""
        if not self._names:
            self._insert(0, [name], [place])
            return
        at = max(bisect_right(self._firsts, name) - 1, 0)
        names, places = self._names[at], self._places[at]
        inside = bisect_left(names, name)
        names.insert(inside, name)
        places.insert(inside, place)
        self._firsts[at], self._arrays[at] = names[0], None
        if len(names) > 2 * _CHUNK:
            self._insert(at + 1, names[_CHUNK:], places[_CHUNK:])
            del names[_CHUNK:], places[_CHUNK:]

    def _insert(self, at: int, names: list[str], places: list[int]) -> None:
        self._firsts.insert(at, names[0])
        self._names.insert(at, names)
        self._places.insert(at, places)
        self._arrays.insert(at, None)

    def remove(self, name: str) -> None:
        """A name that was there is gone."""
        at = max(bisect_right(self._firsts, name) - 1, 0)
        names = self._names[at] if self._names else []
        inside = bisect_left(names, name)
        if inside == len(names) or names[inside] != name:
            raise KeyError(name)
        del names[inside], self._places[at][inside]
        self._arrays[at] = None
        if names:
            self._firsts[at] = names[0]
        else:
            for each in (self._firsts, self._names, self._places, self._arrays):
                del each[at]

    def part(
        self, offset: int, limit: int, *, reverse: bool = False, among: npt.NDArray[np.bool_] | None
    ) -> list[int]:
        """Places of so many names from the one with this number on; `among` says by place which
        are counted, if not all are."""
        found: list[int] = []
        step = -1 if reverse else 1
        for at in range(len(self._names))[::step]:
            if among is None:
                if offset >= len(self._names[at]):
                    offset -= len(self._names[at])
                    continue
                places: list[int] = self._places[at][::step]
            else:
                array = self._array(at)
                chosen = array[among[array]]
                if offset >= len(chosen):
                    offset -= len(chosen)
                    continue
                places = chosen[::step].tolist()
            found += places[offset : offset + limit - len(found)]
            offset = 0
            if len(found) >= limit:
                break
        return found

    def _array(self, at: int) -> Places:
        array = self._arrays[at]
        if array is None:
            array = self._arrays[at] = np.array(self._places[at], np.int64)
        return array

    def rank(self, name: str) -> int:
        """How many names come before this one, be it there or not."""
        at = max(bisect_left(self._firsts, name) - 1, 0)
        before = sum(map(len, self._names[:at]))
        return before + (bisect_left(self._names[at], name) if self._names else 0)


class Texts:
    """Which names have something in them: names lie in blocks, each read through in one go."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._blocks: list[tuple[bytes, Places] | None] = []

    def set(self, place: int, text: str) -> None:
        """A place has this name from now on; an empty one if nothing is there."""
        block = place // _BLOCK
        if block >= len(self._blocks):
            self._blocks += [None] * (block + 1 - len(self._blocks))
            self._names += [""] * (_BLOCK * len(self._blocks) - len(self._names))
        self._names[place] = text.lower().replace("\n", "")
        self._blocks[block] = None

    def find(self, wanted: str) -> Places:
        """Places with this in their names, whatever the case."""
        text = wanted.lower().encode("utf-8", "replace")
        if b"\n" in text:
            return _NONE
        found = [self._hits(block, text) for block in range(len(self._blocks))]
        return np.concatenate(found) if found else _NONE

    def _hits(self, number: int, wanted: bytes) -> Places:
        block = self._blocks[number]
        if block is None:
            first = number * _BLOCK
            names = self._names[first : first + _BLOCK]
            encoded = [name.encode("utf-8", "replace") for name in names]
            lengths = np.fromiter(map(len, encoded), np.int64, len(encoded)) + 1
            starts = np.cumsum(lengths) - lengths
            block = self._blocks[number] = b"\n".join([*encoded, b""]), starts
        text, starts = block
        if wanted not in text:
            return _NONE
        if wanted:
            # No text has this byte; one pass, however many names have what is wanted.
            text = text.replace(wanted, b"\xff" * len(wanted))
            is_hit = np.logical_or.reduceat(np.frombuffer(text, np.uint8) == 0xFF, starts)
        else:
            is_hit = np.ones(len(starts), bool)
        return is_hit.nonzero()[0] + number * _BLOCK


def top(values: npt.NDArray[np.generic], offset: int, limit: int, *, smallest: bool) -> Places:
    """Indexes of the values from place `offset` on, in order: sorts no more than it has to."""
    ranked = values if smallest else -values.astype(np.float64)
    last = min(offset + limit, len(ranked))
    if last <= 0 or offset >= len(ranked):
        return _NONE
    if last < len(ranked):
        first = np.argpartition(ranked, last - 1)[:last]
        # Those that are equal to the last one come in the order of their places.
        edge = ranked[first].max()
        below = np.flatnonzero(ranked < edge)
        equal = np.flatnonzero(ranked == edge)[: last - len(below)]
        first = np.concatenate([below, equal])
    else:
        first = np.arange(len(ranked))
    order = np.argsort(ranked[first], kind="stable")
    return first[order][offset:last]
