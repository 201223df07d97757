from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path
from typing import Literal, Self, TypeAlias, final, overload

__all__ = [
    "Completion",
    "Damage",
    "DiskFull",
    "GroupInfo",
    "InvalidAddress",
    "InvalidField",
    "MailboxExists",
    "MailboxFull",
    "MailboxInfo",
    "MailboxNotFound",
    "Message",
    "MessageNotFound",
    "MessageTooLarge",
    "NewMessage",
    "NewerFormat",
    "NotGiven",
    "Policy",
    "StorageError",
    "Store",
    "StoreError",
    "StoreInfo",
    "StoreLocked",
    "TooManyGroups",
    "Waiting",
    "WritesStopped",
    "__version__",
]

__version__: str

# Wall and monotonic milliseconds, as `time.time` and `time.monotonic` count.
_Now: TypeAlias = tuple[int, int] | None

class StoreError(Exception):
    index: int | None
    stored: tuple[int, ...]

class MailboxNotFound(StoreError): ...
class MailboxExists(StoreError): ...
class MessageNotFound(StoreError): ...
class InvalidAddress(StoreError, ValueError): ...
class InvalidField(StoreError, ValueError): ...
class MessageTooLarge(StoreError): ...
class MailboxFull(StoreError): ...
class TooManyGroups(StoreError): ...
class NotGiven(StoreError): ...
class StoreLocked(StoreError): ...
class DiskFull(StoreError, OSError): ...
class StorageError(StoreError, OSError): ...
class WritesStopped(StoreError): ...
class NewerFormat(StoreError): ...

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
    def key(self) -> str: ...
    @property
    def tags(self) -> str: ...
    @property
    def headers(self) -> bytes: ...
    @property
    def payload(self) -> bytes: ...

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
    def ack_wait_ms(self) -> int: ...
    @property
    def max_deliver(self) -> int: ...
    @property
    def max_ack_pending(self) -> int: ...
    @property
    def dead_letter(self) -> str | None: ...

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
        maintain_every_ms: int = 1000,
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
        ack_wait_ms: int = 0,
        max_deliver: int = 0,
        max_ack_pending: int = 0,
        dead_letter: str | None = None,
        now: _Now = None,
    ) -> None: ...
    def remove_mailbox(self, address: str, *, now: _Now = None) -> None: ...
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
        limit: int = 100,
        max_bytes: int = 1_048_576,
        newest: bool = False,
        now: _Now = None,
    ) -> list[Message]: ...
    def delete(self, address: str, msg_id: int, *, now: _Now = None) -> None: ...
    def mailbox(self, address: str, *, now: _Now = None) -> MailboxInfo: ...
    def mailboxes(
        self, start: int = 0, limit: int = 1000, *, now: _Now = None
    ) -> tuple[list[MailboxInfo], int | None]: ...
    def info(self) -> StoreInfo: ...
    def damage(self) -> list[Damage]: ...
    def tick(self, *, now: _Now = None) -> bool: ...
    def sleep_ms(self, *, now: _Now = None) -> int | None: ...
    def checkpoint(self) -> None: ...
    def maintain(self) -> bool: ...
    def end(self) -> int: ...
    def acknowledged(self) -> int: ...
    def wait_durable(self, ticket: int | None = None, *, timeout_ms: int | None = None) -> None: ...
    def fileno(self) -> int: ...
    def read_acknowledged(self) -> int: ...
