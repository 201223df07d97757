"""Clients from elsewhere: where the broker asks nobody, they get nothing, whatever they say."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import psutil
import pytest
from tests.manage.conftest import OPERATORS, Manage, Managed, free_port, managed
from tests.peers import Serve, own_address

CREDENTIALS: tuple[dict[str, str], ...] = (
    {},
    {"Authorization": "Basic eDp5"},
    {"Cookie": "mq9_session=x"},
)


@pytest.fixture(scope="module")
def wide(serve_for_session: Serve, tmp_path_factory: pytest.TempPathFactory) -> Managed:
    """A broker that asks nobody, with management that listens everywhere."""
    folder = tmp_path_factory.mktemp("wide")
    more = f'hosts: ["{own_address()}", "page.example"]'
    found = managed(serve_for_session, folder, host="0.0.0.0", more=more)
    with found.mail() as mail:
        mail.done("MAILBOX.CREATE", {"name": "kept"})
        mail.deliver("kept", b"x")
    return found


@pytest.fixture
def stranger(wide: Managed) -> Iterator[httpx.Client]:
    """A client that comes from the machine's own address, not from loopback."""
    url = wide.url.replace("127.0.0.1", own_address())
    with httpx.Client(base_url=url, timeout=20) as client:
        yield client


@pytest.mark.parametrize("headers", CREDENTIALS)
@pytest.mark.parametrize("host", [None, "localhost", "127.0.0.1"])
def test_a_stranger_neither_looks_nor_steers(
    wide: Managed, stranger: httpx.Client, headers: dict[str, str], host: str | None
) -> None:
    """Credentials count for nothing where none are checked; the Host header is anybody's choice."""
    with wide.mail() as mail:
        sent = headers | ({"Host": host} if host else {})
        for method, path in (
            ("GET", "/v1/queues"),
            ("GET", "/v1/queues/kept/messages"),
            ("GET", "/v1/overview"),
            ("GET", "/metrics"),
            ("POST", "/v1/queues/kept/purge"),
            ("DELETE", "/v1/queues/kept"),
        ):
            response = stranger.request(method, path, headers=sent)
            assert response.status_code == 403, (method, path, response.text)
        session = stranger.post("/v1/session", json={"user": "x", "password": "y"}, headers=sent)
        assert session.status_code == 403, session.text
        assert "set-cookie" not in session.headers
        assert len(mail.done("MSG.QUERY.kept", {"since": 0})["messages"]) == 1


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "page.example"},
        {"X-Forwarded-For": "198.51.100.7"},
        {"Forwarded": "for=198.51.100.7"},
        {"X-Real-IP": "198.51.100.7"},
    ],
)
def test_a_proxy_on_the_same_machine_makes_nobody_local(
    wide: Managed, headers: dict[str, str]
) -> None:
    with wide.client() as client:
        assert client.get("/v1/queues").status_code == 200
        for more in CREDENTIALS:
            response = client.get("/v1/queues", headers=headers | more)
            assert response.status_code == 403, response.text


def test_who_proves_a_name_comes_from_anywhere(manage: Manage) -> None:
    address = own_address()
    found = manage(OPERATORS, host="0.0.0.0", more=f'hosts: ["{address}"]')
    url = found.url.replace("127.0.0.1", address)
    with httpx.Client(base_url=url, timeout=20) as client:
        assert client.get("/v1/queues", auth=("boss", "boss-pw")).status_code == 200
        assert client.get("/v1/queues", auth=("boss", "guess")).status_code == 401
        assert client.get("/v1/queues").status_code == 401


def test_a_cookie_behind_tls_is_secure(manage: Manage) -> None:
    # Its own broker: guesses of other tests count for a minute.
    guarded = manage(OPERATORS)
    given = {"user": "boss", "password": "boss-pw"}
    with guarded.client() as client:
        for proto, wanted in (("https", True), ("http", False)):
            headers = {"X-Forwarded-Proto": proto}
            session = client.post("/v1/session", json=given, headers=headers)
            assert ("; secure" in session.headers["set-cookie"].lower()) is wanted


def test_guesses_at_once_are_counted_as_those_one_by_one(manage: Manage) -> None:
    """And who guesses a password keeps nobody out but that user."""
    guarded = manage(OPERATORS)

    def guess(number: int) -> int:
        with guarded.client() as client:
            while True:
                found = client.get("/v1/queues", auth=("nobody", f"guess{number}")).status_code
                # A busy machine's broker answers too late, which is no guess.
                if found != 503:
                    return found

    with ThreadPoolExecutor(40) as pool:
        statuses = list(pool.map(guess, range(40)))
    assert statuses.count(401) <= 10
    assert set(statuses) == {401, 429}
    with guarded.client() as client:
        given = {"user": "boss", "password": "boss-pw"}
        assert client.post("/v1/session", json=given).status_code == 200


def test_one_who_guesses_through_a_proxy_keeps_nobody_out_who_was_there_before(
    manage: Manage,
) -> None:
    """To this process all who come through a proxy have one address."""
    found = manage(OPERATORS)
    boss = {"user": "boss", "password": "boss-pw"}
    with found.client() as client:
        assert client.post("/v1/session", json=boss).status_code == 200

        def guess(number: int) -> int:
            given = {"user": f"user{number // 9}", "password": f"guess{number}"}
            return client.post("/v1/session", json=given).status_code

        with ThreadPoolExecutor(8) as pool:
            statuses = list(pool.map(guess, range(140)))
        assert set(statuses) == {401, 429}
        assert statuses.count(401) == 100
        assert client.post("/v1/session", json=boss).status_code == 200
        # Others wait, and who was there before has no more guesses than anybody.
        eyes = {"user": "eyes", "password": "eyes-pw"}
        assert client.post("/v1/session", json=eyes).status_code == 429
        wrong = [client.post("/v1/session", json=boss | {"password": "x"}) for _ in range(12)]
        assert [each.status_code for each in wrong] == [401] * 10 + [429] * 2


def test_no_connection_is_left_behind(manage: Manage) -> None:
    found = manage(OPERATORS)
    children = psutil.Process(found.server.pid).children()
    [process] = [child for child in children if "manage" in child.cmdline()]

    def to_broker() -> int:
        return sum(
            each.status == psutil.CONN_ESTABLISHED and each.raddr.port == found.server.port
            for each in process.net_connections("tcp")
        )

    def look(_number: int) -> int:
        with found.client() as client:
            return client.get("/v1/queues", auth=("boss", "boss-pw")).status_code

    before = to_broker()
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(look, range(8))) == {200}
    assert to_broker() == before + 1, "one user has one connection"
    with found.client() as client:
        session = client.post("/v1/session", json={"user": "eyes", "password": "eyes-pw"})
        assert session.status_code == 200
        assert to_broker() == before + 2
        assert client.delete("/v1/session").status_code == 200
        assert to_broker() == before + 1


def test_probes_and_scrapers_come_by_any_address(guarded: Managed, manage: Manage) -> None:
    """A kubelet and a Prometheus ask for a pod by its address; a web site has a name."""
    boss = ("boss", "boss-pw")
    with guarded.client() as client:
        for host in ("10.1.2.3:8055", "[fd00::7]:8055"):
            assert client.get("/healthz", headers={"Host": host}).status_code == 200
            assert client.get("/metrics", headers={"Host": host}, auth=boss).status_code == 200
            assert client.get("/metrics", headers={"Host": host}).status_code == 401
            assert client.get("/v1/queues", headers={"Host": host}, auth=boss).status_code == 403
        for path in ("/healthz", "/metrics"):
            for headers in ({"Host": "mq9.default.svc"}, {"Origin": "http://evil.example"}):
                assert client.get(path, headers=headers, auth=boss).status_code == 403
    found = manage(OPERATORS, more='probe_hosts: ["mq9.default.svc"]')
    with found.client() as client:
        service = {"Host": "mq9.default.svc:8055"}
        assert client.get("/healthz", headers=service).status_code == 200
        assert client.get("/metrics", headers=service, auth=boss).status_code == 200
        assert client.get("/v1/queues", headers=service, auth=boss).status_code == 403
        other = {"Host": "evil.example"}
        assert client.get("/healthz", headers=other).status_code == 403


def test_metrics_alone_have_a_port_that_asks_for_nothing(manage: Manage) -> None:
    port = free_port()
    found = manage(OPERATORS, more=f"metrics_port: {port}")
    url = f"http://127.0.0.1:{port}"
    text = httpx.get(f"{url}/metrics", timeout=20).text
    assert "mq9_up 1.0" in text
    for path in ("/", "/v1/queues", "/v1/session", "/openapi.json", "/healthz"):
        assert httpx.get(f"{url}{path}", timeout=20).status_code == 404, path
    assert httpx.post(f"{url}/metrics", timeout=20).status_code == 405
    with found.client() as client:
        assert client.get("/metrics").status_code == 401, "the other port asks as before"


def test_no_web_site_reads_the_metrics_of_the_port_that_asks_for_nothing(manage: Manage) -> None:
    """Its name may be made to lead here; what it reads has the addresses of mailboxes."""
    port = free_port()
    manage(more=f'metrics_port: {port}, probe_hosts: ["mq9.default.svc"]')
    url = f"http://127.0.0.1:{port}/metrics"
    for host, status in (
        *((f"127.0.0.1:{port}", 200), ("10.1.2.3:9090", 200), ("mq9.default.svc:9090", 200)),
        *(("evil.example", 403), (f"evil.example:{port}", 403)),
    ):
        answer = httpx.get(url, headers={"Host": host}, timeout=20)
        assert answer.status_code == status, host
        assert ("mq9_up" in answer.text) is (status == 200)
        assert answer.headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert httpx.get(url, headers={"Origin": "http://evil.example"}, timeout=20).status_code == 403
