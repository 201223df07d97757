"""The options of the data source, read and checked once."""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mq9.errors import InvalidField

if TYPE_CHECKING:
    from mq9.client import Client

_TRUE, _FALSE = {"true", "1", "yes"}, {"false", "0", "no"}


@dataclass(frozen=True)
class Broker:
    """Where a broker is and who asks it; picklable, so that tasks can connect by themselves."""

    url: str | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    nkey_seed: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    timeout_s: float = 30.0

    @classmethod
    def of(cls, options: Mapping[str, str]) -> "Broker":
        """From the options of a reader or writer."""
        return cls(
            url=options.get("url"),
            user=options.get("user"),
            password=options.get("password"),
            token=options.get("token"),
            nkey_seed=options.get("nkeySeed"),
            ca_file=options.get("caFile"),
            timeout_s=number(options, "timeout", 30, at_least=1),
        )

    def client(self) -> "Client":
        """A client that is not connected yet."""
        from mq9.client import Client

        tls = ssl.create_default_context(cafile=self.ca_file) if self.ca_file else None
        fields: dict[str, Any] = {"user": self.user, "password": self.password}
        fields |= {"token": self.token, "nkey_seed": self.nkey_seed, "tls": tls}
        return Client(self.url, name="mq9-spark", timeout=self.timeout_s, **fields)


def number(options: Mapping[str, str], name: str, default: int, *, at_least: int) -> int:
    """A whole number."""
    written = options.get(name)
    if written is None:
        return default
    try:
        value = int(written)
    except ValueError:
        value = at_least - 1
    if value < at_least:
        raise InvalidField(
            f"option {name} is {written!r}: it must be a whole number from {at_least} on"
        )
    return value


def flag(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    """Yes or no."""
    written = options.get(name)
    if written is None:
        return default
    if written.lower() not in _TRUE | _FALSE:
        raise InvalidField(f"option {name} is {written!r}: it must be true or false")
    return written.lower() in _TRUE


def mailboxes(options: Mapping[str, str]) -> list[str]:
    """The addresses of the option `mailbox`, which may be several with commas."""
    return [name.strip() for name in (options.get("mailbox") or "").split(",") if name.strip()]
