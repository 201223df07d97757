"""Clients over real sockets: TLS of each kind, who they are, and what monitoring says of them."""

import asyncio
import contextlib
import gc
import json
import re
import ssl
import subprocess
import sys
import time
import urllib.request
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import bcrypt
import pytest
import trustme
import uvloop

from mq9._core import Broker
from mq9.config import Authorization, Options, PermissionRules, Tls, User
from mq9.server.admission import Admission
from mq9.server.http_server import Request
from mq9.server.info import Identity
from mq9.server.listener import Listener, listen
from mq9.server.logs import Log
from mq9.server.monitor import Monitor
from mq9.server.passwords import Passwords
from mq9.server.running import Running, Settings
from mq9.server.system import SystemSubjects
from mq9.store import Store

DEADLINE_S = 30
NATS_SERVER = Path(sys.executable).with_name("nats-server")


@contextlib.asynccontextmanager
async def serving(folder: Path, **settings: Any) -> AsyncIterator[Running]:  # noqa: ANN401
    """A server in this process."""
    options = Options(**{"host": "127.0.0.1", "port": -1, **settings})
    passwords = Passwords()
    made = Settings.of(options, passwords)
    with Store(folder / "data", sync="none") as store:
        broker = Broker(made.limits, 1, store=store)
        running = Running(made, Identity(), broker, store, Log(), passwords)
        SystemSubjects(running)
        sockets = listen(options.host, options.port)
        running.identity.listens(options, sockets[0].getsockname()[1])
        broker.start(asyncio.get_running_loop())
        admission = Admission(running)
        listener = Listener(sockets, admission.enter, running.log)
        try:
            async with asyncio.timeout(DEADLINE_S):
                yield running
        finally:
            listener.close()
            for session in running.clients:
                session.abort()
            await running.clients.gone()
            broker.stop()
            passwords.close()


class Client:
    """A client by hand, with TLS before or after INFO if it is given a context."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        OPENED.append(self)
        self.info: dict[str, Any] = {}

    @classmethod
    async def enter(
        cls, running: Running, tls: ssl.SSLContext | None = None, *, first: bool = False
    ) -> "Client":
        early, name = (tls, "localhost") if first else (None, None)
        client = cls(
            *await asyncio.open_connection(
                "127.0.0.1", running.identity.port, ssl=early, server_hostname=name
            )
        )
        client.info = json.loads((await client.reader.readline())[5:])
        if tls is not None and not first:
            await client.writer.start_tls(tls, server_hostname="localhost")
        return client

    async def say(self, text: bytes) -> bytes:
        """What comes up to the answer to a ping."""
        self.writer.write(text + b"PING\r\n")
        return (await self.reader.readuntil(b"PONG\r\n")).removesuffix(b"PONG\r\n")

    async def who_am_i(self) -> dict[str, Any]:
        self.writer.write(b"SUB me 1\r\nPUB $SYS.REQ.USER.INFO me 0\r\n\r\n")
        await self.reader.readuntil(b"MSG me 1 ")
        answer = json.loads(await self.reader.readexactly(int(await self.reader.readline())))
        assert isinstance(answer, dict)
        return answer

    async def rest(self) -> bytes:
        try:
            return await self.reader.read()
        except (ssl.SSLError, ConnectionError) as error:
            return type(error).__name__.encode()

    async def connect(self, **said: object) -> bytes:
        options = {"verbose": False, **said}
        return await self.say(b"CONNECT %b\r\n" % json.dumps(options).encode())

    def leave(self) -> None:
        self.writer.transport.abort()


OPENED: list[Client] = []


def run(test: Coroutine[Any, Any, None]) -> None:
    async def tidily() -> None:
        try:
            await test
        finally:
            # uvloop does not end while warnings are errors and a transport is left.
            for client in OPENED:
                client.leave()
            OPENED.clear()
            await asyncio.sleep(0)

    uvloop.run(tidily())


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    for name, identity in (("server", "localhost"), ("client", "bob@example.org")):
        authority.issue_cert(identity).private_key_and_cert_chain_pem.write_to_path(
            folder / f"{name}.pem"
        )
    return folder


def tls_options(files: Path, **changes: object) -> Tls:
    certificate = files / "server.pem"
    given: dict[str, Any] = {"cert_file": certificate, "key_file": certificate}
    given["ca_file"] = files / "ca.pem"
    return Tls(**(given | changes))


def trusting(files: Path, *, certificate: bool = False) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=files / "ca.pem")
    if certificate:
        context.load_cert_chain(files / "client.pem")
    return context


def test_tls_starts_after_info(tmp_path: Path, files: Path) -> None:
    async def check() -> None:
        async with serving(tmp_path, tls=tls_options(files)) as running:
            client = await Client.enter(running, trusting(files))
            assert client.info["tls_required"] is True
            assert await client.connect() == b""
            (session,) = running.clients.open.values()
            assert session.facts.tls_version == "1.3"
            assert session.facts.tls_cipher.startswith("TLS_")

    run(check())


def test_tls_comes_first_where_it_is_said_to(tmp_path: Path, files: Path) -> None:
    async def check() -> None:
        async with serving(tmp_path, tls=tls_options(files, handshake_first=True)) as running:
            client = await Client.enter(running, trusting(files), first=True)
            assert await client.connect() == b""

    run(check())


def test_tls_first_falls_back_for_clients_that_wait_for_info(tmp_path: Path, files: Path) -> None:
    async def check() -> None:
        async with serving(tmp_path, tls=tls_options(files, handshake_first=300)) as running:
            for first in (True, False):
                client = await Client.enter(running, trusting(files), first=first)
                assert await client.connect() == b""

    run(check())


def test_both_kinds_of_clients_are_served_where_that_is_allowed(
    tmp_path: Path, files: Path
) -> None:
    async def check() -> None:
        tls = tls_options(files)
        async with serving(tmp_path, tls=tls, allow_non_tls=True) as running:
            for context in (trusting(files), None):
                client = await Client.enter(running, context)
                assert client.info["tls_available"] is True
                assert await client.connect() == b""

    run(check())


def test_clients_without_a_certificate_are_cut_off_where_one_is_wanted(
    tmp_path: Path, files: Path
) -> None:
    async def check() -> None:
        async with serving(tmp_path, tls=tls_options(files, verify=True)) as running:
            client = await Client.enter(running, trusting(files, certificate=True))
            assert await client.connect() == b""
            other = await Client.enter(running, trusting(files))
            assert b"PONG" not in await other.rest()

    run(check())


def test_a_client_that_does_not_speak_tls_is_cut_off(tmp_path: Path, files: Path) -> None:
    async def check() -> None:
        async with serving(tmp_path, tls=tls_options(files, timeout_ms=200)) as running:
            talking, silent = await Client.enter(running), await Client.enter(running)
            talking.writer.write(b"CONNECT {}\r\nPING\r\n")
            for client in (talking, silent):
                assert b"PONG" not in await client.rest()
            await running.clients.gone()
            reasons = [client.reason for client in running.clients.closed]
            assert reasons == ["TLS Handshake Failure"] * 2

    run(check())


def test_a_certificate_says_who_a_client_is(tmp_path: Path, files: Path) -> None:
    async def check(name: str, expected: bytes) -> None:
        tls = tls_options(files, verify_and_map=True)
        users = Authorization(users=(User(name=name),))
        async with serving(tmp_path, tls=tls, authorization=users) as running:
            client = await Client.enter(running, trusting(files, certificate=True))
            client.writer.write(b'CONNECT {"verbose":false}\r\nPING\r\n')
            assert await client.reader.readline() == expected

    run(check("bob@example.org", b"PONG\r\n"))
    run(check("alice@example.org", b"-ERR 'Authorization Violation'\r\n"))


RULES = PermissionRules(
    publish_allow=("a.>", "$SYS.>"), publish_deny=("b",), responses_max=1, responses_ttl_ms=2000
)
USERS = Authorization(
    users=(User(name="a", password="x", permissions=RULES), User(name="guest", password="y")),
    no_auth_user="guest",
)


def test_a_user_can_ask_who_it_is(tmp_path: Path) -> None:
    async def check() -> None:
        async with serving(tmp_path, authorization=USERS) as running:
            client = await Client.enter(running)
            await client.connect(**{"user": "a", "pass": "x"})
            answer = await client.who_am_i()
            assert answer["server"]["id"] == client.info["server_id"]
            assert answer["data"] == {
                "user": "a",
                "account": "$G",
                "account_name": "$G",
                "permissions": {
                    "publish": {"allow": ["a.>", "$SYS.>"], "deny": ["b"]},
                    "responses": {"max": 1, "ttl": 2_000_000_000},
                },
            }
            guest = await Client.enter(running)
            assert (await guest.who_am_i())["data"]["user"] == "guest"

    run(check())


def test_a_server_without_jetstream_has_no_responders(tmp_path: Path) -> None:
    async def check() -> None:
        async with serving(tmp_path) as running:
            client = await Client.enter(running)
            await client.connect(headers=True, no_responders=True)
            said = await client.say(b"SUB me 1\r\nPUB $JS.API.INFO me 0\r\n\r\n")
            assert b"NATS/1.0 503" in said

    run(check())


@pytest.mark.parametrize(
    ("said", "answer", "reason"),
    [
        (b"[]", b"", "Protocol Violation"),
        (b'{"verbose":1}', b"", "Protocol Violation"),
        (b'{"user":"a","pass":"wrong"}', b"Authorization Violation", "Authentication Failure"),
        (b'{"account":"other"}', b"Authorization Violation", "Authentication Failure"),
        (b'{"protocol":2}', b"invalid client protocol", "Bad Client Protocol Version"),
        (
            b'{"no_responders":true}',
            b"no responders requires headers support",
            "No Responders Requires Headers",
        ),
    ],
)
def test_connect_is_refused_in_nats_servers_words(
    tmp_path: Path, said: bytes, answer: bytes, reason: str
) -> None:
    async def check() -> None:
        async with serving(tmp_path, authorization=USERS) as running:
            client = await Client.enter(running)
            client.writer.write(b"CONNECT %b\r\nPING\r\n" % said)
            assert await client.rest() == (b"-ERR '%b'\r\n" % answer if answer else b"")
            await running.clients.gone()
            assert [left.reason for left in running.clients.closed] == [reason]

    run(check())


def test_a_reload_while_a_password_is_hashed_counts(tmp_path: Path) -> None:
    async def check() -> None:
        stored = bcrypt.hashpw(b"old", bcrypt.gensalt(10)).decode()
        users = Authorization(users=(User(name="a", password=stored),))
        async with serving(tmp_path, authorization=users) as running:
            client = await Client.enter(running)
            client.writer.write(b'CONNECT {"user":"a","pass":"old"}\r\n')
            (session,) = running.clients.open.values()
            while session.facts.user != "a":  # noqa: ASYNC110
                await asyncio.sleep(0)
            changed = Authorization(users=(User(name="a", password="new"),))
            options = replace(running.options, authorization=changed)
            running.settings = Settings.of(options, running.passwords)
            assert await client.rest() == b"-ERR 'Authorization Violation'\r\n"

    run(check())


Ask = Callable[[str], Awaitable[tuple[int, Any]]]


def asking(running: Running) -> Ask:
    monitor = Monitor(running)

    async def ask(target: str) -> tuple[int, Any]:
        response = await monitor.answer(Request(target))
        body = response.body.decode()
        return response.status, json.loads(body) if body.startswith("{") else body

    return ask


def test_connections_are_listed_sorted_and_counted(tmp_path: Path) -> None:
    async def check() -> None:
        async with serving(tmp_path, authorization=USERS) as running:
            ask = asking(running)
            one, two = await Client.enter(running), await Client.enter(running)
            await one.connect(**{"user": "a", "pass": "x", "name": "one", "lang": "l"})
            await two.connect(name="two")
            await two.say(b"SUB x.* 1\r\nSUB y q 2\r\nPUB x.y 2\r\nhi\r\n")

            _, found = await ask("/connz?sort=subs&subs=detail&auth=1")
            first, second = found["connections"]
            assert [first["name"], second["name"]] == ["two", "one"]
            assert (first["in_msgs"], first["out_bytes"], first["subscriptions"]) == (1, 2, 2)
            assert (first["authorized_user"], second["authorized_user"]) == ("guest", "a")
            details = {sub["subject"]: sub for sub in first["subscriptions_list_detail"]}
            assert details["x.*"] == {"subject": "x.*", "sid": "1", "msgs": 1, "cid": 2}
            assert details["y"]["qgroup"] == "q"

            _, page = await ask("/connz?limit=1&offset=1")
            assert (page["num_connections"], page["total"]) == (1, 2)
            assert [client["cid"] for client in page["connections"]] == [2]
            assert (await ask("/connz?cid=1"))[1]["connections"][0]["cid"] == 1
            assert len((await ask("/connz?auth=1&user=a"))[1]["connections"]) == 1
            _, subs = await ask("/subsz?subs=1&test=x.z")
            assert [sub["subject"] for sub in subs["subscriptions_list"]] == ["x.*"]

            one.leave()
            closed: dict[str, Any] = {}
            while not closed.get("connections"):
                await two.say(b"")
                _, closed = await ask("/connz?state=closed&sort=stop")
            (left,) = closed["connections"]
            assert (left["cid"], left["reason"], left["name"]) == (1, "Client Closed", "one")
            assert (await ask("/connz?state=all"))[1]["total"] == 2

    run(check())


@pytest.mark.parametrize("target", ["/connz?subs=detail", "/subsz?subs=1&limit=1000000"])
def test_a_connection_with_many_subscriptions_is_listed_in_small_steps(
    tmp_path: Path, target: str
) -> None:
    many = 200_000
    steps: list[float] = []

    async def others() -> None:
        """How much of this thread's time passes between turns of others."""
        before = time.thread_time()
        while True:
            await asyncio.sleep(0)
            before, took = time.thread_time(), time.thread_time() - before
            steps.append(took)

    async def check() -> None:
        async with serving(tmp_path, max_subscriptions=0) as running:
            client = await Client.enter(running)
            await client.connect()
            for start in range(0, many, 20_000):
                numbers = range(start, start + 20_000)
                await client.say(b"".join(b"SUB many.%d %d\r\n" % (n, n) for n in numbers))
            gc.collect()
            turns = asyncio.create_task(others())
            response = await Monitor(running).answer(Request(target))
            turns.cancel()
            found = json.loads(response.body)
            (key,) = {"connections", "subscriptions_list"} & found.keys()
            listed = found[key]
            if key == "connections":
                listed = listed[0]["subscriptions_list_detail"]
            assert len({sub["subject"] for sub in listed}) == many
            # One step for 256 of them, and more for the text.
            assert len(steps) > many / 256 * 1.2
            assert max(steps) < sum(steps) / 8, (max(steps), sum(steps))

    run(check())


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("/connz?sort=nonsense", 400),
        ("/connz?sort=stop", 400),
        ("/connz?limit=x", 400),
        ("/connz?subs=yes", 400),
        ("/connz?state=odd", 400),
        ("/connz?user=a", 400),
        ("/subsz?test=a.*", 400),
        ("/varz?" + "a=1&" * 100, 400),
        ("http://[", 400),
        ("/nothing", 404),
        ("/varz/x", 404),
        ("", 200),
        ("/varz?x=y", 200),
        ("/healthz", 200),
    ],
)
def test_questions_are_answered_or_refused(tmp_path: Path, target: str, status: int) -> None:
    async def check() -> None:
        async with serving(tmp_path) as running:
            assert (await asking(running)(target))[0] == status

    run(check())


@pytest.fixture
def nats_server(tmp_path: Path) -> Iterator[tuple[int, str]]:
    """A real nats-server: its port and the URL of its monitoring."""
    if not NATS_SERVER.exists():
        pytest.skip("needs nats-server next to the interpreter")
    flags = ["-a", "127.0.0.1", "-p", "-1", "-m", "-1", "--ports_file_dir", str(tmp_path)]
    with subprocess.Popen([str(NATS_SERVER), *flags], stderr=subprocess.DEVNULL) as process:
        try:
            deadline = time.monotonic() + DEADLINE_S
            while not (found := list(tmp_path.glob("*.ports"))) or not found[0].stat().st_size:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            urls = json.loads(found[0].read_text())
            yield int(urls["nats"][0].rpartition(":")[2]), urls["monitoring"][0]
        finally:
            process.terminate()


# What describes parts that mq9 does not have, or the build of nats-server.
NOT_HERE = {"git_commit", "feature_flags", "disk_io_wait_stats", "config_digest"}


def shape(value: object) -> object:
    """Names and types of a JSON document; times and numbers are one kind each."""
    if isinstance(value, dict):
        return {name: shape(inner) for name, inner in value.items() if name not in NOT_HERE}
    if isinstance(value, list):
        return [shape(inner) for inner in value[:1]]
    if isinstance(value, str) and re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:]+(\.\d+)?Z", value):
        return "time"
    if isinstance(value, int | float) and not isinstance(value, bool):
        return "number"
    return type(value).__name__


@pytest.mark.parametrize(
    "target",
    ["/varz", "/connz", "/connz?subs=1&auth=1", "/connz?subs=detail", "/subsz", "/healthz"],
)
def test_documents_have_the_fields_of_nats_server(
    tmp_path: Path, nats_server: tuple[int, str], target: str
) -> None:
    async def check() -> None:
        port, url = nats_server
        said = {"name": "n", "lang": "l", "version": "v", "user": "u"}
        async with serving(tmp_path, http_port=8222, max_subscriptions=0) as running:
            ours = await Client.enter(running)
            theirs = Client(*await asyncio.open_connection("127.0.0.1", port))
            await theirs.reader.readline()
            for client in (ours, theirs):
                await client.connect(**said)
                await client.say(b"SUB a q 1\r\nPUB a 1\r\nx\r\n")
            expected = await asyncio.to_thread(urllib.request.urlopen, url + target)
            with expected:
                wanted = shape(json.load(expected))
            _, document = await asking(running)(target)
            document.pop("mq9", None)
            assert shape(document) == wanted

    run(check())


def test_nothing_is_left_of_a_client_that_is_gone(tmp_path: Path) -> None:
    async def check() -> None:
        async with serving(tmp_path) as running:
            client = await Client.enter(running)
            await client.connect(name="short")
            [session] = running.clients
            left = weakref.ref(session)
            del session
            client.leave()
            await running.clients.gone()
            while left() is not None:
                gc.collect()
                await asyncio.sleep(0.01)

    run(check())
