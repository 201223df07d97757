import asyncio
from collections.abc import Callable, Iterable, Sequence
from os import PathLike
from pathlib import Path
from typing import Literal, Protocol, Self, TypeAlias, TypedDict, final, overload, type_check_only

__all__ = [
    "Broker",
    "BrokerStats",
    "Certificate",
    "ClusterNode",
    "Codes",
    "Completion",
    "Connection",
    "ConnectionStats",
    "Damage",
    "DiskFull",
    "Export",
    "ExportError",
    "ExportSummary",
    "GroupInfo",
    "GroupNotFound",
    "InvalidAddress",
    "InvalidField",
    "Limits",
    "MailboxExists",
    "MailboxFull",
    "MailboxInfo",
    "MailboxNotFound",
    "Message",
    "MessageNotFound",
    "MessageTooLarge",
    "MoreMessages",
    "NewMessage",
    "NewerFormat",
    "NodeStatus",
    "NotGiven",
    "Permissions",
    "Policy",
    "QuotaExceeded",
    "StorageError",
    "Store",
    "StoreError",
    "StoreInfo",
    "StoreLocked",
    "SubscriptionInfo",
    "SubscriptionList",
    "TlsConfig",
    "TooManyGroups",
    "Waiting",
    "WritesStopped",
    "__version__",
    "check_declared",
    "cluster_leave",
    "cluster_place",
    "cluster_reseed",
    "cluster_seed",
    "cluster_state",
    "crc32c",
    "dead_counts",
    "end_process_on_panic",
    "json_select",
    "latency_bounds_us",
    "list_activity",
    "list_groups",
    "query_stream",
    "remove_from_stream",
    "send_back",
    "send_letter_back",
    "send_noted",
    "stream_bytes",
    "stream_detail",
    "stream_names",
    "watch_mailboxes",
]

__version__: str

def crc32c(data: bytes) -> int:
    """What files of an export are checked by."""

def json_select(text: bytes, names: Sequence[str], *, max_depth: int, unique: bool) -> bytes:
    """The object with these fields alone, as written; ValueError for what is refused."""

def watch_mailboxes(
    store: Store, after: int, limit: int
) -> tuple[bool, int, bool, list[bytes], list[int]]:
    """Mailboxes that changed after the call that returned `after`; with 0, where to begin.

    Whether all have to be read anew, where to go on, whether there are more, rows, free places.
    """

def latency_bounds_us() -> list[int]:
    """Bounds of the buckets of latencies, in microseconds; the last bucket has none."""

def list_activity(store: Store, start: int, limit: int) -> tuple[list[bytes], int | None]:
    """Rows of mailboxes from place `start` on, and the place to go on with."""

def list_groups(store: Store, place: int, start: int, limit: int) -> tuple[str, list[bytes]] | None:
    """Groups of the mailbox in a place from number `start` on, and its address."""

# Wall and monotonic milliseconds, as `time.time` and `time.monotonic` count.
_Now: TypeAlias = tuple[int, int] | None

@type_check_only
class _PolicyChanges(TypedDict, total=False):
    latest: bool
    work_queue: bool
    public: bool
    discard: Literal["old", "new"]
    max_msgs: int
    max_bytes: int
    max_msg_size: int
    max_age_ms: int
    message_ttls_ms: dict[int, int]
    ack_wait_ms: int
    max_deliver: int
    max_ack_pending: int
    group_ttl_ms: int | None
    dedup_window_ms: int
    dead_letter: str | None

class StoreError(Exception):
    index: int | None
    stored: tuple[int, ...]

class MailboxNotFound(StoreError):
    """No mailbox of that address."""

class MailboxExists(StoreError):
    """The address is taken."""

class MessageNotFound(StoreError):
    """No stored message of that id."""

class InvalidAddress(StoreError, ValueError):
    """The address breaks a rule of the address format."""

class InvalidField(StoreError, ValueError):
    """A value is out of its range."""

class MessageTooLarge(StoreError):
    """The message is larger than the store or the mailbox takes."""

class MailboxFull(StoreError):
    """The mailbox is at a limit and refuses new messages."""

class MoreMessages(StoreError):
    """The mailbox holds more messages than whoever wants them gone has seen."""

class TooManyGroups(StoreError):
    """The mailbox has as many groups as it may have."""

class GroupNotFound(StoreError):
    """The mailbox has no group of that name, or it was removed."""

class QuotaExceeded(StoreError):
    """Clients, or this one, have as much as a setting of the broker allows."""

class NotGiven(StoreError):
    """An acknowledgement of a message that the group was never given."""

class StoreLocked(StoreError):
    """The directory is in use."""

class DiskFull(StoreError, OSError):
    """There is no space for more; reading goes on."""

class StorageError(StoreError, OSError):
    """The operating system refused a file operation."""

class WritesStopped(StoreError):
    """A sync has failed: nothing more is acknowledged until a restart."""

class NewerFormat(StoreError):
    """A file was written by a newer version."""

class ExportError(StoreError):
    """An export cannot be made, or go on."""

@final
class NewMessage:
    def __new__(
        cls,
        payload: bytes | bytearray,
        *,
        level: int = 5,
        key: str = "",
        tags: str = "",
        headers: bytes | bytearray = b"",
        delay_ms: int = 0,
        ttl_ms: int = 0,
    ) -> Self: ...
    @property
    def payload(self) -> bytes: ...
    @property
    def level(self) -> int: ...
    @property
    def key(self) -> str: ...
    @property
    def tags(self) -> str: ...
    @property
    def headers(self) -> bytes: ...
    @property
    def delay_ms(self) -> int: ...
    @property
    def ttl_ms(self) -> int: ...

@final
class Message:
    @property
    def msg_id(self) -> int: ...
    @property
    def level(self) -> int: ...
    @property
    def sent_ms(self) -> int: ...
    @property
    def create_ms(self) -> int: ...
    @property
    def expires_ms(self) -> int: ...
    @property
    def deliveries(self) -> int: ...
    @property
    def last_delivery(self) -> bool: ...
    @property
    def key(self) -> str: ...
    @property
    def tags(self) -> str: ...
    @property
    def headers(self) -> bytes: ...
    @property
    def payload(self) -> bytes: ...
    def entry(self, *, always_base64: bool = False, delayed: bool = False) -> bytes: ...

@final
class Waiting:
    @property
    def waiter(self) -> int: ...

@final
class Completion:
    @property
    def waiter(self) -> int: ...
    @property
    def messages(self) -> tuple[Message, ...]: ...
    @property
    def error(self) -> StoreError | None: ...

@final
class Policy:
    @property
    def latest(self) -> bool: ...
    @property
    def work_queue(self) -> bool: ...
    @property
    def public(self) -> bool: ...
    @property
    def tier(self) -> Literal["durable", "memory"]: ...
    @property
    def discard(self) -> Literal["old", "new"]: ...
    @property
    def max_msgs(self) -> int: ...
    @property
    def max_bytes(self) -> int: ...
    @property
    def max_msg_size(self) -> int: ...
    @property
    def max_age_ms(self) -> int: ...
    @property
    def message_ttls_ms(self) -> dict[int, int]: ...
    @property
    def ack_wait_ms(self) -> int: ...
    @property
    def max_deliver(self) -> int: ...
    @property
    def max_ack_pending(self) -> int: ...
    @property
    def group_ttl_ms(self) -> int | None: ...
    @property
    def dedup_window_ms(self) -> int: ...
    @property
    def dead_letter(self) -> str | None: ...
    @property
    def owner(self) -> str | None: ...

@final
class MailboxInfo:
    @property
    def address(self) -> str: ...
    @property
    def desc(self) -> str: ...
    @property
    def created_ms(self) -> int: ...
    @property
    def expires_ms(self) -> int: ...
    @property
    def messages(self) -> int: ...
    @property
    def delayed(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    @property
    def next_id(self) -> int: ...
    @property
    def policy(self) -> Policy: ...
    @property
    def groups(self) -> tuple[GroupInfo, ...]: ...

@final
class GroupInfo:
    @property
    def name(self) -> str: ...
    @property
    def cursors(self) -> tuple[int, ...]: ...
    @property
    def outstanding(self) -> int: ...

@final
class ExportSummary:
    @property
    def messages(self) -> int: ...
    @property
    def events(self) -> int: ...
    @property
    def files(self) -> int: ...
    @property
    def file_bytes(self) -> int: ...
    @property
    def log_bytes(self) -> int: ...
    @property
    def gaps(self) -> int: ...
    @property
    def damaged_bytes(self) -> int: ...
    @property
    def untimed(self) -> int: ...

@final
class Export:
    def __new__(
        cls,
        data: str | PathLike[str],
        out: str | PathLike[str],
        *,
        payloads: bool = True,
        since_ms: int | None = None,
        piece_bytes: int = 33_554_432,
        at_once: bool = False,
    ) -> Self: ...
    def run(self, store: Store | None = None) -> ExportSummary: ...
    def stop(self) -> None: ...
    def progress(self) -> tuple[int, int]: ...
    def position(self) -> tuple[int, int]: ...
    def forget(self, before_ms: int) -> int: ...
    def close(self) -> None: ...

def send_back(
    store: Store,
    address: str,
    msg_id: int,
    to: str,
    payload: bytes | bytearray,
    *,
    level: int,
    key: str,
    tags: str,
    headers: bytes | bytearray,
    now: _Now = None,
) -> int: ...
def send_letter_back(
    store: Store,
    stream: str,
    seq: int,
    subject: str,
    payload: bytes | bytearray,
    *,
    near: str,
    headers: bytes | bytearray,
    now: _Now = None,
) -> int | None: ...
def send_noted(
    store: Store,
    subject: str,
    headers: bytes | bytearray,
    payload: bytes | bytearray,
    *,
    address: str,
    key: str,
    note: bytes | bytearray,
    now: _Now = None,
) -> tuple[str, str] | None:
    """Stores what a client would by publishing, and a note; or the kind and text of a refusal."""

def dead_counts(store: Store) -> tuple[list[tuple[str, int]], int]:
    """Messages given up since the store was opened, by address or subject; and of all others."""

def query_stream(
    store: Store,
    name: str,
    *,
    prefixes: Sequence[str] | None = None,
    first: int = 1,
    before: int | None = None,
    limit: int = 100,
    max_bytes: int = 1_048_576,
    newest: bool = False,
) -> tuple[int, int, int, list[Message], int | None] | None:
    """When a stream was created, its messages, its next number, some messages, where to go on."""

def remove_from_stream(store: Store, name: str, seq: int) -> bool: ...
def stream_names(store: Store) -> list[str]:
    """The names of streams, in order."""

def check_declared(
    streams: Sequence[tuple[str, str]], consumers: Sequence[tuple[str, str, str]]
) -> tuple[list[str], list[tuple[int, str]]]:
    """Whether streams (name, configuration) and consumers (stream, name, configuration) can be made
    in an empty store: the stream of each consumer, and what is wrong with which of all."""

def stream_bytes(store: Store) -> int:
    """What all streams take, in bytes."""

def stream_detail(store: Store, name: str, consumers: bool, config: bool) -> str | None:
    """A stream as JSON in the words of nats-server's monitoring; none if it is not there."""

def end_process_on_panic(log_file: str | PathLike[str] | None = None) -> None: ...

@final
class StoreInfo:
    @property
    def mailboxes(self) -> int: ...
    @property
    def segments(self) -> int: ...
    @property
    def log_bytes(self) -> int: ...
    @property
    def live_bytes(self) -> int: ...
    @property
    def checkpoint_bytes(self) -> int: ...
    @property
    def epoch(self) -> int: ...
    @property
    def waiting(self) -> int: ...
    @property
    def writes_stopped(self) -> str | None: ...
    @property
    def refusing(self) -> str | None: ...
    @property
    def last_refusal(self) -> str | None: ...
    @property
    def refused(self) -> int: ...
    @property
    def sync_counts(self) -> list[int]: ...
    @property
    def sync_sum_us(self) -> int: ...
    @property
    def last_maintenance_error(self) -> str | None: ...

@final
class Damage:
    @property
    def file(self) -> str: ...
    @property
    def offset(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    @property
    def kind(
        self,
    ) -> Literal[
        "record", "torn_tail", "cut_short", "segment", "checkpoint", "orphan", "message"
    ]: ...
    @property
    def mailbox(self) -> str | None: ...
    @property
    def msg_id(self) -> int | None: ...
    @property
    def messages(self) -> int: ...
    @property
    def set_aside(self) -> str | None: ...
    @property
    def text(self) -> str: ...

@final
class Store:
    def __new__(
        cls,
        path: str | PathLike[str],
        *,
        sync: Literal["always", "interval", "none"] = "always",
        sync_interval_ms: int = 100,
        segment_bytes: int = 67_108_864,
        allocate_bytes: int = 4_194_304,
        checkpoint_bytes: int = 268_435_456,
        ack_wait_ms: int = 30_000,
        max_groups: int = 1024,
        group_ttl_ms: int = 0,
        max_mailboxes: int = 0,
        max_mailboxes_per_user: int = 0,
        max_store_bytes: int = 0,
        max_bytes_per_user: int = 0,
        max_waits: int = 0,
        max_waits_per_user: int = 0,
        max_waits_per_connection: int = 1024,
        maintain_every_ms: int = 1000,
        read_only: bool = False,
        member_keep: int | None = None,
        now: _Now = None,
    ) -> Self: ...
    @property
    def path(self) -> Path: ...
    @property
    def closed(self) -> bool: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *_exc: object) -> None: ...
    def create_mailbox(
        self,
        address: str,
        *,
        ttl_ms: int = 0,
        desc: str = "",
        latest: bool = False,
        work_queue: bool = False,
        public: bool = False,
        tier: Literal["durable", "memory"] = "durable",
        discard: Literal["old", "new"] = "old",
        max_msgs: int = 0,
        max_bytes: int = 0,
        max_msg_size: int = 0,
        max_age_ms: int = 0,
        message_ttls_ms: dict[int, int] | None = None,
        ack_wait_ms: int = 0,
        max_deliver: int = 0,
        max_ack_pending: int = 0,
        group_ttl_ms: int | None = None,
        dedup_window_ms: int = 0,
        dead_letter: str | None = None,
        owner: str | None = None,
        now: _Now = None,
    ) -> None: ...
    def update_mailbox(
        self,
        address: str,
        policy: _PolicyChanges | None = None,
        *,
        ttl_ms: int | None = None,
        desc: str | None = None,
        now: _Now = None,
    ) -> None: ...
    def remove_mailbox(
        self, address: str, *, expected: int | None = None, now: _Now = None
    ) -> None: ...
    def remove_group(self, address: str, group: str, *, now: _Now = None) -> None: ...
    def purge(self, address: str, *, expected: int | None = None, now: _Now = None) -> int: ...
    def append_many(
        self,
        address: str,
        messages: Iterable[bytes | bytearray | NewMessage],
        *,
        now: _Now = None,
    ) -> list[int]: ...
    def send(
        self,
        address: str,
        payload: bytes | bytearray,
        *,
        level: int = 5,
        key: str = "",
        tags: str = "",
        headers: bytes | bytearray = b"",
        delay_ms: int = 0,
        ttl_ms: int = 0,
        now: _Now = None,
    ) -> int: ...
    @overload
    def fetch(
        self,
        address: str,
        *,
        group: str | None = None,
        member: str | None = None,
        conn: int = 0,
        deliver: Literal["latest", "earliest", "from_time", "from_id"] = "latest",
        from_time_ms: int | None = None,
        from_id: int | None = None,
        force: bool = False,
        max_msgs: int = 100,
        max_bytes: int = 1_048_576,
        max_level: int = 10,
        ack_wait_ms: int = 0,
        wait_ms: Literal[0] = 0,
        now: _Now = None,
    ) -> list[Message]: ...
    @overload
    def fetch(
        self,
        address: str,
        *,
        group: str | None = None,
        member: str | None = None,
        conn: int = 0,
        deliver: Literal["latest", "earliest", "from_time", "from_id"] = "latest",
        from_time_ms: int | None = None,
        from_id: int | None = None,
        force: bool = False,
        max_msgs: int = 100,
        max_bytes: int = 1_048_576,
        max_level: int = 10,
        ack_wait_ms: int = 0,
        wait_ms: int,
        now: _Now = None,
    ) -> list[Message] | Waiting: ...
    def completions(self, *, now: _Now = None) -> list[Completion]: ...
    def cancel_wait(self, waiter: int) -> bool: ...
    def disconnect(self, conn: int, *, now: _Now = None) -> None: ...
    def ack(
        self,
        address: str,
        group: str,
        msg_ids: Sequence[int],
        *,
        kind: Literal["ack", "nak", "progress", "term"] = "ack",
        only: bool = False,
        delay_ms: int = 0,
        now: _Now = None,
    ) -> None: ...
    def query(
        self,
        address: str,
        *,
        key: str | None = None,
        tags: Sequence[str] = (),
        since_ms: int = 0,
        after_id: int | None = None,
        before_id: int | None = None,
        limit: int = 100,
        max_bytes: int = 1_048_576,
        newest: bool = False,
        now: _Now = None,
    ) -> list[Message]: ...
    def query_delayed(
        self,
        address: str,
        *,
        after_id: int | None = None,
        limit: int = 100,
        max_bytes: int = 1_048_576,
        now: _Now = None,
    ) -> list[Message]: ...
    def cancel_delayed(self, address: str, delay_id: int, *, now: _Now = None) -> None: ...
    def delete(self, address: str, msg_id: int, *, now: _Now = None) -> None: ...
    def mailbox(self, address: str, *, now: _Now = None) -> MailboxInfo: ...
    def mailboxes_at(
        self, addresses: Sequence[str], *, now: _Now = None
    ) -> list[MailboxInfo | None]: ...
    def messages_of(
        self, address: str, keys: Sequence[str], *, max_bytes: int = 1_048_576, now: _Now = None
    ) -> list[Message | None]: ...
    def mailboxes(
        self, start: int = 0, limit: int = 1000, *, now: _Now = None
    ) -> tuple[list[MailboxInfo], int | None]: ...
    def info(self) -> StoreInfo: ...
    def damage(self) -> list[Damage]: ...
    def tick(self, *, now: _Now = None) -> bool: ...
    def sleep_ms(self, *, now: _Now = None) -> int | None: ...
    def checkpoint(self) -> None: ...
    def maintain(self) -> bool: ...
    def keep_segments(self, segment: int, most_bytes: int) -> None: ...
    def end(self) -> int: ...
    def acknowledged(self) -> int: ...
    def wait_durable(self, ticket: int | None = None, *, timeout_ms: int | None = None) -> None: ...
    def fileno(self) -> int: ...
    def read_acknowledged(self) -> int: ...

@final
class Codes:
    """Vectors of signed bytes, and their products with one of native i16."""

    def __new__(cls, dimensions: int) -> Self: ...
    def __len__(self) -> int: ...
    def append(self, row: bytes) -> None: ...
    def remove(self, row: int) -> None: ...
    def products(self, query: bytes) -> bytes: ...

@final
class TlsConfig:
    """Settings of TLS whose files were read and found usable; ValueError says what is wrong."""

    def __new__(
        cls,
        *,
        cert_file: str | PathLike[str],
        key_file: str | PathLike[str],
        ca_file: str | PathLike[str] | None = None,
        verify: bool = False,
        min_version: str = "1.2",
        cipher_suites: Sequence[str] = ...,
    ) -> Self: ...
    @staticmethod
    def check_cipher_suite(name: str) -> None:
        """ValueError, with the names that are known, if no suite has this one."""

@final
class Certificate:
    """Whom a certificate is for."""

    def __new__(
        cls,
        *,
        subject: Sequence[Sequence[tuple[str, str]]] = ...,
        emails: Sequence[str] = ...,
        dns_names: Sequence[str] = ...,
        uris: Sequence[str] = ...,
    ) -> Self: ...
    @staticmethod
    def from_der(der: bytes) -> Certificate:
        """Read a certificate as it goes over the wire; ValueError if it is none."""
    @staticmethod
    def from_pem(pem: bytes) -> Certificate:
        """Read the first certificate of a text in PEM form; ValueError if there is none."""
    @property
    def subject(self) -> list[list[tuple[str, str]]]:
        """Its parts in their order; short names such as CN, or numbers, with their values."""
    @property
    def emails(self) -> list[str]:
        """Alternative names: email addresses."""
    @property
    def dns_names(self) -> list[str]:
        """Alternative names: hosts."""
    @property
    def uris(self) -> list[str]:
        """Alternative names: URIs."""

@type_check_only
class _Session(Protocol):
    """What a connection tells of itself; one object per connection."""

    def on_secured(self, version: str, cipher: str, certificate: Certificate | None, /) -> None: ...
    def on_connect(self, options: bytes, /) -> None: ...
    def on_first_command(self) -> None: ...
    def on_closed(self, reason: str, detail: str | None, /) -> None: ...

@final
class Limits:
    """What a connection may use."""

    def __new__(
        cls,
        *,
        max_payload: int = 1_048_576,
        max_control_line: int = 4096,
        max_pending: int = 67_108_864,
        max_subscriptions: int = 0,
        ping_interval_ms: int = 120_000,
        ping_max: int = 2,
        write_deadline_ms: int = 10_000,
    ) -> Self: ...

@final
class Permissions:
    """What the clients of a user may publish and subscribe to; denying wins over allowing.

    Entries for subscribing may be "subject queue". ValueError if an entry is not a subject.
    """

    def __new__(
        cls,
        *,
        publish_allow: Sequence[str] | None = None,
        publish_deny: Sequence[str] = ...,
        subscribe_allow: Sequence[str] | None = None,
        subscribe_deny: Sequence[str] = ...,
        responses_max: int | None = None,
        responses_ttl_ms: int | None = None,
    ) -> Self: ...

@final
class BrokerStats:
    """Counters over all connections, past ones included."""

    @property
    def connections(self) -> int: ...
    @property
    def total_connections(self) -> int: ...
    @property
    def subscriptions(self) -> int: ...
    @property
    def in_msgs(self) -> int: ...
    @property
    def in_bytes(self) -> int: ...
    @property
    def out_msgs(self) -> int: ...
    @property
    def out_bytes(self) -> int: ...
    @property
    def slow_consumers(self) -> int: ...
    @property
    def refused(self) -> int: ...
    @property
    def lookups(self) -> int: ...
    @property
    def lookup_hits(self) -> int: ...
    @property
    def inserts(self) -> int: ...
    @property
    def removes(self) -> int: ...
    @property
    def commit_counts(self) -> list[int]: ...
    @property
    def commit_sum_us(self) -> int: ...

@final
class ConnectionStats:
    """Counters of one connection; instants in Unix milliseconds."""

    @property
    def cid(self) -> int: ...
    @property
    def in_msgs(self) -> int: ...
    @property
    def in_bytes(self) -> int: ...
    @property
    def out_msgs(self) -> int: ...
    @property
    def out_bytes(self) -> int: ...
    @property
    def pending_bytes(self) -> int: ...
    @property
    def subscriptions(self) -> int: ...
    @property
    def rtt_us(self) -> int: ...
    @property
    def started_ms(self) -> int: ...
    @property
    def last_activity_ms(self) -> int: ...

@final
class SubscriptionList:
    """The subscriptions that some connections had when it was made."""

    def __len__(self) -> int: ...
    def take(self, most: int) -> list[SubscriptionInfo]: ...

@final
class SubscriptionInfo:
    """One subscription of a client."""

    @property
    def cid(self) -> int: ...
    @property
    def sid(self) -> str: ...
    @property
    def subject(self) -> str: ...
    @property
    def queue(self) -> str: ...
    @property
    def delivered(self) -> int: ...
    @property
    def max(self) -> int: ...

@final
class Connection:
    """A client's connection, before, while and after it is open."""

    @property
    def cid(self) -> int: ...
    def adopt(
        self,
        descriptor: int,
        info: bytes,
        *,
        auth_required: bool,
        auth_timeout_ms: int | None,
        tls: TlsConfig | None,
        tls_first_ms: int | None,
        tls_timeout_ms: int,
        allow_non_tls: bool,
        paused: bool,
    ) -> None: ...
    def send(self, data: bytes) -> None: ...
    def accept(
        self,
        *,
        verbose: bool,
        pedantic: bool,
        echo: bool,
        headers: bool,
        no_responders: bool,
        permissions: Permissions | None,
        name: str,
        own: bool,
    ) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def set_permissions(self, permissions: Permissions | None) -> None: ...
    def set_user(self, user: str | None) -> None: ...
    def close(self, error: str | None, reason: str) -> None: ...
    def abort(self) -> None: ...
    def stats(self) -> ConnectionStats | None: ...

@final
class Broker:
    """Connections and mailboxes on a thread of their own, which never waits for the interpreter."""

    def __new__(
        cls,
        limits: Limits,
        seed: int,
        *,
        store: Store | None = None,
        payload_base64: bool = False,
        jetstream: bool = False,
        max_broadcasts: int = 10_000,
        max_broadcast_bytes: int = 67_108_864,
        broadcast_ttl_ms: int = 86_400_000,
    ) -> Self: ...
    def start(self, event_loop: asyncio.AbstractEventLoop) -> None: ...
    def stop(self) -> None: ...
    def hear(self) -> None: ...
    def settle(self) -> None: ...
    def end_pulls(self) -> None: ...
    def reply(
        self, cid: int, subject: str, payload: bytes, *, command: str | None = None
    ) -> None: ...
    def give_unread(
        self,
        cid: int,
        subject: str,
        address: str,
        created_ms: int,
        *,
        always_base64: bool = False,
    ) -> None: ...
    def answer(self, cid: int, subject: str, payload: bytes) -> None: ...
    def refuse(self, cid: int, subject: str, command: str, kind: str, text: str) -> None: ...
    def refused(self, cid: int, subject: str) -> None: ...
    def may_publish(self, cid: int, subject: str) -> bool: ...
    def connection(self, session: _Session) -> Connection: ...
    def set_limits(self, limits: Limits) -> None: ...
    def serve(
        self, subject: str, handler: Callable[[int, str, str, bytes, bytes], object]
    ) -> None: ...
    def log_protocol(self, handler: Callable[[int, bytes], object] | None) -> None: ...
    def introduce(self, members: str) -> None: ...
    def await_commands(self, awaits: bool) -> None: ...
    def stats(self) -> BrokerStats: ...
    def declare_stream(
        self, config: str
    ) -> tuple[Literal["unchanged", "created", "changed", "refused"], str]: ...
    def declare_consumer(
        self, stream: str, name: str, config: str
    ) -> tuple[Literal["unchanged", "created", "changed", "refused"], str]: ...
    def jetstream_requests(self) -> tuple[int, int]: ...
    def connection_stats(self, cids: Sequence[int]) -> list[ConnectionStats]: ...
    def subscriptions(self, cids: Sequence[int]) -> SubscriptionList: ...

def cluster_place(path: str | PathLike[str]) -> tuple[int, str, int]: ...
def cluster_state(path: str | PathLike[str], keep: int) -> str: ...
def cluster_seed(path: str | PathLike[str]) -> tuple[int, str, int]: ...
def cluster_reseed(path: str | PathLike[str]) -> tuple[int, str, int]: ...
def cluster_leave(path: str | PathLike[str]) -> tuple[int, str, int]: ...

@final
class NodeStatus:
    @property
    def role(self) -> Literal["starting", "following", "leading", "demoted", "stopped"]: ...
    @property
    def term(self) -> int: ...
    @property
    def leader(self) -> int: ...
    @property
    def sequence(self) -> int: ...
    @property
    def lag(self) -> int: ...
    @property
    def digest(self) -> str: ...
    @property
    def keep(self) -> int: ...
    @property
    def trouble(self) -> str | None: ...
    @property
    def is_alarm(self) -> bool: ...
    @property
    def connected(self) -> bool: ...
    @property
    def answers(self) -> bool: ...
    @property
    def changes(self) -> int: ...

@final
class ClusterNode:
    def __new__(
        cls,
        store: Store,
        *,
        cluster: str,
        node: int,
        members: Sequence[int],
        servers: Sequence[tuple[str, tuple[str, str] | None]],
        replicas: int = 3,
        lease_ms: int = 3000,
        max_payload: int = 1048576,
    ) -> Self: ...
    def status(self) -> NodeStatus: ...
    def wait(self, seen: int, timeout_ms: int) -> NodeStatus: ...
    def yield_to(self, to: int | None = None) -> None: ...
    def stop(self) -> None: ...
    def abandon(self) -> None: ...
