"""Input that no honest client sends: the right error, no crash, no memory that stays."""

import json
import random
import socket
import struct
import time
from collections.abc import Callable, Iterator

import pytest
from tests.peers import Serve, Server
from tests.wire import CONNECT, Wire, messages

MIB = 1 << 20
# What a garbage-collected or allocating server may keep from one round to the next.
SLACK_BYTES = 32 * MIB

CONTROL_LINE_ERROR = b"-ERR 'maximum control line exceeded'\r\n"
PAYLOAD_ERROR = b"-ERR 'Maximum Payload Violation'\r\n"


@pytest.fixture(scope="module")
def target(serve_for_session: Serve) -> Server:
    return serve_for_session()


@pytest.fixture(autouse=True)
def still_fine(target: Server) -> Iterator[None]:
    """After each test the server answers a fresh client."""
    yield
    assert target.process.poll() is None, target.log
    with Wire(target.port) as fresh:
        assert (
            fresh.connect().ask(b"SUB fine 1\r\nPUB fine 2\r\nok\r\n") == b"MSG fine 1 2\r\nok\r\n"
        )
    assert "Traceback" not in target.log
    assert "panic" not in target.log


def answer(server: Server, sent: bytes) -> bytes:
    """What the server says until it closes."""
    with Wire(server.port) as wire:
        wire.send(CONNECT + sent)
        return wire.until_closed()


def growth_bytes(server: Server, attack: Callable[[], None], rounds: int = 3) -> int:
    """By how much the memory of the server grows after the first round of an attack."""
    attack()
    before = server.rss_bytes()
    for _ in range(rounds):
        attack()
    return server.rss_bytes() - before


@pytest.mark.parametrize(
    "line",
    [
        b"PUB " + b"x" * 10_000 + b" 0\r\n\r\n",
        b"HPUB " + b"x" * 10_000 + b" 0 0\r\n\r\n",
        b"SUB " + b"x" * 10_000 + b" 1\r\n",
        b"SUB x " + b"1" * 10_000 + b"\r\n",
        b"UNSUB " + b"1" * 10_000 + b"\r\n",
        b"CONNECT " + b"x" * 10_000 + b"\r\n",
    ],
    ids=["pub", "hpub", "sub", "sid", "unsub", "connect"],
)
def test_an_oversized_control_line(target: Server, line: bytes) -> None:
    assert answer(target, line) == CONTROL_LINE_ERROR


def test_a_control_line_that_never_ends_is_not_collected(target: Server) -> None:
    def attack() -> None:
        for command in (b"PUB ", b"SUB ", b"CONNECT "):
            with Wire(target.port) as wire:
                for _ in range(64):
                    wire.send(command + b"x" * 65_536)
                assert wire.until_closed() == CONTROL_LINE_ERROR

    assert growth_bytes(target, attack) < SLACK_BYTES


@pytest.mark.parametrize("command", [b"PUB a %d\r\n", b"HPUB a 12 %d\r\n"])
def test_an_oversized_payload_is_refused_before_it_comes(target: Server, command: bytes) -> None:
    assert answer(target, command % (2 * MIB)) == PAYLOAD_ERROR


def test_an_oversized_payload_that_comes_nevertheless_is_not_kept(target: Server) -> None:
    def attack() -> None:
        with Wire(target.port) as wire:
            wire.send(CONNECT + b"PUB a %d\r\n" % (64 * MIB))
            for _ in range(16):
                wire.send(b"x" * MIB)
            # What was in the way of the error may have pushed it out.
            assert wire.until_closed() in {PAYLOAD_ERROR, b""}

    assert growth_bytes(target, attack) < SLACK_BYTES


@pytest.mark.parametrize(
    "size",
    [
        b"-1",
        b"-9223372036854775808",
        b"9223372036854775808",
        b"18446744073709551615",
        b"18446744073709551616",
        b"340282366920938463463374607431768211456",
        b"1e9",
        b"0x10",
        b"+1",
        b"1_0",
        b"\xd9\xa1",
        b"1\x00",
        b"NaN",
    ],
)
def test_a_size_that_is_none_closes_the_connection(target: Server, size: bytes) -> None:
    assert answer(target, b"PUB a " + size + b"\r\n\r\n") == b""
    assert answer(target, b"HPUB a " + size + b" 20\r\n\r\n") == b""
    assert answer(target, b"HPUB a 0 " + size + b"\r\n\r\n") == b""


def test_payloads_announced_and_never_sent_cost_nothing(target: Server) -> None:
    """A thousand clients that each announce a mebibyte."""
    wires = [Wire(target.port) for _ in range(200)]
    before = target.rss_bytes()
    for wire in wires:
        wire.send(CONNECT + b"PUB a %d\r\nx" % MIB)
        wire.wait_read()
    with Wire(target.port) as other:
        other.connect()
    assert target.rss_bytes() - before < 100 * MIB
    for wire in wires:
        wire.close()


def test_a_connect_in_dribs_works(target: Server) -> None:
    with Wire(target.port) as wire:
        for at in range(len(CONNECT)):
            wire.send(CONNECT[at : at + 1])
            wire.wait_read()
        assert wire.ask(b"") == b""


def test_a_connect_in_dribs_ends_with_the_timeout(serve: Serve) -> None:
    server = serve("authorization { user: a, password: b, timeout: 0.5 }\n")
    with Wire(server.port) as wire:
        started = time.monotonic()
        wire.send(b'CONNECT {"name":"')
        wire.socket.settimeout(0.02)
        while time.monotonic() - started < 10:
            wire.send(b"x")
            try:
                if not wire._more():
                    break
            except TimeoutError:
                continue
        assert bytes(wire.received) == b"-ERR 'Authentication Timeout'\r\n"
        assert time.monotonic() - started < 5
    with Wire(server.port) as fresh:
        fresh.connect(user="a", **{"pass": "b"})


def test_ten_thousand_tokens(serve: Serve, target: Server) -> None:
    server = serve("max_control_line: 65536\n")
    tokens = 10_000
    literal = b".".join([b"a"] * tokens)
    with Wire(server.port) as wire:
        wire.connect()
        started = time.monotonic()
        for sid, pattern in enumerate(
            [
                literal,
                b".".join([b"*"] * tokens),
                b".".join([b"a", b"*"] * (tokens // 2)),
                b".".join([b"*"] * (tokens - 1) + [b">"]),
                b"a.>",
            ]
        ):
            assert wire.ask(b"SUB %s %d\r\n" % (pattern, sid)) == b""
        received = messages(wire.ask(b"PUB %s 1\r\nx\r\n" % literal))
        assert sorted(message.sid for message in received) == ["0", "1", "2", "3", "4"]
        assert wire.ask(b"".join(b"UNSUB %d\r\n" % sid for sid in range(5))) == b""
        assert time.monotonic() - started < 10
        assert wire.ask(b"PUB %s 1\r\nx\r\n" % literal) == b""
    with Wire(target.port) as wire:
        wire.send(CONNECT + b"SUB " + b"*." * tokens + b"* 1\r\n")
        assert wire.until_closed() == CONTROL_LINE_ERROR


def test_wildcards_that_all_match_do_not_multiply(target: Server) -> None:
    """Every pattern of `a` and `*` over ten tokens: each is found once, and soon."""
    depth = 10
    patterns = [
        b".".join(b"*" if number >> bit & 1 else b"w" for bit in range(depth))
        for number in range(1 << depth)
    ]
    with Wire(target.port) as wire:
        wire.connect()
        wire.ask(
            b"".join(
                b"SUB %s %d\r\n" % each for each in zip(patterns, range(1 << depth), strict=True)
            )
        )
        started = time.monotonic()
        received = messages(wire.ask(b"PUB %s 1\r\nx\r\n" % b".".join([b"w"] * depth)))
        assert len({message.sid for message in received}) == len(received) == 1 << depth
        assert time.monotonic() - started < 5


def test_subjects_that_are_not_utf_8(target: Server) -> None:
    raw = bytes(set(range(256)) - set(b" \t\r\n.*>"))
    with Wire(target.port) as wire:
        wire.send(b'CONNECT {"verbose":false,"name":"\xff\xfe"}\r\n')
        assert wire.ask(b"SUB %s \xff\r\n" % raw) == b""
        got = wire.ask(b"PUB %s \xfe.\xff 2\r\n\xff\x00\r\n" % raw)
        assert got == b"MSG %s \xff \xfe.\xff 2\r\n\xff\x00\r\n" % raw
        # Still JSON for those who look.
        for path in ("/subsz?subs=1", "/connz?subs=detail", "/connz?subs=1&auth=1", "/varz"):
            assert target.monitor(path)


def test_random_bytes(target: Server) -> None:
    chance = random.Random(3)

    def attack() -> None:
        for _ in range(60):
            with Wire(target.port) as wire:
                wire.send(chance.randbytes(chance.choice([1, 10, 1000, 60_000])))
                wire.finish()

    assert growth_bytes(target, attack) < SLACK_BYTES


def test_commands_with_bytes_turned(target: Server) -> None:
    chance = random.Random(4)
    script = (
        CONNECT + b"SUB hostile.* q 1\r\nUNSUB 1 3\r\nPUB hostile.a r 5\r\nhello\r\n"
        b"HPUB hostile.b 12 14\r\nNATS/1.0\r\n\r\nhi\r\nPING\r\nPONG\r\n"
    )
    for _ in range(300):
        turned = bytearray(script)
        for _ in range(chance.randint(1, 4)):
            turned[chance.randrange(len(turned))] = chance.randrange(256)
        with Wire(target.port) as wire:
            wire.send(bytes(turned))
            wire.finish()


def test_json_that_is_deep_or_long(target: Server) -> None:
    for options in (
        b'{"a":' * 800 + b"1" + b"}" * 800,
        b"[" * 4000,
        b'{"name":"' + b"\\u0000" * 600 + b'"}',
        b'{"protocol":1e400}',
        b'{"protocol":99999999999999999999}',
        b'{"verbose":false,"verbose":' + b"true" * 10 + b"}",
        b'{"user":{"a":[]}}',
        b'{"name":"\\ud800"}',
        b"\xef\xbb\xbf{}",
    ):
        with Wire(target.port) as wire:
            wire.send(b"CONNECT " + options + b"\r\n")
            wire.finish()


def test_clients_that_reset_at_any_moment(target: Server) -> None:
    script = CONNECT + b"SUB reset.> 1\r\nPUB reset.a 5\r\nhello\r\nPING\r\n"
    abort = struct.pack("ii", 1, 0)
    for at in range(0, len(script), 3):
        with Wire(target.port) as wire:
            wire.send(script[:at])
            wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, abort)


def test_the_monitoring_port_takes_no_nonsense(target: Server) -> None:
    assert target.monitor_url is not None
    port = int(target.monitor_url.rsplit(":", 1)[1])

    def ask(sent: bytes) -> bytes:
        with socket.create_connection(("127.0.0.1", port), timeout=10) as http:
            try:
                http.sendall(sent)
                http.shutdown(socket.SHUT_WR)
                return b"".join(iter(lambda: http.recv(1 << 16), b""))
            except OSError:
                return b""  # It did not want to hear the rest.

    for sent in (
        b"\x16\x03\x01\x00\x00",
        b"GET /varz\r\n\r\n",
        b"PING\r\n" * 1000,
        b"GET /varz HTTP/1.1\r\nHost: x\r\n" + b"A: %s\r\n" % (b"x" * 2000) * 1000 + b"\r\n",
        b"GET /" + b"x" * 200_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST /varz HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n",
        b"GET /../../etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /varz HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ):
        got = ask(sent)
        assert b"root:" not in got
    assert (
        json.loads(ask(b"GET /healthz HTTP/1.0\r\n\r\n").split(b"\r\n\r\n", 1)[1])["status"] == "ok"
    )
