"""The Spark jobs before and after, with DuckDB beside them; 90 days of a stream; skewed mailboxes.

    python benches/lake.py [--millions 1 4 20] [--days 90] [--before COMMIT] [--report]

Results land in .build/bench-lake, as JSON, and with --report in docs/benchmarks.md. They are
written after each run: a goal that is missed and a job that fails are results too. Every run is a
process of its own. Processor time is that of all processes it started; it says more than seconds
where others use the machine.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lake_report
import psutil
from nats_core import progress

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / ".build" / "bench-lake"
MILLION = 1_000_000
# The last commit with the old jobs.
BEFORE = "cacfd1f62df00eecba30f0d5284cfce44ce56735"
LOOK_S = 0.1

Result = dict[str, Any]


def main() -> None:
    """Reads the command line and does it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--millions", type=float, nargs="+", default=[1, 4, 20])
    parser.add_argument("--memory", default="4g", help="heap of Spark")
    parser.add_argument("--days", type=int, default=90, help="of the stream; 0: without it")
    parser.add_argument("--a-day", type=int, default=2000, help="messages of a simulated day")
    parser.add_argument("--before", default=BEFORE, help="commit of the old jobs; '': without")
    parser.add_argument(
        "--before-most", type=float, default=4, help="most millions that the old jobs are given"
    )
    parser.add_argument("--report", action="store_true", help="write docs/benchmarks.md")
    parser.add_argument("--stored", action="store_true", help="with what was measured last")
    asked = parser.parse_args()
    file = FOLDER / "results.json"
    result = json.loads(file.read_text("utf-8")) if asked.stored else kept(asked, file)
    if asked.report:
        lake_report.write(result, ROOT / "docs")
    print(lake_report.tables(result))


def kept(asked: argparse.Namespace, file: Path) -> Result:
    """All of it; what was measured so far is in the file after each run."""
    if file.exists():
        file.replace(FOLDER.with_name("bench-lake-earlier.json"))
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    result: Result = {"cores": os.cpu_count(), "memory": asked.memory, "sizes": []}
    for what in measured(asked, result):
        file.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
        progress(what)
    return result


def measured(asked: argparse.Namespace, result: Result) -> Iterator[str]:
    """Adds one run after the other to the result, and says which."""
    old = worktree(asked.before) if asked.before else None
    for millions in asked.millions:
        yield from size(millions, old, asked, result["sizes"])
    result["skew"] = {}
    yield from skew(asked, result["skew"])
    if asked.days:
        days = [str(FOLDER / "days"), "--days", str(asked.days), "--a-day", str(asked.a_day)]
        told = run([str(ROOT / "benches" / "lake_days.py"), *days])
        # The program ends with an error if something grew: it has told what, all the same.
        lines = told.pop("out").splitlines()
        result["days"] = {**(json.loads(lines[-1]) if lines else {}), "run": told}
        shutil.rmtree(FOLDER / "days", ignore_errors=True)
        yield f"a stream: {told}"
    if old is not None:
        subprocess.run(["git", "worktree", "remove", "--force", str(old)], cwd=ROOT, check=True)


def worktree(commit: str) -> Path | None:
    """The files of a commit; None if this clone does not have it."""
    folder = FOLDER / "before"
    subprocess.run(["git", "worktree", "prune"], cwd=ROOT, check=True)
    made = subprocess.run(
        ["git", "worktree", "add", "--detach", str(folder), commit],
        cwd=ROOT,
        check=False,
        capture_output=True,
    )
    if made.returncode:
        return None
    # The old jobs import the native module, but call nothing in it.
    for module in (ROOT / "python" / "mq9").glob("_core*.so"):
        (folder / "python" / "mq9" / module.name).unlink(missing_ok=True)
        (folder / "python" / "mq9" / module.name).symlink_to(module)
    return folder


def size(
    millions: float, old: Path | None, asked: argparse.Namespace, sizes: list[Result]
) -> Iterator[str]:
    """One size: generated, worked through by everybody, removed."""
    export, out = FOLDER / "export", FOLDER / "out"
    count = int(millions * MILLION)
    generate(export, "--messages", str(count))
    result: Result = {
        "messages": count,
        "export_bytes": sum(file.stat().st_size for file in export.rglob("*.parquet")),
    }
    sizes.append(result)
    runs = {
        "duckdb": lambda: run(
            [str(ROOT / "benches" / "lake_duckdb.py"), str(export), str(out)], out=out
        ),
        "after": lambda: batch(ROOT, export, out, asked),
    }
    if old is not None and millions <= asked.before_most:
        runs["before"] = lambda: batch(old, export, out, asked)
    for name, measure in runs.items():
        result[name] = measure()
        del result[name]["out"]
        yield f"{count:,} messages, {name}: {result[name]}"
    shutil.rmtree(export)


def skew(asked: argparse.Namespace, result: Result) -> Iterator[str]:
    """A million messages, even and with half of all in one mailbox."""
    for name, share in (("even", "0"), ("skewed", "0.5")):
        export = FOLDER / "export"
        generate(
            export,
            "--messages",
            str(min(MILLION, int(asked.millions[0] * MILLION))),
            "--hot-share",
            share,
        )
        result[name] = batch(ROOT, export, FOLDER / "out", asked)
        del result[name]["out"]
        shutil.rmtree(export)
        yield f"{name}: {result[name]}"


def generate(export: Path, *words: str) -> None:
    """An export."""
    script = str(ROOT / "spark" / "generate.py")
    subprocess.run(
        [sys.executable, script, str(export), *words],
        env=environment(ROOT),
        check=True,
        stdout=subprocess.DEVNULL,
    )


def batch(root: Path, export: Path, out: Path, asked: argparse.Namespace) -> Result:
    """The batch job of some version."""
    words = [str(export), str(out), "--memory", asked.memory]
    if root != ROOT:
        words += ["--parallelism", "8"]
    return run([str(root / "spark" / "batch_job.py"), *words], root, out)


def environment(root: Path) -> dict[str, str]:
    """Has Python take the package of a version."""
    paths = (root / "python", root / "spark", FOLDER.parent / "duckdb")
    return os.environ | {"PYTHONPATH": ":".join(map(str, paths))}


def run(words: list[str], root: Path = ROOT, out: Path | None = None) -> Result:
    """Seconds, processor seconds and most memory of a program with all that it starts.

    One that failed has its last words in `failed`.
    """
    start = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, *words],
        env=environment(root),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    watched = Watch(process.pid)
    told, errors = process.communicate()
    seconds = time.monotonic() - start
    watched.ended.set()
    watched.join()
    if out is not None:
        shutil.rmtree(out, ignore_errors=True)
    failed: Result = {}
    if process.returncode:
        sys.stderr.write(errors)
        said = errors.strip().splitlines() or [f"exit code {process.returncode}"]
        failed["failed"] = said[-1]
    return {
        **failed,
        "s": round(seconds, 1),
        "cpu_s": round(sum(watched.spent.values()), 1),
        "java_mb": round(watched.java / 1e6),
        "all_mb": round(watched.most / 1e6),
        "out": told,
    }


class Watch(threading.Thread):
    """Looks at a process and all that it started, until it has ended."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.root = psutil.Process(pid)
        self.ended = threading.Event()
        self.spent: dict[tuple[int, float], float] = {}
        self.most = self.java = 0
        self.start()

    def run(self) -> None:
        """Notes what each process has used so far; what ends between two looks is not seen."""
        while not self.ended.wait(LOOK_S):
            try:
                found = [self.root, *self.root.children(recursive=True)]
            except psutil.Error:
                continue
            everything = 0
            for process in found:
                try:
                    times, used = process.cpu_times(), process.memory_info().rss
                    self.spent[process.pid, process.create_time()] = times.user + times.system
                    everything += used
                    if process.name() == "java":
                        self.java = max(self.java, used)
                except psutil.Error:
                    continue
            self.most = max(self.most, everything)


if __name__ == "__main__":
    main()
