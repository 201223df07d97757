"""A node that reaches no nats-server says so, gives up the lead, and follows when it is back."""

import asyncio
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import nats
import pytest
from tests.cluster.links import Links
from tests.cluster.test_nodes import agree, ask_until_done, connected, stored

from mq9.cluster.local import LocalCluster, Process

pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)


@pytest.fixture
def linked(tmp_path: Path) -> Iterator[tuple[LocalCluster, Links]]:
    """A cluster, and the links of its nodes."""
    made = LocalCluster(tmp_path, lease_ms=1_500)
    links = Links(made)
    try:
        made.start()
        yield made, links
    finally:
        made.stop()
        links.close()


def until(what: Callable[[], bool], node: Process, timeout_s: float = 30.0) -> None:
    """Wait until something is so."""
    end = time.monotonic() + timeout_s
    while not what():
        assert time.monotonic() < end, f"{node.health()}; {node.log.read_text()[-2000:]}"
        time.sleep(0.05)


def metrics(node: Process) -> dict[str, float]:
    """What Prometheus would read."""
    with urllib.request.urlopen(f"http://127.0.0.1:{node.http}/metrics", timeout=5) as answer:
        lines = answer.read().decode().splitlines()
    return {n: float(v) for n, v in (line.split() for line in lines if not line.startswith("#"))}


async def test_a_leader_that_is_cut_off_sends_its_clients_to_the_next(
    linked: tuple[LocalCluster, Links],
) -> None:
    cluster, links = linked
    old = await asyncio.to_thread(cluster.wait_for_leader)
    everywhere = await connected(old, *(node for node in cluster.nodes if node is not old))
    await ask_until_done(everywhere, "MAILBOX.CREATE", b'{"name": "box"}')
    await ask_until_done(everywhere, "MSG.SEND.box", b"before")
    found = await asyncio.to_thread(metrics, old)
    assert (found["mq9_cluster_leads"], found["mq9_cluster_stream_answers"]) == (1, 1)
    gone = asyncio.Event()

    async def ended() -> None:
        gone.set()

    # Who knows no other node hears of it all the same.
    only = await nats.connect(
        f"nats://127.0.0.1:{old.port}", allow_reconnect=False, closed_cb=ended
    )
    links.cut(old)
    await asyncio.to_thread(until, lambda: old.health().get("status") != "ok", old)
    await asyncio.wait_for(gone.wait(), 30)
    assert only.is_closed
    # The client goes on where the next leader is.
    await ask_until_done(everywhere, "MSG.SEND.box", b"after")
    await asyncio.to_thread(until, lambda: old.health().get("role") != "leading", old)
    assert "the lead is given up" in old.log.read_text()
    assert old.health()["stream"] is False
    links.mend(old)
    await asyncio.to_thread(until, lambda: old.health().get("role") == "following", old)
    await asyncio.to_thread(until, lambda: old.health().get("status") == "ok", old)
    await asyncio.to_thread(agree, cluster)
    found = await asyncio.to_thread(metrics, old)
    assert (found["mq9_cluster_leads"], found["mq9_cluster_stream_answers"]) == (0, 1)
    assert await stored(everywhere, "box") == ["before", "after"]
    await everywhere.close()


async def test_a_follower_that_tries_to_lead_hands_nobody_on(
    linked: tuple[LocalCluster, Links],
) -> None:
    cluster, links = linked
    leader = await asyncio.to_thread(cluster.wait_for_leader)
    follower = next(node for node in cluster.nodes if node is not leader)
    number = cluster.nodes.index(leader) + 1
    await asyncio.to_thread(until, lambda: follower.health().get("leader") == number, follower)
    links.cut(follower)
    # It has asked to lead by then: whoever it took for the leader may hand clients on to it.
    await asyncio.to_thread(until, lambda: follower.health().get("leader") == 0, follower)
    links.mend(follower)
    await asyncio.to_thread(agree, cluster)
    await asyncio.to_thread(until, lambda: follower.health().get("leader") != 0, follower)
