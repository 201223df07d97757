"""Three nats-servers and three nodes, for the tests here."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from mq9.cluster.local import LocalCluster


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """A cluster whose leader falls silent after half the usual time."""
    made = LocalCluster(tmp_path, lease_ms=1_500)
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest.fixture
def made(tmp_path: Path) -> LocalCluster:
    """The same, which does not run."""
    return LocalCluster(tmp_path, lease_ms=1_500)
