"""Puts what was measured into the page of benchmarks: tables between its marks, and pictures.

Everything outside of the marks is written by people and stays.
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import mailbox_charts
from mailbox_tables import Document, markdown, ratio_text, tables
from nats_core import micros
from nats_runs import BenchError

PAGE, PICTURES = "benchmarks.md", "img"


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
    written = mailbox_charts.write(document, docs / PICTURES)
    page.write_text(text, "utf-8")
    return [page, *written]


def put(text: str, name: str, block: str) -> str:
    """The text with the block between the marks of this name."""
    begin, end = f"<!-- {name}: written by make bench -->", f"<!-- end of {name} -->"
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise BenchError(f"{PAGE} has no place for the block: {begin} ... {end}")
    return f"{before}{begin}\n\n{block}\n\n{end}{after}"


def about(document: Document) -> str:
    """On what, with what and how everything was measured."""
    machine, versions = document["machine"], document["versions"]
    lines = [
        f"- {machine['cores']} cores of {machine['processor']}, {machine['system']}, "
        f"Python {machine['python']}",
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
    words = [
        f"--{name.replace('_', '-')} {value:g}"
        for name, value in found.items()
        if not isinstance(value, bool)
    ]
    return " ".join([*words, *(f"--{name}" for name in ("awake", "quick") if found[name])])


def behind(document: Document) -> str:
    """The rows in which mq9 is below its goal, or below a peer."""
    lines = []
    for row in document["rows"]:
        for peer, compared in row["peers"].items():
            goal = compared["goal"] or 1.0
            if compared["ratio"] < goal:
                ratio = ratio_text(compared["ratio"])
                lines.append([row["row"], peer, ratio, f"{goal:g}"])
    head = ["", "to", "ratio", "goal"]
    return markdown([head, *lines]) if lines else "None."


def python_table(document: Mapping[str, Any]) -> str:
    """What pytest-benchmark has measured."""
    head = ["", "median of a call", "from quartile to quartile", "calls per second"]
    lines: list[Sequence[str]] = [head]
    for bench in document["benchmarks"]:
        stats, info = bench["stats"], bench.get("extra_info", {})
        name = info.get("what", bench["name"])
        quartiles = f"{micros(stats['q1'] * 1e6)} to {micros(stats['q3'] * 1e6)}"
        each = f"{1 / stats['median']:,.0f}"
        if messages := info.get("messages"):
            each += f" ({messages / stats['median']:,.0f} messages)"
        lines.append([name, micros(stats["median"] * 1e6), quartiles, each])
    return markdown(lines)
