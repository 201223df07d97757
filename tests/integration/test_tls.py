"""TLS of each kind: after INFO, from the first byte, and with certificates of the clients."""

import socket
import ssl
from typing import Any

import nats.errors
import pytest
from tests.integration.conftest import Certificates, Connect
from tests.peers import Serve, Server
from tests.wire import Wire

DEADLINE_S = 10
# A client that is turned away may wait for more; it need not wait for long.
REFUSED_S = 2
REFUSED = {"max_reconnect_attempts": 0, "connect_timeout": REFUSED_S, "deadline_s": REFUSED_S}


async def works(
    server: Server,
    connect: Connect,
    deadline_s: float = DEADLINE_S,
    **options: Any,  # noqa: ANN401
) -> None:
    url = f"tls://127.0.0.1:{server.port}"
    client = await connect(url, tls_hostname="localhost", **options)
    subscription = await client.subscribe("t.a")
    payload = b"x" * 100_000
    await client.publish("t.a", payload)
    assert (await subscription.next_msg(deadline_s)).data == payload


async def test_a_connection_is_upgraded_after_info(
    serve: Serve, connect: Connect, certificates: Certificates
) -> None:
    server = serve(certificates.config())
    with Wire(server.port) as wire:
        assert wire.info["tls_required"] is True
        assert "tls_verify" not in wire.info
    await works(server, connect, tls=certificates.trusting())


async def test_flags_turn_tls_on(
    serve: Serve, connect: Connect, certificates: Certificates
) -> None:
    files = ["--tlscert", str(certificates.cert_file), "--tlskey", str(certificates.key_file)]
    server = serve("", "--tls", *files)
    await works(server, connect, tls=certificates.trusting())


def test_a_plain_client_is_refused(serve: Serve, certificates: Certificates) -> None:
    server = serve(certificates.config())
    with Wire(server.port) as wire:
        wire.send(b"CONNECT {}\r\nPING\r\n")
        assert b"PONG" not in wire.until_closed()


def test_a_client_that_never_begins_tls_is_cut(serve: Serve, certificates: Certificates) -> None:
    server = serve(certificates.config("timeout: 0.3"))
    with Wire(server.port) as wire:
        assert b"PONG" not in wire.until_closed()


async def test_plain_clients_may_be_allowed_next_to_tls(
    serve: Serve, connect: Connect, certificates: Certificates
) -> None:
    server = serve("allow_non_tls: true\n" + certificates.config())
    with Wire(server.port) as wire:
        assert "tls_required" not in wire.info
        assert wire.info["tls_available"] is True
        wire.connect()
    await works(server, connect, tls=certificates.trusting())


async def test_tls_comes_first(serve: Serve, connect: Connect, certificates: Certificates) -> None:
    server = serve(certificates.config("handshake_first: true"))
    context = certificates.trusting()
    await works(server, connect, tls=context, tls_handshake_first=True)
    with socket.create_connection(("127.0.0.1", server.port), timeout=DEADLINE_S) as plain:
        plain.sendall(b"CONNECT {}\r\n")
        assert b"INFO" not in plain.recv(1 << 16)


async def test_tls_may_come_first_or_after_info(
    serve: Serve, connect: Connect, certificates: Certificates
) -> None:
    server = serve(certificates.config('handshake_first: "300ms"'))
    await works(server, connect, tls=certificates.trusting(), tls_handshake_first=True)
    await works(server, connect, tls=certificates.trusting())


def test_bytes_in_plain_behind_info_are_not_taken_for_commands(
    serve: Serve, certificates: Certificates
) -> None:
    """What comes before the handshake must not be run after it."""
    server = serve(certificates.config())
    raw = socket.create_connection(("127.0.0.1", server.port), timeout=DEADLINE_S)
    with raw:
        assert raw.recv(1 << 16).startswith(b"INFO ")
        raw.sendall(b"PING\r\n")
        with pytest.raises((ssl.SSLError, OSError)):
            certificates.trusting().wrap_socket(raw, server_hostname="localhost")


async def test_a_client_certificate_is_required(
    serve: Serve, connect: Connect, certificates: Certificates
) -> None:
    server = serve(certificates.config(f'ca_file: "{certificates.ca_file}"', "verify: true"))
    with Wire(server.port) as wire:
        assert wire.info["tls_required"] is True
        assert wire.info["tls_verify"] is True
    await works(server, connect, tls=certificates.trusting("client.example"))
    with pytest.raises((nats.errors.Error, OSError)):
        await works(server, connect, tls=certificates.trusting(), **REFUSED)


async def test_a_certificate_of_another_authority_is_refused(
    serve: Serve,
    connect: Connect,
    certificates: Certificates,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    server = serve(certificates.config(f'ca_file: "{certificates.ca_file}"', "verify: true"))
    stranger = Certificates(tmp_path_factory.mktemp("stranger"))
    context = certificates.trusting()
    stranger.authority.issue_cert("client.example").configure_cert(context)
    with pytest.raises((nats.errors.Error, OSError)):
        await works(server, connect, tls=context, **REFUSED)


async def test_a_certificate_is_mapped_to_a_user(
    serve: Serve, connect: Connect, certificates: Certificates
) -> None:
    server = serve(
        certificates.config(f'ca_file: "{certificates.ca_file}"', "verify_and_map: true")
        + "authorization { users = [\n"
        + '{ user: "ada@example.org", permissions { publish: "t.>", subscribe: "t.>" } }\n'
        + '{ user: "dns.example" }\n'
        + '{ user: "CN=common.example,OU=Unit,O=Example" }\n'
        + "] }\n"
    )
    await works(server, connect, tls=certificates.trusting("ada@example.org"))
    await works(server, connect, tls=certificates.trusting("dns.example"))
    named = {"common_name": "common.example", "organization_name": "Example"}
    context = certificates.trusting("other.example", **named, organization_unit_name="Unit")
    await works(server, connect, tls=context)
    with pytest.raises((nats.errors.Error, OSError)) as caught:
        await works(server, connect, tls=certificates.trusting("bob@example.org"), **REFUSED)
    assert "authorization violation" in str(caught.value).lower()


async def test_users_and_tls_together(
    serve: Serve, connect: Connect, certificates: Certificates
) -> None:
    server = serve(certificates.config() + "authorization { user: ada, password: lovelace }\n")
    context = certificates.trusting()
    await works(server, connect, tls=context, user="ada", password="lovelace")
    with pytest.raises(nats.errors.Error, match=r"(?i)authorization violation"):
        await works(server, connect, tls=context, user="ada", password="x", **REFUSED)
