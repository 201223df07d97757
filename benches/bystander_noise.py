"""Asks a broker the same costly thing again and again, until its standard input says something.

    python benches/bystander_noise.py connz|list|discover|spin ADDRESS

A process of its own, of low priority: elsewhere such clients are on other machines.
"""

import itertools
import json
import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from http.client import HTTPConnection

from nats_runs import BenchError
from plain_client import Client

NICE = 10
PAGE = 1000
SPIN_S = 0.01
# One by words, one by tags, and a long list.
SEARCHES = (
    {"text": "invoice refund", "limit": 100},
    {"tags": ["ledger"], "limit": 100},
    {"limit": PAGE},
)
Noise = Callable[[str], Iterator[None]]


def connz(address: str) -> Iterator[None]:
    """The document of all connections and their subscriptions, all of them on one page."""
    host, _, port = address.rpartition(":")
    http = HTTPConnection(host, int(port), timeout=120)
    while True:
        http.request("GET", "/connz?subs=1&limit=100000")
        reply = http.getresponse()
        body = reply.read()
        if reply.status != 200:
            raise BenchError(f"/connz answered {reply.status}: {body[:200]!r}")
        yield


def public_list(address: str) -> Iterator[None]:
    """Every page of the list of public mailboxes, from the first to the last."""
    client = Client(address)
    while True:
        request: dict[str, object] = {"limit": PAGE}
        while True:
            client.send("PUBLIC.LIST", json.dumps(request).encode())
            page = client.answer_bytes()
            if not page.startswith(b'{"error":"",'):
                raise BenchError(f"PUBLIC.LIST answered {page[:200]!r}")
            yield
            if not page.endswith(b'"more":true}\r\n'):
                break
            # To read all of it would cost as much as to write it.
            last = page.rindex(b'"mail_id":"') + len(b'"mail_id":"')
            request["after"] = page[last : page.index(b'"', last)].decode()


def discover(address: str) -> Iterator[None]:
    """Searches and lists of agents in turn."""
    client = Client(address)
    for search in itertools.cycle(SEARCHES):
        client.send("AGENT.DISCOVER", json.dumps(search).encode())
        found = client.answer_bytes()
        if not found.startswith(b'{"error":"",') or b'"agents":[]' in found:
            raise BenchError(f"DISCOVER answered {found[:200]!r}")
        yield


def spin(_address: str) -> Iterator[None]:
    """Keeps a processor busy and asks nothing: what is left is what sharing processors costs."""
    while True:
        until = time.monotonic() + SPIN_S
        while time.monotonic() < until:
            pass
        yield


NOISES: dict[str, Noise] = {
    "connz": connz,
    "list": public_list,
    "discover": discover,
    "spin": spin,
}


def main() -> None:
    """Asks until nobody wants to hear it."""
    _, kind, address = sys.argv
    if kind != "spin":
        os.nice(NICE)
    noise = NOISES[kind](address)
    next(noise)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    started, count = time.monotonic(), 0
    while not select.select([sys.stdin], [], [], 0)[0]:
        next(noise)
        count += 1
    json.dump({"count": count, "seconds": time.monotonic() - started}, sys.stdout)


if __name__ == "__main__":
    try:
        main()
    except (BenchError, OSError) as error:
        sys.exit(f"bystander_noise: {error}")
