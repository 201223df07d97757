"""`mq9 status` and `mq9 ping`: is it there, how fast, and how is it."""

import argparse
import asyncio
import statistics
import time
from typing import TYPE_CHECKING, Any

from mq9.cli import broker
from mq9.cli.exits import OK, USAGE, Failure
from mq9.cli.output import pairs, print_json, size

if TYPE_CHECKING:
    from mq9.client import Client


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Give the parser these commands."""
    broker.add_command(
        *(commands, "status", _status),
        help="show the broker, and to operators what it holds",
        example="mq9 status -s nats://127.0.0.1:4222",
    )
    ping = broker.add_command(
        *(commands, "ping", _ping),
        help="measure how long the broker takes to answer",
        example="mq9 ping --count 3",
    )
    ping.add_argument("-n", "--count", type=int, default=4, metavar="N", help="how often (4)")
    ping.add_argument(
        "--interval",
        type=broker.seconds,
        default=0.5,
        metavar="SECONDS",
        help="time between two (0.5)",
    )


async def _status(client: "Client", arguments: argparse.Namespace) -> int:
    from mq9.errors import AccessDenied, NoResponders

    info = client.nats._server_info
    told: dict[str, Any] = {
        "server": info.get("server_name", ""),
        "url": client.nats.connected_url.geturl() if client.nats.connected_url else "",
        "round_trip_ms": round(await _round_trip_ms(client, arguments.timeout), 2),
        "nats_version": info.get("version", ""),
        "tls": bool(info.get("tls_required")),
    }
    try:
        told |= await client.status()
        told["operator"] = True
    except (AccessDenied, NoResponders):
        told["operator"] = False
    if arguments.json:
        print_json(told)
    else:
        pairs(_lines(told))
    return OK


def _lines(told: dict[str, Any]) -> dict[str, object]:
    lines: dict[str, object] = {
        "server": told["server"],
        "url": told["url"],
        "round trip": f"{told['round_trip_ms']} ms",
        "NATS version": told["nats_version"],
        "TLS": "yes" if told["tls"] else "no",
    }
    if not told["operator"]:
        return lines | {"more": "is for operators"}
    problem = told["writes_stopped"]
    return lines | {
        "mq9 version": told["version"],
        "clients": told["clients"],
        "mailboxes": told["mailboxes"],
        "waiting fetches": told["waiting"],
        "log": f"{size(told['log_bytes'])}, {size(told['live_bytes'])} of it in use",
        "damage": told["damage"] or "none",
        "writes": f"stopped: {problem}" if problem else "yes",
    }


async def _ping(client: "Client", arguments: argparse.Namespace) -> int:
    if arguments.count < 1:
        raise Failure(f"--count is {arguments.count}: it must be at least 1", USAGE)
    took: list[float] = []
    for number in range(arguments.count):
        if number:
            await asyncio.sleep(arguments.interval)
        took.append(await _round_trip_ms(client, arguments.timeout))
        if not arguments.json:
            print(f"answer {number + 1} in {took[-1]:.2f} ms", flush=True)
    shortest, median, longest = min(took), statistics.median(took), max(took)
    if arguments.json:
        print_json({"round_trips_ms": [round(one, 3) for one in took]})
    elif len(took) > 1:
        print(f"shortest {shortest:.2f}, median {median:.2f}, longest {longest:.2f} ms")
    return OK


async def _round_trip_ms(client: "Client", timeout: float) -> float:  # noqa: ASYNC109
    from nats.errors import FlushTimeoutError

    from mq9.errors import RequestTimeout

    begun = time.perf_counter()
    try:
        await client.nats.flush(timeout)  # type: ignore[arg-type]
    except FlushTimeoutError:
        raise RequestTimeout(f"no answer in {timeout:g} s") from None
    return (time.perf_counter() - begun) * 1000
