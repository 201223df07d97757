"""The parts of the server that commands need, and no more."""

from collections.abc import Mapping
from typing import Protocol

from mq9._core import Broker
from mq9.config import Options, PermissionRules
from mq9.store import Store


class Log(Protocol):
    """Where the operator is told."""

    def info(self, text: str, **fields: object) -> None: ...
    def warn(self, text: str, **fields: object) -> None: ...
    def error(self, text: str, **fields: object) -> None: ...
    def debug(self, text: str, **fields: object) -> None: ...


class Grant(Protocol):
    """What a client may do."""

    @property
    def user(self) -> str: ...
    @property
    def rules(self) -> PermissionRules | None: ...


class Client(Protocol):
    """A connected client."""

    @property
    def grant(self) -> Grant | None: ...
    @property
    def is_local_operator(self) -> bool: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...


class Clients(Protocol):
    """The connected clients, by the number of their connection."""

    @property
    def open(self) -> Mapping[int, Client]: ...


class ServerContext(Protocol):
    """A running server."""

    @property
    def broker(self) -> Broker: ...
    @property
    def store(self) -> Store: ...
    @property
    def log(self) -> Log: ...
    @property
    def clients(self) -> Clients: ...
    @property
    def options(self) -> Options: ...
