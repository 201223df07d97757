"""What reads `/jsz` of nats-server reads that of mq9: KEDA, and the Prometheus exporter of NATS."""

import json
import shutil

import pytest
from nats.js.api import ConsumerConfig, StreamConfig
from tests.clients.test_languages import BUILT, HERE, run
from tests.integration.conftest import Connect, connect
from tests.peers import Serve, Server

__all__ = ["connect"]

DEADLINE_S = 20


@pytest.fixture
async def used(serve: Serve, connect: Connect) -> Server:
    """A stream of seven messages; of its consumer's three, one is acknowledged and two are out."""
    server = serve("jetstream { }")
    client = await connect(server)
    js = client.jetstream(timeout=DEADLINE_S)
    team = {"team": "red"}
    stream = StreamConfig(name="JOBS", subjects=["jobs.>"], metadata=team, max_msgs=100)
    await js.add_stream(stream)
    await js.add_consumer("JOBS", ConsumerConfig(durable_name="workers", description="who works"))
    for number in range(7):
        await js.publish(f"jobs.{number % 3}", b"job")
    workers = await js.pull_subscribe_bind("workers", "JOBS")
    messages = await workers.fetch(3, timeout=DEADLINE_S)
    await messages[0].ack_sync(timeout=DEADLINE_S)
    return server


async def test_keda_reads_how_much_is_left(used: Server) -> None:
    """The scaler asks so, and takes `num_pending` and `num_ack_pending` together as the lag."""
    document = used.monitor("/jsz?acc=$G&consumers=true&config=true")
    [account] = [each for each in document["account_details"] if each["name"] == "$G"]
    [stream] = [each for each in account["stream_detail"] if each["name"] == "JOBS"]
    [consumer] = [each for each in stream["consumer_detail"] if each["name"] == "workers"]
    assert consumer["num_pending"] + consumer["num_ack_pending"] == 6
    assert consumer["num_ack_pending"] == 2
    assert consumer["stream_name"] == "JOBS"
    assert consumer["config"]["durable_name"] == "workers"
    assert stream["config"]["subjects"] == ["jobs.>"]
    # The lag where the consumer is not there.
    assert stream["state"]["last_seq"] == 7
    # More than one node, and it asks others as well.
    assert document.get("meta_cluster", {}).get("cluster_size", 0) <= 1


async def test_the_exporter_of_nats_reads_everything(used: Server) -> None:
    """Into nats-server's own types, for which a program in Go is built."""
    if shutil.which("go") is None:
        pytest.skip("needs go")
    BUILT.mkdir(parents=True, exist_ok=True)
    program = BUILT / "monitoring"
    flags = ["-trimpath", "-buildvcs=false", "-gcflags=all=-N -l"]
    run(["go", "build", *flags, "-o", str(program), "."], HERE / "monitoring")
    assert used.monitor_url is not None
    seen = json.loads(run([str(program)], HERE, MONITOR_URL=used.monitor_url))
    assert seen == {
        "id": True,
        "disabled": False,
        "streams": 1,
        "consumers": 1,
        "messages": 7,
        "bytes": True,
        "clustered": False,
        "stream": ["$G", "$G", "JOBS", 7, 1, 7, 1, 3, -1, 100, "red"],
        "consumer": ["workers", "who works", 3, 3, 1, 1, 2, 0, 0, 4],
        "active": True,
    }
