"""The settings of a server, read and checked: what the server is given.

Owns names, types and defaults. Knows nothing of files, syntax or flags.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Sync = Literal["always", "interval", "none"]
PayloadEncoding = Literal["auto", "base64"]
EmbedderName = Literal["auto", "blend", "light", "minilm", "none"]


@dataclass(frozen=True, kw_only=True)
class PermissionRules:
    """What a user may publish and subscribe to; an allow list of None allows everything."""

    publish_allow: tuple[str, ...] | None = None
    publish_deny: tuple[str, ...] = ()
    subscribe_allow: tuple[str, ...] | None = None
    """Entries are `subject` or `subject queue`, as in `subscribe_deny`."""
    subscribe_deny: tuple[str, ...] = ()
    responses_max: int | None = None
    """How many answers may be published to a received reply subject; None: no such permission."""
    responses_ttl_ms: int | None = None
    """How long a received reply subject may be answered."""


@dataclass(frozen=True, kw_only=True)
class User:
    """One who may connect: by name and password, by nkey, or by a certificate that names them."""

    name: str | None = None
    password: str | None = field(default=None, repr=False)
    """In plain text or a bcrypt hash."""
    nkey: str | None = None
    permissions: PermissionRules | None = None


@dataclass(frozen=True, kw_only=True)
class Authorization:
    """Who may connect; without any of it everybody may."""

    users: tuple[User, ...] = ()
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    """In plain text or a bcrypt hash."""
    timeout_ms: int | None = None
    """How long a client may take to say who it is; None: 2 s, or 1 s more than TLS may take."""
    no_auth_user: str | None = None
    """The user that clients without credentials become."""
    default_permissions: PermissionRules | None = None
    """For those of `users` that have no permissions of their own."""

    @property
    def required(self) -> bool:
        """Whether a client must say who it is (or become `no_auth_user`)."""
        return bool(self.users or self.user is not None or self.token is not None)


@dataclass(frozen=True, kw_only=True)
class Tls:
    """How clients are met with TLS."""

    cert_file: Path
    key_file: Path
    ca_file: Path | None = None
    verify: bool = False
    """Clients must show a certificate that `ca_file` vouches for."""
    verify_and_map: bool = False
    """As `verify`, and the certificate names the user."""
    timeout_ms: int = 2_000
    handshake_first: bool | int = False
    """TLS before INFO; a number is how many ms to wait for a client that starts with TLS."""
    min_version: str | None = None
    """`1.2` or `1.3`."""
    cipher_suites: tuple[str, ...] = ()
    """IANA's names, in order of preference; empty: the defaults of the TLS library."""


@dataclass(frozen=True, kw_only=True)
class Export:
    """How what went through the broker is written as Parquet files."""

    dir: Path
    every_ms: int = 60_000
    """Time between two runs."""
    payloads: bool = True
    keep_bytes: int = 1 << 30
    """Dead log that is kept at most because it has not been exported."""
    keep_days: int | None = None
    """Files of hours that are older are removed; None: no file ever is."""


@dataclass(frozen=True, kw_only=True)
class Replication:
    """This server as one of several that hold the same."""

    node: int
    """Its number, from 1."""
    nodes: tuple[str, ...]
    """Where clients reach each node, in the order of their numbers; empty for one taken out."""
    servers: tuple[str, ...] = field(repr=False)
    """URLs of the nats-servers that keep the log."""
    name: str = "mq9"
    """Of the cluster: several may share the servers."""
    monitors: tuple[str, ...] = ()
    """Monitoring addresses of these servers: whether they sync what they confirm is seen there."""
    checks_sync: bool = True
    """Refuses servers that do not, or do not say."""
    replicas: int = 3
    """How many servers keep each message."""
    lease_ms: int = 3_000
    """How long nothing is heard of a leader before another node takes over."""

    @property
    def members(self) -> dict[int, str]:
        """Where clients reach each node, by its number."""
        return {number: address for number, address in enumerate(self.nodes, 1) if address}

    @property
    def syncs_elsewhere(self) -> bool:
        """Whether several servers have a message on their disks before it is confirmed."""
        return self.checks_sync and self.replicas > 1


@dataclass(frozen=True, kw_only=True)
class Monitoring:
    """Who may read the monitoring port."""

    user: str | None = None
    """None: no user and password are asked for."""
    password: str | None = field(default=None, repr=False)
    """In plain text or a bcrypt hash."""
    hosts: tuple[str, ...] = ()
    """Names that a loopback address answers to, beside its own."""


@dataclass(frozen=True, kw_only=True)
class Management:
    """The page, REST and metrics: a process that the server starts beside itself."""

    listen: str = "127.0.0.1:8055"
    metrics_port: int | None = None
    """A second port for `/metrics` alone; None: there is none."""
    hosts: tuple[str, ...] = ()
    """Names that it answers to, beside those of the loopback interface."""
    probe_hosts: tuple[str, ...] = ()
    """The same for `/healthz` and `/metrics` alone, beside IP addresses; `*` is any name."""
    series: tuple[str, ...] = ()
    """Queues and groups with series of their own in `/metrics`, however little they do."""
    audit_file: Path | None = None


@dataclass(frozen=True, kw_only=True)
class DeadLetters:
    """Where dead letters are copied to, besides the mailboxes that keep them."""

    postgres: str = field(repr=False)
    """The URL of a PostgreSQL database."""
    broker: str = ""
    """What tells this broker's letters from those of others in the same database; empty: its store
    does."""


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """What is sent at which times."""

    name: str
    cron: str
    """Minute, hour, day, month and weekday."""
    timezone: str = "UTC"
    mailbox: str = ""
    subject: str = ""
    """A subject of a stream, in place of a mailbox."""
    payload: str = ""
    priority: str = ""
    envelope: bool = False
    """Whether the payload is the `data` of an envelope."""


@dataclass(frozen=True, kw_only=True)
class Stream:
    """A stream that is declared."""

    name: str
    config: str
    """As JSON, in the words of JetStream's API."""
    place: str = field(default="", compare=False)
    """Where the configuration says so."""


@dataclass(frozen=True, kw_only=True)
class Consumer:
    """A consumer that is declared."""

    stream: str
    name: str
    config: str
    """As JSON, in the words of JetStream's API."""
    place: str = field(default="", compare=False)
    """Where the configuration says so."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """All settings of one server."""

    host: str = "0.0.0.0"
    port: int = 4222
    """-1: any free port."""
    server_name: str | None = None
    client_advertise: str | None = None

    max_payload: int = 1024 * 1024
    max_connections: int = 65_536
    """0: no limit."""
    max_subscriptions: int = 100_000
    """Of one connection; 0: no limit. When a client leaves, all of them end in one go."""
    max_control_line: int = 4096
    max_pending: int = 64 * 1024 * 1024
    ping_interval_ms: int = 120_000
    ping_max: int = 2
    write_deadline_ms: int = 10_000
    lame_duck_duration_ms: int = 120_000
    lame_duck_grace_period_ms: int = 10_000
    drain_ms: int = 5_000
    """How long a stop may take."""

    http_host: str | None = None
    """None: as `host`."""
    http_port: int | None = None
    """None: no monitoring. -1: any free port."""
    http_base_path: str = "/"

    monitoring: Monitoring = Monitoring()

    authorization: Authorization = Authorization()
    tls: Tls | None = None
    allow_non_tls: bool = False

    debug: bool = False
    trace: bool = False
    logtime: bool = True
    logtime_utc: bool = False
    log_file: Path | None = None
    pid_file: Path | None = None
    ports_file_dir: Path | None = None

    data_dir: Path = Path("mq9-data")
    sync: Sync = "always"
    sync_interval_ms: int = 100
    segment_bytes: int = 67_108_864
    """Size of a file of the log; the largest message is a little smaller."""
    checkpoint_bytes: int = 268_435_456
    """How much log is written before the index is saved again."""
    upkeep_ms: int = 1_000
    """How often upkeep looks whether there is something to do."""
    payload_encoding: PayloadEncoding = "auto"
    """How payloads stand in JSON replies; auto: as text where they are valid UTF-8."""
    default_ttl_ms: int = 0
    """Life of a mailbox that is created without a `ttl`; 0: for ever."""
    max_request: int = 64 * 1024
    """The largest request that is no message, no FETCH and no ACK, in bytes."""
    max_card: int = 256 * 1024
    """The largest card of an agent, in bytes."""
    max_agents: int = 1_000_000
    """How many agents may be registered; 0: any number."""
    max_agents_per_user: int = 0
    """The same for each user, where clients have to say who they are; 0: any number."""
    max_agent_bytes: int = 0
    """How much the cards and reports of all agents may take; 0: any amount."""
    max_agent_bytes_per_user: int = 0
    """The same for the agents that one user registered."""
    max_mailboxes: int = 0
    """How many mailboxes there may be; 0: any number."""
    max_mailboxes_per_user: int = 0
    """How many a user may have created; 0: any number."""
    max_store_bytes: int = 0
    """How much the messages of all mailboxes may take, as stored; 0: any amount."""
    max_bytes_per_user: int = 0
    """The same for the mailboxes that one user created."""
    max_groups: int = 1024
    """How many groups a mailbox may have."""
    max_waiting_fetches: int = 0
    """How many FETCHes may wait for messages; 0: any number."""
    max_waiting_fetches_per_user: int = 0
    """The same for each user, where clients have to say who they are; 0: any number."""
    max_waiting_fetches_per_connection: int = 1024
    """The same for one connection."""
    group_ttl_ms: int = 0
    """How long a group lives that nobody uses, where its mailbox does not say; 0: for ever."""
    max_broadcasts: int = 10_000
    """How many broadcasts are stored for who listens later; 0: none."""
    max_broadcast_bytes: int = 64 * 1024 * 1024
    """How much they may take, as stored; 0: any amount."""
    broadcast_ttl_ms: int = 86_400_000
    """How long they are stored at most; 0: for ever."""
    embedder: EmbedderName = "auto"
    """What finds agents by meaning; auto: the best one that is installed."""
    management: Management | bool | None = None
    """None: started if it is installed, unless the port was left to the system; False: never."""
    schedules: tuple[Schedule, ...] = ()
    """What the management process sends at set times."""
    dead_letters: DeadLetters | None = None
    """None: dead letters are nowhere but in their mailboxes."""
    export: Export | None = None
    """None: no continuous export."""

    replication: Replication | None = None
    """None: this server stands alone."""

    jetstream: bool = False
    """Serve the API of NATS JetStream: streams and consumers."""
    streams: tuple[Stream, ...] = ()
    """What is made at the start, and with a reload, where it is missing."""
    consumers: tuple[Consumer, ...] = ()
    """The same; queues of the registry among them."""

    config_file: Path | None = None
    flags: tuple[tuple[str, str | int | bool], ...] = field(default=(), repr=False)
    """The flags these options were made with; `reload` applies them again."""
    test_only: bool = False
    """Say whether the configuration is good (`-t`) and do not start."""
    warnings: tuple[str, ...] = ()
    """What was read and does not apply, each with its place."""
