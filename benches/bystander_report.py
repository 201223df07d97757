"""The table, the page and the picture of SENDs beside others, made from the result file alone."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mailbox_report import put
from mailbox_tables import markdown
from nats_core import rate

PAGE, PICTURE = "benchmarks-bystanders.md", "img/benchmarks-bystanders.png"
COMMAND = "make bench-bystanders"
STATES = {"quiet": "#8a99a6", "beside": "#2f6db5"}
PERCENTILES = {"p50": "|", "p99": "o", "max": "x"}
# What the picture calls installations that are compared with themselves.
PANELS = {"now": "ordinary priority", "now, first in line": "real-time priority (first in line)"}
TITLE = "Latency of a SEND while others keep the broker busy, lower is better"
NOTE = (
    "From the tick to the cross: p50 (tick), p99 (point) and the longest (cross), medians of the "
    "rounds. Numbers: p99 beside / p99 quiet,\nthe median of the rounds' ratios and, in brackets, "
    "the least and the most. With points far apart and a wide range, the machine had other work."
)

Document = Mapping[str, Any]


def ms(micros: float) -> str:
    """Milliseconds for people."""
    return f"{micros / 1000:.3g} ms" if micros < 100_000 else f"{micros / 1000:.0f} ms"


def table(document: Document) -> str:
    """A line for each row and installation."""
    head = ["beside", "", "quiet p50", "p99", "max", "beside p50", "p99", "max"]
    head += ["p99 ratio", "by round", "meanwhile", "broker", "others"]
    lines = [head]
    for row in document["rows"]:
        for name, found in row["sites"].items():
            quiet, beside = found["medians_us"]["quiet"], found["medians_us"]["beside"]
            ratios = found["ratios_by_round"]["p99"]
            cells = [row["title"], name]
            cells += [ms(state[part]) for state in (quiet, beside) for part in PERCENTILES]
            cells += [f"{found['ratio']['p99']:.2f}", f"{min(ratios):.2f} to {max(ratios):.2f}"]
            cells += [meanwhile(row, found), f"{beside['server_cores']:.2f}"]
            cells += [f"{quiet['others_cores']:.2f}, {beside['others_cores']:.2f}"]
            lines.append(cells)
    return markdown(lines)


def meanwhile(row: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    """How much of the trouble there was."""
    text = f"{rate(found['noise_per_second'])} {row['unit']}"
    longest_s = found["noise_longest_s"]
    return f"{text}, up to {longest_s * 1000:.0f} ms" if longest_s else text


def about(document: Document) -> str:
    """On what and how it was measured."""
    machine, settings = document["machine"], document["settings"]
    kernel = ".".join(machine["system"].split(".")[:2])
    words = " ".join(
        f"--{name} {value}" for name, value in settings.items() if not isinstance(value, bool)
    )
    return (
        f"{machine['cores']} cores of {machine['processor']}, {kernel}, {machine['file_system']}, "
        f"Python {machine['python']}; {document['measured']}, `{words}`."
    )


def write(document: Document, docs: Path) -> list[Path]:
    """The page and the picture in `docs`; what was written."""
    page, picture = docs / PAGE, docs / PICTURE
    text = page.read_text("utf-8")
    title = "Latency of a SEND on a quiet broker and beside others, milliseconds, lower is better"
    blocks = {"about": about(document), "table": table(document)}
    blocks["picture"] = f"![{title}]({PICTURE})"
    for name, block in blocks.items():
        text = put(text, name, block, PAGE, COMMAND)
    draw(document, picture)
    page.write_text(text, "utf-8")
    return [page, picture]


def draw(document: Document, path: Path) -> None:
    """A panel for each installation; in it a line from p50 to the longest for each state."""
    # Drawing takes seconds to load, and is not always wanted.
    import matplotlib as mpl
    from mailbox_charts import DPI, STYLE
    from matplotlib.figure import Figure
    from matplotlib.ticker import NullFormatter

    rows = document["rows"]
    names = list(dict.fromkeys(name for row in rows for name in row["sites"]))
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(11, 2.2 + 0.62 * len(rows)), layout="constrained")
        panels = figure.subplots(1, len(names), squeeze=False, sharex=True, sharey=True)[0]
        for axes, name in zip(panels, names, strict=True):
            for at, row in enumerate(rows):
                if name in row["sites"]:
                    draw_row(axes, at, row["sites"][name])
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
            axes.xaxis.set_minor_formatter(NullFormatter())
            axes.set_xlabel("latency of a SEND, ms")
            axes.set_title(PANELS.get(name, name) if len(names) > 1 else "")
            axes.set_yticks(range(len(rows)), [label(row["title"]) for row in rows])
            axes.set_ylim(len(rows) - 0.5, -0.5)
            axes.grid(axis="y", visible=False)
        handles = legend()
        figure.suptitle(TITLE, x=0.01, ha="left", fontsize=11, fontweight="bold")
        figure.legend(handles=handles, loc="outside upper right", ncols=len(handles))
        figure.supxlabel(NOTE, x=0.01, ha="left", fontsize=8)
        path.parent.mkdir(parents=True, exist_ok=True)
        # Without the date and version that would change with every run.
        figure.savefig(path, dpi=DPI, facecolor="white", metadata={"Software": ""})


def draw_row(axes: Any, at: int, site: Mapping[str, Any]) -> None:  # noqa: ANN401
    """Both states of a row, one above the other, and the ratio of their p99."""
    for place, (state, colour) in zip((-0.16, 0.16), STATES.items(), strict=True):
        values = {name: site["medians_us"][state][name] / 1000 for name in PERCENTILES}
        axes.plot(
            [values["p50"], values["max"]], [at + place] * 2, color=colour, linewidth=1, alpha=0.6
        )
        for name, mark in PERCENTILES.items():
            axes.plot(values[name], at + place, mark, color=colour, markersize=6)
        if state == "beside":
            ratios = site["ratios_by_round"]["p99"]
            text = f"x {site['ratio']['p99']:.2g} ({min(ratios):.2g} to {max(ratios):.2g})"
            axes.annotate(
                text,
                (values["p99"], at + place),
                xytext=(0, -6),
                textcoords="offset points",
                ha="center",
                va="top",
                fontsize=7.5,
            )


def legend() -> list[Any]:
    """What colours and marks stand for."""
    from matplotlib.lines import Line2D

    names = {"p50": "p50", "p99": "p99", "max": "longest"}
    states = [Line2D([], [], color=colour, linewidth=4, label=s) for s, colour in STATES.items()]
    marks = [
        Line2D([], [], color="#22303c", marker=mark, linestyle="", label=names[name])
        for name, mark in PERCENTILES.items()
    ]
    return [*states, *marks]


def label(title: str) -> str:
    """A title in two lines, without the marks of code."""
    first, comma, rest = title.replace("`", "").partition(", ")
    if not comma:
        first, comma, rest = first.partition(": ")
    return f"{first}\n{rest}" if rest else first
