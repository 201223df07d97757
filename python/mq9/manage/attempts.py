"""Limits how often passwords are tried.

Owns counts of attempts by address, and by address and user: behind a proxy all clients have one
address, and one who guesses must not keep out those who have come from there before.
"""

import time
from collections import deque

_WINDOW_S = 60.0
_OF_USER = 10
_OF_ADDRESS = 100
_MAX_KEYS = 1000

Key = tuple[str, ...]


class Attempts:
    """Attempts of the last minute that failed, or have not ended yet."""

    def __init__(self) -> None:
        self._by_key: dict[Key, deque[float]] = {}
        self._known: dict[Key, None] = {}
        """Those who were let in, the latest last: guesses at others' passwords are not theirs."""

    def begin(self, address: str, user: str) -> float | None:
        """Note an attempt before it is made; None if it must not be made."""
        now = time.monotonic()
        keys = _keys(address, user)
        if (address, user) in self._known:
            keys = keys[:1]
        for key, most in keys:
            found = self._by_key.get(key, ())
            if sum(now - at < _WINDOW_S for at in found) >= most:
                return None
        for key, most in keys:
            self._by_key.setdefault(key, deque(maxlen=most)).append(now)
        if len(self._by_key) > _MAX_KEYS:
            self._forget(now)
        return now

    def note_known(self, address: str, user: str) -> None:
        """This user was let in."""
        self._known.pop((address, user), None)
        self._known[address, user] = None
        if len(self._known) > _MAX_KEYS:
            del self._known[next(iter(self._known))]

    def forgive(self, address: str, user: str, began: float) -> None:
        """The attempt did not fail."""
        for key, _ in _keys(address, user):
            found = self._by_key.get(key)
            if found is not None and began in found:
                found.remove(began)

    def _forget(self, now: float) -> None:
        """Keys without recent attempts go; of too many, those used longest ago."""
        recent = {key: at for key, at in self._by_key.items() if at and now - at[-1] < _WINDOW_S}
        kept = sorted(recent.items(), key=lambda item: item[1][-1])[-_MAX_KEYS // 2 :]
        self._by_key = dict(kept)


def _keys(address: str, user: str) -> tuple[tuple[Key, int], ...]:
    """What an attempt counts for, and how often it may: the user first."""
    return ((address, user), _OF_USER), ((address,), _OF_ADDRESS)
