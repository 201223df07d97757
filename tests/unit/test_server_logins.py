"""Logins while others guess passwords, and what the time of a refusal tells, on a real server."""

import json
import secrets
import select
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import count

import bcrypt
import pytest
from tests.peers import Serve, Server

DEADLINE_S = 60
TIMEOUT_S = 5


def hashed(password: str, cost: int) -> str:
    return bcrypt.hashpw(password.encode(), bcrypt.gensalt(cost)).decode()


# A hash takes some 100 ms: two threads do not compute 250 of them before the timeout.
CROWD = f"""
authorization {{ timeout: {TIMEOUT_S}, users: [
  {{ user: alice, password: "{hashed("right", 11)}" }}
  {{ user: bob, password: "{hashed("right", 11)}" }}
] }}
"""
MIXED = f"""
authorization {{ timeout: 30, users: [
  {{ user: slow, password: "{hashed("right", 8)}" }}
  {{ user: quick, password: "{hashed("right", 4)}" }}
  {{ user: plain, password: right }}
] }}
"""


def attempt(server: Server, user: str, password: str, source: str = "127.0.0.1") -> socket.socket:
    """A client that has said who it is; what the server answers is still to be read."""
    client = socket.create_connection(
        (server.host, server.port), timeout=DEADLINE_S, source_address=(source, 0)
    )
    assert client.recv(4096).startswith(b"INFO ")
    said = {"verbose": False, "user": user, "pass": password}
    client.sendall(b"CONNECT %b\r\nPING\r\n" % json.dumps(said).encode())
    return client


def answer(client: socket.socket) -> bytes:
    with client:
        return client.recv(4096)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.mark.parametrize("source", ["127.0.0.1", "127.0.0.2"], ids=["same_address", "other"])
@pytest.mark.parametrize("guessed", ["alice", "bob", "anybody"])
def test_honest_clients_log_in_while_others_guess(
    serve: Serve, stack: ExitStack, guessed: str, source: str
) -> None:
    server = serve(CROWD)
    crowd = []
    for number in range(250):
        user = guessed if guessed != "anybody" else f"anybody {number}"
        crowd.append(stack.enter_context(attempt(server, user, f"guess {number}")))
    assert answer(attempt(server, "alice", "right", source)) == b"PONG\r\n"
    answered, _, _ = select.select(crowd, [], [], 0)
    assert len(answered) < len(crowd), "nobody was waiting any more"
    # From now on it takes no hash.
    for _ in range(20):
        assert answer(attempt(server, "alice", "right", source)) == b"PONG\r\n"


def test_an_honest_client_logs_in_while_guesses_go_on(serve: Serve) -> None:
    """From its own address, with names that do not exist and with its own."""
    server = serve(CROWD)
    enough = threading.Event()
    guesses = count()

    def guess(user: str) -> None:
        while not enough.is_set():
            number = next(guesses)
            answer(attempt(server, user or f"made up {number}", f"guess {number}"))

    with ThreadPoolExecutor(64) as crowd:
        try:
            for number in range(64):
                crowd.submit(guess, "alice" if number < 6 else "")
            while next(guesses) < 100:
                time.sleep(0.01)
            for user in ("bob", "alice"):
                assert answer(attempt(server, user, "right")) == b"PONG\r\n"
        finally:
            enough.set()


def test_clients_that_are_too_many_are_told_to_try_again(serve: Serve, stack: ExitStack) -> None:
    server = serve(CROWD)
    crowd = [
        stack.enter_context(attempt(server, "alice", f"guess {number}")) for number in range(100)
    ]
    timeout, refused = b"-ERR 'Authentication Timeout'\r\n", b"-ERR 'Authorization Violation'\r\n"
    began = time.monotonic()
    answers = [answer(client) for client in crowd]
    assert set(answers) <= {timeout, refused}
    assert answers.count(timeout) >= 100 - 34
    assert time.monotonic() - began < DEADLINE_S


def test_the_time_of_a_refusal_does_not_tell_who_exists(serve: Serve) -> None:
    server = serve(MIXED)
    times: dict[str, list[float]] = {"nobody": [], "plain": [], "slow": [], "quick": []}
    for _ in range(20):
        for user, taken in times.items():
            client = attempt(server, user, secrets.token_hex())
            began = time.monotonic()
            assert answer(client) == b"-ERR 'Authorization Violation'\r\n"
            taken.append(time.monotonic() - began)
    for user, taken in times.items():
        for other, against in times.items():
            assert 0.1 < later(taken, against) < 0.9, (user, other, times)


def later(these: list[float], those: list[float]) -> float:
    """How often one of these is longer than one of those: a half if both are alike."""
    pairs = [(a, b) for a in these for b in those]
    return (
        sum(a > b for a, b in pairs) / len(pairs) + sum(a == b for a, b in pairs) / len(pairs) / 2
    )


def test_a_plain_password_is_answered_at_once_beside_hashes(serve: Serve, stack: ExitStack) -> None:
    server = serve(CROWD.replace("users: [", "users: [ { user: plain, password: right }"))
    crowd = [
        stack.enter_context(attempt(server, "plain", f"guess {number}")) for number in range(100)
    ]
    assert answer(attempt(server, "plain", "right")) == b"PONG\r\n"
    answered, _, _ = select.select(crowd, [], [], 0)
    assert len(answered) < len(crowd), "nobody was waiting any more"
