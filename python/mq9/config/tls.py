"""The `tls` block.

Owns its settings and the check that they can be used: the core knows which files and suites are.
"""

from mq9._core import TlsConfig
from mq9.config.errors import ConfigError
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
    """Raise if the certificate, its key, the authorities or the suites cannot be used."""
    core_config(tls)


def core_config(tls: Tls) -> TlsConfig:
    """What connections are made with; ConfigError says which file or suite cannot be used."""
    try:
        return TlsConfig(
            cert_file=tls.cert_file,
            key_file=tls.key_file,
            ca_file=tls.ca_file,
            verify=tls.verify or tls.verify_and_map,
            min_version=tls.min_version or "1.2",
            cipher_suites=tls.cipher_suites,
        )
    except ValueError as error:
        raise ConfigError(str(error)) from None


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
    names = tuple(filled(item, notes) for item in written)
    for item, name in zip(written, names, strict=True):
        try:
            TlsConfig.check_cipher_suite(name)
        except ValueError as error:
            raise at(item.place, str(error)) from None
    return names


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
