"""Every exception of the store, raised by what it is for."""

import errno
import os
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import mq9._core
from mq9 import errors
from mq9._core import NewMessage, Store

NOW = (1_700_000_000_000, 5_000)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path, sync="none", max_groups=1, maintain_every_ms=0, now=NOW) as store:
        store.create_mailbox("a", now=NOW)
        yield store


def replace_segment(folder: Path, other: str, flags: int) -> None:
    """Let the open segment file be another one from here on."""
    segment = str(folder / "segment-0000000001.log")
    descriptors = [int(name) for name in os.listdir("/proc/self/fd")]  # noqa: PTH208
    (descriptor,) = [fd for fd in descriptors if link(fd) == segment]
    replacement = os.open(other, flags)
    os.dup2(replacement, descriptor, inheritable=False)
    os.close(replacement)


def link(descriptor: int) -> str:
    try:
        return str(Path(f"/proc/self/fd/{descriptor}").readlink())
    except OSError:
        return ""


def test_all_exceptions_are_of_one_hierarchy_under_the_same_names() -> None:
    in_core = {name for name in vars(mq9._core) if is_exception(getattr(mq9._core, name))}
    assert in_core <= set(errors.__all__)
    assert errors.Mq9Error is errors.StoreError
    for name in set(errors.__all__) - {"Mq9Error"}:
        kind = getattr(errors, name)
        assert issubclass(kind, errors.StoreError)
        home = "mq9._core" if name in in_core else "mq9.errors"
        assert (kind.__module__, kind.__name__) == (home, name)
        assert kind is getattr(sys.modules[home], name)
        assert kind.__doc__


def is_exception(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Exception)


def test_builtin_classes_serve_callers_who_know_only_those() -> None:
    assert issubclass(errors.InvalidAddress, ValueError)
    assert issubclass(errors.InvalidField, ValueError)
    assert issubclass(errors.DiskFull, OSError)
    assert issubclass(errors.StorageError, OSError)


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("remove_mailbox", ["b"]),
        ("remove_group", ["b", "g"]),
        ("append_many", ["b", [b""]]),
        ("send", ["b", b""]),
        ("fetch", ["b"]),
        ("ack", ["b", "g", [0]]),
        ("query", ["b"]),
        ("delete", ["b", 0]),
        ("mailbox", ["b"]),
    ],
)
def test_mailbox_not_found(store: Store, name: str, args: list[Any]) -> None:
    with pytest.raises(errors.MailboxNotFound, match=r"^mailbox b does not exist$") as raised:
        getattr(store, name)(*args, now=NOW)
    assert (raised.value.index, raised.value.stored) == (None, ())


def test_mailbox_exists(store: Store) -> None:
    with pytest.raises(errors.MailboxExists, match=r"^mailbox a already exists$"):
        store.create_mailbox("a", now=NOW)


def test_message_not_found(store: Store) -> None:
    with pytest.raises(errors.MessageNotFound):
        store.delete("a", 0, now=NOW)


def test_invalid_address(store: Store) -> None:
    with pytest.raises(errors.InvalidAddress, match="it must be lowercase"):
        store.create_mailbox("A", now=NOW)


def test_a_dollar_makes_a_name_that_is_no_address(store: Store) -> None:
    store.create_mailbox("$own", now=NOW)
    assert store.send("$own", b"kept", now=NOW) == 0
    with pytest.raises(errors.InvalidAddress, match="it may hold only a-z, 0-9 and dots"):
        store.create_mailbox("$$own", now=NOW)
    with pytest.raises(errors.InvalidAddress):
        store.create_mailbox("b", dead_letter="$own", max_deliver=1, now=NOW)


@pytest.mark.parametrize(
    ("field", "name", "args", "keywords"),
    [
        ("desc", "create_mailbox", ["b"], {"desc": "x" * 4097}),
        ("tier", "create_mailbox", ["b"], {"tier": "cloud"}),
        ("discard", "create_mailbox", ["b"], {"discard": "all"}),
        ("max_deliver", "create_mailbox", ["b"], {"max_deliver": 1}),
        ("key", "send", ["a", b""], {"key": "x" * 1025}),
        ("level", "send", ["a", b""], {"level": 0}),
        ("level", "send", ["a", b""], {"level": 11}),
        ("deliver", "fetch", ["a"], {"deliver": "soon"}),
        ("from_id", "fetch", ["a"], {"deliver": "from_id"}),
        ("from_time_ms", "fetch", ["a"], {"deliver": "from_time"}),
        ("max_level", "fetch", ["a"], {"max_level": 0}),
        ("group_name", "fetch", ["a"], {"group": ""}),
        ("member", "fetch", ["a"], {"member": "m"}),
        ("force", "fetch", ["a"], {"force": True}),
        ("kind", "ack", ["a", "g", [0]], {"kind": "maybe"}),
        ("only", "ack", ["a", "g", [0]], {"kind": "nak", "only": True}),
        ("delay_ms", "ack", ["a", "g", [0]], {"delay_ms": 1}),
    ],
)
def test_invalid_field(
    store: Store, field: str, name: str, args: list[Any], keywords: dict[str, Any]
) -> None:
    with pytest.raises(errors.InvalidField, match=f"^invalid {field}: "):
        getattr(store, name)(*args, **keywords, now=NOW)


def test_invalid_settings(tmp_path: Path) -> None:
    sync: Any = "sometimes"
    with pytest.raises(errors.InvalidField, match=r"^invalid sync: \"sometimes\" is not always, "):
        Store(tmp_path / "new", sync=sync)
    assert not (tmp_path / "new").exists()
    with pytest.raises(errors.InvalidField, match=r"^invalid level: 11 is not 1 to 10$"):
        NewMessage(b"", level=11)


def test_message_too_large(store: Store) -> None:
    store.create_mailbox("b", max_msg_size=100, now=NOW)
    with pytest.raises(errors.MessageTooLarge, match="larger than the limit of 100 bytes"):
        store.send("b", bytes(100), now=NOW)


def test_too_many_groups(store: Store) -> None:
    store.fetch("a", group="g", now=NOW)
    with pytest.raises(
        errors.TooManyGroups, match="quota max_groups reached: at most 1 groups of mailbox a"
    ):
        store.fetch("a", group="h", now=NOW)
    store.remove_group("a", "g", now=NOW)
    store.fetch("a", group="h", now=NOW)


def test_no_such_group(store: Store) -> None:
    with pytest.raises(errors.GroupNotFound, match=r"^group g of mailbox a does not exist$"):
        store.remove_group("a", "g", now=NOW)


def test_not_given(store: Store) -> None:
    with pytest.raises(errors.NotGiven, match="group g has not been given msg_id 0"):
        store.ack("a", "g", [0], now=NOW)


def test_store_locked(store: Store) -> None:
    with pytest.raises(errors.StoreLocked):
        Store(store.path)


def test_a_batch_with_a_bad_message_is_refused_as_a_whole(store: Store) -> None:
    batch: list[bytes | NewMessage] = [
        b"0",
        NewMessage(b"1"),
        NewMessage(b"2", key="x" * 1025),
        b"3",
    ]
    with pytest.raises(errors.InvalidField, match=r"^message 2: invalid key: ") as raised:
        store.append_many("a", batch, now=NOW)
    assert (raised.value.index, raised.value.stored) == (2, ())
    assert store.query("a", now=NOW) == []
    huge = bytes(store.info().log_bytes + (40 << 20))
    with pytest.raises(errors.MessageTooLarge, match=r"^message 1: ") as too_large:
        store.append_many("a", [b"0", huge], now=NOW)
    assert too_large.value.index == 1
    assert store.query("a", now=NOW) == []


def test_a_batch_that_fills_the_mailbox_stores_what_fits(store: Store) -> None:
    store.create_mailbox("b", max_msgs=2, discard="new", now=NOW)
    batch = [b"0", b"1", b"2", b"3"]
    with pytest.raises(errors.MailboxFull, match=r"^message 2: .*max_msgs 2$") as raised:
        store.append_many("b", batch, now=NOW)
    assert (raised.value.index, raised.value.stored) == (2, (0, 1))
    assert [message.payload for message in store.query("b", now=NOW)] == [b"0", b"1"]
    with pytest.raises(errors.MailboxFull, match=r"^mailbox b is full: max_msgs 2$"):
        store.send("b", b"2", now=NOW)


@pytest.mark.parametrize("bad", ["text", 1, None, memoryview(b"x")])
def test_a_batch_takes_only_bytes_and_messages(store: Store, bad: Any) -> None:  # noqa: ANN401
    with pytest.raises(TypeError, match=rf"^message 1: a {type(bad).__name__} is neither bytes"):
        store.append_many("a", [b"0", bad], now=NOW)
    with pytest.raises(TypeError):
        store.append_many("a", bad, now=NOW)
    assert store.query("a", now=NOW) == []


def test_negative_numbers_are_refused(store: Store) -> None:
    with pytest.raises(OverflowError):
        store.send("a", b"", ttl_ms=-1, now=NOW)


def test_disk_full_leaves_reading_possible(store: Store) -> None:
    store.send("a", b"0", now=NOW)
    store.create_mailbox("m", tier="memory", now=NOW)
    store.send("m", b"kept", now=NOW)
    replace_segment(store.path, "/dev/full", os.O_RDWR)
    with pytest.raises(errors.DiskFull) as raised:
        store.send("a", b"1", now=NOW)
    assert raised.value.errno == errno.ENOSPC
    assert "the disk is full" in str(raised.value)
    with pytest.raises(errors.DiskFull):
        store.wait_durable()
    assert [message.payload for message in store.query("m", now=NOW)] == [b"kept"]
    with pytest.raises(errors.DiskFull):
        store.close()
    assert store.closed


def test_storage_error_names_the_file_and_the_cause(store: Store, tmp_path: Path) -> None:
    store.send("a", b"0", now=NOW)
    segment = tmp_path / "segment-0000000001.log"
    replace_segment(tmp_path, str(segment), os.O_RDONLY)
    with pytest.raises(errors.StorageError, match="cannot write: Bad file descriptor") as raised:
        store.append_many("a", [b"1"], now=NOW)
    assert raised.value.errno == errno.EBADF
    assert raised.value.filename == segment.name
    with pytest.raises(errors.StorageError):
        store.close()


def test_a_path_that_is_no_directory_is_a_storage_error(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(errors.StorageError) as raised:
        Store(file)
    assert raised.value.errno == errno.ENOTDIR
    assert raised.value.filename == str(file)


def test_writes_stop_after_a_failed_sync(tmp_path: Path) -> None:
    store = Store(tmp_path, maintain_every_ms=0)
    store.create_mailbox("a")
    store.wait_durable()
    acknowledged = store.acknowledged()
    # It takes writes but refuses to sync them.
    replace_segment(tmp_path, "/dev/null", os.O_RDWR)
    store.send("a", b"0")
    with pytest.raises(errors.WritesStopped, match="writes stopped after a failed sync"):
        store.wait_durable()
    with pytest.raises(errors.WritesStopped):
        store.send("a", b"1")
    assert store.acknowledged() == acknowledged
    store.wait_durable(acknowledged)
    assert "failed sync" in str(store.info().writes_stopped)
    with pytest.raises(errors.WritesStopped):
        store.close()


def test_newer_format(tmp_path: Path) -> None:
    Store(tmp_path).close()
    segment = tmp_path / "segment-0000000001.log"
    header = bytearray(segment.read_bytes())
    header[8:12] = struct.pack("<I", 2)
    header[36:40] = struct.pack("<I", crc32c(header[:36]))
    segment.write_bytes(header)
    with pytest.raises(errors.NewerFormat, match="a segment of version 2, written by a newer"):
        Store(tmp_path)


def crc32c(data: bytes | bytearray) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF
