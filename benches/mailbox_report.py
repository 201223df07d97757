"""Puts what was measured into the page of benchmarks: tables between its marks, and pictures.

Everything outside of the marks is written by people and stays.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mailbox_results import OURS, PEERS
from mailbox_tables import Document, Summary, markdown, ratio_text, size, tables
from nats_core import micros
from nats_runs import BenchError

PAGE, PICTURES = "benchmarks.md", "img"
# Each picture is below the table of the same name.
TITLES = {
    "send": "Rates of SEND, higher is better, with the slowest and fastest round",
    "latency": "Latency in ms at parts of each server's own peak, lower is better",
    "wait": "Memory, restart, rates, and processor time while clients wait",
}


def write(document: Document, results: Path, docs: Path) -> list[Path]:
    """The page and the pictures in `docs`; what was written."""
    page = docs / PAGE
    text = page.read_text("utf-8")
    python = results / "python.json"
    blocks = tables(document) | {"about": about(document), "behind": behind(document)}
    if python.exists():
        blocks["python"] = python_table(json.loads(python.read_text("utf-8")))
    for name, block in blocks.items():
        text = put(text, name, block)
    # Drawing takes seconds to load, and is not always wanted.
    import mailbox_charts

    written = mailbox_charts.write(document, docs / PICTURES)
    for name, title in TITLES.items():
        picture = docs / PICTURES / f"benchmarks-{name}.png"
        if picture in written and name in blocks:
            text = put(text, name, f"{blocks[name]}\n\n![{title}]({PICTURES}/{picture.name})")
    page.write_text(text, "utf-8")
    return [page, *written]


def put(text: str, name: str, block: str, page: str = PAGE, command: str = "make bench") -> str:
    """The text with the block between the marks of this name."""
    begin, end = f"<!-- {name}: written by {command} -->", f"<!-- end of {name} -->"
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise BenchError(f"{page} has no place for the block: {begin} ... {end}")
    return f"{before}{begin}\n\n{block}\n\n{end}{after}"


def about(document: Document) -> str:
    """On what, with what and how everything was measured."""
    machine, versions = document["machine"], document["versions"]
    kernel = ".".join(machine["system"].split(".")[:2])
    lines = [
        f"- {machine['cores']} cores of {machine['processor']}, {size(machine['memory_bytes'])} of "
        f"memory, {kernel}, {machine['file_system']}, Python {machine['python']}",
        f"- {', '.join(f'{name}: {short(text)}' for name, text in versions.items())}",
    ]
    by_settings: dict[tuple[str, str], list[str]] = {}
    for row in document["rows"]:
        by_settings.setdefault((row["measured"], settings(row["settings"])), []).append(row["row"])
    for (day, words), rows in sorted(by_settings.items(), key=lambda item: -len(item[1])):
        which = "all rows" if len(by_settings) == 1 else f"{len(rows)} rows"
        if len(by_settings) > 1 and len(rows) <= 4:
            which = ", ".join(rows)
        lines.append(f"- {which}: {day}, `{words}`")
    return "\n".join(lines)


def short(text: str) -> str:
    """The version out of what a server says."""
    found = re.search(r"\d+\.\d+[\w.]*", text)
    return found[0] if found else text


def settings(found: Mapping[str, Any]) -> str:
    """The options that numbers were measured with."""
    numbers = ((name, value) for name, value in found.items() if not isinstance(value, bool))
    words = [f"--{name.replace('_', '-')} {value:g}" for name, value in numbers]
    return " ".join([*words, *(["--quick"] if found["quick"] else [])])


# Numbers of which less is better. Latencies are left out: each is at the server's own peak.
LESS = {
    "create": {"bytes_each": "memory each"},
    "backlog": {"resident_bytes": "memory", "restart_s": "restart"},
    "wait": {"idle_percent": "idle processor", "p50_us": "wake-up p50", "p99_us": "wake-up p99"},
}


def behind(document: Document) -> str:
    """The numbers in which mq9 is below its goal, or behind a peer."""
    lines = []
    for row in document["rows"]:
        for peer, compared in row["peers"].items():
            goal = compared["goal"] or 1.0
            if compared["ratio"] < goal:
                lines.append([row["row"], peer, ratio_text(compared["ratio"]), f"{goal:g}"])
        for name, called in LESS.get(row["kind"], {}).items():
            lines += [
                [f"{row['row']}: {called}", peer, ratio_text(theirs / ours), "1"]
                for peer in PEERS
                if (theirs := median(row, peer, name)) < (ours := median(row, OURS, name))
            ]
    head = ["", "to", "ratio", "goal"]
    return markdown([head, *lines]) if lines else "None."


def median(row: Summary, server: str, name: str) -> float:
    """The median of a number; more than any if it was not measured."""
    way = row["best"].get(server)
    return math.inf if way is None else float(row["contenders"][way]["median"][name])


def python_table(document: Mapping[str, Any]) -> str:
    """What pytest-benchmark has measured."""
    lines: list[Sequence[str]] = [["", "median", "quartiles", "messages per second"]]
    for bench in document["benchmarks"]:
        stats, info = bench["stats"], bench["extra_info"]
        quartiles = f"{micros(stats['q1'] * 1e6)} to {micros(stats['q3'] * 1e6)}"
        each = f"{info['messages'] / stats['median']:,.0f}"
        lines.append([info["what"], micros(stats["median"] * 1e6), quartiles, each])
    return markdown(lines)
