"""More connections, subscriptions and unread output than a server should bear: bounded memory."""

import resource
import selectors
import socket
import struct
from collections.abc import Iterator

import pytest
from tests.peers import MQ9, NATS_SERVER, Serve, Server, until
from tests.wire import CONNECT, Wire

MIB = 1 << 20
IDLE_CONNECTIONS = 10_000
LATER_CONNECTIONS = 3_000
IDLE_BYTES_EACH = {MQ9: 16 * 1024, NATS_SERVER: 64 * 1024}
SLACK_BYTES = 48 * MIB


def answers(server: Server) -> None:
    with Wire(server.port) as fresh:
        assert (
            fresh.connect().ask(b"SUB fine 1\r\nPUB fine 2\r\nok\r\n") == b"MSG fine 1 2\r\nok\r\n"
        )


def test_clients_that_never_read_are_cut_and_cost_no_more_than_their_limit(serve: Serve) -> None:
    clients, max_pending = 10, 2 * MIB
    server = serve(f'max_pending: {max_pending}\nwrite_deadline: "1s"\n')
    message = b"PUB flood 100000\r\n" + b"x" * 100_000 + b"\r\n"

    def attack() -> int:
        stuck = [Wire(server.port).connect() for _ in range(clients)]
        for wire in stuck:
            wire.ask(b"SUB flood 1\r\n")
        with Wire(server.port) as publisher, Wire(server.port) as bystander:
            publisher.connect()
            bystander.connect().ask(b"SUB other 1\r\n")
            highest = 0
            for _ in range(20):
                publisher.ask(message * 10)
                highest = max(highest, server.rss_bytes())
                assert bystander.ask(b"PUB other 1\r\nx\r\n") == b"MSG other 1 1\r\nx\r\n"
            until(lambda: server.monitor("/connz")["num_connections"] == 2, "all are cut")
        for wire in stuck:
            wire.close()
        return highest

    start = server.rss_bytes()
    assert attack() - start < clients * max_pending + SLACK_BYTES
    before = server.rss_bytes()
    attack()
    attack()
    assert server.rss_bytes() - before < SLACK_BYTES
    # nats-server counts some of them twice.
    assert server.monitor("/varz")["slow_consumers"] >= 3 * clients
    answers(server)


def test_a_client_that_asks_and_never_listens_is_cut(serve: Serve) -> None:
    server = serve(f"max_pending: {MIB}\n")
    start = server.rss_bytes()
    with Wire(server.port) as rude:
        rude.connect()
        try:
            # More than the kernel keeps of the answers.
            for _ in range(64):
                rude.socket.sendall(b"PING\r\n" * (MIB // 6))
        except (ConnectionError, TimeoutError):
            pass
        assert server.rss_bytes() - start < SLACK_BYTES

        def reasons() -> dict[int, str]:
            closed = server.monitor("/connz?state=closed")["connections"]
            return {each["cid"]: each["reason"] for each in closed}

        cid = rude.info["client_id"]
        reason = until(lambda: reasons().get(cid), "it is cut")
        assert reason == "Slow Consumer (Pending Bytes)"
    answers(server)


def test_subscriptions_go_with_their_client(serve: Serve) -> None:
    server = serve()

    def attack() -> None:
        with Wire(server.port) as wire:
            wire.connect()
            for start in range(0, 50_000, 5_000):
                numbers = range(start, start + 5_000)
                wire.ask(b"".join(b"SUB sub.%d.*.x%d %d\r\n" % (n, n, n) for n in numbers))
            assert server.monitor("/connz")["connections"][0]["subscriptions"] == 50_000
            wire.finish()
        until(lambda: server.monitor("/connz")["num_connections"] == 0, "it is gone")

    before = server.monitor("/varz")["subscriptions"]
    start = server.rss_bytes()
    attack()
    grown = server.rss_bytes()
    for _ in range(3):
        attack()
    # If they stayed, it would be three times what the first round took.
    assert server.rss_bytes() - grown < 2 * (grown - start) + MIB
    until(lambda: server.monitor("/varz")["subscriptions"] == before, "none is left")
    answers(server)


def test_a_flood_beyond_the_limit_is_turned_away(serve: Serve) -> None:
    limit, flood = 50, 400
    server = serve(f"max_connections: {limit}\n")
    for _ in range(2):
        kept = [Wire(server.port).connect() for _ in range(limit)]
        for _ in range(flood):
            with Wire(server.port) as late:
                assert late.until_closed() == b"-ERR 'maximum connections exceeded'\r\n"
        for wire in kept:
            assert wire.ask(b"") == b""
            wire.finish()
        until(lambda: server.monitor("/varz")["connections"] == 0, "all are gone")
    answers(server)


def test_connections_opened_and_dropped_leave_nothing(serve: Serve) -> None:
    server = serve()
    abort = struct.pack("ii", 1, 0)

    def attack() -> None:
        for number in range(1000):
            raw = socket.create_connection(("127.0.0.1", server.port), timeout=10)
            if number % 2:
                raw.sendall(CONNECT + b"SUB drop 1\r\n")
            if number % 3 == 0:
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, abort)
            raw.close()
        until(lambda: server.monitor("/varz")["connections"] == 0, "all are gone", 30)

    attack()
    before = server.rss_bytes()
    attack()
    attack()
    assert server.rss_bytes() - before < SLACK_BYTES
    answers(server)


@pytest.fixture
def many_files() -> Iterator[None]:
    """Lets this process, and the servers it starts, have a file for every connection."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = IDLE_CONNECTIONS + 500
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip(f"needs {wanted} open files, and the limit is {hard}: ulimit -Hn {wanted}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def opened(server: Server, count: int) -> list[socket.socket]:
    """Connections that have said CONNECT and been answered."""
    sockets: list[socket.socket] = []
    with selectors.DefaultSelector() as selector:
        for _ in range(count):
            raw = socket.create_connection(("127.0.0.1", server.port), timeout=30)
            raw.sendall(CONNECT + b"PING\r\n")
            sockets.append(raw)
            selector.register(raw, selectors.EVENT_READ, bytearray())
        while selector.get_map():
            ready = selector.select(30)
            assert ready, f"{len(selector.get_map())} connections were not answered"
            for key, _ in ready:
                raw = sockets_of(key)
                chunk = raw.recv(4096)
                assert chunk, "the server has closed an idle connection"
                key.data.extend(chunk)
                if b"PONG\r\n" in key.data:
                    selector.unregister(raw)
    return sockets


def sockets_of(key: selectors.SelectorKey) -> socket.socket:
    assert isinstance(key.fileobj, socket.socket)
    return key.fileobj


@pytest.mark.usefixtures("many_files")
def test_ten_thousand_idle_connections(serve: Serve) -> None:
    server = serve()
    start = server.rss_bytes()
    # The later ones live in the memory of the first.
    for count in (IDLE_CONNECTIONS, LATER_CONNECTIONS):
        sockets = opened(server, count)
        try:
            assert server.monitor("/varz")["connections"] == count
            each = (server.rss_bytes() - start) / IDLE_CONNECTIONS
            assert each < IDLE_BYTES_EACH[server.peer], f"{each:.0f} bytes for each connection"
            for raw in sockets[::500]:
                raw.sendall(b"PING\r\n")
                # The server's own PING may have come as well.
                answer = b""
                while b"PONG\r\n" not in answer:
                    answer += raw.recv(64)
            answers(server)
        finally:
            for raw in sockets:
                raw.close()
        until(lambda: server.monitor("/varz")["connections"] == 0, "all are gone", 30)
    answers(server)
