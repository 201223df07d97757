"""Users, tokens and accounts of a configuration.

Owns the `authorization` and `accounts` blocks and what contradicts itself in them.
"""

import base64
import binascii
import re
from dataclasses import dataclass

from mq9.config.errors import ConfigError, quoted
from mq9.config.options import Authorization, User
from mq9.config.permissions import read_permissions
from mq9.config.reading import (
    Fields,
    Notes,
    Setting,
    at,
    entries,
    filled,
    guard,
    items,
    mismatch,
    read_block,
    seconds,
)
from mq9.config.tree import Map, Place, Value

SYSTEM_ACCOUNT = "$SYS"
_NKEY_USER = 20 << 3
_LIKE_A_VARIABLE = re.compile(r"\$[A-Za-z_][A-Za-z0-9_]*")

Users = list[tuple[User, Place]]


def read_authorization(value: Value, notes: Notes) -> Fields:
    """The `authorization` block, as options of `Authorization`."""
    fields = read_block(value, "authorization", _AUTHORIZATION, {}, notes)
    found, place = fields.values, value.place
    if "token" in found and ("user" in found or "password" in found):
        raise at(place, "a token and a user with password: give one of the two")
    if "users" in found and ("user" in found or "password" in found):
        raise at(place, "a single user and a list of users: put the single one into the list")
    if "users" in found and "token" in found:
        raise at(place, "a token and a list of users: give one of the two")
    if ("user" in found) != ("password" in found):
        missing = "password" if "user" in found else "user"
        raise at(place, f"the {missing} is missing: user and password go together")
    if found.get("users") == []:
        notes.warn(place, "the list of users is empty: everybody may connect")
    return fields


@dataclass(frozen=True, slots=True)
class Accounts:
    """What an `accounts` block comes down to."""

    account: Fields
    """The options of `Authorization` that the one account sets."""
    dropped_users_at: Place | None = None
    """The system account, if it has users: they are not taken."""


def read_accounts(value: Value, system_account: str | None, notes: Notes) -> Accounts:
    """The users of the one account of an `accounts` block."""
    if isinstance(value.data, list):
        notes.warn(value.place, "accounts without users are ignored: mq9 has one account")
        return Accounts(Fields())
    found: dict[str, Fields] = {}
    dropped = None
    for entry in entries(value, "accounts"):
        if entry.name in {SYSTEM_ACCOUNT, system_account}:
            notes.warn(
                entry.place,
                f"the system account {quoted(entry.name)} is ignored: mq9 has none, "
                "and its users cannot connect",
            )
            if isinstance(entry.value.data, Map) and "users" in entry.value.data.entries:
                dropped = entry.place
            continue
        where = f"account {quoted(entry.name)}"
        account = read_block(entry.value, where, _ACCOUNT, _NO_ACCOUNT, notes)
        if account.values.get("users"):
            found[entry.name] = account
    if len(found) > 1:
        names = ", ".join(found)
        raise at(
            value.place,
            f"{len(found)} accounts with users ({names}): mq9 has one account, and they would "
            "read each other's messages; keep one, or start a server for each",
        )
    if not found:
        return Accounts(Fields(), dropped)
    (name, account), *_ = found.items()
    notes.warn(
        value.place,
        f"the users of account {quoted(name)} are taken; accounts do not separate anything in mq9",
    )
    return Accounts(account, dropped)


def authorization(
    block: Fields, no_auth_user: tuple[str, Place] | None, by_certificate: bool, notes: Notes
) -> Authorization:
    """Check who may connect as a whole and freeze it."""
    users = block.values.pop("users", [])
    assert isinstance(users, list)
    _check_users(users)
    if not by_certificate:
        _warn_of_open_users(users, no_auth_user[0] if no_auth_user else None, notes)
    if no_auth_user:
        name, place = no_auth_user
        if name not in {known for user, _ in users for known in (user.name, user.nkey)}:
            reason = "is not one of them" if users else "and there is no list of users"
            raise at(place, f"no_auth_user must be one of the users: {quoted(name)} {reason}")
        block.values["no_auth_user"] = name
    return Authorization(**block.values, users=tuple(user for user, _ in users))


def _check_users(users: Users) -> None:
    seen: dict[str, Place] = {}
    for user, place in users:
        name = user.name or user.nkey or ""
        if name in seen:
            raise at(
                place, f"the user {quoted(name)} is there twice, first in line {seen[name].line}"
            )
        seen[name] = place


def _warn_of_open_users(users: Users, no_auth_user: str | None, notes: Notes) -> None:
    for user, place in users:
        if user.name is not None and user.password is None and user.name != no_auth_user:
            notes.warn(
                place,
                f"the user {quoted(user.name)} has no password: whoever gives the name is let in",
            )


def _user(value: Value, notes: Notes) -> tuple[User, Place]:
    found = read_block(value, "a user", _USER, {}, notes).values
    if "nkey" in found and ("name" in found or "password" in found):
        raise at(value.place, "a user with an nkey has no name and no password")
    if "nkey" not in found and "name" not in found:
        raise at(value.place, "a user needs `user`, or `nkey`")
    return User(**found), value.place


def _users(value: Value, notes: Notes) -> Users:
    users, wrong = [], []
    for item in items(value, "users, each in { }"):
        try:
            users.append(_user(item, notes))
        except ConfigError as error:
            wrong.append(str(error))
    if wrong:
        raise ConfigError("\n".join(wrong))
    return users


def read_secret(value: Value, notes: Notes) -> str:
    """A password or token, in plain text or as a hash."""
    if not isinstance(value.data, str):
        raise mismatch(value, "a string")
    if not value.data:
        raise at(value.place, "a password or token must not be empty")
    if _LIKE_A_VARIABLE.fullmatch(value.data):
        notes.warn(
            value.place,
            "in quotes this is no variable: its name, with the $, is the password or token",
        )
    return value.data


def _nkey(value: Value, notes: Notes) -> str:
    written = filled(value, notes)
    if not is_user_nkey(written):
        raise at(value.place, "expected the public nkey of a user: 56 characters that start with U")
    return written


def is_user_nkey(written: str) -> bool:
    """Whether it is the public key of a user: its prefix, 32 bytes and a checksum in base 32."""
    if len(written) != 56 or not written.isascii():
        return False
    try:
        raw = base64.b32decode(written)
    except binascii.Error:
        return False
    body, checksum = raw[:-2], int.from_bytes(raw[-2:], "little")
    return body[0] == _NKEY_USER and binascii.crc_hqx(body, 0) == checksum


def _connection_types(value: Value, notes: Notes) -> Fields:
    written = value.data if isinstance(value.data, list) else [value]
    if "STANDARD" not in {filled(kind, notes).upper() for kind in written}:
        raise at(
            value.place,
            "mq9 has connections of type STANDARD only: with these types the user could "
            "never connect; add STANDARD or remove the user",
        )
    return Fields()


_USER = {
    **dict.fromkeys(("user", "username"), Setting("name", filled)),
    **dict.fromkeys(("password", "pass"), Setting("password", read_secret)),
    "nkey": Setting("nkey", _nkey),
    **dict.fromkeys(
        ("permissions", "permission", "authorization"), Setting("permissions", read_permissions)
    ),
    **dict.fromkeys(
        ("allowed_connection_types", "connection_types", "clients"), Setting("", _connection_types)
    ),
    "proxy_required": guard("mq9 does not know which proxy a client came through"),
}
_AUTHORIZATION = {
    **dict.fromkeys(("user", "username"), Setting("user", filled)),
    **dict.fromkeys(("password", "pass"), Setting("password", read_secret)),
    "token": Setting("token", read_secret),
    "users": Setting("users", _users),
    "timeout": Setting("timeout_ms", seconds),
    **dict.fromkeys(
        ("default_permissions", "default_permission", "permissions"),
        Setting("default_permissions", read_permissions),
    ),
    "auth_callout": guard("mq9 does not ask a service who may connect"),
    "proxy_required": guard("mq9 does not know which proxy a client came through"),
}
_ACCOUNT = {
    "users": _AUTHORIZATION["users"],
    "default_permissions": _AUTHORIZATION["default_permissions"],
}
_NO_ACCOUNT = {
    **dict.fromkeys(("exports", "imports"), "there is one account, and nothing to share with"),
    **dict.fromkeys(("mappings", "maps"), "mq9 does not rename subjects"),
    **dict.fromkeys(("msg_trace", "trace_dest"), "mq9 does not trace messages to a subject"),
    "jetstream": "mq9 keeps messages in mailboxes of its own",
    "limits": "limits are those of the server",
    "nkey": "accounts have no keys in mq9",
}
