"""TLS: which files make a context, and how a client that starts with TLS is told from others."""

import asyncio
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest
import trustme

from mq9.config import ConfigError, Tls
from mq9.server.tls import server_context, starts_with_tls


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost")
    authority.cert_pem.write_to_path(folder / "ca.pem")
    certificate.private_key_pem.write_to_path(folder / "key.pem")
    certificate.cert_chain_pems[0].write_to_path(folder / "cert.pem")
    return folder


def tls(files: Path, **changes: object) -> Tls:
    given: dict[str, Any] = {"cert_file": files / "cert.pem", "key_file": files / "key.pem"}
    return Tls(**(given | changes))


def test_old_versions_are_not_spoken(files: Path) -> None:
    assert server_context(tls(files)).minimum_version == ssl.TLSVersion.TLSv1_2
    newest = server_context(tls(files, min_version="1.3"))
    assert newest.minimum_version == ssl.TLSVersion.TLSv1_3
    with pytest.raises(ConfigError, match="min_version"):
        server_context(tls(files, min_version="1.1"))


def test_certificates_of_clients_are_asked_for_when_wanted(files: Path) -> None:
    assert server_context(tls(files)).verify_mode == ssl.CERT_NONE
    for wish in ("verify", "verify_and_map"):
        context = server_context(tls(files, ca_file=files / "ca.pem", **{wish: True}))
        assert context.verify_mode == ssl.CERT_REQUIRED
        assert len(context.get_ca_certs()) == 1


def test_cipher_suites_are_named_as_iana_does(files: Path) -> None:
    wanted = ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "TLS_AES_128_GCM_SHA256")
    context = server_context(tls(files, cipher_suites=wanted))
    older = [c["name"] for c in context.get_ciphers() if not c["name"].startswith("TLS_")]
    assert older == ["ECDHE-RSA-AES256-GCM-SHA384"]
    with pytest.raises(ConfigError, match="TLS_NO_SUCH"):
        server_context(tls(files, cipher_suites=("TLS_NO_SUCH",)))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"cert_file": "missing.pem"}, "missing.pem"),
        ({"key_file": "missing.pem"}, "missing.pem"),
        ({"ca_file": "missing.pem"}, "missing.pem"),
        ({"cert_file": "ca.pem"}, "ca.pem"),
        ({"key_file": "cert.pem"}, "cert.pem"),
        ({"ca_file": "key.pem"}, "key.pem"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(
    files: Path, changes: dict[str, str], named: str
) -> None:
    paths = {name: files / file for name, file in changes.items()}
    with pytest.raises(ConfigError, match=named):
        server_context(tls(files, **paths))


def test_the_first_byte_tells_tls_and_stays_in_the_socket() -> None:
    async def first(sent: bytes, timeout_ms: int = 5000) -> bool | None:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.setblocking(False)
            theirs.send(sent)
            if not sent and timeout_ms == 5000:
                theirs.close()
            answer = await starts_with_tls(ours, timeout_ms)
            if sent:
                assert ours.recv(99) == sent
            return answer

    async def check() -> None:
        assert await first(b"\x16\x03\x01") is True
        assert await first(b"CONNECT {}\r\n") is False
        assert await first(b"") is False
        assert await first(b"", timeout_ms=20) is None

    asyncio.run(check())
