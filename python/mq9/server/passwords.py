"""Passwords and tokens: compared in constant time, bcrypt never on the event loop.

Owns the comparison of a stored secret with a given one. Knows nothing of users but their names.
"""

import hashlib
import hmac
import os
from collections import OrderedDict
from functools import partial

from mq9.server.hash_queue import HashQueue

_BCRYPT_PREFIXES = ("$2a$", "$2b$", "$2x$", "$2y$")
# As bcrypt itself: what follows has no influence on the hash.
_BCRYPT_BYTES = 72
_SALT = "." * 22
_REMEMBERED = 10_000


def is_bcrypt(stored: str) -> bool:
    """Whether the stored secret is a hash rather than the secret itself."""
    return stored.startswith(_BCRYPT_PREFIXES)


def bcrypt_cost(stored: str) -> int | None:
    """The binary logarithm of the work that a hash takes; None if it is none, or broken."""
    cost = stored[4:6]
    return int(cost) if is_bcrypt(stored) and cost.isascii() and cost.isdigit() else None


def unmatched(cost: int) -> str:
    """A hash of this cost that no password has."""
    return f"$2b${cost:02}${_SALT}{'.' * 31}"


class Passwords:
    """Compares secrets and remembers which of them matched a hash, and which did not.

    A storm of clients that come back would otherwise cost a hash each, some 100 ms of a core.
    """

    def __init__(self) -> None:
        self._key = os.urandom(32)
        self._good: OrderedDict[bytes, None] = OrderedDict()
        self._bad: OrderedDict[bytes, None] = OrderedDict()
        self._queue = HashQueue()
        self.own = os.urandom(32).hex()
        """The password of the processes that the server itself starts."""

    def compare(self, stored: str, given: str) -> bool | None:
        """The result, or None if it takes a hash: then `compare_hash` has it."""
        if not is_bcrypt(stored):
            return hmac.compare_digest(self._digest(stored), self._digest(given))
        return True if _recall(self._good, self._digest(f"{stored}\0{given}")) else None

    async def compare_hash(
        self,
        stored: str,
        given: str,
        *,
        cost: int,
        user: str = "",
        address: str = "",
        known: bool = True,
    ) -> bool:
        """Hash `given` in a thread; if it does not match, that takes the work of `cost`.

        Clients of other addresses, other users, and users that are not `known` take turns:
        CrowdedError if there are too many of this address. Cancelling gives up the place.
        """
        good = self._digest(f"{stored}\0{given}")
        # Who a wrong password was given for must not make a difference: unknown users share a hash.
        bad = self._digest(f"{stored}\0{given}\0{user}")
        if _recall(self._bad, bad):
            return False
        work = partial(_check, stored, given, cost)
        matched = await self._queue.run(address, user, bad, work, known=known)
        _remember(*((self._good, good) if matched else (self._bad, bad)))
        return matched

    def close(self) -> None:
        """Let go of the threads without waiting for them."""
        self._queue.close()

    def _digest(self, text: str) -> bytes:
        # Digests are of one length: not even the length of a secret shows in the time.
        return hashlib.blake2b(_bytes(text), key=self._key).digest()


def _recall(memory: OrderedDict[bytes, None], digest: bytes) -> bool:
    if digest not in memory:
        return False
    memory.move_to_end(digest)
    return True


def _remember(memory: OrderedDict[bytes, None], digest: bytes) -> None:
    memory[digest] = None
    if len(memory) > _REMEMBERED:
        memory.popitem(last=False)


def _check(stored: str, given: str, cost: int) -> bool:
    # Imported here: most servers have no hashes.
    import bcrypt

    password = _bytes(given)[:_BCRYPT_BYTES]
    done = bcrypt_cost(stored)
    try:
        if bcrypt.checkpw(password, stored.encode()):
            return True
    except ValueError:
        done = None
    # Hashes of costs c to n-1 take as much work as one of cost n less one of cost c.
    rest = [cost] if done is None else range(done, cost)
    for each in rest:
        bcrypt.hashpw(password, f"$2b${each:02}${_SALT}".encode())
    return False


def _bytes(text: str) -> bytes:
    # JSON can escape half of a surrogate pair.
    return text.encode("utf-8", "surrogatepass")
