"""How fast an export is, beside copying the same segments; and SEND with and without an export.

Owns what is measured and how it is told. Numbers mean something on a quiet machine only.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nats_runs
from mailbox_servers import Mq9
from nats_core import progress
from nats_runs import BenchError

from mq9._core import Export
from mq9.store import NewMessage, Store

# What most rates of SEND are measured with: see mailbox_rows.py.
CONNECTIONS, WINDOW, SIZE = 16, 64, 128
GOAL_DROP = 0.15


def fill(folder: Path, megabytes: int) -> None:
    """A store with so much log: small messages like JSON, delivered and acknowledged."""
    text = '{"from":"agent.%d","task":%d,"text":"' + "the quick brown fox jumps " * 8 + '"}'
    with Store(folder, sync="none") as store:
        store.create_mailbox("bench")
        number = 0
        while store.info().log_bytes < megabytes << 20:
            batch = [
                NewMessage((text % (number % 100, number + at)).encode(), tags="red")
                for at in range(1000)
            ]
            store.append_many("bench", batch)
            number += len(batch)
            given = store.fetch("bench", group="g", deliver="earliest", max_msgs=1000)
            assert isinstance(given, list)
            store.ack("bench", "g", [given[-1].msg_id])


def copying(folder: Path) -> float:
    """Seconds that it takes to read all segments once."""
    started = time.monotonic()
    for segment in sorted(folder.glob("segment-*.log")):
        with (
            segment.open("rb", buffering=0) as file,
            Path(os.devnull).open("wb", buffering=0) as null,
        ):
            while block := file.read(1 << 20):
                null.write(block)
    return time.monotonic() - started


def exporting(data: Path, out: Path) -> tuple[float, Any]:
    """Seconds of an export, and what it did."""
    shutil.rmtree(out, ignore_errors=True)
    # As `mq9 export` does it.
    export = Export(data, out, at_once=True)
    started = time.monotonic()
    summary = export.run()
    seconds = time.monotonic() - started
    export.close()
    return seconds, summary


def rates(folder: Path, megabytes: int, rounds: int) -> dict[str, Any]:
    """Rates of exporting and copying the same log, in MB/s."""
    fill(folder / "data", megabytes)
    copying(folder / "data")
    copied, exported, summary = [], [], None
    for number in range(rounds):
        copied.append(copying(folder / "data"))
        seconds, summary = exporting(folder / "data", folder / "out")
        exported.append(seconds)
        progress(f"round {number + 1}: cat {copied[-1]:.2f} s, export {seconds:.2f} s")
    assert summary is not None
    log_mb = summary.log_bytes / 1e6
    return {
        "log_mb": round(log_mb, 1),
        "file_mb": round(summary.file_bytes / 1e6, 1),
        "rows": summary.messages + summary.events,
        "cat_mb_s": round(log_mb / statistics.median(copied), 1),
        "export_mb_s": round(log_mb / statistics.median(exported), 1),
        "rows_s": round((summary.messages + summary.events) / statistics.median(exported)),
    }


def sending(load: Path, folder: Path, sync: str, seconds: float, export: bool) -> dict[str, Any]:
    """The rate of SEND, with the broker exporting every 100 ms or not at all."""
    folder.mkdir(parents=True)
    settings = folder / "export.conf"
    block = 'export { dir: "out", every: "100ms" }' if export else ""
    settings.write_text(f"mq9 {{ drain_time: 5s\n {block} }}\n", "utf-8")
    serve = [sys.executable, "-m", "mq9", "serve", "-c", str(settings), "--data", "data"]
    contender = Mq9(serve)
    with nats_runs.running([*serve, "--sync", sync], folder) as server:
        contender.create(server.address)
        words = [*contender.send_arguments(), "--connections", CONNECTIONS, "--window", WINDOW]
        words += ["--size", SIZE, "--seconds", seconds, "--warmup", 1]
        words += ["--server", server.address, "--pid", server.pid]
        done = subprocess.run(
            [str(load), *map(str, words)], capture_output=True, text=True, check=False
        )
    if done.returncode != 0:
        raise BenchError(f"the load generator failed: {done.stderr}")
    result: dict[str, Any] = json.loads(done.stdout)
    if export:
        manifest = json.loads((folder / "out" / "manifest.json").read_text("utf-8"))
        result["exported_messages"] = manifest["messages"]["rows"]
    shutil.rmtree(folder)
    return result


def disturbance(load: Path, folder: Path, sync: str, seconds: float, rounds: int) -> dict[str, Any]:
    """Rates of SEND with and without an export, in turns."""
    without, beside, exported = [], [], 0
    for number in range(rounds):
        for export in (False, True) if number % 2 == 0 else (True, False):
            run = sending(load, folder / f"send{number}{export}", sync, seconds, export)
            (beside if export else without).append(float(run["rate"]))
            exported += run.get("exported_messages", 0)
        progress(f"round {number + 1}: {without[-1]:,.0f}/s, exporting {beside[-1]:,.0f}/s")
    drops = [1 - b / a for a, b in zip(without, beside, strict=True)]
    drop = statistics.median(drops)
    return {
        "sync": sync,
        "send_s": round(statistics.median(without)),
        "send_while_exporting_s": round(statistics.median(beside)),
        "drop": round(drop, 3),
        "met": drop <= GOAL_DROP,
        "exported_messages": exported,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and prints; 1 if SEND drops by more than it may."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=512, help="log to export")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5, help="of each run of SEND")
    parser.add_argument("--sync", default="always", choices=("always", "interval", "none"))
    parser.add_argument("--load-cmd", type=Path, help="a built mq9-load; otherwise cargo builds it")
    parser.add_argument("--folder", type=Path, help="where to put data, on a real disk")
    options = parser.parse_args(arguments)
    load = options.load_cmd or nats_runs.build_load()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        result = {
            "rates": rates(Path(folder) / "rates", options.megabytes, options.rounds),
            "send": disturbance(
                load, Path(folder) / "send", options.sync, options.seconds, options.rounds
            ),
        }
    sys.stdout.write(json.dumps(result, indent=2) + "\n")
    return 0 if result["send"]["met"] else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BenchError as error:
        sys.exit(f"bench: {error}")
