"""Authentication of each kind and permissions, through nats-py."""

import asyncio
import base64
import json

import bcrypt
import nats.errors
import nkeys  # type: ignore[import-untyped]
import pytest
from tests.integration.conftest import Connect, settled
from tests.peers import Serve, Server, until
from tests.wire import Wire

DEADLINE_S = 10
VIOLATION = b"-ERR 'Authorization Violation'\r\n"


def bcrypted(password: str) -> str:
    return bcrypt.hashpw(password.encode(), bcrypt.gensalt(4)).decode()


async def works(server: Server, connect: Connect, **credentials: str) -> None:
    client = await connect(server, **credentials)
    subscription = await client.subscribe("x.a")
    await client.publish("x.a", b"hello")
    assert (await subscription.next_msg(DEADLINE_S)).data == b"hello"


async def refused(server: Server, connect: Connect, **credentials: str) -> None:
    with pytest.raises((nats.errors.Error, nats.errors.NoServersError)) as caught:
        await connect(server, max_reconnect_attempts=0, **credentials)
    assert "authorization violation" in str(caught.value).lower()


async def test_user_and_password(serve: Serve, connect: Connect) -> None:
    server = serve("authorization { user: ada, password: lovelace }\n")
    await works(server, connect, user="ada", password="lovelace")
    await works_by_url(server, connect, "ada:lovelace")
    await refused(server, connect, user="ada", password="Lovelace")
    await refused(server, connect, user="bob", password="lovelace")
    await refused(server, connect, token="lovelace")
    await refused(server, connect)


async def works_by_url(server: Server, connect: Connect, credentials: str) -> None:
    client = await connect(f"nats://{credentials}@127.0.0.1:{server.port}")
    await client.flush()


async def test_flags_give_user_and_password(serve: Serve, connect: Connect) -> None:
    server = serve("", "--user", "ada", "--pass", "lovelace")
    await works(server, connect, user="ada", password="lovelace")
    await refused(server, connect, user="ada", password="x")


async def test_a_flag_gives_a_token(serve: Serve, connect: Connect) -> None:
    server = serve("", "--auth", "s3cr3t")
    await works(server, connect, token="s3cr3t")
    await refused(server, connect, token="x")


async def test_token(serve: Serve, connect: Connect) -> None:
    server = serve("authorization { token: s3cr3t }\n")
    await works(server, connect, token="s3cr3t")
    await works_by_url(server, connect, "s3cr3t")
    await refused(server, connect, token="s3cr3")
    await refused(server, connect)


@pytest.mark.parametrize("prefix", ["2a", "2b", "2y"])
async def test_passwords_and_tokens_may_be_bcrypted(
    serve: Serve, connect: Connect, prefix: str
) -> None:
    hashed = bcrypted("lovelace").replace("$2b$", f"${prefix}$")
    users = serve(f'authorization {{ users = [{{ user: ada, password: "{hashed}" }}] }}\n')
    await works(users, connect, user="ada", password="lovelace")
    await refused(users, connect, user="ada", password="x")
    await refused(users, connect, user="ada", password=hashed)
    token = serve(f'authorization {{ token: "{hashed}" }}\n')
    await works(token, connect, token="lovelace")
    await refused(token, connect, token=hashed)


SEED = b"SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY"
OTHER_SEED = b"SUAGMJH5XLGZKQQWAWKRZJIGMOU4HPFUYLXJMXOO5NLFEO2OOQJ5LPRDPM"


async def test_nkeys(serve: Serve, connect: Connect) -> None:
    key = nkeys.from_seed(bytearray(SEED)).public_key.decode()
    server = serve(f"authorization {{ users = [{{ nkey: {key} }}] }}\n")
    await works(server, connect, nkeys_seed_str=SEED.decode())
    await refused(server, connect, nkeys_seed_str=OTHER_SEED.decode())
    await refused(server, connect, user=key, password="")
    await refused(server, connect)


def test_an_nkey_must_sign_the_nonce_of_its_connection(serve: Serve) -> None:
    pair = nkeys.from_seed(bytearray(SEED))
    key = pair.public_key.decode()
    server = serve(f"authorization {{ users = [{{ nkey: {key} }}] }}\n")

    def login(nonce: str, decoration: str = "", form: str = "raw") -> bytes:
        signature = base64.urlsafe_b64encode(pair.sign(nonce.encode())).rstrip(b"=").decode()
        if form == "standard":
            signature = base64.b64encode(pair.sign(nonce.encode())).decode()
        options = {"verbose": False, "nkey": key, "sig": signature + decoration}
        return b"CONNECT " + json.dumps(options).encode() + b"\r\nPING\r\n"

    with Wire(server.port) as first, Wire(server.port) as second, Wire(server.port) as third:
        assert first.info["auth_required"] is True
        assert first.info["nonce"] != second.info["nonce"]
        first.send(login(first.info["nonce"]))
        assert first.line() == b"PONG\r\n"
        second.send(login(first.info["nonce"]))
        assert second.until_closed() == VIOLATION
        third.send(login(third.info["nonce"], form="standard"))
        assert third.line() == b"PONG\r\n"
    for bad in ("!", "AAAA"):
        with Wire(server.port) as wire:
            wire.send(login(wire.info["nonce"], decoration=bad))
            assert wire.until_closed() == VIOLATION


def test_there_is_no_nonce_without_nkeys(server: Server) -> None:
    with Wire(server.port) as wire:
        assert "nonce" not in wire.info
        assert "auth_required" not in wire.info


async def test_who_says_nothing_is_the_user_for_that(serve: Serve, connect: Connect) -> None:
    server = serve(
        "no_auth_user: guest\n"
        "authorization { users = [{ user: guest, password: a }, { user: ada, password: b }] }\n"
    )
    await works(server, connect)
    await works(server, connect, user="ada", password="b")
    await refused(server, connect, user="ada", password="a")


PERMISSIONS = """
authorization { users = [
  { user: admin, password: p }
  { user: client, password: p, permissions {
      publish { allow: ["req.>", "log"], deny: ["req.secret"] }
      subscribe: ["_INBOX.>", "pub.*"]
  } }
  { user: service, password: p, permissions {
      subscribe: ["req.> workers"]
      allow_responses: { max: 1, expires: "1m" }
  } }
] }
"""


async def test_permissions(serve: Serve, connect: Connect) -> None:
    server = serve(PERMISSIONS)
    errors: asyncio.Queue[str] = asyncio.Queue()

    async def on_error(error: Exception) -> None:
        await errors.put(str(error).lower())

    async def next_error() -> str:
        return await asyncio.wait_for(errors.get(), DEADLINE_S)

    admin = await connect(server, user="admin", password="p")
    client = await connect(server, user="client", password="p", error_cb=on_error)
    service = await connect(server, user="service", password="p", error_cb=on_error)
    everything = await admin.subscribe(">")
    await settled(admin)

    for subject in ("other", "req.secret"):
        await client.publish(subject, b"no")
        assert f'permissions violation for publish to "{subject}"' in await next_error()
    await client.publish("log", b"yes")
    message = await everything.next_msg(DEADLINE_S)
    assert (message.subject, message.data) == ("log", b"yes")

    await client.subscribe("req.>")
    assert 'permissions violation for subscription to "req.>"' in await next_error()
    await service.subscribe("req.a")
    assert 'permissions violation for subscription to "req.a"' in await next_error()
    await service.subscribe("req.a", queue="idlers")
    expected = 'permissions violation for subscription to "req.a" using queue "idlers"'
    assert expected in await next_error()

    requests = await service.subscribe("req.a", queue="workers")
    await settled(service)
    asking = asyncio.create_task(client.request("req.a", b"?", timeout=DEADLINE_S))
    request = await requests.next_msg(DEADLINE_S)
    await request.respond(b"!")
    assert (await asking).data == b"!"
    await request.respond(b"once too often")
    assert f'permissions violation for publish to "{request.reply.lower()}"' in await next_error()


async def test_connecting_in_silence_ends_after_the_timeout(serve: Serve) -> None:
    server = serve("authorization { user: a, password: b, timeout: 0.3 }\n")
    with Wire(server.port) as wire:
        assert wire.until_closed() == b"-ERR 'Authentication Timeout'\r\n"


async def test_connections_beyond_the_limit_are_refused(serve: Serve, connect: Connect) -> None:
    server = serve("max_connections: 2\n")
    first = await connect(server)
    with Wire(server.port) as second:
        second.connect()
        with Wire(server.port) as third:
            assert third.until_closed() == b"-ERR 'maximum connections exceeded'\r\n"
        assert second.ask(b"") == b""
        second.finish()
    await first.flush()
    until(lambda: server.monitor("/varz")["connections"] == 1, "one is gone")
    with Wire(server.port) as again:
        again.connect()
