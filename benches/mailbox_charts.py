"""Draws the comparison as PNG pictures, from the result file alone."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from mailbox_rows import PERCENTS
from mailbox_tables import Document, Summary, rows_of, servers_of
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, NullFormatter

DPI = 110
COLOURS = {"mq9": "#2f6db5", "JetStream": "#e08a2e", "Redis": "#b5473c"}
STYLE = {
    "font.size": 9,
    "text.color": "#22303c",
    "axes.edgecolor": "#e3e7ea",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e3e7ea",
    "legend.frameon": False,
}


def write(document: Document, folder: Path) -> list[Path]:
    """One PNG for each picture there are rows for."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    with mpl.rc_context(STYLE):
        for name, draw in PICTURES.items():
            if (figure := draw(document)) is not None:
                written.append(folder / f"benchmarks-{name}.png")
                # Without the date and version that would change with every run.
                figure.savefig(written[-1], dpi=DPI, facecolor="white", metadata={"Software": ""})
    return written


def send(document: Document) -> Figure | None:
    """Rates of SEND, a panel for each sync and size."""
    rows = [row for row in rows_of(document, "send") if "mixed" not in row["row"]]
    panels: dict[str, list[Summary]] = {}
    for row in rows:
        title, _, _load = row["row"].rpartition(", ")
        panels.setdefault(title, []).append(row)
    if not panels:
        return None
    lines = (len(panels) + 1) // 2
    figure = Figure(figsize=(11, 2.9 * lines), layout="constrained")
    grid = figure.subplots(lines, 2, squeeze=False, sharey=True)
    for axes in grid.flat[len(panels) :]:
        axes.set_axis_off()
    for axes, (title, part) in zip(grid.flat, panels.items(), strict=False):
        points(axes, part, servers_of(rows), "rate")
        axes.set_xticks(range(len(part)), [load(row) for row in part])
        axes.set_title(title)
        axes.set_ylabel("messages per second")
    figure.legend(*grid.flat[0].get_legend_handles_labels(), loc="outside upper right", ncols=3)
    return figure


def latency(document: Document) -> Figure | None:
    """Percentiles at parts of each server's peak."""
    rows = rows_of(document, "latency")
    if not rows:
        return None
    figure = Figure(figsize=(11, 3.4 * len(rows)), layout="constrained")
    grid = figure.subplots(len(rows), 3, squeeze=False, sharey="row")
    names = {"p50_us": "p50", "p99_us": "p99", "p999_us": "p99.9"}
    for line, row in zip(grid, rows, strict=True):
        for axes, (name, title) in zip(line, names.items(), strict=True):
            for server in servers_of(rows):
                found = row["contenders"][row["best"][server]]
                values = {
                    part: [found[part][f"{name}_{percent}"] for percent in PERCENTS]
                    for part in ("median", "min", "max")
                }
                axes.plot(PERCENTS, values["median"], "o-", color=COLOURS[server], label=server)
                axes.fill_between(
                    PERCENTS, values["min"], values["max"], color=COLOURS[server], alpha=0.15
                )
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter(EngFormatter(sep=""))
            axes.yaxis.set_minor_formatter(NullFormatter())
            axes.set_xticks(PERCENTS)
            axes.set_title(f"{row['sync']}: {title}")
            axes.set_xlabel("percent of the server's own peak")
        line[0].set_ylabel("microseconds")
    figure.legend(*grid.flat[0].get_legend_handles_labels(), loc="outside upper right", ncols=3)
    return figure


def resources(document: Document) -> Figure | None:
    """Memory, processor and time of what is not a rate."""
    wanted = [
        ("create", "interval", "bytes_each", "memory of an empty mailbox or stream, KB", 1e-3),
        ("create", "interval", "rate", "mailboxes or streams created, thousands/s", 1e-3),
        ("backlog", "interval", "resident_bytes", "memory with the backlog, MB", 1e-6),
        ("backlog", "interval", "restart_s", "restart with the backlog, s", 1.0),
        ("backlog", "interval", "fetch_rate", "FETCH+ACK of the backlog, thousands/s", 1e-3),
        ("wait", "interval", "idle_percent", "clients waiting: processor, percent", 1.0),
    ]
    found = [
        (row, name, title, scale)
        for kind, sync, name, title, scale in wanted
        for row in rows_of(document, kind)
        if row["sync"] == sync
    ]
    if not found:
        return None
    lines = (len(found) + 2) // 3
    figure = Figure(figsize=(11, 2.6 * lines), layout="constrained")
    grid = figure.subplots(lines, 3, squeeze=False)
    for axes in grid.flat[len(found) :]:
        axes.set_axis_off()
    for axes, (row, name, title, scale) in zip(grid.flat, found, strict=False):
        servers = servers_of([row])
        numbers = [row["contenders"][row["best"][server]] for server in servers]
        values = [scale * number["median"][name] for number in numbers]
        colours, spread = [COLOURS[server] for server in servers], errors(numbers, name, scale)
        drawn = axes.bar(servers, values, color=colours, yerr=spread)
        axes.bar_label(
            drawn, [f"{value:,.0f}" if value >= 100 else f"{value:.3g}" for value in values]
        )
        axes.set_title(title)
        axes.grid(axis="x", visible=False)
        axes.margins(y=0.18)
        axes.set_ylim(bottom=0)
    return figure


def points(
    axes: Any,  # noqa: ANN401
    rows: Sequence[Summary],
    servers: Sequence[str],
    name: str,
) -> None:
    """A group of points for each row, with the spread of the rounds."""
    for at, server in enumerate(servers):
        there = [(place, row) for place, row in enumerate(rows) if server in row["best"]]
        numbers = [row["contenders"][row["best"][server]] for _, row in there]
        axes.errorbar(
            [place + (at - (len(servers) - 1) / 2) * 0.2 for place, _ in there],
            [number["median"][name] for number in numbers],
            yerr=errors(numbers, name, 1.0),
            fmt="o",
            label=server,
            color=COLOURS[server],
            elinewidth=1,
        )
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(EngFormatter(sep=""))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.grid(axis="x", visible=False)


def load(row: Summary) -> str:
    """Connections and requests under way, in two lines."""
    text: str = row["row"].rpartition(", ")[2]
    return text.replace(" x ", " x\n")


def errors(numbers: Sequence[Mapping[str, Any]], name: str, scale: float) -> list[list[float]]:
    """How far least and most are from the median."""
    return [
        [scale * (number["median"][name] - number["min"][name]) for number in numbers],
        [scale * (number["max"][name] - number["median"][name]) for number in numbers],
    ]


PICTURES: Mapping[str, Callable[[Document], Figure | None]] = {
    "send": send,
    "latency": latency,
    "wait": resources,
}
