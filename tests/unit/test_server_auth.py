"""Who is let in, by which credentials, and with which permissions."""

import asyncio
import base64
import json
import threading
import time
from typing import Any

import bcrypt
import pytest
from nacl.signing import SigningKey

from mq9._core import Certificate
from mq9.config import Authorization, ConfigError, PermissionRules, User
from mq9.server import nkeys
from mq9.server.auth import Authenticator, Credentials, Grant, HashNeeded
from mq9.server.connect import parse
from mq9.server.passwords import Passwords

RULES = PermissionRules(publish_allow=("a.>",))
DEFAULT_RULES = PermissionRules(publish_allow=("d.>",))


def hashed(password: str, cost: int = 4) -> str:
    return bcrypt.hashpw(password.encode(), bcrypt.gensalt(cost)).decode()


def shown(
    nonce: str = "", certificate: Certificate | None = None, password: str = "", **said: str
) -> Credentials:
    connect = parse(json.dumps({**said, "pass": password}).encode())
    return Credentials(connect, nonce, certificate)


def decide(authenticator: Authenticator, credentials: Credentials) -> Grant | None:
    decision = authenticator.check(credentials)
    if isinstance(decision, HashNeeded):
        return asyncio.run(authenticator.settle(decision))
    return decision


def authenticator(*, map_certificates: bool = False, **settings: Any) -> Authenticator:  # noqa: ANN401
    authorization = Authorization(**settings)
    return Authenticator(authorization, Passwords(), map_certificates=map_certificates)


def test_without_authorization_everybody_is_let_in() -> None:
    anybody = authenticator()
    assert not anybody.required
    assert decide(anybody, shown()) == Grant("")
    assert decide(anybody, shown(user="x", password="y")) == Grant("x")


@pytest.mark.parametrize("stored", ["secret", hashed("secret")], ids=["plain", "bcrypt"])
def test_users_need_their_password(stored: str) -> None:
    users = authenticator(users=(User(name="a", password=stored, permissions=RULES),))
    assert users.credentials_required
    assert decide(users, shown(user="a", password="secret")) == Grant("a", RULES)
    assert decide(users, shown(user="a", password="other")) is None
    assert decide(users, shown(user="a")) is None
    assert decide(users, shown(user="b", password="secret")) is None
    assert decide(users, shown(auth_token="secret")) is None
    assert decide(users, shown()) is None
    assert users.anonymous() is None


def test_default_permissions_are_for_users_without_their_own() -> None:
    users = authenticator(
        users=(User(name="a", password="x", permissions=RULES), User(name="b", password="x")),
        default_permissions=DEFAULT_RULES,
    )
    assert decide(users, shown(user="a", password="x")) == Grant("a", RULES)
    assert decide(users, shown(user="b", password="x")) == Grant("b", DEFAULT_RULES)


@pytest.mark.parametrize("stored", ["secret", hashed("secret")], ids=["plain", "bcrypt"])
def test_a_single_user_and_a_token(stored: str) -> None:
    single = authenticator(user="u", password=stored)
    assert decide(single, shown(user="u", password="secret")) == Grant("u")
    assert decide(single, shown(user="x", password="secret")) is None
    assert decide(single, shown(user="u", password="x")) is None
    token = authenticator(token=stored)
    assert decide(token, shown(auth_token="secret")) == Grant("[REDACTED]")
    assert decide(token, shown(auth_token="x")) is None
    assert decide(token, shown(user="u", password="secret")) is None


def test_no_auth_user_is_for_those_who_show_nothing() -> None:
    some = authenticator(
        users=(User(name="a", password="x"), User(name="guest", permissions=RULES)),
        no_auth_user="guest",
    )
    assert some.required
    assert not some.credentials_required
    assert some.anonymous() == Grant("guest", RULES)
    assert decide(some, shown()) == Grant("guest", RULES)
    assert decide(some, shown(user="a", password="wrong")) is None


def test_an_account_cannot_be_chosen() -> None:
    assert decide(authenticator(), shown(account="other")) is None


# A pair of NATS's own documentation.
SEED = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY"
PUBLIC = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4"


def sign(nonce: str, *, standard: bool = False) -> str:
    key = SigningKey(base64.b32decode(SEED + "=" * (-len(SEED) % 8))[2:34])
    signature = key.sign(nonce.encode()).signature
    if standard:
        return base64.b64encode(signature).decode()
    return base64.urlsafe_b64encode(signature).decode().rstrip("=")


def test_nkeys_sign_the_nonce() -> None:
    keys = authenticator(users=(User(nkey=PUBLIC, permissions=RULES),))
    assert keys.nonce_required
    nonce = nkeys.nonce()
    for standard in (False, True):
        good = shown(nonce, nkey=PUBLIC, sig=sign(nonce, standard=standard))
        assert decide(keys, good) == Grant(PUBLIC, RULES)
    assert decide(keys, shown("other", nkey=PUBLIC, sig=sign(nonce))) is None
    assert decide(keys, shown("", nkey=PUBLIC, sig=sign(""))) is None
    for bad in ("", "AAAA", "!", "ä", sign(nonce)[:-4]):
        assert decide(keys, shown(nonce, nkey=PUBLIC, sig=bad)) is None
    assert decide(keys, shown(nonce, nkey="U" * 56, sig=sign(nonce))) is None


def test_an_nkey_that_is_not_one_is_found_at_the_start() -> None:
    for bad in ("", "UABC", f"UA{PUBLIC[2:]}", f"N{PUBLIC[1:]}", f"{PUBLIC}AAAAAAAA", SEED):
        with pytest.raises(ConfigError, match="nkey"):
            authenticator(users=(User(nkey=bad),))


def test_the_id_of_a_server_is_an_nkey_of_a_server() -> None:
    server_id = nkeys.server_id()
    assert (len(server_id), server_id[0]) == (56, "N")
    assert server_id != nkeys.server_id()
    with pytest.raises(ValueError, match="begins with U"):
        nkeys.user_key(server_id)


CERTIFICATE = Certificate(
    subject=[[("O", "Org, Inc")], [("CN", "bob")]],
    dns_names=["bob.example"],
    emails=["bob@example.org"],
)


@pytest.mark.parametrize(
    "name",
    [
        "bob@example.org",
        "bob.example",
        "CN=bob,O=Org\\, Inc",
        "O=Org\\, Inc,CN=bob",
        "cn=bob, o=Org\\, Inc",
    ],
)
def test_a_certificate_names_its_user(name: str) -> None:
    mapped = authenticator(map_certificates=True, users=(User(name="x"), User(name=name)))
    assert decide(mapped, shown(certificate=CERTIFICATE)) == Grant(name)
    assert decide(mapped, shown(certificate=CERTIFICATE, user="x")) == Grant(name)


def test_a_certificate_that_names_nobody_is_refused() -> None:
    for name in ("bob", "CN=bob", "CN=bob,O=Org", "CN=alice,O=Org\\, Inc", "O=Org\\"):
        mapped = authenticator(map_certificates=True, users=(User(name=name),))
        assert decide(mapped, shown(certificate=CERTIFICATE)) is None
        assert decide(mapped, shown(user=name)) is None


def test_an_unknown_user_costs_a_hash_if_known_ones_do() -> None:
    users = authenticator(users=(User(name="a", password=hashed("x")),))
    decision = users.check(shown(user="nobody", password="x"))
    assert isinstance(decision, HashNeeded)
    assert decision.grant is None
    assert (decision.stored[:7], decision.cost) == ("$2b$04$", 4)
    assert asyncio.run(users.settle(decision)) is None


def test_a_refusal_takes_the_same_work_for_every_user() -> None:
    def work(name: str) -> float:
        """Processor time of a refusal; the least of some, since others use the machine too."""
        least = 60.0
        for attempt in range(5):
            decision = users.check(shown(user=name, password=f"wrong {attempt}"))
            assert isinstance(decision, HashNeeded)
            began = time.process_time()
            assert asyncio.run(users.settle(decision)) is None
            least = min(least, time.process_time() - began)
        return least

    users = authenticator(
        users=(
            User(name="slow", password=hashed("x", cost=10)),
            User(name="quick", password=hashed("x", cost=5)),
            User(name="plain", password="x"),
            User(name="broken", password="$2b$10$broken"),
            User(name="odd", password="$2b$xx$"),
        )
    )
    expected = work("slow")
    for name in ("nobody", "plain", "quick", "broken", "odd"):
        assert expected / 2 < work(name) < expected * 2, name
    assert isinstance(users.check(shown(user="plain", password="x")), Grant)


def test_without_hashes_a_refusal_takes_none() -> None:
    users = authenticator(users=(User(name="a", password="x"),))
    for name in ("a", "nobody"):
        assert users.check(shown(user=name, password="wrong")) is None


def test_a_wrong_password_is_hashed_once() -> None:
    async def check() -> None:
        users = authenticator(users=(User(name="a", password=hashed("x", cost=9)),))
        for name in ("a", "nobody"):
            decision = users.check(shown(user=name, password="wrong"))
            assert isinstance(decision, HashNeeded)
            began = time.process_time()
            await users.settle(decision)
            first = time.process_time() - began
            again = [users.settle(decision, address) for address in ("", "192.0.2.1") * 50]
            began = time.process_time()
            assert set(await asyncio.gather(*again)) == {None}
            assert time.process_time() - began < max(first * 10, 0.5)

    asyncio.run(check())


def test_a_password_that_matched_a_hash_is_remembered() -> None:
    async def check() -> None:
        passwords, stored = Passwords(), hashed("secret")
        assert passwords.compare(stored, "secret") is None
        assert await passwords.compare_hash(stored, "secret", cost=4)
        assert passwords.compare(stored, "secret") is True
        assert passwords.compare(stored, "other") is None
        assert not await passwords.compare_hash(stored, "other", cost=4)
        assert passwords.compare(stored, "other") is None
        assert passwords.compare(hashed("secret"), "secret") is None
        passwords.close()

    asyncio.run(check())


def test_hashing_leaves_the_loop_free_and_is_bounded() -> None:
    async def check() -> int:
        passwords = Passwords()
        stored = bcrypt.hashpw(b"x", bcrypt.gensalt(8)).decode()
        checks = [
            asyncio.create_task(passwords.compare_hash(stored, str(n), cost=8)) for n in range(12)
        ]
        turns = 0
        while not all(task.done() for task in checks):
            await asyncio.sleep(0)
            turns += 1
            hashing = [t for t in threading.enumerate() if t.name.startswith("bcrypt")]
            assert len(hashing) <= 2
        passwords.close()
        return turns

    assert asyncio.run(check()) > 12


@pytest.mark.parametrize("given", ["x" * 100, "nul\0nul", "\ud800", "", "ä" * 50])
def test_odd_passwords_are_compared_and_not_more(given: str) -> None:
    async def check() -> None:
        passwords = Passwords()
        assert passwords.compare("secret", given) is False
        assert not await passwords.compare_hash(hashed("secret"), given, cost=4)
        assert not await passwords.compare_hash("$2b$04$broken", given, cost=4)
        passwords.close()

    asyncio.run(check())


def test_plain_secrets_are_noticed() -> None:
    assert authenticator(users=(User(name="a", password="x"),)).has_plain_secrets
    assert authenticator(token="x").has_plain_secrets
    assert not authenticator(users=(User(name="a", password=hashed("x")),)).has_plain_secrets
    assert not authenticator().has_plain_secrets


@pytest.mark.parametrize(
    "settings",
    [
        {"users": (User(name="alice", password="secret"),)},
        {"users": (User(nkey=PUBLIC),)},
        {"users": (User(name="alice", password="secret"), User(nkey=PUBLIC))},
        {"token": "secret"},
        {"user": "alice", "password": "secret"},
    ],
    ids=["users", "nkeys", "both", "token", "single"],
)
def test_half_of_any_credentials_opens_no_door(settings: dict[str, Any]) -> None:
    door = authenticator(**settings)
    nonce = nkeys.nonce()
    attempts: tuple[dict[str, str], ...] = (
        {},
        {"user": "alice"},
        {"user": "x", "pass": "x"},
        {"pass": "x"},
        {"auth_token": "x"},
        {"nkey": PUBLIC},
        {"nkey": "x", "sig": sign(nonce)},
        {"sig": sign(nonce)},
    )
    for said in attempts:
        credentials = Credentials(parse(json.dumps(said).encode()), nonce)
        assert decide(door, credentials) is None, said
