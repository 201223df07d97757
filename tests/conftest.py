"""Fixtures that start servers: one for the whole session, or one for a test."""

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.peers import NATS_SERVER, NATS_SERVER_BINARY, Serve, Server, start
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

SPARK = "tests/spark/"

# What takes long is begun first, so that no process is left with it when the others have ended.
LONG = (SPARK, "tests/faults/", "tests/retrieval/", "tests/integration/", "tests/docs/")

# A shell that runs tests in the background has them ignore it, and all that they start with them.
signal.signal(signal.SIGINT, signal.default_int_handler)


class ByFile(LoadFileScheduling):  # type: ignore[misc]
    """Tests of one file run in one process, and so do all that share the session of Spark."""

    def _split_scope(self, nodeid: str) -> str:
        file = str(super()._split_scope(nodeid))
        return SPARK if file.startswith(SPARK) else file


def pytest_xdist_auto_num_workers() -> int:
    """More processes than there are cores, since many tests wait; each may start a Java."""
    return min((os.cpu_count() or 1) + 2, 6)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByFile:
    """How tests are dealt to processes: file by file, in the order in which they were collected."""
    config.option.loadscopereorder = False
    return ByFile(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the folders whose tests take long before the others."""
    items.sort(key=begins)


def begins(item: pytest.Item) -> int:
    """The place of a test in `LONG`, or behind all of it."""
    folders = (place for place, folder in enumerate(LONG) if item.nodeid.startswith(folder))
    return next(folders, len(LONG))


def starter(folder: Path, stack: ExitStack) -> Serve:
    """Starts servers in folders of their own, to be stopped with `stack`."""
    count = 0

    def serve(config: str = "", *flags: str, port: int = -1, peer: str | None = None) -> Server:
        nonlocal count
        count += 1
        server = start(folder / f"server{count}", config, *flags, port=port, peer=peer)
        stack.callback(server.stop)
        return server

    return serve


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Starts servers that end with the test."""
    with ExitStack() as stack:
        yield starter(tmp_path, stack)


@pytest.fixture(scope="session")
def serve_for_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serve]:
    """Starts servers that several tests share."""
    with ExitStack() as stack:
        yield starter(tmp_path_factory.mktemp("session"), stack)


@pytest.fixture(scope="session")
def server(serve_for_session: Serve) -> Server:
    """A server without any configuration, shared by all tests that leave it as it was."""
    return serve_for_session()


@pytest.fixture(scope="session")
def real_server(serve_for_session: Serve) -> Server:
    """A nats-server without any configuration, to compare with."""
    if not NATS_SERVER_BINARY.exists():
        pytest.skip(f"needs {NATS_SERVER_BINARY.name} next to the interpreter: make setup")
    return serve_for_session(peer=NATS_SERVER)
