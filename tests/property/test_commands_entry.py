"""QUERY and FETCH show the same message with the same bytes."""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.peers import Server
from tests.requester import Requester

# Blanks in names are refused, and so is what nobody sees.
NAMES = st.text(
    st.characters(codec="utf-8", exclude_categories=["Z", "Cc", "Cf"]), min_size=1, max_size=10
).map(str.encode)
LINES = st.tuples(NAMES, st.binary(max_size=20) | st.text(max_size=20).map(str.encode))
TEXTS = st.text(
    st.characters(codec="utf-8", exclude_characters="\r\n,"), min_size=1, max_size=20
).filter(lambda text: text.strip() != "")


def block(lines: list[tuple[bytes, bytes]]) -> bytes:
    """Header lines without what would end a line or the block."""
    kept = bytes.maketrans(b"\r\n", b"..")
    return b"".join(
        name.replace(b":", b";") + b": " + value.translate(kept) + b"\r\n"
        for name, value in lines
        if not name.lower().startswith(b"mq9-")
    )


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[Requester]:
    with Requester(server.port) as client:
        client.create("entry", max_msgs=3)
        yield client


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    payload=st.binary(max_size=60) | st.text(max_size=60).map(str.encode),
    lines=st.lists(LINES, max_size=5).map(lambda lines: lines + lines[:2]),
    key=st.none() | TEXTS,
    tags=st.lists(TEXTS, max_size=4),
    level=st.none() | st.integers(1, 10),
    ttl=st.none() | st.integers(1000, 2_000_000_000),
    force=st.booleans(),
)
def test_query_and_fetch_agree_to_the_byte(
    client: Requester,
    payload: bytes,
    lines: list[tuple[bytes, bytes]],
    key: str | None,
    tags: list[str],
    level: int | None,
    ttl: int | None,
    force: bool,
) -> None:
    headers = block(lines)
    for name, value in (
        ("mq9-key", key),
        ("mq9-tags", ",".join(tags) or None),
        ("mq9-priority", level),
        ("mq9-ttl", ttl),
    ):
        if value is not None:
            headers += f"{name}: {value}\r\n".encode()
    sent = client.post("entry", payload, headers)
    encoding = b',"encoding":"base64"' if force else b""
    after = b'"after_id":%d' % (sent - 1) if sent else b'"since":0'
    query = client.raw("MSG.QUERY.entry", b"{%b%b}" % (after, encoding))
    fetch = client.raw(
        "MSG.FETCH.entry",
        b'{"deliver":"from_id","from_id":%d%b}' % (sent, encoding),
    )
    assert b'"msg_id":%d' % sent in fetch
    assert query == fetch
