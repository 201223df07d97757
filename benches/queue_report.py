"""The table, the page and the picture of work queues, made from the result file alone."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bystander_report import about as about_machine
from mailbox_report import put
from mailbox_tables import markdown, ratio_text
from nats_core import micros, rate

PAGE, PICTURE = "benchmarks-queues.md", "img/benchmarks-queues.png"
COMMAND = "make bench-queues"
COLOURS = {"mq9": "#2f6db5", "nats-server": "#e08a2e"}
TITLE = "Messages per second through work queues: published, and taken and acknowledged"
# How the rows of a panel begin, what the panel is called, and what its rows differ in.
PANELS = (
    ("PUBLISH interval", "publish, synced once a second", "connections x in flight"),
    ("PUBLISH always", "publish, synced at once", "connections x in flight"),
    ("FETCH+ACK", "fetch + ack", "batch, workers"),
    ("FILTER", "1 of 1,000 subjects", "batch, workers"),
)

Document = Mapping[str, Any]
Summary = Mapping[str, Any]


def table(document: Document) -> str:
    """A line for each row."""
    lines = [["", *COLOURS, "times", "by round", "goal", "met"]]
    lines[0] += [f"{server} {number}" for number in ("p99", "CPU") for server in COLOURS]
    lines[0] += ["others, cores"]
    for row in document["rows"]:
        servers = row["servers"]
        there = [server for server in COLOURS if server in servers]
        cells = [row["row"], *(shown(servers, server, "rate") for server in COLOURS)]
        cells += verdict(row)
        for number in ("p99", "server_cpu_us"):
            cells += [shown(servers, server, number) for server in COLOURS]
        cells.append(f"{max(servers[server]['others_cores'] for server in there):.2f}")
        lines.append(cells)
    return markdown(lines)


def shown(servers: Mapping[str, Any], server: str, number: str) -> str:
    """A number of a server, for people."""
    found = servers.get(server)
    if found is None:
        return ""
    return rate(found[number]) if number == "rate" else micros(found[number])


def verdict(row: Summary) -> list[str]:
    """How far ahead we are, and whether that is what was meant to be."""
    if row["ratio"] is None:
        return ["", "", f"{row['goal']:g}", ""]
    least, most = min(row["ratios_by_round"]), max(row["ratios_by_round"])
    by_round = f"{ratio_text(least)} to {ratio_text(most)}"
    met = "yes" if row["ratio"] >= row["goal"] else "**no**"
    return [ratio_text(row["ratio"]), by_round, f"{row['goal']:g}", met]


def missed(document: Document) -> str:
    """Which rows fall short of their goals."""
    short = [row for row in document["rows"] if row["ratio"] and row["ratio"] < row["goal"]]
    if not short:
        return "Every row meets its goal."
    lines = [f"- {row['row']}: {ratio_text(row['ratio'])} of {row['goal']:g}" for row in short]
    return "\n".join(["These rows miss their goals:", "", *lines])


def about(document: Document) -> str:
    """On what and how it was measured."""
    versions = document["versions"].items()
    shown = ", ".join(text if name in text else f"{name} {text}" for name, text in versions)
    return f"{about_machine(document)} {shown}."


def write(document: Document, docs: Path) -> list[Path]:
    """The page and the picture in `docs`; what was written."""
    page, picture = docs / PAGE, docs / PICTURE
    text = page.read_text("utf-8")
    blocks = {"about": about(document), "missed": missed(document), "table": table(document)}
    blocks["picture"] = f"![{TITLE}]({PICTURE})"
    for name, block in blocks.items():
        text = put(text, name, block, PAGE, COMMAND)
    draw(document, picture)
    page.write_text(text, "utf-8")
    return [page, picture]


def draw(document: Document, path: Path) -> None:
    """A panel for each kind of row: the rates of both, the ratio above."""
    # Drawing takes seconds to load, and is not always wanted.
    import matplotlib as mpl
    from mailbox_charts import DPI, STYLE
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(11, 6.6), layout="constrained")
        for axes, (start, title, what) in zip(
            figure.subplots(2, 2, sharey=True).flat, PANELS, strict=True
        ):
            rows = [row for row in document["rows"] if row["row"].startswith(start)]
            draw_panel(axes, rows, start)
            axes.set_title(title)
            axes.set_xlabel(what)
            axes.set_ylabel("messages per second (higher is better)")
        handles = [
            Line2D([], [], color=c, linewidth=5, label=label) for label, c in COLOURS.items()
        ]
        figure.suptitle("Work queues", x=0.01, ha="left", fontsize=11, fontweight="bold")
        figure.legend(handles=handles, loc="outside upper right", ncols=len(handles))
        note = "Medians of the rounds. Above the bars: how many times as fast mq9 is."
        figure.supxlabel(note, x=0.01, ha="left", fontsize=8)
        path.parent.mkdir(parents=True, exist_ok=True)
        # Without the date and version that would change with every run.
        figure.savefig(path, dpi=DPI, facecolor="white", metadata={"Software": ""})


def draw_panel(axes: Any, rows: list[Summary], start: str) -> None:  # noqa: ANN401
    """A pair of bars for each row."""
    from matplotlib.ticker import EngFormatter, NullFormatter

    axes.set_yscale("log")
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_formatter(EngFormatter(sep=""))
    axes.grid(axis="x", visible=False)
    for at, row in enumerate(rows):
        for place, (server, colour) in enumerate(COLOURS.items()):
            if server in row["servers"]:
                rate = row["servers"][server]["rate"]
                axes.bar(at + (place - 0.5) * 0.4, rate, width=0.38, color=colour)
        if row["ratio"] is not None:
            top = max(found["rate"] for found in row["servers"].values())
            axes.annotate(
                ratio_text(row["ratio"]),
                (at, top),
                xytext=(0, 2),
                textcoords="offset points",
                ha="center",
                fontsize=8,
            )
    names = [row["row"].removeprefix(start).strip(", ") for row in rows]
    # On two lines: long ones would run into each other.
    names = [re.sub(r"(?<= x) |, ", "\n", name.removeprefix("batches of ")) for name in names]
    axes.set_xticks(range(len(rows)), names, fontsize=8)
    axes.margins(y=0.15)
