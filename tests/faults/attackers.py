"""Clients that do what no client should, each as a process of its own with the lowest priority.

Usage: python -m tests.faults.attackers KIND PORT SECONDS SEED. It says `ready` when it is at it,
and ends by itself. What the broker should make of it is for the tests.
"""

import contextlib
import os
import random
import resource
import socket
import sys
import time
from collections.abc import Callable

from tests.faults.fuzzed import CONNECT, exchange

MIB = 1 << 20
IDLE = 10_000
PAUSE_S = 0.01


def say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


def ready(seconds: float) -> float:
    """Says that it begins; when it is to end."""
    say("ready")
    return time.monotonic() + seconds


def over(connections: list[socket.socket]) -> None:
    """Says that it ends; what is open stays so until then."""
    say("over")
    for raw in connections:
        raw.close()


def connect(port: int) -> socket.socket:
    raw = socket.create_connection(("127.0.0.1", port), timeout=10)
    raw.settimeout(1)
    return raw


def try_send(raw: socket.socket, data: bytes) -> bool:
    """Whether the broker still listens to this connection."""
    try:
        raw.sendall(data)
    except OSError:
        return False
    return True


def never_read(port: int, seconds: float, _choose: random.Random) -> None:
    """Subscribers that never read, and one who keeps sending to them."""
    stuck: list[socket.socket] = []
    publisher = connect(port)
    publisher.sendall(CONNECT)
    message = b"PUB flood 100000\r\n" + b"x" * 100_000 + b"\r\n"
    until = ready(seconds)
    while time.monotonic() < until:
        stuck = [raw for raw in stuck if try_send(raw, b"PING\r\n")]
        while len(stuck) < 10:
            raw = connect(port)
            raw.sendall(CONNECT + b"SUB flood 1\r\n")
            stuck.append(raw)
        publisher.sendall(message)
        time.sleep(PAUSE_S)
    over([*stuck, publisher])


def ask_and_never_listen(port: int, seconds: float, _choose: random.Random) -> None:
    """Clients that keep asking and never take an answer."""
    until = ready(seconds)
    while time.monotonic() < until:
        raw = connect(port)
        raw.sendall(CONNECT)
        raw.settimeout(0.1)
        while time.monotonic() < until and try_send(raw, b"PING\r\n" * 10_000):
            time.sleep(PAUSE_S)
        raw.close()
    over([])


def dribble(port: int, seconds: float, _choose: random.Random) -> None:
    """Commands that come one byte at a time, from many."""
    script = CONNECT + b"SUB drip 1\r\nPUB drip 5\r\nhello\r\n"
    wires = [connect(port) for _ in range(300)]
    until = ready(seconds)
    at = 0
    while time.monotonic() < until:
        byte = script[at % len(script) : at % len(script) + 1]
        wires = [raw for raw in wires if try_send(raw, byte)]
        at += 1
        time.sleep(PAUSE_S)
    over(wires)


def connections(port: int, seconds: float, choose: random.Random) -> None:
    """Connections opened and dropped as fast as can be, many more than are let in."""
    until = ready(seconds)
    held: list[socket.socket] = []
    while time.monotonic() < until:
        for _ in range(20):
            with contextlib.suppress(OSError):
                held.append(connect(port))
        while len(held) > 100:
            held.pop(choose.randrange(len(held))).close()
        time.sleep(PAUSE_S)
    over(held)


def idle(port: int, seconds: float, _choose: random.Random) -> None:
    """Ten thousand connections that do nothing."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    wires = []
    for _ in range(IDLE):
        raw = connect(port)
        raw.sendall(CONNECT)
        wires.append(raw)
    until = ready(seconds)
    while time.monotonic() < until:
        time.sleep(PAUSE_S)
    over(wires)


def subscriptions(port: int, seconds: float, _choose: random.Random) -> None:
    """Subscriptions by the ten thousand, with wildcards that match each other's subjects."""
    until = ready(seconds)
    start = 0
    while time.monotonic() < until:
        raw = connect(port)
        raw.sendall(CONNECT)
        for _ in range(10):
            numbers = range(start, start + 500)
            raw.sendall(b"".join(b"SUB abuse.%d.*.x%d %d\r\n" % (n, n, n) for n in numbers))
            raw.sendall(b"".join(b"SUB *.*.%d.> %d\r\n" % (n, n + 10**6) for n in numbers))
            raw.sendall(b"PUB abuse.%d.1.x%d 2\r\nhi\r\n" % (start, start))
            start += 500
            with contextlib.suppress(TimeoutError):
                raw.recv(1 << 16)
            time.sleep(PAUSE_S)
        raw.close()
    over([])


def fuzz(port: int, seconds: float, choose: random.Random) -> None:
    """Commands of all kinds and with mistakes of all kinds, whole, in pieces, and broken off."""
    until = ready(seconds)
    abort = b"\x01\x00\x00\x00\x00\x00\x00\x00"
    while time.monotonic() < until:
        for _ in range(5):
            with connect(port) as raw, contextlib.suppress(OSError):
                said = exchange(choose)
                cut = choose.randrange(len(said) + 1)
                raw.sendall(said[:cut])
                raw.sendall(said[cut:])
                if choose.random() < 0.2:
                    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, abort)
                elif choose.random() < 0.5:
                    raw.shutdown(socket.SHUT_WR)
                    raw.settimeout(0.05)
                    raw.recv(1 << 16)
        time.sleep(PAUSE_S)
    over([])


def hostile_cards() -> list[tuple[str, bytes]]:
    """Cards, reports and farewells that a careless reader takes long to read."""
    quotes = b'{"mailbox":"a","x":' + b"[" * 65 + b'"' + b'\\"' * 30_000
    keys = b"".join(b'"%d":0,' % number for number in range(20_000))
    twice = b'{"mailbox":"a",' + keys + b'"19999":0}'
    skills = b'{"mailbox":"a","skills":[' + b"{}," * 80_000 + b"{}]}"
    tags = b'{"mailbox":"a","tags":[' + b'"t",' * 60_000 + b'"t"]}'
    digits = b'{"mailbox":"a","ttl":' + b"9" * 250_000 + b"}"
    bodies = (quotes, twice, skills, tags, digits)
    return [
        (f"$mq9.AI.AGENT.{command}", body)
        for command in ("REGISTER", "REPORT", "UNREGISTER")
        for body in bodies
    ]


def unknown_fields(number: int) -> list[tuple[str, bytes]]:
    """Requests that are almost as large as can be, of fields that nobody knows."""
    body = b"{" + b",".join(b'"field%d":%d' % (n, n) for n in range(number)) + b"}"
    commands = ("PUBLIC.LIST", "MAILBOX.CREATE", "MSG.QUERY.nobody", "AGENT.DISCOVER")
    return [(f"$mq9.AI.{command}", body) for command in commands]


def asking(requests: list[tuple[str, bytes]]) -> Callable[[int, float, random.Random], None]:
    """Asks for these in turn, each when the one before it was answered."""

    def ask(port: int, seconds: float, _choose: random.Random) -> None:
        raw = connect(port)
        raw.settimeout(30)
        raw.sendall(CONNECT + b"SUB answers 1\r\n")
        until = ready(seconds)
        while time.monotonic() < until:
            for subject, body in requests:
                raw.sendall(b"PUB %s answers %d\r\n%s\r\n" % (subject.encode(), len(body), body))
                answer = b""
                while b"MSG answers" not in answer:
                    answer += raw.recv(1 << 16)
        over([raw])

    return ask


# What patterns for addresses, versions and numbers might take long to read.
ADDRESSES = {
    "at": "a@" * 100_000,
    "scheme": "a://" * 50_000,
    "dots": "1." * 100_000,
    "hexadecimal": "ab-" * 70_000,
    "run": "a" * 200_000,
    "numbers": "0a" * 100_000,
}


def cards_of_addresses() -> list[tuple[str, bytes]]:
    """Cards that are registered again and again, and a search behind each."""
    requests = []
    for name, text in ADDRESSES.items():
        card = b'{"mailbox":"hostile.%s","description":"%s"}' % (name.encode(), text.encode())
        requests += [("$mq9.AI.AGENT.REGISTER", card), ("$mq9.AI.AGENT.DISCOVER", b'{"text":"a"}')]
    return requests


GUESSERS = 200


def wrong_passwords(port: int, seconds: float, choose: random.Random) -> None:
    """Clients that try passwords for a user that exists, each again when it was refused."""
    wires: list[socket.socket] = []
    until = ready(seconds)
    while time.monotonic() < until:
        wires = [raw for raw in wires if not is_closed(raw)]
        while len(wires) < GUESSERS:
            raw = connect(port)
            guess = b'CONNECT {"verbose":false,"user":"victim","pass":"%d"}\r\nPING\r\n'
            raw.sendall(guess % choose.getrandbits(64))
            raw.setblocking(False)
            wires.append(raw)
        time.sleep(PAUSE_S)
    over(wires)


def is_closed(raw: socket.socket) -> bool:
    """Takes what has come; whether the broker has ended the connection."""
    try:
        while raw.recv(1 << 16):
            pass
    except BlockingIOError:
        return False
    except OSError:
        pass
    raw.close()
    return True


# As many as there may be, of each.
GROUPS = 1024
WAITS = 1024


def full_groups_and_waits(port: int, seconds: float, _choose: random.Random) -> None:
    """Connections that wait as often as they may, on a mailbox with all its groups, and try on."""
    address = f"full.{os.getpid()}"
    wires = [connect(port) for _ in range(4)]
    created = b'{"name":"%s","ttl":60}' % address.encode()
    wires[0].sendall(CONNECT + b"PUB $mq9.AI.MAILBOX.CREATE %d\r\n%s\r\n" % (len(created), created))
    for raw in wires[1:]:
        raw.sendall(CONNECT)
    for raw in wires:
        raw.sendall(b"SUB answers 1\r\n")

    def fetches(first: int, count: int, wait_ms: int) -> bytes:
        said = []
        for number in range(first, first + count):
            fetch = b'{"group_name":"g%d","config":{"max_wait_ms":%d}}' % (number, wait_ms)
            subject = b"$mq9.AI.MSG.FETCH.%s" % address.encode()
            said.append(b"PUB %s answers %d\r\n%s\r\n" % (subject, len(fetch), fetch))
        return b"".join(said)

    for raw in wires:
        raw.sendall(fetches(0, WAITS, 600_000))
    until, number = ready(seconds), GROUPS
    for raw in wires:
        raw.setblocking(False)
    while time.monotonic() < until:
        for raw in wires:
            with contextlib.suppress(BlockingIOError):
                # Neither has room for them: no group is made, and nobody waits.
                raw.send(fetches(number, 10, 0) + fetches(0, 10, 600_000))
            is_closed(raw)
        number += 10
        time.sleep(PAUSE_S)
    over(wires)


KINDS: dict[str, Callable[[int, float, random.Random], None]] = {
    "never read": never_read,
    "ask and never listen": ask_and_never_listen,
    "dribble": dribble,
    "flood of connections": connections,
    "10,000 idle": idle,
    "abusive subscriptions": subscriptions,
    "fuzzed protocol": fuzz,
    "hostile cards": asking(hostile_cards()),
    "cards of addresses": asking(cards_of_addresses()),
    "full groups and waits": full_groups_and_waits,
    "unknown fields, large": asking(unknown_fields(50_000)),
    "unknown fields, small": asking(unknown_fields(3_000)),
}
# Against a broker that asks who somebody is.
GUESSING = {"wrong passwords": wrong_passwords}


if __name__ == "__main__":
    os.nice(19)
    kind, port, seconds, seed = sys.argv[1:]
    try:
        (KINDS | GUESSING)[kind](int(port), float(seconds), random.Random(int(seed)))
    except ConnectionError as error:
        sys.exit(f"the broker does not take connections: {error}")
