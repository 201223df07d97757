"""Who a client is: users, tokens, nkeys, certificates, and clients without credentials.

Owns the decision, which nats-server's order of checks makes. Knows nothing of sockets; what a user
may do with subjects is decided elsewhere.
"""

import secrets
from dataclasses import dataclass

from mq9.config import Authorization, ConfigError, PermissionRules, User
from mq9.server import certificates, nkeys
from mq9.server.certificates import Certificate
from mq9.server.connect import ConnectOptions
from mq9.server.passwords import Passwords, is_bcrypt

_REDACTED = "[REDACTED]"


@dataclass(frozen=True)
class Grant:
    """A client that may come in: under which name, and with which permissions."""

    user: str
    rules: PermissionRules | None = None


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
    stored: str
    given: str


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
        self._nobody = _nobody(authorization)

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
        if not self.required:
            return Grant(connect.user)
        if self._map_certificates:
            mapped = self._named_by(shown.certificate)
            return self._with_password(mapped, connect.password) if mapped else None
        if connect.anonymous:
            return self.anonymous()
        if connect.nkey and self._nkeys:
            return self._with_signature(connect, shown.nonce)
        if self._users or self._nkeys:
            return self._with_password(self._users.get(connect.user), connect.password)
        return self._single(connect)

    async def settle(self, pending: HashNeeded) -> Grant | None:
        """The decision that took a hash."""
        good = await self._passwords.compare_hash(pending.stored, pending.given)
        return pending.grant if good else None

    def anonymous(self) -> Grant | None:
        """The decision about a client that shows nothing."""
        name = self._authorization.no_auth_user
        if name is None:
            return None if self.required else Grant("")
        user = self._users.get(name) or self._nkeys.get(name)
        return self._grant(user) if user else None

    def _with_password(self, user: User | None, given: str) -> Grant | HashNeeded | None:
        stored = self._nobody if user is None else user.password or ""
        return self._compare(self._grant(user) if user else None, stored, given)

    def _with_signature(self, connect: ConnectOptions, nonce: str) -> Grant | None:
        user = self._nkeys.get(connect.nkey)
        if user is None or not nonce:
            return None
        good = nkeys.signature_is_good(self._keys[connect.nkey], nonce, connect.signature)
        return self._grant(user) if good else None

    def _single(self, connect: ConnectOptions) -> Grant | HashNeeded | None:
        if (token := self._authorization.token) is not None:
            return self._compare(Grant(_REDACTED), token, connect.token)
        user, password = self._authorization.user, self._authorization.password
        if not user or not password:
            return None
        known = self._passwords.compare(user, connect.user)
        return self._compare(Grant(connect.user) if known else None, password, connect.password)

    def _compare(self, grant: Grant | None, stored: str, given: str) -> Grant | HashNeeded | None:
        good = self._passwords.compare(stored, given)
        if good is None:
            return HashNeeded(grant, stored, given)
        return grant if good else None

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


def _nobody(authorization: Authorization) -> str:
    """What the password of an unknown user is compared with: never equal, and as slow as others."""
    costs = [int(stored[4:6]) for stored in _secrets(authorization) if stored and is_bcrypt(stored)]
    if not costs:
        return secrets.token_hex()
    return f"$2b${max(costs):02}${'.' * 53}"
