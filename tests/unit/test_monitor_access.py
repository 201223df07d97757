"""Who may read the monitoring port: no web page on a loopback address, and others by password."""

import http.client
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from urllib.parse import urlsplit

import bcrypt
import pytest
from tests.peers import Serve, Server

from mq9.config import ConfigError, Monitoring, loads

NAMED = 'mq9 { monitoring { hosts: ["Monitor.Example"] } }'


def ask(
    server: Server, path: str = "/varz", connect_to: str = "127.0.0.1", **headers: str
) -> tuple[int, str]:
    port = urlsplit(server.monitor_url or "").port
    connection = http.client.HTTPConnection(connect_to, port, timeout=30)
    connection.putrequest("GET", path, skip_host=True)
    for name, value in {"Host": f"127.0.0.1:{port}", **headers}.items():
        connection.putheader(name, value)
    connection.endheaders()
    response = connection.getresponse()
    body = response.read().decode()
    connection.close()
    return response.status, body


@pytest.fixture(scope="module")
def named(serve_for_session: Serve) -> Server:
    return serve_for_session(NAMED, "-a", "0.0.0.0")


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LocalHost:8222", 200),
        ("127.0.0.1", 200),
        ("127.9.9.9:1", 200),
        ("[::1]", 200),
        ("[::1]:8222", 200),
        ("monitor.example:8222", 200),
        ("evil.example", 403),
        ("evil.example:8222", 403),
        ("localhost.evil.example", 403),
        ("127.0.0.1.evil.example", 403),
        ("127.evil", 403),
        ("192.0.2.7", 403),
        ("evil@localhost.evil", 403),
        ("[::1", 403),
        ("[::2]", 403),
        ("", 403),
    ],
)
def test_a_loopback_address_answers_to_its_own_names(named: Server, host: str, status: int) -> None:
    assert ask(named, Host=host)[0] == status
    assert ask(named, "/nothing/here", Host=host)[0] == (404 if status == 200 else 403)


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://localhost:3000", 200),
        ("http://127.0.0.1", 200),
        ("https://monitor.example", 200),
        ("http://evil.example", 403),
        ("https://localhost.evil.example", 403),
        ("null", 403),
        ("file://", 403),
        ("", 403),
    ],
)
def test_a_loopback_address_answers_no_page_of_others(
    named: Server, origin: str, status: int
) -> None:
    for path in ("/varz", "/healthz"):
        code, body = ask(named, path, Origin=origin)
        assert code == status
        assert status == 200 or "monitoring answers to localhost" in body


def test_elsewhere_any_name_is_answered_as_nats_server_does(named: Server) -> None:
    own = own_address()
    assert ask(named, connect_to=own, Host="any.example", Origin="http://any.example")[0] == 200


def own_address() -> str:
    """An address of this machine that others reach it by."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Nothing is sent: it only asks which way it would go.
            probe.connect(("192.0.2.254", 9))
        except OSError:
            pytest.skip("this machine has nothing but a loopback interface")
        return str(probe.getsockname()[0])


@pytest.mark.parametrize("hashed", [False, True], ids=["plain", "bcrypt"])
def test_monitoring_can_ask_for_a_password(serve: Serve, hashed: bool) -> None:
    stored = bcrypt.hashpw(b"s:ecret", bcrypt.gensalt(4)).decode() if hashed else "s:ecret"
    server = serve(f'mq9 {{ monitoring {{ user: ops, password: "{stored}" }} }}')

    def status(authorization: str | None, path: str = "/varz") -> int:
        headers = {} if authorization is None else {"Authorization": authorization}
        return ask(server, path, **headers)[0]

    right = "Basic b3BzOnM6ZWNyZXQ="
    for path in ("/", "/varz", "/connz", "/subsz"):
        assert (status(right, path), status(None, path)) == (200, 401)
    # ops:, ops:x, x:s:ecret, no base64, and schemes that are not known
    for wrong in ("b3BzOg==", "b3BzOng=", "eDpzOmVjcmV0", "!!!", "b3Bz", ""):
        assert status(f"Basic {wrong}") == 401
    for other in ("Bearer x", "", right.replace("Basic", "Digest")):
        assert status(other) == 401
    assert [status(None, "/healthz"), status("Basic x", "/healthz")] == [200, 200]
    server.reconfigure("mq9 { monitoring { user: ops, password: other } }")
    assert [status(right), status("Basic b3BzOm90aGVy")] == [401, 200]


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def test_slow_connections_do_not_shut_out_a_health_check(serve: Serve, stack: ExitStack) -> None:
    server = serve()
    port = urlsplit(server.monitor_url or "").port or 0
    for _ in range(300):
        slow = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30))
        slow.sendall(b"GET /varz HTTP/1.1\r\nHost: loc")
    for _ in range(10):
        assert ask(server, "/healthz") == (200, '{"status":"ok"}')


def test_the_settings_are_read() -> None:
    text = 'mq9 { monitoring { user: a, password: "b", hosts: [x.example, Y] } }'
    assert loads(text, {}).monitoring == Monitoring(
        user="a", password="b", hosts=("x.example", "y")
    )
    assert "password=" not in repr(loads(text, {}).monitoring)
    for block, said in (
        ("{ user: a }", "the password is missing: user and password go together"),
        ("{ password: a }", "the user is missing"),
        ("{ hosts: a }", "expected a list [ ] of host names"),
        ("{ host: [a] }", "did you mean 'hosts'"),
    ):
        with pytest.raises(ConfigError) as error:
            loads(f"mq9 {{ monitoring {block} }}", {})
        assert said in str(error.value)
