"""TLS: the context of the server, and what a client's first byte says about it.

Owns versions, ciphers and certificates. Knows nothing of the protocol above.
"""

import asyncio
import socket
import ssl

from mq9.config import ConfigError, Tls

_VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
_HANDSHAKE = b"\x16"

# OpenSSL has its own names for the suites of TLS 1.2; those of TLS 1.3 cannot be chosen with `ssl`.
_SUITES = {
    "TLS_RSA_WITH_AES_128_CBC_SHA": "AES128-SHA",
    "TLS_RSA_WITH_AES_256_CBC_SHA": "AES256-SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256": "AES128-SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "TLS_RSA_WITH_AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256": "ECDHE-ECDSA-AES128-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256": "ECDHE-RSA-AES128-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
}
_NAMES = {openssl: iana for iana, openssl in _SUITES.items()}
_TLS13_SUITES = {
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
}


def server_context(tls: Tls) -> ssl.SSLContext:
    """The context for all connections; ConfigError says which file or name is not usable."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _minimum(tls.min_version)
    try:
        context.load_cert_chain(tls.cert_file, tls.key_file)
    except ssl.SSLError as error:
        raise ConfigError(
            f"tls: {tls.cert_file} and {tls.key_file} are not a certificate and its key: {error}"
        ) from error
    except OSError as error:
        raise ConfigError(f"tls: cannot read {_unreadable(tls)}: {error.strerror}") from error
    if tls.ca_file is not None:
        try:
            context.load_verify_locations(tls.ca_file)
        except ssl.SSLError as error:
            raise ConfigError(f"tls: {tls.ca_file} holds no certificates: {error}") from error
        except OSError as error:
            raise ConfigError(f"tls: cannot read {tls.ca_file}: {error.strerror}") from error
    if tls.verify or tls.verify_and_map:
        if tls.ca_file is None:
            context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
        context.verify_mode = ssl.CERT_REQUIRED
    if older := [suite for suite in tls.cipher_suites if suite not in _TLS13_SUITES]:
        try:
            context.set_ciphers(":".join(_SUITES.get(suite, suite) for suite in older))
        except ssl.SSLError as error:
            raise ConfigError(f"tls: unknown cipher suites: {', '.join(older)}") from error
    return context


def session_facts(tls: ssl.SSLObject) -> tuple[str, str]:
    """Version and cipher suite of a connection, as nats-server writes them."""
    suite = tls.cipher()
    name = suite[0] if suite else ""
    return (tls.version() or "").removeprefix("TLSv"), _NAMES.get(name, name)


async def starts_with_tls(connection: socket.socket, timeout_ms: int) -> bool | None:
    """Whether a client begins with a TLS handshake; None if it says nothing in that time.

    Looks at the first byte without taking it from the socket.
    """
    loop = asyncio.get_running_loop()
    readable: asyncio.Future[None] = loop.create_future()
    loop.add_reader(connection.fileno(), _set, readable)
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            await readable
        return connection.recv(1, socket.MSG_PEEK) == _HANDSHAKE
    except TimeoutError:
        return None
    finally:
        loop.remove_reader(connection.fileno())


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _minimum(version: str | None) -> ssl.TLSVersion:
    try:
        return _VERSIONS[version or "1.2"]
    except KeyError:
        raise ConfigError(f"tls: min_version {version!r} is neither 1.2 nor 1.3") from None


def _unreadable(tls: Tls) -> str:
    for file in (tls.cert_file, tls.key_file):
        try:
            file.open("rb").close()
        except OSError:
            return str(file)
    return f"{tls.cert_file} or {tls.key_file}"
