"""Rows for the table of faults: tests write them, the command reads them and makes a page of them.

Owns the file between the two and the look of the table. What counts as lost is decided in the
tests.
"""

import json
import os
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

# Where tests leave their rows; without it they leave none.
ROWS = "MQ9_FAULTS_ROWS"

PARTS = {
    "kill": "Kill",
    "power": "Power",
    "disk": "Disk",
    "clock": "Clock",
    "clients": "Clients",
}


@dataclass(frozen=True)
class Row:
    """One kind of fault and what came of it."""

    part: str
    fault: str
    runs: int
    acknowledged: int = 0
    lost: int = 0
    duplicated: int = 0
    ready_s: list[float] = field(default_factory=list)
    fetch_s: list[float] = field(default_factory=list)
    note: str = ""


def record(row: Row) -> None:
    """Leaves a row for the report, if there will be one."""
    if row.part not in PARTS:
        raise ValueError(f"unknown part {row.part!r}")
    if path := os.environ.get(ROWS):
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(row)) + "\n")


def rows(path: Path) -> list[Row]:
    """All rows, those of one part together."""
    if not path.exists():
        return []
    found = [Row(**json.loads(line)) for line in path.read_text("utf-8").splitlines()]
    order = list(PARTS)
    return sorted(found, key=lambda row: order.index(row.part))


def times(seconds: Sequence[float]) -> str:
    """Median and worst."""
    if not seconds:
        return ""
    return f"{statistics.median(seconds):.2f} / {max(seconds):.2f} s"


def table(found: Sequence[Row]) -> str:
    """The rows as a table in Markdown, which people can read as it is."""
    head = ("", "fault", "runs", "acknowledged", "lost", "duplicated", "ready", "first FETCH", "")
    lines = [head]
    for row in found:
        acknowledged = f"{row.acknowledged:,}" if row.acknowledged else ""
        part = PARTS[row.part]
        counts = (str(row.runs), acknowledged, str(row.lost), str(row.duplicated))
        lines.append((part, row.fault, *counts, times(row.ready_s), times(row.fetch_s), row.note))
    widths = [max(len(line[at]) for line in lines) for at in range(len(head))]
    shown = [
        "| "
        + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        + " |"
        for line in lines
    ]
    right = {2, 3, 4, 5}
    rule = ["-" * (width - 1) + (":" if at in right else "-") for at, width in enumerate(widths)]
    return "\n".join([shown[0], "| " + " | ".join(rule) + " |", *shown[1:]])


BEGIN = "<!-- table: written by make faults -->"
END = "<!-- end of table -->"


def write_page(page: Path, found: Sequence[Row], said: str) -> None:
    """Puts the table into the page, between its two marks."""
    before, _, rest = page.read_text("utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    if not after:
        raise ValueError(f"{page.name} has no place for the table: {BEGIN} ... {END}")
    page.write_text(f"{before}{BEGIN}\n\n{said}\n\n{table(found)}\n\n{END}{after}", "utf-8")
