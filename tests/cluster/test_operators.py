"""Operators of a cluster that other machines reach: users who are named, and nobody by address."""

import asyncio
import base64
import json
import re
import urllib.error
import urllib.request
from pathlib import Path

import nats
import pytest
from tests.cluster.links import config_of
from tests.cluster.test_folders import data, mq9
from tests.cluster.test_nodes import ask_until_done
from tests.peers import own_address

from mq9.cluster.local import LocalCluster

pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)

_GUIDE = Path(__file__).parents[2] / "docs/guides/cluster.md"


def of_the_guide(cluster: LocalCluster, host: str) -> None:
    """Give all nodes the configuration that the guide shows, with the ports of this cluster."""
    blocks = re.findall(r"```conf\n(.*?)```", _GUIDE.read_text("utf-8"), re.DOTALL)
    [shown] = [block for block in blocks if "replication" in block]
    for number, (node, server) in enumerate(zip(cluster.nodes, cluster.servers, strict=True), 1):
        address = f"10.0.0.{number}"
        shown = shown.replace(f"{address}:4222", f"{host}:{node.port}")
        shown = shown.replace(f"{address}:4333", f"127.0.0.1:{server.port}")
        shown = shown.replace(f"{address}:8333", f"127.0.0.1:{server.http}")
    first = cluster.nodes[0]
    for number, node in enumerate(cluster.nodes, 1):
        text = shown.replace("node: 1", f"node: {number}").replace(
            f'listen: "{host}:{first.port}"', f'listen: "{host}:{node.port}"'
        )
        text = text.replace('http: "10.0.0.1:8222"', f'http: "127.0.0.1:{node.http}"')
        text = text.replace('data: "/var/lib/mq9"', f'data: "{data(node)}"\n  management: off')
        assert "10.0.0" not in text
        config_of(node).write_text(text)


async def test_the_cluster_of_the_guide_gives_its_lead_away_when_its_operator_says_so(
    made: LocalCluster,
) -> None:
    host = own_address()
    of_the_guide(made, host)
    try:
        await asyncio.to_thread(made.start)
        leader = await asyncio.to_thread(made.wait_for_leader)
        yields = ("-s", f"nats://{host}:{leader.port}", "cluster", "yield")
        refused = await asyncio.to_thread(mq9, *yields)
        assert refused.returncode != 0
        assert "permission denied" in refused.stderr
        operator = ("--user", "operator", "--password", "secret")
        done = await asyncio.to_thread(mq9, *yields, *operator)
        assert done.returncode == 0, done.stderr
        assert "leads now" in done.stdout
    finally:
        made.stop()


async def test_a_client_that_a_follower_handed_on_is_no_operator(made: LocalCluster) -> None:
    host = own_address()
    for node in made.nodes:
        file = config_of(node)
        listens = f'listen: "127.0.0.1:{node.port}"'
        file.write_text(file.read_text().replace(listens, f'listen: "0.0.0.0:{node.port}"'))
    try:
        await asyncio.to_thread(made.start)
        leader = await asyncio.to_thread(made.wait_for_leader)
        follower = next(node for node in made.nodes if node is not leader)
        client = await nats.connect(f"nats://{host}:{follower.port}", connect_timeout=10)
        await ask_until_done(client, "MAILBOX.CREATE", b'{"name": "box"}')
        answer = await client.request("$mq9.AI.ADMIN.MAILBOX.LIST", b"{}", timeout=10)
        await client.close()
        found = json.loads(answer.data)
        assert found["error"].startswith("permission denied"), found
    finally:
        made.stop()


async def test_monitoring_of_a_follower_is_for_those_whom_a_leader_answers(
    made: LocalCluster,
) -> None:
    for node in made.nodes:
        file = config_of(node)
        users = "mq9 {\n  monitoring { user: watcher, password: secret }"
        file.write_text(file.read_text().replace("mq9 {", users))
    try:
        await asyncio.to_thread(made.start)
        for node in made.nodes:
            host = f"127.0.0.1:{node.http}"
            wanted = {
                "/healthz": {("none", 200), ("stranger", 403)},
                "/varz": {("none", 401), ("watcher", 200), ("stranger", 403)},
                "/metrics": {("none", 401), ("watcher", 200), ("stranger", 403)},
            }
            for path, answers in wanted.items():
                for who, status in answers:
                    request = urllib.request.Request(f"http://{host}{path}")
                    if who == "watcher":
                        word = base64.b64encode(b"watcher:secret").decode()
                        request.add_header("Authorization", f"Basic {word}")
                    if who == "stranger":
                        request.add_header("Host", "rebound.example")
                    found = await asyncio.to_thread(answered, request)
                    assert found == status, (node.name, path, who)
    finally:
        made.stop()


def answered(request: urllib.request.Request) -> int:
    """The status of the answer."""
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
