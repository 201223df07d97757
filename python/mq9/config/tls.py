"""The `tls` block.

Owns its settings and the check that the files can be used. The server makes its context from `Tls`.
"""

import ssl
from pathlib import Path

from mq9.config.errors import ConfigError, quoted
from mq9.config.options import Tls
from mq9.config.reading import (
    Fields,
    Notes,
    Setting,
    at,
    boolean,
    filled,
    guard,
    items,
    mismatch,
    parse_duration_ms,
    path,
    read_block,
    seconds,
)
from mq9.config.tree import Value

HANDSHAKE_FIRST_AUTO_MS = 50

_AES_MODES = {
    "AES_128_CBC_SHA": "AES128-SHA",
    "AES_256_CBC_SHA": "AES256-SHA",
    "AES_128_CBC_SHA256": "AES128-SHA256",
    "AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "CHACHA20_POLY1305_SHA256": "CHACHA20-POLY1305",
}
TLS13_CIPHER_SUITES = (
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
)
"""Always on with TLS 1.3: the TLS library does not let a server choose among them."""
OPENSSL_CIPHERS = {
    f"TLS_ECDHE_{key}_WITH_{iana}": f"ECDHE-{key}-{openssl}"
    for key in ("ECDSA", "RSA")
    for iana, openssl in _AES_MODES.items()
}
"""IANA's names of the suites of TLS 1.2 that may be chosen, with those of the TLS library."""


def read_tls(value: Value, notes: Notes) -> Tls:
    """The `tls` block; its files are opened to see that they can be used."""
    found = read_block(value, "tls", _SETTINGS, _IGNORED, notes).values
    for needed, other in (("cert_file", "key_file"), ("key_file", "cert_file")):
        if needed not in found:
            without = f"{other} without {needed}" if other in found else f"no {needed}"
            raise at(value.place, f"{without}: TLS needs a certificate and its key")
    tls = Tls(**found)
    try:
        check_files(tls)
    except ConfigError as error:
        raise at(value.place, str(error)) from None
    return tls


def check_files(tls: Tls) -> None:
    """Raise if the certificate, its key or the authorities cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    for file in (tls.cert_file, tls.key_file, tls.ca_file):
        if file is not None:
            _check_readable(file)
    try:
        # An encrypted key must fail here, not ask on the terminal.
        context.load_cert_chain(tls.cert_file, tls.key_file, password=_no_password)
    except (ssl.SSLError, ValueError) as error:
        raise ConfigError(
            f"{tls.cert_file} and {tls.key_file} are not a certificate and its key "
            f"in PEM form: {_reason(error)}"
        ) from None
    if tls.ca_file is not None:
        try:
            context.load_verify_locations(tls.ca_file)
        except ssl.SSLError as error:
            raise ConfigError(
                f"{tls.ca_file} holds no certificates in PEM form: {_reason(error)}"
            ) from None


def _no_password() -> str:
    raise ValueError("the key is encrypted, and mq9 takes no password for it")


def _reason(error: Exception) -> str:
    return getattr(error, "reason", None) or str(error)


def _check_readable(file: Path) -> None:
    try:
        with file.open("rb"):
            pass
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from None


def _handshake_first(value: Value, _notes: Notes) -> bool | int:
    if isinstance(value.data, bool):
        return value.data
    if not isinstance(value.data, str):
        raise mismatch(value, 'true, false, "auto" or a duration, a string')
    if value.data.lower() in {"auto", "on", "off", "true", "false"}:
        named = {"auto": HANDSHAKE_FIRST_AUTO_MS, "on": True, "true": True}
        return named.get(value.data.lower(), False)
    ms = parse_duration_ms(value.data)
    if ms is None or ms <= 0:
        raise at(value.place, 'expected true, false, "auto" or a duration such as "300ms"')
    return ms


def _min_version(value: Value, notes: Notes) -> str:
    if value.data not in ("1.2", "1.3"):
        raise at(value.place, 'expected "1.2" or "1.3", in quotes')
    return filled(value, notes)


def _cipher_suites(value: Value, notes: Notes) -> tuple[str, ...]:
    written = items(value, "cipher suites")
    if not written:
        raise at(value.place, "expected at least one cipher suite")
    for item in written:
        name = filled(item, notes)
        if name not in OPENSSL_CIPHERS and name not in TLS13_CIPHER_SUITES:
            known = ", ".join([*OPENSSL_CIPHERS, *TLS13_CIPHER_SUITES])
            raise at(item.place, f"unknown cipher suite {quoted(name)}; known are {known}")
    return tuple(filled(item, notes) for item in written)


def _certs(value: Value, notes: Notes) -> Fields:
    pairs = items(value, "certificates")
    if len(pairs) > 1:
        raise at(value.place, "mq9 shows one certificate; keep one of them")
    return read_block(pairs[0], "certs", _PAIR, {}, notes) if pairs else Fields()


_PAIR = {"cert_file": Setting("cert_file", path), "key_file": Setting("key_file", path)}
_SETTINGS = {
    **_PAIR,
    "ca_file": Setting("ca_file", path),
    "verify": Setting("verify", boolean),
    "verify_and_map": Setting("verify_and_map", boolean),
    "timeout": Setting("timeout_ms", seconds),
    **dict.fromkeys(
        ("handshake_first", "first", "immediate"), Setting("handshake_first", _handshake_first)
    ),
    "min_version": Setting("min_version", _min_version),
    "cipher_suites": Setting("cipher_suites", _cipher_suites),
    **dict.fromkeys(("certs", "certificates"), Setting("", _certs)),
    "pinned_certs": guard("mq9 does not pin certificates"),
    "ocsp_peer": guard("mq9 does not ask whether a client's certificate was revoked"),
    **dict.fromkeys(
        ("cert_store", "cert_match", "cert_match_by"),
        guard("mq9 reads certificates from files only"),
    ),
}
_IGNORED = {
    "insecure": "it is for servers that connect to others",
    "curve_preferences": "the TLS library chooses",
    "connection_rate_limit": "mq9 does not limit the rate of handshakes",
    "allow_insecure_cipher_suites": "insecure cipher suites are not available",
    "cert_match_skip_invalid": "mq9 reads certificates from files only",
    "ca_certs_match": "mq9 reads certificates from files only",
}
