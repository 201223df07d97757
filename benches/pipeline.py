"""Whether the Spark pipeline's cost grows with the number of messages and not faster.

    python benches/pipeline.py [--millions 1 2 4] [--stream]

Generates exports, runs the batch job over each in a process of its own, and prints seconds per
million messages. Results land in .build/bench-pipeline, as JSON.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / ".build" / "bench-pipeline"
MILLION = 1_000_000

Result = dict[str, Any]


def main() -> None:
    """Reads the command line and does it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--millions", type=float, nargs="+", default=[1, 2, 4])
    parser.add_argument("--memory", default="4g", help="heap of Spark")
    parser.add_argument("--parallelism", type=int, default=8, help="tasks of a shuffle")
    parser.add_argument("--stream", action="store_true", help="the stream job as well")
    asked = parser.parse_args()
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    results = [measure(millions, asked) for millions in asked.millions]
    (FOLDER / "results.json").write_text(json.dumps(results, indent=2), "utf-8")
    print(table(results))


def measure(millions: float, asked: argparse.Namespace) -> Result:
    """One size: made, worked through, removed."""
    export, tables = FOLDER / "export", FOLDER / "tables"
    count = int(millions * MILLION)
    result: Result = {"messages": count}
    result["generate_s"] = run("generate.py", str(export), "--messages", str(count))
    result["export_bytes"] = sum(file.stat().st_size for file in export.rglob("*.parquet"))
    flags = ["--memory", asked.memory, "--parallelism", str(asked.parallelism)]
    result["batch_s"] = run("batch_job.py", str(export), str(tables), *flags)
    if asked.stream:
        streamed = FOLDER / "streamed"
        files = ["--files", "64"]
        result["stream_s"] = run("stream_job.py", str(export), str(streamed), *flags, *files)
        shutil.rmtree(streamed)
    shutil.rmtree(export)
    shutil.rmtree(tables)
    print(table([result]).splitlines()[-1], flush=True)
    return result


def run(script: str, *arguments: str) -> float:
    """Seconds that a job takes, the start of its Spark included."""
    environment = os.environ | {
        "PYTHONPATH": f"{ROOT / 'python'}:{os.environ.get('PYTHONPATH', '')}"
    }
    start = time.monotonic()
    done = subprocess.run(
        [sys.executable, str(ROOT / "spark" / script), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{script} failed:\n{done.stdout}\n{done.stderr}")
    return round(time.monotonic() - start, 1)


def table(results: list[Result]) -> str:
    """The results as a table in Markdown."""
    streams = any("stream_s" in result for result in results)
    head = "| messages | export MB | batch s | s per million |" + " stream s |" * streams
    lines = [head, "| ---: " * (4 + streams) + "|"]
    for result in results:
        millions = result["messages"] / MILLION
        cells = [
            f"{result['messages']:,}",
            f"{result['export_bytes'] / 1e6:.0f}",
            f"{result['batch_s']:.1f}",
            f"{result['batch_s'] / millions:.1f}",
        ]
        if streams:
            cells.append(f"{result['stream_s']:.1f}")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
