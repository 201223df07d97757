"""The commands of `mq9._core.Store` on a real directory, one behaviour a test."""

import inspect
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mq9 import store as store_module
from mq9._core import MailboxNotFound, Message, NewMessage, Store, StoreError, Waiting

START = (1_700_000_000_000, 5_000)


def at(ms: int) -> tuple[int, int]:
    return START[0] + ms, START[1] + ms


def payloads(messages: list[Message]) -> list[bytes]:
    return [message.payload for message in messages]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "data", sync="none", maintain_every_ms=0, now=START) as store:
        store.create_mailbox("a", now=START)
        yield store


def test_messages_come_by_level_then_id(store: Store) -> None:
    low = NewMessage(b"low", level=9)
    assert store.append_many("a", [b"n0", low, bytearray(b"n2")], now=START) == [0, 1, 2]
    assert store.send("a", b"high", level=1, now=START) == 3
    everything = store.fetch("a", deliver="earliest", now=START)
    assert payloads(everything) == [b"high", b"n0", b"n2", b"low"]
    assert store.append_many("a", [], now=START) == []
    assert store.append_many("a", (bytes([n]) for n in range(2)), now=START) == [4, 5]


def test_a_message_keeps_every_field(store: Store) -> None:
    store.send("a", b"p\0", level=3, key="k", tags="x,y", headers=b"A: b\r\n", ttl_ms=50, now=START)
    (message,) = store.fetch("a", deliver="earliest", now=START)
    fields = ["msg_id", "level", "key", "tags", "headers", "payload", "deliveries"]
    assert [getattr(message, name) for name in fields] == [0, 3, "k", "x,y", b"A: b\r\n", b"p\0", 0]
    assert (message.sent_ms, message.create_ms, message.expires_ms) == (*START[:1] * 2, at(50)[0])
    assert repr(message) == (
        'Message(msg_id=0, level=3, key="k", tags="x,y", deliveries=0, payload=b\'p\\x00\')'
    )
    assert store.fetch("a", deliver="earliest", now=at(50)) == []


def test_a_new_message_has_defaults_and_shows_them() -> None:
    message = NewMessage(b"x" * 100)
    fields = ["payload", "level", "key", "tags", "headers", "delay_ms", "ttl_ms"]
    assert [getattr(message, name) for name in fields] == [b"x" * 100, 5, "", "", b"", 0, 0]
    assert repr(message) == (
        'NewMessage(<100 bytes>, level=5, key="", tags="", headers=b\'\', delay_ms=0, ttl_ms=0)'
    )


def test_a_delayed_message_has_no_id_until_it_is_due(store: Store) -> None:
    assert store.append_many("a", [NewMessage(b"later", delay_ms=500)], now=START) == [-1]
    assert store.send("a", b"much later", delay_ms=900, now=START) == -1
    assert store.mailbox("a", now=START).delayed == 2
    assert store.sleep_ms(now=START) == 500
    assert store.fetch("a", deliver="earliest", now=at(499)) == []
    assert store.tick(now=at(500)) is False
    assert payloads(store.fetch("a", deliver="earliest", now=at(500))) == [b"later"]


def test_where_a_fetch_starts(store: Store) -> None:
    for n in range(4):
        store.send("a", b"%d" % n, now=at(n))
    assert store.fetch("a", now=at(4)) == []
    assert payloads(store.fetch("a", deliver="from_id", from_id=2, now=at(4))) == [b"2", b"3"]
    since = store.fetch("a", deliver="from_time", from_time_ms=at(3)[0], now=at(4))
    assert payloads(since) == [b"3"]
    assert len(store.fetch("a", deliver="earliest", max_msgs=3, now=at(4))) == 3
    assert len(store.fetch("a", deliver="earliest", max_bytes=1, now=at(4))) == 1
    assert store.fetch("a", deliver="earliest", max_level=4, now=at(4)) == []


def test_a_group_keeps_its_position_and_its_leases(store: Store) -> None:
    store.append_many("a", [b"0", b"1", b"2"], now=START)
    first = store.fetch("a", group="g", member="m", deliver="earliest", max_msgs=2, now=START)
    assert [(m.payload, m.deliveries) for m in first] == [(b"0", 1), (b"1", 1)]
    (group,) = store.mailbox("a", now=START).groups
    assert (group.name, group.outstanding, group.cursors) == ("g", 2, (0, 0, 0, 0, 2, *[0] * 5))
    assert repr(group) == 'GroupInfo(name="g", outstanding=2)'
    store.ack("a", "g", [1], only=True, now=START)
    store.ack("a", "g", [0], kind="nak", delay_ms=10, now=START)
    assert payloads(store.fetch("a", group="g", member="n", now=START)) == [b"2"]
    again = store.fetch("a", group="g", member="n", max_msgs=1, now=at(10))
    assert [(m.payload, m.deliveries) for m in again] == [(b"0", 2)]
    store.ack("a", "g", [0], kind="progress", now=at(10))
    store.ack("a", "g", [0], kind="term", now=at(10))
    store.ack("a", "g", [2], now=at(10))
    assert store.mailbox("a", now=at(10)).groups[0].outstanding == 0
    forced = store.fetch("a", group="g", deliver="earliest", force=True, now=at(10))
    assert payloads(forced) == [b"0", b"1", b"2"]


def test_a_lease_ends_when_the_fetch_said(store: Store) -> None:
    store.send("a", b"0", now=START)
    fetch: dict[str, Any] = {"group": "g", "deliver": "earliest", "ack_wait_ms": 20}
    assert len(store.fetch("a", conn=1, now=START, **fetch)) == 1
    assert store.fetch("a", conn=2, now=at(19), **fetch) == []
    assert len(store.fetch("a", conn=2, now=at(20), **fetch)) == 1


def test_what_a_closed_connection_held_goes_back(store: Store) -> None:
    store.send("a", b"0", now=START)
    assert len(store.fetch("a", group="g", conn=7, deliver="earliest", now=START)) == 1
    assert store.fetch("a", group="g", conn=8, now=START) == []
    store.disconnect(7, now=START)
    assert len(store.fetch("a", group="g", conn=8, now=START)) == 1


def test_a_waiting_fetch_is_answered_by_a_message_the_clock_or_the_end_of_the_mailbox(
    store: Store,
) -> None:
    def wait(wait_ms: int = 100) -> int:
        waiting = store.fetch("a", group="g", wait_ms=wait_ms, now=START)
        assert isinstance(waiting, Waiting)
        assert repr(waiting) == f"Waiting(waiter={waiting.waiter})"
        return waiting.waiter

    waiter = wait()
    assert store.completions(now=START) == []
    assert store.info().waiting == 1
    store.send("a", b"hello", now=START)
    (answer,) = store.completions(now=START)
    assert (answer.waiter, answer.error) == (waiter, None)
    assert [message.payload for message in answer.messages] == [b"hello"]
    assert repr(answer).startswith(f"Completion(waiter={waiter}, messages=(Message(msg_id=0, ")

    store.ack("a", "g", [0], now=START)
    waiter = wait(wait_ms=50)
    (answer,) = store.completions(now=at(50))
    assert (answer.waiter, answer.messages, answer.error) == (waiter, (), None)

    waiter = wait()
    assert store.cancel_wait(waiter) is True
    assert store.cancel_wait(waiter) is False

    waiter = wait()
    store.remove_mailbox("a", now=START)
    (answer,) = store.completions(now=START)
    assert (answer.waiter, answer.messages) == (waiter, ())
    assert isinstance(answer.error, MailboxNotFound)


def test_query_finds_by_key_tag_time_and_id(store: Store) -> None:
    store.append_many("a", [NewMessage(b"0", key="k", tags="x")], now=START)
    store.append_many("a", [NewMessage(b"1", tags="x, y"), b"2"], now=at(1))
    query = store.query
    assert payloads(query("a", now=at(1))) == [b"0", b"1", b"2"]
    assert payloads(query("a", key="k", now=at(1))) == [b"0"]
    assert payloads(query("a", tags=["y", "z"], now=at(1))) == [b"1"]
    assert payloads(query("a", since_ms=at(1)[0], now=at(1))) == [b"1", b"2"]
    assert payloads(query("a", after_id=1, now=at(1))) == [b"2"]
    assert payloads(query("a", limit=2, newest=True, now=at(1))) == [b"1", b"2"]
    assert payloads(query("a", before_id=2, limit=1, newest=True, now=at(1))) == [b"1"]
    assert payloads(query("a", before_id=1, now=at(1))) == [b"0"]
    assert payloads(query("a", max_bytes=1, now=at(1))) == [b"0"]


def test_delete_takes_a_message_out(store: Store) -> None:
    store.append_many("a", [b"0", b"1"], now=START)
    store.delete("a", 0, now=START)
    assert payloads(store.query("a", now=START)) == [b"1"]


def test_a_mailbox_tells_its_policy(store: Store) -> None:
    policy: dict[str, Any] = {
        "latest": False,
        "work_queue": True,
        "public": True,
        "tier": "memory",
        "discard": "new",
        "max_msgs": 1,
        "max_bytes": 2,
        "max_msg_size": 3,
        "max_age_ms": 4,
        "message_ttls_ms": {1: 8, 10: 9},
        "ack_wait_ms": 5,
        "max_deliver": 6,
        "max_ack_pending": 7,
        "dead_letter": "dead",
    }
    store.create_mailbox("b", ttl_ms=10, desc="words", **policy, now=START)
    info = store.mailbox("b", now=START)
    assert {name: getattr(info.policy, name) for name in policy} == policy
    assert (info.address, info.desc) == ("b", "words")
    assert (info.created_ms, info.expires_ms) == (START[0], at(10)[0])
    assert (info.messages, info.delayed, info.bytes, info.next_id) == (0, 0, 0, 0)
    assert repr(info) == (
        'MailboxInfo(address="b", messages=0, delayed=0, bytes=0, next_id=0, groups=())'
    )
    assert 'tier="memory"' in repr(info.policy)
    defaults = store.mailbox("a", now=START).policy
    assert (defaults.tier, defaults.discard, defaults.dead_letter) == ("durable", "old", None)


def test_mailboxes_are_listed_in_pages(store: Store) -> None:
    store.create_mailbox("b", ttl_ms=10, now=START)
    store.create_mailbox("c", now=START)
    first, following = store.mailboxes(limit=2, now=START)
    assert following is not None
    second, end = store.mailboxes(following, now=START)
    assert [info.address for info in first + second] == ["a", "b", "c"]
    assert end is None
    assert [info.address for info in store.mailboxes(now=at(10))[0]] == ["a", "c"]


def test_some_mailboxes_are_looked_at_together(store: Store) -> None:
    store.create_mailbox("b", ttl_ms=10, now=START)
    both = store.mailboxes_at(["b", "missing", "a"], now=START)
    assert [None if info is None else info.address for info in both] == ["b", None, "a"]
    [gone, there] = store.mailboxes_at(["b", "a"], now=at(10))
    assert (gone, there is None) == (None, False)
    assert store.mailboxes_at([]) == []


def test_messages_of_keys_are_read_together_until_there_are_many_bytes(store: Store) -> None:
    store.append_many("a", [NewMessage(b"%d" % n, key=f"k{n}") for n in range(3)], now=START)
    found = store.messages_of("a", ["k2", "missing", "k0"], now=START)
    assert [message and message.payload for message in found] == [b"2", None, b"0"]
    [first, second] = store.messages_of("a", ["k0", "k1", "k2"], max_bytes=1, now=START)
    assert (first and first.payload, second and second.payload) == (b"0", b"1")


def test_info_counts(store: Store) -> None:
    store.send("a", b"x", now=START)
    info = store.info()
    assert (info.mailboxes, info.segments, info.epoch, info.waiting) == (1, 1, 1, 0)
    assert 0 < info.live_bytes < info.log_bytes
    assert (info.writes_stopped, info.last_maintenance_error) == (None, None)
    assert (info.refusing, info.last_refusal, info.refused) == (None, None, 0)
    assert repr(info).endswith("refused=0, last_maintenance_error=None)")


def test_a_checkpoint_is_written_on_request_and_on_close(tmp_path: Path) -> None:
    with Store(tmp_path, maintain_every_ms=0) as store:
        assert store.info().checkpoint_bytes == 0
        store.checkpoint()
        assert store.info().checkpoint_bytes > 0
        assert len(list(tmp_path.glob("checkpoint-*"))) == 1
    assert len(list(tmp_path.glob("checkpoint-*"))) == 2


def test_maintain_does_what_is_due(tmp_path: Path) -> None:
    with Store(tmp_path, checkpoint_bytes=1, maintain_every_ms=0) as store:
        store.create_mailbox("a")
        assert store.maintain() is True
        assert store.info().checkpoint_bytes > 0


def test_upkeep_runs_by_itself_and_remembers_a_failure(tmp_path: Path) -> None:
    (tmp_path / "checkpoint-0000000001.mq9.tmp").mkdir(parents=True)
    with Store(tmp_path, checkpoint_bytes=1, maintain_every_ms=1) as store:
        until = time.monotonic() + 30
        while (error := store.info().last_maintenance_error) is None:
            assert time.monotonic() < until
            time.sleep(0.001)
        assert "cannot create checkpoint-0000000001.mq9.tmp" in error
        # The next number is free, so a later round succeeds.
        while store.info().last_maintenance_error is not None:
            assert time.monotonic() < until
            time.sleep(0.001)
        assert store.info().checkpoint_bytes > 0


def test_damage_is_reported(tmp_path: Path) -> None:
    with Store(tmp_path, maintain_every_ms=0) as store:
        store.create_mailbox("a")
        store.send("a", b"needle")
        # What is written last is in memory.
        store.send("a", b"behind it")
        assert store.damage() == []
        segment = tmp_path / "segment-0000000001.log"
        found = segment.read_bytes().index(b"needle")
        with segment.open("r+b") as file:
            file.seek(found)
            file.write(b"noodle")
        assert [each.msg_id for each in store.fetch("a", deliver="earliest")] == [1]
        (damage,) = store.damage()
    assert (damage.kind, damage.mailbox, damage.msg_id) == ("message", "a", 0)
    assert damage.file == segment.name
    assert damage.offset < found < damage.offset + damage.bytes
    assert damage.set_aside is not None
    assert (tmp_path / damage.set_aside).is_file()
    assert str(damage) == damage.text
    assert damage.text.startswith(f"{segment.name}: message 0 of a at {damage.offset} is unread")
    assert repr(damage).startswith('Damage(kind="message", "segment-')


def test_everything_is_there_after_closing_and_opening(tmp_path: Path) -> None:
    for epoch in range(1, 4):
        with Store(tmp_path) as store:
            assert store.info().epoch == epoch
            if epoch == 1:
                store.create_mailbox("a")
            store.send("a", b"%d" % epoch)
            expected = [b"%d" % n for n in range(1, epoch + 1)]
            assert payloads(store.fetch("a", deliver="earliest")) == expected


def test_a_store_dropped_without_closing_can_be_opened_again(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.create_mailbox("a")
    del store
    with Store(tmp_path) as store:
        assert store.mailbox("a").address == "a"


def test_without_now_the_clocks_of_the_machine_are_read(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        before = time.time_ns() // 1_000_000
        store.create_mailbox("a")
        after = time.time_ns() // 1_000_000
        assert before <= store.mailbox("a").created_ms <= after
        waiting = store.fetch("a", wait_ms=60_000)
        assert isinstance(waiting, Waiting)
        soon = time.monotonic_ns() // 1_000_000 + 60_001
        (answer,) = store.completions(now=(after, soon))
        assert answer.waiter == waiting.waiter


CALLS = {
    "create_mailbox": ("b",),
    "update_mailbox": ("a",),
    "remove_mailbox": ("a",),
    "remove_group": ("a", "g"),
    "purge": ("a",),
    "append_many": ("a", [b""]),
    "send": ("a", b""),
    "fetch": ("a",),
    "completions": (),
    "cancel_wait": (0,),
    "disconnect": (0,),
    "ack": ("a", "g", [0]),
    "query": ("a",),
    "query_delayed": ("a",),
    "cancel_delayed": ("a", 0),
    "delete": ("a", 0),
    "mailbox": ("a",),
    "mailboxes": (),
    "mailboxes_at": (["a"],),
    "messages_of": ("a", ["k"]),
    "info": (),
    "damage": (),
    "tick": (),
    "sleep_ms": (),
    "checkpoint": (),
    "keep_segments": (1, 1),
    "maintain": (),
    "end": (),
    "acknowledged": (),
    "wait_durable": (),
    "fileno": (),
    "read_acknowledged": (),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_closed_store_says_so(store: Store, name: str) -> None:
    store.close()
    with pytest.raises(StoreError, match=r"^the store is closed$"):
        getattr(store, name)(*CALLS[name])


def test_every_method_is_tried_on_a_closed_store() -> None:
    methods = {name for name in dir(Store) if not name.startswith("_")}
    assert methods - {"path", "closed", "close"} == CALLS.keys()


def test_closing_twice_does_nothing(store: Store, tmp_path: Path) -> None:
    assert store.path == tmp_path / "data"
    assert repr(store) == f'<Store "{store.path}", open>'
    assert not store.closed
    store.close()
    store.close()
    assert store.closed
    assert repr(store).endswith(", closed>")


def test_leaving_the_with_block_closes_and_lets_exceptions_through(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="mine"), Store(tmp_path) as store:
        raise RuntimeError("mine")
    assert store.closed


CLASSES = [getattr(store_module, name) for name in store_module.__all__]


@pytest.mark.parametrize("of", CLASSES, ids=lambda of: of.__name__)
def test_classes_are_documented_frozen_and_final(of: type) -> None:
    assert of.__module__ == "mq9._core"
    assert of.__doc__
    for name, member in vars(of).items():
        if not name.startswith("_"):
            assert inspect.getdoc(member), f"{of.__name__}.{name}"
    with pytest.raises(TypeError):
        type("Sub", (of,), {})


def test_attributes_cannot_be_set(store: Store) -> None:
    store.send("a", b"x", now=START)
    (message,) = store.query("a", now=START)
    frozen: list[tuple[Any, str]] = [
        (message, "payload"),
        (NewMessage(b""), "level"),
        (store.info(), "epoch"),
        (store.mailbox("a", now=START), "address"),
        (store, "path"),
    ]
    for value, name in frozen:
        with pytest.raises(AttributeError):
            setattr(value, name, 1)
        with pytest.raises(AttributeError):
            value.something_new = 1
