"""State that the parts of a running server share, and what a reload replaces.

Holds; decides nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from mq9._core import Broker, Limits, TlsConfig
from mq9.config import Options, Tls
from mq9.server.auth import Authenticator
from mq9.server.clients import Clients
from mq9.server.clock import now_ms
from mq9.server.info import Identity
from mq9.server.logs import Log
from mq9.server.passwords import Passwords
from mq9.server.permissions import PermissionTable
from mq9.server.store_watch import StoreWatch
from mq9.store import Store

_AUTH_TIMEOUT_MS = 2000
_AUTH_AFTER_TLS_MS = 1000


class StartError(Exception):
    """The server cannot start; the message says why and what to do."""


@dataclass(frozen=True)
class Settings:
    """All that follows from the options; made as a whole, so that a bad reload changes nothing."""

    options: Options
    authenticator: Authenticator
    permissions: PermissionTable
    limits: Limits
    tls: TlsConfig | None

    @classmethod
    def of(cls, options: Options, passwords: Passwords) -> "Settings":
        """Read certificates, keys and permissions; ConfigError if one is not usable."""
        tls = options.tls
        return cls(
            options=options,
            authenticator=Authenticator(
                options.authorization,
                passwords,
                map_certificates=tls is not None and tls.verify_and_map,
            ),
            permissions=PermissionTable(options.authorization),
            limits=Limits(
                max_payload=options.max_payload,
                max_control_line=options.max_control_line,
                max_pending=options.max_pending,
                max_subscriptions=options.max_subscriptions,
                ping_interval_ms=options.ping_interval_ms,
                ping_max=options.ping_max,
                write_deadline_ms=options.write_deadline_ms,
            ),
            tls=_tls_config(tls) if tls is not None else None,
        )

    @property
    def is_open(self) -> bool:
        """Whether nobody has to authenticate, be it by credentials or by a certificate."""
        tls = self.options.tls
        certified = tls is not None and (tls.verify or tls.verify_and_map)
        return not self.authenticator.required and (not certified or self.options.allow_non_tls)

    @property
    def auth_timeout_ms(self) -> int:
        """How long a client may take until CONNECT, the TLS handshake not counted."""
        given = self.options.authorization.timeout_ms
        if given is not None:
            return given
        tls = self.options.tls
        return _AUTH_TIMEOUT_MS if tls is None else tls.timeout_ms + _AUTH_AFTER_TLS_MS


def _tls_config(tls: Tls) -> TlsConfig:
    # Only those who have a configuration file have TLS.
    from mq9.config.tls import core_config

    return core_config(tls)


@dataclass
class Running:
    """One server while it runs."""

    settings: Settings
    identity: Identity
    broker: Broker
    store: Store
    log: Log
    passwords: Passwords
    clients: Clients = field(default_factory=Clients)
    lame_duck: bool = False
    reachable: bool = False
    """Whether other machines can connect."""
    export: dict[str, Any] | None = None
    """What `/varz` says of the continuous export; None without one."""
    exported_ms: int | None = None
    """When the export last had all that there was; its start, if it never had; None without one."""
    cluster_health: Callable[[], dict[str, Any]] | None = None
    """What `/healthz` says of this node's part in a cluster; None on a single node."""
    yield_lead: Callable[[int | None], None] | None = None
    """Gives this node's lead to another; None on a single node."""
    registry: Callable[[], dict[str, int]] | None = None
    """How the registry of agents is, once it is served."""
    started_ms: int = field(default_factory=now_ms)
    loaded_ms: int = field(default_factory=now_ms)
    watch: StoreWatch = field(init=False)

    def __post_init__(self) -> None:
        self.watch = StoreWatch(self.store, self.log)

    @property
    def options(self) -> Options:
        """The options as of the last reload."""
        return self.settings.options
