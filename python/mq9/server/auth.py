"""Authenticates clients: users, tokens, nkeys, certificates, and no credentials.

Owns the decision, which nats-server's order of checks makes. Knows nothing of sockets; what a user
may do with subjects is decided elsewhere.
"""

import os
from dataclasses import dataclass

from mq9._core import Certificate
from mq9.config import Authorization, ConfigError, PermissionRules, User
from mq9.server import certificates, nkeys
from mq9.server.connect import ConnectOptions
from mq9.server.hash_queue import CrowdedError
from mq9.server.passwords import Passwords, bcrypt_cost, is_bcrypt, unmatched

OWN_USER = "$mq9.manage"
"""The name of the management process; a configuration cannot give it more or less."""
_OWN_RULES = PermissionRules(publish_allow=(">", "$mq9.AI.ADMIN.>"))
_REDACTED = "[REDACTED]"
# Refusals that take a hash are answered after a multiple of this time.
_REFUSAL_STEP_S = 0.05
# How long a client waits that is one of too many, unless its time is over before.
_CROWDED_MS = 5_000


@dataclass(frozen=True)
class Grant:
    """A client that may come in: under which name, and with which permissions."""

    user: str
    rules: PermissionRules | None = None
    own: bool = False
    """It is a part of the broker: clients are counted without it."""


@dataclass(frozen=True)
class Credentials:
    """All that a client shows of itself."""

    connect: ConnectOptions
    nonce: str = ""
    certificate: Certificate | None = None


@dataclass(frozen=True)
class HashNeeded:
    """A decision that takes a bcrypt hash; without a grant it is refused all the same."""

    grant: Grant | None
    user: str
    stored: str
    given: str
    cost: int
    """How much work a refusal takes, whoever is refused."""


class Authenticator:
    """Decides about credentials by the `authorization` of a configuration."""

    def __init__(
        self, authorization: Authorization, passwords: Passwords, *, map_certificates: bool = False
    ) -> None:
        self._authorization = authorization
        self._passwords = passwords
        self._map_certificates = map_certificates
        self._users = {user.name: user for user in authorization.users if user.name is not None}
        self._nkeys = {user.nkey: user for user in authorization.users if user.nkey is not None}
        self._keys = {text: _key(text) for text in self._nkeys}
        self._cost = _cost(authorization)
        # What the password of an unknown user is compared with.
        self._nobody = os.urandom(16).hex() if self._cost is None else unmatched(self._cost)

    @property
    def required(self) -> bool:
        """Whether a client has to be granted entry."""
        return self._authorization.required

    @property
    def credentials_required(self) -> bool:
        """Whether a client has to show credentials: what INFO calls `auth_required`."""
        return self.required and self._authorization.no_auth_user is None

    @property
    def nonce_required(self) -> bool:
        """Whether INFO must carry a nonce to sign."""
        return bool(self._nkeys)

    @property
    def has_plain_secrets(self) -> bool:
        """Whether the configuration holds passwords or tokens that are not hashes."""
        return any(not is_bcrypt(stored) for stored in _secrets(self._authorization) if stored)

    def check(self, shown: Credentials) -> Grant | HashNeeded | None:
        """The decision, None for a refusal; `settle` takes it further if a hash is needed."""
        connect = shown.connect
        if connect.account:
            # There are no accounts to choose from.
            return None
        if connect.user == OWN_USER:
            own = self._own(connect)
            if own is not None or self.required:
                return own
        if not self.required:
            return Grant(connect.user)
        if self._map_certificates:
            mapped = self._named_by(shown.certificate)
            return self._with_password(mapped, connect) if mapped else None
        if connect.anonymous:
            return self.anonymous()
        if connect.nkey and self._nkeys:
            return self._with_signature(connect, shown.nonce)
        if self._users or self._nkeys:
            return self._with_password(self._users.get(connect.user), connect)
        return self._single(connect)

    def _own(self, connect: ConnectOptions) -> Grant | None:
        """The process that the server itself has started: its password is known to nobody else."""
        good = self._passwords.compare(self._passwords.own, connect.password)
        return Grant(OWN_USER, _OWN_RULES, own=True) if good else None

    async def settle(self, pending: HashNeeded, address: str = "") -> Grant | None:
        """The decision that took a hash, for a client of this address; may raise CrowdedError."""
        # Imported here: clients are greeted before there is an event loop.
        import asyncio

        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            good = await self._passwords.compare_hash(
                pending.stored,
                pending.given,
                cost=pending.cost,
                user=pending.user,
                address=address,
                known=pending.grant is not None,
            )
        except CrowdedError:
            # Told when a client's time is over: at once, it would be back at once, and when it is
            # told would tell who exists.
            await asyncio.sleep((self._authorization.timeout_ms or _CROWDED_MS) / 1000)
            raise
        if good and pending.grant is not None:
            return pending.grant
        # What is left of a difference between the reasons is hidden.
        await asyncio.sleep((began - loop.time()) % _REFUSAL_STEP_S)
        return None

    def anonymous(self) -> Grant | None:
        """The decision about a client that shows nothing."""
        name = self._authorization.no_auth_user
        if name is None:
            return None if self.required else Grant("")
        user = self._users.get(name) or self._nkeys.get(name)
        return self._grant(user) if user else None

    def _with_password(
        self, user: User | None, connect: ConnectOptions
    ) -> Grant | HashNeeded | None:
        stored = self._nobody if user is None else user.password or ""
        grant = self._grant(user) if user else None
        return self._compare(grant, connect.user, stored, connect.password)

    def _with_signature(self, connect: ConnectOptions, nonce: str) -> Grant | None:
        user = self._nkeys.get(connect.nkey)
        if user is None or not nonce:
            return None
        good = nkeys.signature_is_good(self._keys[connect.nkey], nonce, connect.signature)
        return self._grant(user) if good else None

    def _single(self, connect: ConnectOptions) -> Grant | HashNeeded | None:
        if (token := self._authorization.token) is not None:
            return self._compare(Grant(_REDACTED), "", token, connect.token)
        user, password = self._authorization.user, self._authorization.password
        if not user or not password:
            return None
        known = self._passwords.compare(user, connect.user)
        grant = Grant(connect.user) if known else None
        return self._compare(grant, connect.user, password, connect.password)

    def _compare(
        self, grant: Grant | None, user: str, stored: str, given: str
    ) -> Grant | HashNeeded | None:
        good = self._passwords.compare(stored, given)
        if good and grant is not None:
            return grant
        if self._cost is None:
            return None
        # A refusal takes a hash where any does: its time does not tell who has a hash, or exists.
        return HashNeeded(grant, user, self._nobody if good is False else stored, given, self._cost)

    def _named_by(self, certificate: Certificate | None) -> User | None:
        if not certificate:
            return None
        for name in certificates.alternative_names(certificate):
            if name in self._users:
                return self._users[name]
        subject = certificates.distinguished_name(certificate)
        if subject in self._users:
            return self._users[subject]
        for name, user in self._users.items():
            if certificates.names_subject(name, certificate):
                return user
        return None

    def _grant(self, user: User) -> Grant:
        rules = user.permissions or self._authorization.default_permissions
        return Grant(user.name or user.nkey or "", rules)


def _key(text: str) -> bytes:
    try:
        return nkeys.user_key(text)
    except ValueError as error:
        raise ConfigError(f"authorization: nkey {text!r}: {error}") from error


def _secrets(authorization: Authorization) -> list[str | None]:
    return [
        *(user.password for user in authorization.users),
        authorization.password,
        authorization.token,
    ]


def _cost(authorization: Authorization) -> int | None:
    """The highest cost of a hash; None without any."""
    costs = (bcrypt_cost(stored) for stored in _secrets(authorization) if stored)
    return max((cost for cost in costs if cost is not None), default=None)
