"""How fast agents are found while messages flow, and what that costs the messages.

Fills a broker with agents, finds its peak rate, and sends half as many messages a second in turns:
alone, with searches by words, with searches by meaning. The vectors of the agents are drawn
at random, which costs a search as much as real ones; the queries are embedded as ever.
"""

import argparse
import json
import random
import shlex
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from nats_core import machine, progress, rate
from nats_runs import ROOT, BenchError, Server, build_load, run_load, running
from plain_client import Client

from mq9.registry.card_text import card_text
from mq9.registry.embedder import Name, load_embedder
from mq9.registry.vector_file import VectorFile, digest

GOAL_TEXT_MS, GOAL_SEMANTIC_MS, GOAL_DROP = 50.0, 100.0, 0.10
BOX = "bench"
CONNECTIONS, WINDOW = 8, 64
# With a pace this is the most that may be under way, not what is.
PACED_WINDOW = 8192
# How often the peak is measured.
PEAKS = 3
KINDS = ("alone", "text", "semantic")

TOPICS = (
    "invoice payment ledger refund budget tax audit salary",
    "translate document language subtitle glossary transcript dialect spelling",
    "weather forecast storm rainfall temperature humidity wind climate",
    "flight hotel booking itinerary visa luggage train ticket",
    "code review compiler debugger refactor repository deploy pipeline",
    "patient diagnosis prescription nurse appointment clinic vaccine allergy",
    "contract clause lawsuit compliance patent licence court evidence",
    "music playlist lyrics melody concert guitar rhythm studio",
)
VERBS = ("reads", "checks", "writes", "compares", "sorts", "predicts", "plans", "books")


def cards(count: int) -> Iterator[dict[str, Any]]:
    """Agents of some professions, each with words of its own."""
    chance = random.Random(5)
    for number in range(count):
        words = chance.choice(TOPICS).split()
        skills = [f"{chance.choice(VERBS)} {chance.choice(words)}" for _ in range(3)]
        yield {
            "mailbox": f"agent.n{number}",
            "name": f"{chance.choice(words).title()} {chance.choice(VERBS).title()} {number}",
            "description": " ".join(chance.choices([*words, *VERBS], k=20)),
            "skills": [{"name": skill} for skill in skills],
            "tags": chance.sample(words, 2),
        }


def queries(kind: str, seed: int) -> Iterator[dict[str, Any]]:
    """Searches of a kind, never the same twice in a row."""
    chance = random.Random(seed)
    while True:
        words = chance.choice(TOPICS).split()
        if kind == "text":
            yield {"text": " ".join(chance.sample(words, 2))}
        else:
            verb, thing, other = chance.choice(VERBS), *chance.sample(words, 2)
            yield {"semantic": f"somebody who {verb} a {thing} and knows about {other}"}


def fill_vectors(folder: Path, count: int, name: Name) -> None:
    """Random vectors for all agents, as if they had been computed."""
    embedder = load_embedder(name)
    path = folder / "agents" / "vectors.mq9"
    file = VectorFile(path, embedder.id, embedder.dimensions, progress)
    chance = np.random.default_rng(5)
    for card in cards(count):
        vector = chance.standard_normal(embedder.dimensions).astype(np.float32)
        meaning = card_text(card).meaning
        file.add([(digest(meaning), vector / np.linalg.norm(vector))])
    file.close()


def register(client: Client, count: int) -> float:
    """Registers all; how many a second."""
    started = time.monotonic()
    waiting = 0
    for card in cards(count):
        client.send("AGENT.REGISTER", json.dumps(card).encode())
        waiting += 1
        if waiting == 500:
            for _ in range(waiting):
                client.answer()
            waiting = 0
    for _ in range(waiting):
        client.answer()
    return count / (time.monotonic() - started)


def wait_until_found(client: Client, seconds: float) -> float:
    """Until no agent is left out of a search; how long that took."""
    started = time.monotonic()
    while client.ask("AGENT.DISCOVER", {"semantic": "anyone", "limit": 1}).get("pending"):
        if time.monotonic() - started > seconds:
            raise BenchError(f"not all agents were read in {seconds:.0f} s")
    return time.monotonic() - started


class Searcher:
    """Searches at a steady pace in a thread; late ones are not left out."""

    def __init__(self, address: str, kind: str, per_second: float, seed: int) -> None:
        self.client = Client(address)
        self.queries = queries(kind, seed)
        self.pause_s = 1 / per_second
        self.ms: list[float] = []
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self) -> None:
        due = time.perf_counter()
        while not self.ended.wait(max(0.0, due - time.perf_counter())):
            self.client.ask("AGENT.DISCOVER", next(self.queries))
            # From when it was due: a search that holds up the next is felt by both.
            self.ms.append((time.perf_counter() - due) * 1000)
            due += self.pause_s


@contextmanager
def searching(address: str, kind: str, per_second: float, seed: int) -> Iterator[Searcher | None]:
    """Searches while the block runs."""
    if kind == "alone":
        yield None
        return
    searcher = Searcher(address, kind, per_second, seed)
    searcher.thread.start()
    try:
        yield searcher
    finally:
        searcher.ended.set()
        searcher.thread.join()


def send(load: Path, server: Server, seconds: float, pace: float | None = None) -> float:
    """The rate of messages sent with reply: as many as go, or so many a second."""
    words = ["request", "--responders", "0", "--subject", f"$mq9.AI.MSG.SEND.{BOX}"]
    words += ["--expect", '{"error":"","msg_id":', "--connections", str(CONNECTIONS)]
    words += ["--window", str(PACED_WINDOW if pace else WINDOW), "--seconds", str(seconds)]
    words += ["--rate", f"{pace:.0f}"] if pace else []
    return float(run_load(load, words, server, -1)["rate"])


def percentile(values: Sequence[float], share: float) -> float:
    """The value that this share of all does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def broker(
    options: argparse.Namespace, folder: Path, embedder: str
) -> AbstractContextManager[Server]:
    """A broker with its data in the folder."""
    settings = folder / "mq9.conf"
    settings.write_text(f"mq9 {{ embedder: {embedder} }}\n", "utf-8")
    command = [*shlex.split(options.mq9_cmd), "-c", str(settings)]
    command += ["--data", str(folder / "data"), "--sync", options.sync]
    return running(command, folder)


def fill(options: argparse.Namespace, folder: Path) -> float | None:
    """Registers all agents; how many a second, None if they were kept from before."""
    kept = Path(options.keep) if options.keep else None
    if kept is not None and kept.exists():
        shutil.copytree(kept, folder / "data")
        return None
    progress(f"registering {options.agents} agents")
    # Without an embedder: it would begin to read them.
    with broker(options, folder, "none") as server:
        registered = register(Client(server.address), options.agents)
    progress(f"registered {rate(registered)}; drawing vectors for them")
    fill_vectors(folder / "data", options.agents, options.embedder)
    if kept is not None:
        shutil.copytree(folder / "data", kept)
    return registered


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """All numbers."""
    load = Path(options.load_cmd) if options.load_cmd else build_load()
    out = Path(options.out).resolve()
    out.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="data-", dir=out))
    try:
        registered = fill(options, folder)
        with broker(options, folder, options.embedder) as server:
            return {"registered_per_second": registered} | rounds(options, load, server)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def rounds(options: argparse.Namespace, load: Path, server: Server) -> dict[str, Any]:
    """Waits until all agents are found, then measures."""
    client = Client(server.address)
    client.ask("MAILBOX.CREATE", {"name": BOX})
    found_s = wait_until_found(client, options.patience)
    progress(f"all found {found_s:.1f} s after the start")
    peak = statistics.median(send(load, server, options.seconds / 2) for _ in range(PEAKS))
    progress(f"peak {rate(peak)}")
    rates: dict[str, list[float]] = {kind: [] for kind in KINDS}
    ms: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for number in range(options.rounds):
        for kind in KINDS:
            with searching(server.address, kind, options.searches, number) as searcher:
                rates[kind].append(send(load, server, options.seconds, peak / 2))
            if searcher is not None:
                ms[kind] += searcher.ms
        progress(f"round {number + 1} of {options.rounds}")
    drops = {
        kind: statistics.median(
            1 - there / alone for there, alone in zip(rates[kind], rates["alone"], strict=True)
        )
        for kind in KINDS[1:]
    }
    return {
        "machine": machine(),
        "settings": vars(options),
        "found_after_s": found_s,
        "peak_rate": peak,
        "rates": rates,
        "drops": drops,
        "searches": {
            kind: {
                "count": len(ms[kind]),
                "p50_ms": percentile(ms[kind], 0.50),
                "p99_ms": percentile(ms[kind], 0.99),
                "max_ms": max(ms[kind]),
            }
            for kind in KINDS[1:]
        },
    }


def table(result: dict[str, Any]) -> str:
    """The result for people."""
    lines = ["| search | p50 | p99 | goal | longest | messages | drop | goal |", "| --- " * 8 + "|"]
    alone = statistics.median(result["rates"]["alone"])
    lines.append(f"| none | | | | | {rate(alone)} | | |")
    for kind, goal in (("text", GOAL_TEXT_MS), ("semantic", GOAL_SEMANTIC_MS)):
        found, there = result["searches"][kind], statistics.median(result["rates"][kind])
        lines.append(
            f"| {kind} | {found['p50_ms']:.1f} ms | {found['p99_ms']:.1f} ms | {goal:.0f} ms "
            f"| {found['max_ms']:.0f} ms | {rate(there)} | {result['drops'][kind]:.1%} "
            f"| {GOAL_DROP:.0%} |"
        )
    agents, pace = result["settings"]["agents"], result["settings"]["searches"]
    head = f"{agents} agents, {pace:g} searches a second; peak {rate(result['peak_rate'])}"
    return "\n".join([head, "", *lines])


def parse(words: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", type=int, default=100_000)
    parser.add_argument("--searches", type=float, default=10.0, help="a second")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each measurement")
    parser.add_argument("--patience", type=float, default=600.0, help="until all are found")
    parser.add_argument("--sync", default="always", choices=("always", "interval", "none"))
    parser.add_argument("--embedder", default="blend", choices=("blend", "light", "minilm"))
    parser.add_argument("--mq9-cmd", default=f"{sys.executable} -m mq9 serve")
    parser.add_argument("--load-cmd", help="the load generator; built if it is not given")
    parser.add_argument("--keep", help="a folder for the filled broker; used again if it is there")
    parser.add_argument("--out", default=str(ROOT / ".build/bench-registry"))
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> int:
    """Measure, print the table and keep the numbers."""
    options = parse(words)
    try:
        result = measure(options)
    except BenchError as error:
        progress(f"registry: {error}")
        return 1
    file = Path(options.out) / "result.json"
    file.write_text(json.dumps(result, indent=1), "utf-8")
    print(table(result))  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
