"""Passwords and tokens: compared in constant time, bcrypt never on the event loop.

Owns the comparison of a stored secret with a given one. Knows nothing of users.
"""

import asyncio
import hashlib
import hmac
import secrets
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor

import bcrypt

_BCRYPT_PREFIXES = ("$2a$", "$2b$", "$2x$", "$2y$")
# As bcrypt itself: what follows has no influence on the hash.
_BCRYPT_BYTES = 72
_REMEMBERED = 10_000
_THREADS = 2


def is_bcrypt(stored: str) -> bool:
    """Whether the stored secret is a hash rather than the secret itself."""
    return stored.startswith(_BCRYPT_PREFIXES)


class Passwords:
    """Compares secrets and remembers which of them matched a hash.

    A storm of clients that come back would otherwise cost a hash each, some 50 ms of a core.
    """

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._good: OrderedDict[bytes, None] = OrderedDict()
        self._threads: ThreadPoolExecutor | None = None

    def compare(self, stored: str, given: str) -> bool | None:
        """The result, or None if it takes a hash: then `compare_hash` has it."""
        if not is_bcrypt(stored):
            return hmac.compare_digest(self._digest(stored), self._digest(given))
        pair = self._pair(stored, given)
        if pair not in self._good:
            return None
        self._good.move_to_end(pair)
        return True

    async def compare_hash(self, stored: str, given: str) -> bool:
        """Hash `given` in a thread, a bounded number at a time; cancelling gives up the place."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_THREADS, "bcrypt")
        loop = asyncio.get_running_loop()
        good = await loop.run_in_executor(self._threads, _check, stored, given)
        if good:
            self._good[self._pair(stored, given)] = None
            if len(self._good) > _REMEMBERED:
                self._good.popitem(last=False)
        return good

    def close(self) -> None:
        """Let go of the threads without waiting for them."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    def _digest(self, text: str) -> bytes:
        # Digests are of one length: not even the length of a secret shows in the time.
        return hashlib.blake2b(_bytes(text), key=self._key).digest()

    def _pair(self, stored: str, given: str) -> bytes:
        return self._digest(f"{stored}\0{given}")


def _check(stored: str, given: str) -> bool:
    try:
        return bcrypt.checkpw(_bytes(given)[:_BCRYPT_BYTES], stored.encode())
    except ValueError:
        return False


def _bytes(text: str) -> bytes:
    # JSON can escape half of a surrogate pair.
    return text.encode("utf-8", "surrogatepass")
