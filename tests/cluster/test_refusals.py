"""What cannot make a cluster is refused at the start, with a reason and without a traceback."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.cluster.links import config_of

from mq9.cluster.local import LocalCluster, Process


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


def test_servers_that_confirm_before_they_sync(made: LocalCluster) -> None:
    try:
        server, node = made.servers[0], made.nodes[0]
        monitor = f'http: "127.0.0.1:-1"\nports_file_dir: "{config_of(server).parent}"\n'
        rewritten(config_of(server), lambda text: monitor + text.replace("always", '"1m"'))
        server.start()
        url = _monitor(server)
        rewritten(
            config_of(node), lambda text: text.replace("lease:", f'monitors: ["{url}"]\nlease:')
        )
        said = refused(node)
        assert "confirms messages before they are synced" in said
        assert "sync_interval: always" in said
        # The same with it.
        server.end()
        rewritten(config_of(server), lambda text: text.replace('"1m"', "always"))
        for each in made.servers:
            each.start()
        url = _monitor(server)
        rewritten(
            config_of(node), lambda text: re.sub(r'monitors: \["[^"]*', f'monitors: ["{url}', text)
        )
        for each in made.nodes:
            each.start()
        made.wait_for_leader()
        assert "sync" not in node.log.read_text().replace("sync=always", "")
        # Who does not say where to look is told what cannot be seen.
        assert "mq9 cannot see whether" in made.nodes[1].log.read_text()
    finally:
        made.stop()


def _monitor(server: Process) -> str:
    """Where a nats-server's monitoring port is."""
    import json
    import time

    assert server.running is not None
    file = config_of(server).parent / f"nats-server_{server.pid}.ports"
    until = time.monotonic() + 20
    while time.monotonic() < until:
        if file.exists() and (text := file.read_text()):
            url: str = json.loads(text)["monitoring"][0]
            return url
        time.sleep(0.05)
    raise AssertionError(server.log.read_text())


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
