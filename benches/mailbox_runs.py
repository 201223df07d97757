"""Measures a row on a server that is started for it, and gives plain numbers.

Knows what has to happen in which order for each kind of row; rounds and what is made of the numbers
are in mailboxes.py and mailbox_results.py.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nats_runs
from mailbox_rows import PERCENTS, Backlog, Create, Drain, Latency, Row, Scale, Send, Wait
from mailbox_servers import FIRST, Contender
from mailbox_stores import Stores
from nats_runs import BenchError, Server

# JetStream stores all that waits before it answers the first, with a sync for each if it has to.
PATIENCE_SECONDS = 25
# Creating and filling take as long as they take.
LONG_SECONDS = 900.0
# The most that may be under way on a connection where requests do not wait for answers.
OPEN_WINDOW = 1024
# A drained mailbox cannot be measured, so its warm-up is short.
DRAIN_WARMUP_SECONDS = 0.1

Numbers = dict[str, float]


@dataclass(frozen=True)
class Measuring:
    """What every measurement needs."""

    load: Path
    folder: Path
    stores: Stores
    scale: Scale
    options: argparse.Namespace

    def once(self, row: Row, contender: Contender, peak: float | None = None) -> Numbers:
        """The numbers of one row on one server. Latencies: at parts of its own or of this peak."""
        with tempfile.TemporaryDirectory(dir=self.folder) as name:
            folder = Path(name)
            if isinstance(row, Drain):
                self.stores.copy(contender, row.size, row.priorities, folder)
            self._sync()
            try:
                match row:
                    case Send():
                        return self._send(row, contender, folder)
                    case Drain():
                        return self._drain(row, contender, folder)
                    case Latency():
                        return self._latency(row, contender, folder, peak)
                    case Create():
                        return self._create(row, contender, folder)
                    case Backlog():
                        return self._backlog(row, contender, folder)
                    case Wait():
                        return self._wait(row, contender, folder)
            except BenchError as error:
                raise BenchError(f"{row.name}: {contender.name}: {error}") from None

    def _send(self, row: Send, contender: Contender, folder: Path) -> Numbers:
        words = [*contender.send_arguments(row.priorities), "--size", row.size]
        words += ["--connections", row.connections, "--window", row.window]
        with contender.run(folder, row.sync) as server:
            contender.create(server.address)
            run = self._load(server, words)
            check_kept(contender, server, run["messages"])
        return numbers(run)

    def _drain(self, row: Drain, contender: Contender, folder: Path) -> Numbers:
        stored = self.stores.stored
        words = [*contender.drain_arguments(stored, row.priorities), "--size", row.size]
        words += ["--batch", row.batch]
        with contender.run(folder, row.sync) as server:
            contender.join(server.address)
            run = self._load(server, words, min(self.options.warmup, DRAIN_WARMUP_SECONDS))
            check_kept(contender, server, run["messages"])
        return numbers(run)

    def _latency(
        self, row: Latency, contender: Contender, folder: Path, peak: float | None
    ) -> Numbers:
        words = [*contender.send_arguments(), "--size", row.size]
        words += ["--connections", row.connections]
        with contender.run(folder, row.sync) as server:
            contender.create(server.address)
            run = self._load(server, [*words, "--window", row.window])
            own, sent = float(run["rate"]), int(run["messages"])
            peak = own if peak is None else peak
            found = {"peak_rate": own, "others_cores": float(run["others_cores"])}
            for percent in PERCENTS:
                pace = ["--rate", peak * percent / 100, "--window", OPEN_WINDOW]
                run = self._load(server, [*words, *pace])
                sent += int(run["messages"])
                part = numbers(run)
                found |= {f"{name}_{percent}": value for name, value in part.items()}
                found["others_cores"] = max(found["others_cores"], part["others_cores"])
            check_kept(contender, server, sent)
        return found

    def _create(self, row: Create, contender: Contender, folder: Path) -> Numbers:
        streams = contender.server == "JetStream"
        count = self.scale.created_streams if streams else self.scale.created
        with contender.run(folder, row.sync) as server:
            before = nats_runs.resident_bytes(server.pid)
            run = self._load(server, contender.create_arguments(count), most_seconds=LONG_SECONDS)
            grown = nats_runs.resident_bytes(server.pid) - before
        return numbers(run) | {"count": count, "bytes_each": grown / count}

    def _backlog(self, row: Backlog, contender: Contender, folder: Path) -> Numbers:
        count = self.scale.backlog
        words = [*contender.send_arguments(), "--size", row.size, "--window", 1024]
        words += ["--count", count]
        with contender.run(folder, row.sync) as server:
            contender.create(server.address)
            before = nats_runs.resident_bytes(server.pid)
            fill = self._load(server, words, 0.0, most_seconds=LONG_SECONDS)
            check_kept(contender, server, count)
            contender.join(server.address)
            contender.join(server.address, FIRST)
            grown = nats_runs.resident_bytes(server.pid) - before
            full = before + grown
        self._sync()
        started = time.monotonic()
        with contender.run(folder, row.sync) as server:
            contender.fetch_first(server.address)
            restart_s = time.monotonic() - started
            restarted = nats_runs.resident_bytes(server.pid)
            words = [*contender.drain_arguments(count), "--batch", row.batch, "--size", row.size]
            fetch = self._load(server, words, min(self.options.warmup, DRAIN_WARMUP_SECONDS))
        return {
            "count": count,
            "fill_rate": float(fill["rate"]),
            "resident_bytes": full,
            "bytes_each": grown / count,
            "restart_s": restart_s,
            "restarted_bytes": restarted,
            "fetch_rate": float(fetch["rate"]),
            "fetch_cpu_us": float(fetch["server_cpu_us"]),
            "others_cores": float(fetch["others_cores"]),
        }

    def _wait(self, row: Wait, contender: Contender, folder: Path) -> Numbers:
        count = self.scale.waiting
        with contender.run(folder, row.sync) as server:
            words = contender.prepare_waiting(server.address, count)
            self._load(server, words, most_seconds=LONG_SECONDS)
            # The idle time, and before it time to settle.
            words = [*contender.wait_arguments(count), "--size", str(row.size)]
            seconds = self.scale.idle_seconds
            run = self._load(server, words, seconds / 3, seconds, LONG_SECONDS)
        return {
            "count": count,
            "idle_percent": 100 * float(run["server_cores"]),
            "others_cores": float(run["others_cores"]),
            **latencies(run),
        }

    def _sync(self) -> None:
        """What was written before must not be written meanwhile."""
        # A smoke run measures nothing, and others may have much to write.
        if not self.options.quick:
            os.sync()

    def _load(
        self,
        server: Server,
        words: Sequence[object],
        warmup: float | None = None,
        seconds: float | None = None,
        most_seconds: float = nats_runs.LOAD_SECONDS,
    ) -> dict[str, Any]:
        """What the load generator reports."""
        line = [*map(str, words), "--patience", str(PATIENCE_SECONDS)]
        line += ["--seconds", str(self.options.seconds if seconds is None else seconds)]
        line += ["--warmup", str(self.options.warmup if warmup is None else warmup)]
        return nats_runs.run_load(self.load, line, server, self.options.cpu, most_seconds)


def numbers(run: dict[str, Any]) -> Numbers:
    """What is kept of the generator's report."""
    names = ("rate", "server_cpu_us", "server_cores", "generator_cores", "others_cores")
    return {name: float(run[name]) for name in names} | latencies(run)


def latencies(run: dict[str, Any]) -> Numbers:
    """The percentiles of the generator's report."""
    names = {"p50": "p50_us", "p99": "p99_us", "p99_9": "p999_us", "max": "max_us"}
    return {ours: float(run["latency_us"][name]) for name, ours in names.items()}


def check_kept(contender: Contender, server: Server, least: int) -> None:
    """What was answered must be there."""
    if (kept := contender.kept(server.address)) < least:
        raise BenchError(f"answered {least} messages and has kept {kept}")
