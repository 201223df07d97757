"""The broker that the protocol is checked on: any running one, or one that is started for it.

`MQ9_TEST_URL=nats://[user:password@]host:port` points the suite at a running broker. Names of
mailboxes are drawn for each test, so it leaves nothing in the way of anybody else.
"""

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Protocol

import pytest
from tests.conformance.reader import Reader
from tests.mail import Mail
from tests.peers import MQ9, Serve
from tests.restarts import Restarting

URL_VARIABLE = "MQ9_TEST_URL"


class Read(Protocol):
    """Subscribes below `$mq9.AI.` on a connection of its own."""

    def __call__(self, subject: str, queue: str = "", sid: int = 9, most: int = 0) -> Reader: ...


class Create(Protocol):
    """Creates a mailbox with a name of its own; fields are those of MAILBOX.CREATE."""

    def __call__(self, **fields: object) -> str: ...


@pytest.fixture(scope="session")
def url(serve_for_session: Serve) -> str:
    """Where the broker is."""
    given = os.environ.get(URL_VARIABLE)
    return given or serve_for_session(peer=MQ9).url


@pytest.fixture
def connect(url: str) -> Iterator[Callable[[], Mail]]:
    """Opens connections that end with the test."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(Mail(url))


@pytest.fixture
def read(connect: Callable[[], Mail]) -> Read:
    """Opens readers, each on a connection of its own."""

    def open_reader(subject: str, queue: str = "", sid: int = 9, most: int = 0) -> Reader:
        return Reader(connect()).subscribe(subject, queue, sid, most)

    return open_reader


@pytest.fixture
def mail(connect: Callable[[], Mail]) -> Mail:
    """A connection."""
    return connect()


@pytest.fixture
def fresh_name() -> str:
    """An address that no mailbox has."""
    return f"test.{secrets.token_hex(8)}"


@pytest.fixture
def create(mail: Mail) -> Create:
    """Creates mailboxes; they go by themselves soon after the test."""

    def create(**fields: object) -> str:
        name = f"test.{secrets.token_hex(8)}"
        mail.done("MAILBOX.CREATE", {"name": name, "ttl": 600} | fields)
        return name

    return create


@pytest.fixture
def box(create: Create) -> str:
    """A mailbox."""
    return create()


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Restarting]:
    """A broker to be restarted; a running one that is only pointed at cannot be."""
    if os.environ.get(URL_VARIABLE):
        pytest.skip(f"restarts the broker, which {URL_VARIABLE} does not allow")
    broker = Restarting(tmp_path_factory.mktemp("own"))
    try:
        yield broker
    finally:
        broker.stop()
