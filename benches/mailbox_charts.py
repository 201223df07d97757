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
    figure = Figure(figsize=(11, 3.1 * lines + 0.6), layout="constrained")
    grid = figure.subplots(lines, 2, squeeze=False, sharey=True)
    for axes in grid.flat[len(panels) :]:
        axes.set_axis_off()
    for axes, (title, part) in zip(grid.flat, panels.items(), strict=False):
        points(axes, part, servers_of(rows), "rate")
        axes.set_xticks(range(len(part)), [load(row) for row in part])
        axes.set_title(title_of(title))
        axes.set_xlabel("connections x requests under way on each")
        axes.set_ylabel("messages stored per second")
    label(figure, grid.flat[0], "Rate of SEND, higher is better", POINTS)
    return figure


def latency(document: Document) -> Figure | None:
    """Percentiles at parts of each server's peak."""
    rows = rows_of(document, "latency")
    if not rows:
        return None
    figure = Figure(figsize=(11, 3.3 * len(rows) + 0.6), layout="constrained")
    grid = figure.subplots(len(rows), 3, squeeze=False, sharey=True)
    names = {"p50_us": "half (p50)", "p99_us": "99 of 100 (p99)", "p999_us": "999 of 1,000 (p99.9)"}
    for line, row in zip(grid, rows, strict=True):
        for axes, (name, title) in zip(line, names.items(), strict=True):
            for at, server in enumerate(servers_of(rows)):
                found = row["contenders"][row["best"][server]]
                values = {
                    part: [found[part][f"{name}_{percent}"] / 1000 for percent in PERCENTS]
                    for part in ("median", "min", "max")
                }
                # Side by side, so that no line hides another.
                places = [percent + 1.2 * (at - 1) for percent in PERCENTS]
                axes.plot(places, values["median"], "o-", color=COLOURS[server], label=server)
                if name == "p99_us":
                    axes.vlines(places, values["min"], values["max"], color=COLOURS[server])
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter(plain)
            axes.yaxis.set_minor_formatter(NullFormatter())
            axes.set_xticks(PERCENTS)
            axes.set_xlim(10, 90)
            axes.set_title(f"sync = {row['sync']}: {title}")
            axes.set_xlabel("load, percent of the server's own peak")
        line[0].set_ylabel("ms from due to stored")
    note = (
        "Points: median of the rounds. Lines down and up (p99 only): the best and the worst round."
    )
    label(figure, grid.flat[0], "Latency of SEND, lower is better", note)
    return figure


def resources(document: Document) -> Figure | None:
    """Memory, processor and time of what is not a rate."""
    lower, higher = "lower is better", "higher is better"
    wanted = [
        ("create", "bytes_each", "an empty mailbox or stream", f"KB of memory ({lower})", 1e-3),
        (
            "create",
            "rate",
            "creating mailboxes or streams",
            f"thousands per second ({higher})",
            1e-3,
        ),
        (
            "backlog",
            "resident_bytes",
            "backlog of 5 million messages",
            f"MB of memory ({lower})",
            1e-6,
        ),
        ("backlog", "restart_s", "restart with the backlog", f"seconds ({lower})", 1.0),
        (
            "backlog",
            "fetch_rate",
            "FETCH+ACK of the backlog",
            f"thousands per second ({higher})",
            1e-3,
        ),
        ("wait", "idle_percent", "1,000 clients that wait", f"percent of a core ({lower})", 1.0),
    ]
    found = [
        (row, name, title, unit, scale)
        for kind, name, title, unit, scale in wanted
        for row in rows_of(document, kind)
        if row["sync"] == "interval"
    ]
    if not found:
        return None
    lines = (len(found) + 2) // 3
    figure = Figure(figsize=(11, 2.9 * lines + 0.5), layout="constrained")
    grid = figure.subplots(lines, 3, squeeze=False)
    for axes in grid.flat[len(found) :]:
        axes.set_axis_off()
    for axes, (row, name, title, unit, scale) in zip(grid.flat, found, strict=False):
        servers = servers_of([row])
        numbers = [row["contenders"][row["best"][server]] for server in servers]
        values = [scale * number["median"][name] for number in numbers]
        colours, spread = [COLOURS[server] for server in servers], errors(numbers, name, scale)
        drawn = axes.bar(servers, values, color=colours)
        if any(map(any, spread)):
            axes.errorbar(servers, values, yerr=spread, fmt="none", color="#22303c", elinewidth=1)
        texts = [f"{value:,.0f}" if value >= 100 else f"{value:.3g}" for value in values]
        # Within a bar that reaches up to it, or a line of the spread, it could not be read.
        for bar, text, above in zip(drawn, texts, spread[1], strict=True):
            top = bar.get_height() + above
            axes.annotate(
                text,
                (bar.get_x() + bar.get_width() / 2, top),
                xytext=(0, 2),
                textcoords="offset points",
                ha="center",
            )
        axes.set_title(title)
        axes.set_ylabel(unit)
        axes.grid(axis="x", visible=False)
        axes.margins(y=0.18)
        axes.set_ylim(bottom=0)
    note = (
        "Bars: median of the rounds. Lines, where there was more than one: the least and the most."
    )
    label(figure, None, "Memory, restart and waiting, sync = interval", note)
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


POINTS = (
    "Points: median of the rounds; lines down and up: the slowest and the fastest round. "
    "No point: it did not answer in time."
)


def label(figure: Figure, named: Any, title: str, note: str) -> None:  # noqa: ANN401
    """What the picture shows, which colour is whose, and how to read it."""
    figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold")
    figure.supxlabel(note, x=0.01, ha="left", fontsize=8.5)
    if named is not None:
        figure.legend(*named.get_legend_handles_labels(), loc="upper right", ncols=3)


def title_of(row: str) -> str:
    """`SEND always, 1 KiB` for people who do not know what is sent."""
    _, sync, size = row.replace(",", "").split(" ", 2)
    return f"sync = {sync}, messages of {size}"


def plain(value: float, _position: int) -> str:
    """0.1, 1, 10, 1,000."""
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


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
