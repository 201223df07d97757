"""`mq9 cluster`: a cluster on this machine to try, and what the nodes of any cluster are at."""

import argparse
import json
import signal
import sys
import tempfile
import threading
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from mq9.cli import broker
from mq9.cli.exits import OK, UNREACHABLE, Failure
from mq9.cli.output import print_json, table

_TIMEOUT_S = 2.0


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Give the parser these commands."""
    inner = broker.add_family(
        *(commands, "cluster"),
        help="try several nodes that hold the same, and see what they are at",
        example="mq9 cluster up --local 3",
    )
    up = broker.add_local_command(
        *(inner, "cluster up", _up),
        help="start nats-servers and nodes on this machine, until Ctrl-C",
        example="mq9 cluster up --local 3\nmq9 cluster up --local 3 --data cluster-data",
    )
    up.add_argument(
        "--local", type=int, default=3, metavar="N", help="how many of each (default: 3)"
    )
    up.add_argument("--data", metavar="DIR", help="folder to keep (default: one that goes again)")
    up.add_argument(
        "--port", type=int, default=4222, metavar="PORT", help="of the first node (default: 4222)"
    )
    status = broker.add_local_command(
        *(inner, "cluster status", _status),
        help="show role, term and lag of each node, from their monitoring ports",
        example="mq9 cluster status http://127.0.0.1:4231 http://127.0.0.1:4232 http://127.0.0.1:4233",
    )
    status.add_argument("urls", nargs="+", metavar="URL", help="monitoring address of a node")


def _up(arguments: argparse.Namespace) -> int:
    from mq9.cluster.local import ClusterError, LocalCluster

    if not 1 <= arguments.local <= 5:
        raise Failure("--local takes 1 to 5")
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    with tempfile.TemporaryDirectory(prefix="mq9-cluster-") as passing:
        folder = Path(arguments.data or passing).absolute()
        try:
            cluster = LocalCluster(folder, count=arguments.local, port=arguments.port)
        except ClusterError as error:
            raise Failure(str(error)) from error
        try:
            cluster.start()
            print(f"Connect to {cluster.urls}")
            monitors = " ".join(f"http://127.0.0.1:{node.http}" for node in cluster.nodes)
            print(f"See what the nodes are at: mq9 cluster status {monitors}")
            print(f"Files and logs are in {folder}. Ctrl-C ends all of it.", flush=True)
            stop.wait()
        except ClusterError as error:
            raise Failure(str(error)) from error
        finally:
            cluster.stop()
    return OK


def _status(arguments: argparse.Namespace) -> int:
    found = [{"url": url, **_health(url)} for url in arguments.urls]
    if arguments.json:
        print_json(found)
    else:
        heads = ("node", "role", "term", "leader", "sequence", "lag", "digest", "url")
        rows = [[node.get(head, "-") for head in heads] for node in found]
        table(heads, rows)
        for node in found:
            if "error" in node:
                print(f"{node['url']}: {node['error']}", file=sys.stderr)
    return OK if any(node.get("role") == "leading" for node in found) else UNREACHABLE


def _health(url: str) -> dict[str, Any]:
    if not url.startswith(("http://", "https://")):
        url = f"http://{url}"
    try:
        try:
            with urllib.request.urlopen(f"{url.rstrip('/')}/healthz", timeout=_TIMEOUT_S) as answer:
                found = json.load(answer)
        except urllib.error.HTTPError as error:
            found = json.load(error)
    except (OSError, ValueError) as error:
        return {"role": "unreachable", "error": str(error)}
    return found if isinstance(found, dict) else {}
