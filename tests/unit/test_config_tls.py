"""The tls block: its settings, and files that cannot be used."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from mq9._core import TlsConfig
from mq9.config import ConfigError, Tls, loads

DOCS = Path(__file__).parents[2] / "docs" / "configuration.md"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(path / "ca.pem")
    server = authority.issue_cert("localhost")
    server.private_key_pem.write_to_path(path / "key.pem")
    server.cert_chain_pems[0].write_to_path(path / "cert.pem")
    authority.issue_cert("other").private_key_pem.write_to_path(path / "other.pem")
    (path / "empty.pem").write_text("")
    (path / "encrypted.pem").write_bytes(encrypted(server.private_key_pem.bytes()))
    return path


def encrypted(key: bytes) -> bytes:
    return load_pem_private_key(key, None).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")
    )


def read(folder: Path, settings: str = "") -> Tls:
    pair = f"cert_file: {folder}/cert.pem, key_file: {folder}/key.pem"
    tls = loads(f"tls {{ {pair}\n{settings.replace('DIR', str(folder))} }}", {}).tls
    assert tls
    return tls


@pytest.mark.parametrize(
    ("settings", "options"),
    [
        ("", {}),
        ("verify: true, ca_file: DIR/ca.pem", {"verify": True}),
        ("verify_and_map: true", {"verify_and_map": True}),
        ("timeout: 5", {"timeout_ms": 5000}),
        ("timeout: 0.5", {"timeout_ms": 500}),
        ("timeout: '3s'", {"timeout_ms": 3000}),
        ("handshake_first: true", {"handshake_first": True}),
        ("first: false", {"handshake_first": False}),
        ("immediate: auto", {"handshake_first": 50}),
        ("handshake_first: 300ms", {"handshake_first": 300}),
        ("min_version: '1.3'", {"min_version": "1.3"}),
        (
            "cipher_suites: [TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256]",
            {"cipher_suites": ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",)},
        ),
        ("pinned_certs: [], ocsp_peer: false", {}),
    ],
)
def test_setting_sets(folder: Path, settings: str, options: dict[str, object]) -> None:
    found = read(folder, settings)
    assert (found.cert_file, found.key_file) == (folder / "cert.pem", folder / "key.pem")
    defaults = Tls(cert_file=found.cert_file, key_file=found.key_file)
    assert vars(replace(found, ca_file=None)) == vars(defaults) | options


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("verfy: true", "unknown setting 'verfy' in tls; did you mean 'verify'?"),
        ("verify: 1", "expected true or false"),
        ("handshake_first: 5", "a duration, a string, found a whole number"),
        ("handshake_first: soon", 'expected true, false, "auto" or a duration'),
        ("min_version: 1.3", 'expected "1.2" or "1.3", in quotes'),
        ("min_version: '1.1'", 'expected "1.2" or "1.3", in quotes'),
        ("cipher_suites: []", "at least one cipher suite"),
        ("cipher_suites: [RC4]", "unknown cipher suite 'RC4'; known are TLS_AES_256_GCM_SHA384,"),
        ("cipher_suites: [TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA]", "encrypts in CBC mode"),
        ("cipher_suites: [TLS_RSA_WITH_AES_128_GCM_SHA256]", "has no forward secrecy"),
        ("pinned_certs: [aa]", "does not pin certificates"),
        ("ocsp_peer: true", "was revoked"),
        ("ca_file: DIR/gone.pem", "gone.pem: No such file"),
        ("ca_file: DIR/empty.pem", "empty.pem holds no certificates"),
        ("key_file: DIR/gone.pem", "gone.pem: No such file"),
        ("key_file: DIR/other.pem", "are not a certificate and its key"),
        ("key_file: DIR/encrypted.pem", "the key is encrypted, and mq9 takes no password for it"),
        ("cert_file: DIR/empty.pem", "are not a certificate and its key"),
        ("timeout: -1", "not negative"),
    ],
)
def test_setting_is_refused(folder: Path, settings: str, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read(folder, settings)
    assert message in str(raised.value)
    assert str(raised.value).startswith("text:")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tls {}", "text:1:5: no cert_file"),
        ("tls { verify: true }", "no cert_file"),
        ("tls { cert_file: a }", "cert_file without key_file"),
        ("tls { key_file: a }", "key_file without cert_file"),
        ("tls: true", "expected a block { } for tls, found true or false"),
    ],
)
def test_certificate_and_key_go_together(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        loads(text, {})
    assert message in str(raised.value)


def test_certificate_takes_the_place_of_a_password(folder: Path) -> None:
    tls = f"tls {{ cert_file: {folder}/cert.pem, key_file: {folder}/key.pem, verify_and_map: yes }}"
    options = loads(f"authorization {{ users: [{{user: a}}] }}\n{tls}", {})
    assert options.authorization.users[0].password is None


def test_suites_of_all_versions_can_be_chosen(folder: Path) -> None:
    chosen = ("TLS_AES_128_GCM_SHA256", "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256")
    assert read(folder, f"cipher_suites: [{', '.join(chosen)}]").cipher_suites == chosen


def test_the_page_names_every_suite() -> None:
    with pytest.raises(ValueError, match="known are") as refused:
        TlsConfig.check_cipher_suite("")
    known = str(refused.value).partition("known are ")[2].split(", ")
    assert re.findall(r"`(TLS_\w+[0-9])`", DOCS.read_text("utf-8")) == known


@pytest.mark.parametrize("kind", trustme.KeyType)
def test_keys_of_each_kind_are_read(tmp_path: Path, kind: trustme.KeyType) -> None:
    server = trustme.CA(key_type=kind).issue_cert("localhost", key_type=kind)
    server.private_key_pem.write_to_path(tmp_path / "key.pem")
    server.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    assert read(tmp_path).key_file == tmp_path / "key.pem"


def test_without_authorities_of_its_own_it_trusts_those_of_the_system(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    monkeypatch.setenv("SSL_CERT_FILE", str(folder / "ca.pem"))
    assert read(folder, "verify: true").verify
    monkeypatch.setenv("SSL_CERT_FILE", str(folder / "empty.pem"))
    assert not read(folder).verify
    for wish in ("verify", "verify_and_map"):
        with pytest.raises(ConfigError, match=r"verify needs authorities.*with ca_file"):
            read(folder, f"{wish}: true")
