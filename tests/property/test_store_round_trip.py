"""What goes into a mailbox comes out of it, whatever its bytes are."""

import itertools
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mq9._core import NewMessage, Store


class Fields(NamedTuple):
    payload: bytes
    headers: bytes
    key: str
    tags: str
    level: int


FIELDS = st.builds(
    Fields,
    payload=st.binary(max_size=2000),
    headers=st.binary(max_size=200),
    key=st.text(max_size=50),
    tags=st.text(max_size=50),
    level=st.integers(1, 10),
)
# A message replaces an older one of the same key.
BATCHES = st.lists(FIELDS, unique_by=lambda fields: fields.key or object())

NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with tempfile.TemporaryDirectory() as folder:
        with Store(folder, sync="none", maintain_every_ms=0) as store:
            yield store
        with Store(folder) as reopened:
            assert reopened.damage() == []


@settings(deadline=None)
@given(batch=BATCHES)
def test_a_batch_comes_back_as_it_was_sent(store: Store, batch: list[Fields]) -> None:
    address = f"a{next(NUMBERS)}"
    store.create_mailbox(address)
    sent = [
        NewMessage(f.payload, headers=f.headers, key=f.key, tags=f.tags, level=f.level)
        for f in batch
    ]
    assert store.append_many(address, sent) == list(range(len(batch)))
    by_id = store.query(address, limit=1 << 20, max_bytes=1 << 40)
    fetched = store.fetch(address, deliver="earliest", max_msgs=1 << 20, max_bytes=1 << 40)
    for messages in (by_id, sorted(fetched, key=lambda message: message.msg_id)):
        came = [Fields(m.payload, m.headers, m.key, m.tags, m.level) for m in messages]
        assert came == batch
    order = [(message.level, message.msg_id) for message in fetched]
    assert order == sorted(order)


@settings(deadline=None, max_examples=25)
@given(payloads=st.lists(st.binary()))
def test_plain_payloads_survive_a_crash(payloads: list[bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder), sync="none", maintain_every_ms=0)
        store.create_mailbox("a")
        store.append_many("a", payloads)
        del store
        with Store(folder, sync="none", maintain_every_ms=0) as store:
            found = store.query("a", limit=1 << 20)
            assert [message.payload for message in found] == payloads
