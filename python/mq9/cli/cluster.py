"""`mq9 cluster`: one on this machine to try, what nodes of any are at, and their data folders."""

import argparse
import asyncio
import json
import signal
import sys
import tempfile
import threading
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mq9.cli import broker
from mq9.cli.exits import OK, REFUSED, UNREACHABLE, Failure
from mq9.cli.output import print_json, size, table

if TYPE_CHECKING:
    from mq9.client import Client
    from mq9.cluster.folders import Place

_TIMEOUT_S = 2.0
_YIELD_S = 15.0


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
    yields = broker.add_command(
        *(inner, "cluster yield", _yield),
        help="have the node that leads give its lead to another",
        example="mq9 cluster yield\nmq9 cluster yield --to 2",
    )
    yields.add_argument("--to", type=int, metavar="N", help="number of that node (default: any)")
    _add_folders(inner)


def _add_folders(inner: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    backup = broker.add_local_command(
        *(inner, "cluster backup", _backup),
        help="copy the data folder of a node, which may run",
        example="mq9 cluster backup /var/lib/mq9 /backup/mq9",
    )
    backup.add_argument("directory", metavar="DIR", help="the node's data")
    backup.add_argument("target", metavar="TO", help="a new folder")
    join = broker.add_local_command(
        *(inner, "cluster join", _join),
        help="make the data folder of a new node from a copy of another's",
        example="mq9 cluster join /var/lib/mq9 --from /backup/mq9",
    )
    join.add_argument("directory", metavar="DIR", help="the new node's data: a new folder")
    join.add_argument(
        *("--from", "-f"),
        dest="source",
        required=True,
        metavar="DIR",
        help="a backup, or the folder of a node, which may run",
    )
    for name, run, help_text in (
        ("seed", _seed, "make the data folder of a single server the first of a cluster"),
        ("leave", _leave, "make the data folder of a node one of a single server"),
        ("reseed", _reseed, "begin a new stream with the data folder of a node: the old is gone"),
    ):
        parser = broker.add_local_command(
            *(inner, f"cluster {name}", run),
            help=help_text,
            example=f"mq9 cluster {name} /var/lib/mq9",
        )
        parser.add_argument("directory", metavar="DIR", help="its data; nothing runs on it now")


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


async def _yield(client: "Client", arguments: argparse.Namespace) -> int:
    before = await _cluster_of(client)
    if before is None:
        raise Failure("this server is no node of a cluster", REFUSED)
    if arguments.to == before["node"]:
        print(f"Node {before['node']} leads already.")
        return OK
    body = {} if arguments.to is None else {"node": arguments.to}
    await _request(client, "YIELD", body)
    loop = asyncio.get_running_loop()
    until = loop.time() + _YIELD_S
    while loop.time() < until:
        await asyncio.sleep(0.1)
        try:
            now = await _cluster_of(client)
        except Exception:
            # Between two leaders nobody answers.
            continue
        if now is not None and now["term"] > before["term"]:
            if arguments.json:
                print_json({"before": before, "now": now})
            else:
                was, new = before["node"], now["node"]
                print(f"Node {was} led; node {new} leads now, in term {now['term']}.")
            return OK if arguments.to in (None, now["node"]) else REFUSED
    why = (
        "no other node follows" if arguments.to is None else f"node {arguments.to} does not follow"
    )
    raise Failure(f"node {before['node']} still leads: {why}")


async def _request(client: "Client", command: str, body: dict[str, Any]) -> dict[str, Any]:
    message = await client.nats.request(
        f"$mq9.AI.ADMIN.SERVER.{command}", json.dumps(body).encode(), timeout=_TIMEOUT_S
    )
    answer: dict[str, Any] = json.loads(message.data)
    if answer.get("error"):
        raise Failure(str(answer["error"]), REFUSED)
    return answer


async def _cluster_of(client: "Client") -> dict[str, Any] | None:
    """What the node that leads says of itself."""
    found = await _request(client, "VARZ", {})
    cluster: dict[str, Any] | None = found["varz"]["mq9"].get("cluster")
    return cluster


def _backup(arguments: argparse.Namespace) -> int:
    return _copy(arguments, Path(arguments.directory), Path(arguments.target), "A copy")


def _join(arguments: argparse.Namespace) -> int:
    ending = "Start the node: the stream brings what came later."
    return _copy(arguments, Path(arguments.source), Path(arguments.directory), "The node", ending)


def _copy(
    arguments: argparse.Namespace, source: Path, target: Path, what: str, ending: str = ""
) -> int:
    from mq9.cluster.folders import FolderError, copy

    shown = -1

    def progress(done: int, whole: int) -> None:
        nonlocal shown
        percent = 100 * done // max(whole, 1)
        if percent != shown and sys.stderr.isatty():
            shown = percent
            sys.stderr.write(f"\r{percent:3} % of {size(whole)}")

    try:
        place, copied = copy(source, target, progress)
    except FolderError as error:
        raise Failure(str(error)) from error
    finally:
        if shown >= 0:
            sys.stderr.write("\n")
    _tell(arguments, place, f"{what} in {target}: {size(copied)}.", ending)
    return OK


def _seed(arguments: argparse.Namespace) -> int:
    return _change(
        arguments,
        f"{arguments.directory} is the first node of a cluster.",
        "Give the other nodes a copy of it with `mq9 cluster join`, then start all of them. "
        "An empty folder cannot follow it, nor can it join a stream that is there already.",
    )


def _leave(arguments: argparse.Namespace) -> int:
    return _change(
        arguments,
        f"{arguments.directory} belongs to no cluster any more.",
        "Start it without replication. Take the node from the nodes of those that stay, and "
        "restart them one by one.",
    )


def _reseed(arguments: argparse.Namespace) -> int:
    return _change(
        arguments,
        f"{arguments.directory} begins a new stream.",
        "Delete the old stream, give the other nodes copies of this folder with "
        "`mq9 cluster join`, then start all of them.",
    )


def _change(arguments: argparse.Namespace, done: str, ending: str) -> int:
    from mq9.cluster import folders

    kind: str = arguments.path.split()[-1]
    change = {"seed": folders.seed, "leave": folders.leave, "reseed": folders.reseed}[kind]
    folder = Path(arguments.directory)
    try:
        was = None if kind == "seed" else folders.place(folder)
        now = change(folder)
    except folders.FolderError as error:
        raise Failure(str(error)) from error
    _tell(arguments, now if was is None else was, done, ending)
    return OK


def _tell(arguments: argparse.Namespace, place: "Place", done: str, ending: str) -> None:
    if arguments.json:
        print_json({"sequence": place.sequence, "digest": place.digest, "term": place.term})
        return
    print(done)
    print(f"It holds the log up to message {place.sequence}, digest {place.digest}.")
    if ending:
        print(ending)
