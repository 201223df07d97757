"""What cannot make a cluster is refused at the start, with a reason and without a traceback."""

import asyncio
import contextlib
import json
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.js import api
from tests.cluster.links import config_of
from tests.cluster.test_cut_off import until

from mq9.cluster.local import LocalCluster, Process
from mq9.server.backbone import SyncCheck
from mq9.server.logs import Log
from mq9.server.running import StartError


def rewritten(file: Path, change: Callable[[str], str]) -> None:
    """Change a configuration file."""
    before = file.read_text()
    after = change(before)
    assert after != before
    file.write_text(after)


def refused(node: Process) -> str:
    """Start a node that must end by itself; what it said."""
    ended = subprocess.run(node.command, capture_output=True, text=True, timeout=60, check=False)
    said = ended.stdout + ended.stderr
    assert ended.returncode == 1, said
    assert "Traceback" not in said
    return said


def test_servers_that_take_too_little(made: LocalCluster) -> None:
    try:
        for server in made.servers:
            rewritten(config_of(server), lambda text: text.replace("8MB", "1MB"))
            server.start()
        said = ""
        while "nats-server takes messages of" not in said:
            said = refused(made.nodes[0])
        assert "nats-server takes messages of 1" in said
        assert "raise its max_payload" in said
    finally:
        made.stop()


def lazy(server: Process) -> None:
    """It confirms what it has not synced."""
    rewritten(config_of(server), lambda text: text.replace("always", '"1m"'))


def test_servers_that_confirm_before_they_sync(made: LocalCluster) -> None:
    try:
        lazy(made.servers[2])
        for server in made.servers:
            server.start()
        said = refused(made.nodes[0])
        assert f"the nats-server at http://127.0.0.1:{made.servers[2].http} confirms" in said
        assert "sync_interval: always" in said
    finally:
        made.stop()


def test_a_server_that_was_away_is_asked_when_it_is_back(made: LocalCluster) -> None:
    try:
        away, node = made.servers[2], made.nodes[0]
        made.start()
        away.end()
        node.end()
        node.start()
        told = f"{away.http} does not say yet how it syncs"
        until(lambda: told in node.log.read_text(), node)
        until(lambda: node.health().get("role") in {"following", "leading"}, node)
        lazy(away)
        away.start()
        assert node.running is not None
        assert node.running.wait(30) == 1
        assert "confirms messages before they are synced" in node.log.read_text()
    finally:
        made.stop()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"num_replicas": 1}, "num_replicas: 1, and mq9 needs 3 or more"),
        ({"storage": api.StorageType.MEMORY}, "storage: memory, and mq9 needs file"),
        ({"max_age": 3600}, "max_age: 3600000000000, and mq9 needs no such limit"),
    ],
)
async def test_a_stream_that_would_lose_what_it_confirms(
    made: LocalCluster, change: dict[str, object], said: str
) -> None:
    try:
        for server in made.servers:
            server.start()
        await make_stream(made, **change)
        told = await asyncio.to_thread(refused, made.nodes[0])
        assert f"the stream MQ9_LOG_local has {said}" in told
    finally:
        made.stop()


async def make_stream(cluster: LocalCluster, **change: object) -> None:
    """The log's stream, as somebody else would make it."""
    settings: dict[str, Any] = {
        "num_replicas": 3,
        "discard": api.DiscardPolicy.NEW,
        **change,
    }
    stream = api.StreamConfig(name="MQ9_LOG_local", subjects=["mq9.log.local"], **settings)
    for _ in range(600):
        try:
            client = await nats.connect(cluster.servers[0].url, allow_reconnect=False)
        except (OSError, nats.errors.Error):
            await asyncio.sleep(0.1)
            continue
        try:
            await client.jetstream(timeout=2).add_stream(stream)
        except (TimeoutError, nats.errors.Error):
            await asyncio.sleep(0.1)
        else:
            return
        finally:
            await client.close()
    raise AssertionError("no stream was made")


class OldServer:
    """It introduces itself as a nats-server of another time, and says nothing more."""

    def __init__(self, **info: object) -> None:
        whole = {"version": "2.15.0", "headers": True, "jetstream": True, "max_payload": 8 << 20}
        self._info = f"INFO {json.dumps({**whole, **info})}\r\n".encode()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._greet, daemon=True).start()

    def _greet(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                accepted, _ = self._listener.accept()
                with accepted:
                    accepted.sendall(self._info)

    def close(self) -> None:
        """Nobody is greeted any more."""
        self._listener.close()


@pytest.mark.parametrize(
    ("info", "said"),
    [
        ({"version": "2.14.9"}, "nats-server 2.14.9 is too old: 2.15 or newer is needed"),
        ({"jetstream": False}, "the server has no JetStream: start nats-server with -js"),
    ],
)
def test_servers_that_cannot_keep_the_log(
    made: LocalCluster, info: dict[str, object], said: str
) -> None:
    server, node = OldServer(**info), made.nodes[0]
    try:
        url = f'servers: ["nats://127.0.0.1:{server.port}"]\n    sync: unchecked'
        rewritten(config_of(node), lambda text: re.sub(r"servers: .*", url, text))
        assert said in refused(node)
    finally:
        server.close()


async def test_servers_of_which_most_do_not_say_how_they_sync(made: LocalCluster) -> None:
    monitors = [f"http://127.0.0.1:{server.http}" for server in made.servers]
    try:
        made.servers[0].start()
        with pytest.raises(StartError, match="set sync: unchecked"):
            await SyncCheck(monitors, Log(), patience_s=3.0).begin(asyncio.Event())
        # At the start of a machine a server may come later than the node.
        asked = asyncio.create_task(SyncCheck(monitors, Log()).begin(asyncio.Event()))
        await asyncio.sleep(0.5)
        assert not asked.done()
        made.servers[1].start()
        await asked
    finally:
        made.stop()


async def test_a_server_that_is_started_again_is_asked_again(made: LocalCluster) -> None:
    servers = made.servers[:2]
    monitors = [f"http://127.0.0.1:{server.http}" for server in servers]
    check = SyncCheck(monitors, Log(), every_s=0.1)
    try:
        servers[0].start()
        with pytest.raises(StartError, match="most of the `monitors`"):
            # One of two is not most of them.
            await SyncCheck(monitors, Log(), patience_s=3.0).begin(asyncio.Event())
        servers[1].start()
        await check.begin(asyncio.Event())
        stop = asyncio.Event()
        asking = asyncio.create_task(check.finish(stop))
        servers[1].end()
        lazy(servers[1])
        servers[1].start()
        await asyncio.wait_for(stop.wait(), 30)
        await asking
        assert "confirms messages before they are synced" in str(check.refusal)
    finally:
        made.stop()


def test_a_monitor_that_is_named_twice_is_refused(made: LocalCluster) -> None:
    node, server = made.nodes[0], made.servers[0]
    twice = f'monitors: ["http://127.0.0.1:{server.http}", "http://127.0.0.1:{server.http}"]'
    rewritten(config_of(node), lambda text: re.sub(r"monitors: .*", twice, text))
    assert "one of the URLs is there twice" in refused(node)


async def test_a_monitor_that_speaks_no_http_is_told(made: LocalCluster) -> None:
    server = made.servers[0]
    try:
        server.start()
        wrong = [f"http://127.0.0.1:{server.port}"]
        with pytest.raises(StartError, match="do not say how their nats-servers sync"):
            await SyncCheck(wrong, Log(), patience_s=1.0).begin(asyncio.Event())
    finally:
        made.stop()


def test_nobody_asks_only_where_the_configuration_says_so(made: LocalCluster) -> None:
    node = made.nodes[0]
    rewritten(config_of(node), lambda text: re.sub(r"monitors: .*", "", text))
    assert "no monitors: the nats-servers are asked there" in refused(node)
    rewritten(config_of(node), lambda text: text.replace("lease:", "sync: unchecked\n    lease:"))
    try:
        made.start()
        assert "nobody checks whether the nats-servers sync" in node.log.read_text()
    finally:
        made.stop()


def test_a_node_with_the_number_of_another(cluster: LocalCluster, tmp_path: Path) -> None:
    first = cluster.nodes[0]
    other = tmp_path / "other"
    other.mkdir()
    text = config_of(first).read_text().replace(f':{first.port}"\nhttp', ':0"\nhttp')
    text = text.replace(str(config_of(first).parent), str(other)).replace(f':{first.http}"', ':-1"')
    (other / "mq9.conf").write_text(text)
    command = [sys.executable, "-m", "mq9", "serve", "-c", str(other / "mq9.conf")]
    said = refused(Process("other", 0, command, other / "log"))
    assert "node 1 of the cluster local runs already" in said
    # The one that was there goes on.
    assert first.running is not None
    assert first.running.poll() is None
    cluster.wait_for_leader()


async def test_late_words_of_a_node_that_was_started_again_do_not_end_it(
    cluster: LocalCluster,
) -> None:
    first = cluster.nodes[0]
    client = await nats.connect(cluster.servers[0].url)
    heard = await client.subscribe("mq9.node.local.1")
    said = json.loads((await heard.next_msg(10)).data)
    # A server that stood still passes on what it had taken of the process before.
    for age_ms in range(10**9, 10**9 + 20 * 500, 500):
        late = {**said, "incarnation": said["incarnation"] ^ 1, "age_ms": age_ms}
        await client.publish("mq9.node.local.1", json.dumps(late).encode())
    await client.flush()
    # It has taken all of them once it speaks again, twice: the first may have been on its way.
    spoken = 0
    while spoken < 3:
        told = json.loads((await heard.next_msg(10)).data)
        spoken += told["incarnation"] == said["incarnation"]
    await client.close()
    assert first.running is not None
    assert first.running.poll() is None, first.log.read_text()
    assert "runs already" not in first.log.read_text()
