"""The fixtures that pytest has wherever mq9 is installed.

Imports mq9 when a fixture is used: most test runs do not need it.
"""

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import mq9.sync
    from mq9.testing import Broker

    BrokerFactory = Callable[..., Broker]


@pytest.fixture(scope="session")
def mq9_session_broker() -> "Iterator[Broker]":
    """One broker for all tests; what one leaves, the next finds. `mq9_broker` is cleaner."""
    from mq9.testing import Broker

    with Broker() as broker:
        yield broker


@pytest.fixture
def mq9_broker(mq9_session_broker: "Broker") -> "Iterator[Broker]":
    """A broker that is empty when the test begins. It is one process for all tests."""
    _make_run(mq9_session_broker)
    yield mq9_session_broker
    _make_run(mq9_session_broker)
    mq9_session_broker.reset()


def _make_run(broker: "Broker") -> None:
    """A test may have killed it, which is no reason for the next to fail."""
    if not broker.running:
        broker.start()


@pytest.fixture
def mq9_url(mq9_broker: "Broker", monkeypatch: pytest.MonkeyPatch) -> str:
    """Where the broker of the test is; `MQ9_URL` says so too, to clients without a URL."""
    monkeypatch.setenv("MQ9_URL", mq9_broker.url)
    return mq9_broker.url


@pytest.fixture
def mq9_client(mq9_url: str) -> "Iterator[mq9.sync.Client]":
    """A `mq9.sync.Client` of the broker of the test."""
    from mq9.sync import Client

    with Client(mq9_url) as client:
        yield client


@pytest.fixture
def mq9_broker_factory() -> "Iterator[BrokerFactory]":
    """Starts brokers of a test's own, with configuration and flags: to be killed, for example."""
    from mq9.testing import Broker

    started: list[Broker] = []

    def start(config: str = "", *flags: str) -> Broker:
        broker = Broker(config, *flags)
        started.append(broker)
        return broker.start()

    yield start
    for broker in started:
        broker.stop()
