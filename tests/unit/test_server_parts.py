"""Small parts of the server: listening, pacing, matching subjects."""

import asyncio
import errno
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mq9.server.lame_duck import pace
from mq9.server.listener import Listener, listen
from mq9.server.logs import Log
from mq9.server.running import StartError
from mq9.server.subsz import is_publish_subject, matches

DEADLINE_S = 20


def close(sockets: list[socket.socket]) -> None:
    for one in sockets:
        one.close()


def test_a_server_on_all_addresses_takes_ipv4_and_ipv6() -> None:
    sockets = listen("0.0.0.0", -1)
    port = sockets[0].getsockname()[1]
    hosts = ["127.0.0.1"] + (["::1"] if sockets[0].family == socket.AF_INET6 else [])
    for host in hosts:
        socket.create_connection((host, port), timeout=DEADLINE_S).close()
    close(sockets)


def test_a_name_is_listened_on_at_each_of_its_addresses_with_one_port() -> None:
    sockets = listen("localhost", -1)
    assert len({one.getsockname()[1] for one in sockets}) == 1
    addresses = {one.getsockname()[0] for one in sockets}
    assert addresses <= {"127.0.0.1", "::1"}
    close(sockets)


def test_a_port_in_use_is_named() -> None:
    sockets = listen("127.0.0.1", -1)
    port = sockets[0].getsockname()[1]
    with pytest.raises(StartError, match=rf"127\.0\.0\.1:{port}: Address already in use; is"):
        listen("127.0.0.1", port)
    close(sockets)


def test_a_host_that_is_not_ours_is_named() -> None:
    with pytest.raises(StartError, match=r"192\.0\.2\.77"):
        listen("192.0.2.77", -1)
    with pytest.raises(StartError, match="no-such-host"):
        listen("no-such-host.invalid", -1)


class NoFilesLeft(socket.socket):
    """A listening socket in a process that has no file descriptor left, once."""

    failed = False

    def accept(self) -> tuple[socket.socket, tuple[str, int]]:
        if not self.failed:
            self.failed = True
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()


def test_accepting_goes_on_after_files_ran_out(capsys: pytest.CaptureFixture[str]) -> None:
    async def check() -> None:
        listening = listen("127.0.0.1", -1)[0]
        port = listening.getsockname()[1]
        exhausted = NoFilesLeft(fileno=listening.detach())
        entered = asyncio.Event()

        def enter(accepted: socket.socket, _address: tuple[str, int]) -> None:
            accepted.close()
            entered.set()

        listener = Listener([exhausted], enter, Log())
        with socket.create_connection(("127.0.0.1", port)):
            async with asyncio.timeout(DEADLINE_S):
                await entered.wait()
        listener.close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))

    asyncio.run(check())
    assert "cannot accept a connection: Too many open files" in capsys.readouterr().err


@given(st.integers(1, 200_000), st.floats(0, 600))
def test_lame_ducks_are_all_sent_away_in_time(clients: int, seconds: float) -> None:
    gap, batch = pace(clients, seconds)
    rounds = -(-clients // batch)
    assert 0 <= gap <= 1
    assert gap * rounds <= seconds + 1e-6


def test_a_few_lame_ducks_are_not_kept_waiting() -> None:
    assert pace(3, 110) == (1.0, 1)
    assert pace(1000, 110) == (0.11, 1)
    assert pace(0, 110) == (0.0, 1)


@pytest.mark.parametrize(
    ("pattern", "subject", "expected"),
    [
        ("a.b", "a.b", True),
        ("a.b", "a.c", False),
        ("a.*", "a.c", True),
        ("*.c", "a.c", True),
        ("a.*", "a", False),
        ("a.*", "a.b.c", False),
        ("a.>", "a.b.c", True),
        ("a.>", "a", False),
        (">", "a", True),
        ("*.>", "a.b", True),
        ("*.b.>", "a.c.d", False),
    ],
)
def test_which_subscriptions_receive_a_subject(pattern: str, subject: str, expected: bool) -> None:
    assert matches(pattern, subject) is expected


def test_which_subjects_can_be_published_to() -> None:
    assert is_publish_subject("a.b-c.$d")
    for bad in ("", "a..b", ".a", "a.", "a.*", "a.>", "*", "a b", "a\tb"):
        assert not is_publish_subject(bad)
