"""A server that is restarted, reloaded, sent away as a lame duck, and stopped."""

import asyncio
import select
import signal
import socket
import time
from contextlib import ExitStack

import bcrypt
import pytest
from tests.integration.conftest import Connect, settled
from tests.peers import Serve, until
from tests.wire import Wire, cut

DEADLINE_S = 15


async def test_clients_come_back_after_a_restart(serve: Serve, connect: Connect) -> None:
    server = serve()
    disconnected, reconnected = asyncio.Event(), asyncio.Event()

    async def on_disconnected() -> None:
        disconnected.set()

    async def on_reconnected() -> None:
        reconnected.set()

    client = await connect(
        server,
        allow_reconnect=True,
        reconnect_time_wait=0.05,
        max_reconnect_attempts=-1,
        disconnected_cb=on_disconnected,
        reconnected_cb=on_reconnected,
    )
    subscription = await client.subscribe("l.a")
    await settled(client)
    assert server.stop() == 0
    await asyncio.wait_for(disconnected.wait(), DEADLINE_S)
    serve(port=server.port)
    await asyncio.wait_for(reconnected.wait(), DEADLINE_S)
    await client.publish("l.a", b"after")
    assert (await subscription.next_msg(DEADLINE_S)).data == b"after"


def test_sigterm_flushes_and_exits_with_0(serve: Serve) -> None:
    server = serve()
    with Wire(server.port) as subscriber, Wire(server.port) as publisher:
        subscriber.connect()
        publisher.connect()
        subscriber.ask(b"SUB l.b 1\r\n")
        count = 1000
        publisher.ask(b"PUB l.b 4\r\nlast\r\n" * count)
        started = time.monotonic()
        server.signal(signal.SIGTERM)
        assert server.process.wait(DEADLINE_S) == 0
        assert time.monotonic() - started < 6
        received = subscriber.until_closed()
        assert received.count(b"MSG l.b 1 4\r\nlast\r\n") == count
    with pytest.raises(ConnectionRefusedError):
        Wire(server.port)


def test_sigint_exits(serve: Serve) -> None:
    server = serve()
    server.signal(signal.SIGINT)
    assert server.process.wait(DEADLINE_S) in {0, 1}


async def test_a_lame_duck_says_so_and_lets_its_clients_go(serve: Serve, connect: Connect) -> None:
    server = serve('lame_duck_duration: "30s"\nlame_duck_grace_period: "500ms"\n')
    told = asyncio.Event()

    async def on_lame_duck() -> None:
        told.set()

    client = await connect(server, lame_duck_mode_cb=on_lame_duck)
    subscription = await client.subscribe("l.c")
    await settled(client)
    with Wire(server.port) as wire:
        wire.connect(protocol=1)
        server.signal(signal.SIGUSR2)
        await asyncio.wait_for(told.wait(), DEADLINE_S)
        # It takes no new clients, but serves those it has during the time of grace.
        with pytest.raises(ConnectionRefusedError):
            Wire(server.port)
        await client.publish("l.c", b"still here")
        assert (await subscription.next_msg(DEADLINE_S)).data == b"still here"
        infos = [frame for frame in cut(wire.until_closed())[0] if frame.startswith(b"INFO ")]
        assert b'"ldm":true' in infos[-1].replace(b" ", b"")
    assert await asyncio.to_thread(server.process.wait, DEADLINE_S) == 0


BEFORE = """
max_payload: 1000
authorization { users = [
  { user: stays, password: one, permissions { publish: "l.>", subscribe: [">"] } }
  { user: leaves, password: one }
] }
"""
AFTER = """
max_payload: 2000
authorization { users = [
  { user: stays, password: one, permissions { publish: "l.>", subscribe: ["l.>"] } }
  { user: comes, password: two }
] }
"""


def test_a_reload_changes_users_and_limits(serve: Serve) -> None:
    server = serve(BEFORE)
    with Wire(server.port) as stays, Wire(server.port) as leaves:
        assert stays.info["max_payload"] == 1000
        stays.connect(user="stays", **{"pass": "one"})
        leaves.connect(user="leaves", **{"pass": "one"})
        assert stays.ask(b"SUB other 1\r\nSUB l.d 2\r\n") == b""
        server.reconfigure(AFTER)
        # An error may come before the end; nats-server sends none.
        assert leaves.until_closed() in {b"", b"-ERR 'Authorization Violation'\r\n"}
        with Wire(server.port) as comes:
            assert comes.info["max_payload"] == 2000
            comes.connect(user="comes", **{"pass": "two"})
            comes.ask(b"PUB other 0\r\n\r\nPUB l.d 0\r\n\r\n")
        assert stays.ask(b"") == (
            b'-ERR \'Permissions Violation for Subscription to "other" (sid "1")\'\r\n'
            b"MSG l.d 2 0\r\n\r\n"
        )
    with Wire(server.port) as gone:
        gone.send(b'CONNECT {"user":"leaves","pass":"one"}\r\n')
        assert gone.until_closed() == b"-ERR 'Authorization Violation'\r\n"


def test_a_reload_lets_nobody_stay_because_others_take_a_hash(serve: Serve) -> None:
    """Who is gone goes first; a user whose hash is new has its new permissions at once."""

    def hashed(password: bytes, cost: int) -> str:
        return bcrypt.hashpw(password, bcrypt.gensalt(cost)).decode()

    def user(name: str, hashed: str, rules: str = "") -> str:
        return f'{{ user: {name}, password: "{hashed}"{rules} }}'

    def users(*each: str) -> str:
        return f"authorization {{ timeout: 30, users: [ {', '.join(each)} ] }}\n"

    quick = hashed(b"one", 4)
    server = serve(users(*(user(name, quick) for name in (*map("u{}".format, range(8)), "gone"))))
    with ExitStack() as stack:

        def enter(name: str) -> Wire:
            wire = stack.enter_context(Wire(server.port))
            wire.connect(user=name, **{"pass": "one"})
            return wire

        first = [enter(f"u{number}") for number in range(8)]
        gone = enter("gone")
        # New hashes of several seconds altogether: of other passwords, and of the same.
        wrong, right = hashed(b"two", 12), hashed(b"one", 11)
        slow = [user(f"u{number}", wrong) for number in range(6)]
        rules = ', permissions { publish: "l.>", subscribe: "l.>" }'
        slow += [user(f"u{number}", right, rules) for number in (6, 7)]
        stays = first[6]
        assert stays.ask(b"SUB other 1\r\n") == b""
        server.reconfigure(users(*slow))
        assert b"Violation" in gone.until_closed()
        told, _, _ = select.select([wire.socket for wire in first[:6]], [], [], 0)
        refused = [one for one in told if b"-ERR" in one.recv(1 << 12, socket.MSG_PEEK)]
        assert len(refused) < 6, "others were decided first"
        heard = stays.ask(b"PUB other 0\r\n\r\n")
        assert b'Permissions Violation for Subscription to "other"' in heard
        assert b'Permissions Violation for Publish to "other"' in heard
        for wire in first[:6]:
            assert b"Authorization Violation" in wire.until_closed()
        # Whose password is right stays.
        assert stays.ask(b"PUB l.a 0\r\n\r\n") == first[7].ask(b"PUB l.a 0\r\n\r\n") == b""


def test_a_reload_may_require_credentials(serve: Serve) -> None:
    server = serve("max_payload: 1000\n")
    with Wire(server.port) as anonymous:
        anonymous.connect()
        server.reconfigure("max_payload: 1000\nauthorization { user: a, password: b }\n")
        assert anonymous.until_closed() == b"-ERR 'Authorization Violation'\r\n"
    with Wire(server.port) as known:
        assert known.info["auth_required"] is True
        known.connect(user="a", **{"pass": "b"})


def test_a_broken_configuration_is_not_taken(serve: Serve) -> None:
    server = serve(BEFORE)
    assert server.config_file is not None
    with Wire(server.port) as stays:
        stays.connect(user="stays", **{"pass": "one"})
        server.config_file.write_text("max_payload: {", "utf-8")
        length = len(server.log)
        server.signal(signal.SIGHUP)
        until(
            lambda: "rror" in server.log[length:] or "ailed" in server.log[length:], "it is logged"
        )
        assert stays.ask(b"PUB l.e 0\r\n\r\n") == b""
        with Wire(server.port) as again:
            again.connect(user="leaves", **{"pass": "one"})


async def test_an_idle_client_is_asked_and_a_silent_one_is_cut(serve: Serve) -> None:
    server = serve('ping_interval: "200ms"\nping_max: 2\n')
    with Wire(server.port) as silent, Wire(server.port) as alive:
        silent.send(b'CONNECT {"verbose":false}\r\n')
        alive.send(b'CONNECT {"verbose":false}\r\n')
        for _ in range(5):
            assert alive.until(b"PING\r\n") == b"PING\r\n"
            alive.send(b"PONG\r\n")
        received = silent.until_closed()
        assert received.endswith(b"-ERR 'Stale Connection'\r\n")
        assert received.count(b"PING\r\n") == 2
        assert alive.ask(b"") == b""
