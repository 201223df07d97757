"""The options of a client in CONNECT.

Owns names, types and defaults of the options, as nats-server has them. Decides nothing.
"""

import json
from dataclasses import dataclass, field, replace
from typing import Any, Never


class ConnectError(ValueError):
    """CONNECT that cannot be understood."""


@dataclass(frozen=True, kw_only=True)
class ConnectOptions:
    """The options of CONNECT that this server knows; it ignores others."""

    verbose: bool = True
    pedantic: bool = True
    echo: bool = True
    headers: bool = False
    no_responders: bool = False
    protocol: int = 0
    name: str = ""
    lang: str = ""
    version: str = ""
    user: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    nkey: str = ""
    signature: str = field(default="", repr=False)
    account: str = ""

    @property
    def anonymous(self) -> bool:
        """Whether the client shows no credentials at all."""
        return not (self.user or self.password or self.token or self.nkey)


_NOTHING = ConnectOptions()
_OTHER_NAMES = {"password": "pass", "token": "auth_token", "signature": "sig"}
# What an option is called in JSON, with its field and type.
_KNOWN = {
    _OTHER_NAMES.get(name, name): (name, type(default)) for name, default in vars(_NOTHING).items()
}
_TYPES: dict[type, str] = {bool: "true or false", int: "a whole number", str: "a string"}


def parse(text: bytes, before: ConnectOptions | None = None) -> ConnectOptions:
    """Read the JSON of CONNECT as Go does: names in any case, null as if absent.

    What the client said `before` holds where it says nothing else.
    """
    try:
        options = json.loads(text.decode("utf-8", "replace"), parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        if isinstance(error, ConnectError):
            raise
        raise ConnectError("the options of CONNECT are not JSON") from error
    if options is None:
        options = {}
    if not isinstance(options, dict):
        raise ConnectError("the options of CONNECT are not a JSON object")
    said: dict[str, Any] = {}
    for written, value in options.items():
        known = _KNOWN.get(written.lower())
        if known is None or value is None:
            continue
        name, kind = known
        # True is an int as well.
        if type(value) is not kind:
            raise ConnectError(f"{written.lower()}: expected {_TYPES[kind]}")
        said[name] = value
    return replace(before or _NOTHING, **said)


def _refuse(constant: str) -> Never:
    raise ConnectError(f"{constant} is not JSON")
