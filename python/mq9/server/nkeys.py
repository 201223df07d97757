"""NATS keys: ed25519 public keys written in base32 with a prefix and a checksum.

Owns their text form and the check of a signature. Knows nothing of users or connections.
"""

import base64
import binascii
import os

_USER = 20 << 3
_SERVER = 13 << 3
_NONCE_BYTES = 11


def server_id() -> str:
    """A new identity of a server: 56 characters that begin with N."""
    return _encode(_SERVER, os.urandom(32))


def nonce() -> str:
    """What a client has to sign to prove that it holds its key."""
    return base64.urlsafe_b64encode(os.urandom(_NONCE_BYTES)).rstrip(b"=").decode()


def user_key(text: str) -> bytes:
    """The 32 bytes of a user's public key; ValueError if it is not one."""
    try:
        raw = base64.b32decode(text + "=" * (-len(text) % 8))
    except binascii.Error as error:
        raise ValueError("a user's public nkey is 56 characters of base32") from error
    if len(raw) != 35 or raw[0] != _USER:
        raise ValueError("a user's public nkey is 56 characters of base32 and begins with U")
    if _crc16(raw[:-2]) != int.from_bytes(raw[-2:], "little"):
        raise ValueError("the checksum of the nkey is wrong")
    return raw[1:-2]


def signature_is_good(key: bytes, nonce: str, signature: str) -> bool:
    """Whether `signature`, in either alphabet of base64, is that of the nonce."""
    # Imported here: most servers have no nkeys.
    from nacl.exceptions import CryptoError
    from nacl.signing import VerifyKey

    try:
        VerifyKey(key).verify(nonce.encode(), _signature(signature))
    except (CryptoError, ValueError):
        return False
    return True


def _signature(text: str) -> bytes:
    padded = text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 4)
    return base64.b64decode(padded.replace("-", "+").replace("_", "/"), validate=True)


def _encode(prefix: int, key: bytes) -> str:
    body = bytes([prefix]) + key
    return base64.b32encode(body + _crc16(body).to_bytes(2, "little")).decode().rstrip("=")


def _crc16(data: bytes) -> int:
    return binascii.crc_hqx(data, 0)
