"""Tokens of mailboxes: who has one shows that the mailbox was given to them.

A token is derived from the mailbox and a secret of the data directory, so it needs no storage and
stays the same after a restart.
"""

import hashlib
import hmac
import os
import secrets
from pathlib import Path

_NAME = "token.secret"
_BYTES = 32
_SHOWN = 32


class Tokens:
    """Makes the tokens of a data directory."""

    def __init__(self, folder: Path) -> None:
        """Read the secret, or make one that is on the disk before the first token is given out."""
        file = folder / _NAME
        try:
            self._secret = file.read_bytes()
        except FileNotFoundError:
            self._secret = _make(file)
        if len(self._secret) != _BYTES:
            raise OSError(
                None,
                f"it has {len(self._secret)} bytes and should have {_BYTES}; if it cannot be "
                "restored, delete it: tokens given out so far lose their value",
                str(file),
            )

    def of(self, address: str, created_ms: int) -> str:
        """The token of a mailbox; another one if it is created again under the same address."""
        message = f"{address}\n{created_ms}".encode()
        return "tok-" + hmac.new(self._secret, message, hashlib.sha256).hexdigest()[:_SHOWN]


def _make(file: Path) -> bytes:
    secret = secrets.token_bytes(_BYTES)
    new = file.with_suffix(".tmp")
    new.unlink(missing_ok=True)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as out:
        out.write(secret)
        out.flush()
        os.fsync(out.fileno())
    new.rename(file)
    folder = os.open(file.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return secret
