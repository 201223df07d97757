"""What a client says in CONNECT.

Owns names, types and defaults of the options, as nats-server has them. Decides nothing.
"""

import json
from typing import Never

from pydantic import BaseModel, ConfigDict, Field, ValidationError


class ConnectError(ValueError):
    """CONNECT that cannot be understood."""


class ConnectOptions(BaseModel):
    """The options of CONNECT that this server knows; it ignores others."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")

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
    password: str = Field(default="", alias="pass", repr=False)
    token: str = Field(default="", alias="auth_token", repr=False)
    nkey: str = ""
    signature: str = Field(default="", alias="sig", repr=False)
    account: str = ""

    @property
    def anonymous(self) -> bool:
        """Whether the client shows no credentials at all."""
        return not (self.user or self.password or self.token or self.nkey)


def parse(text: bytes, before: ConnectOptions | None = None) -> ConnectOptions:
    """Read the JSON of CONNECT as Go does: names in any case, null as if absent.

    What the client said `before` holds where it says nothing else.
    """
    try:
        options = json.loads(text.decode("utf-8", "replace"), parse_constant=_refuse)
        if options is None:
            options = {}
        if not isinstance(options, dict):
            raise ConnectError("the options of CONNECT are not a JSON object")
        known = {name.lower(): value for name, value in options.items() if value is not None}
        said = before.model_dump(by_alias=True) if before is not None else {}
        return ConnectOptions.model_validate(said | known)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ConnectError(f"{where}: {first['msg']}") from error
    except (ValueError, RecursionError) as error:
        if isinstance(error, ConnectError):
            raise
        raise ConnectError("the options of CONNECT are not JSON") from error


def _refuse(constant: str) -> Never:
    raise ConnectError(f"{constant} is not JSON")
