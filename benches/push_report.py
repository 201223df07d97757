"""The tables, the page and the picture of what is pushed, made from the result file alone."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bystander_report import about as about_machine
from mailbox_report import put
from mailbox_tables import markdown
from nats_core import rate

PAGE, PICTURE = "benchmarks-push.md", "img/benchmarks-push.png"
COMMAND = "make bench-push"
COLOURS = {
    "mailbox": ("mq9 MAILBOX.MSG", "#2f6db5"),
    "inbox": ("mq9 INBOX", "#7fb0e6"),
    "jetstream-ordered": ("JetStream ordered", "#e08a2e"),
    "jetstream-push": ("JetStream push", "#f2c089"),
    "redis": ("Redis XREAD BLOCK", "#b5473c"),
    "redis-group": ("Redis XREADGROUP", "#d99a92"),
}

Document = Mapping[str, Any]


def shown(numbers: Sequence[str], found: Mapping[str, Any]) -> str:
    """What is compared, for people."""
    if "rate" in numbers:
        return rate(found["rate"])
    return f"{found['p50'] / 1000:.3g} / {found['p99'] / 1000:.3g} ms"


def table(document: Document) -> str:
    """A line for each row and way."""
    lines = [
        ["load", "", "rate, or p50 / p99", "server, µs each", "server, cores", "others, cores"]
    ]
    for row in document["rows"]:
        for way, (label, _) in COLOURS.items():
            if (found := row["ways"].get(way)) is None:
                continue
            cells = [
                row["row"],
                label,
                shown(row["numbers"], found),
                f"{found['server_cpu_us']:.2f}",
            ]
            cells += [f"{found['server_cores']:.2f}", f"{found['others_cores']:.2f}"]
            lines.append(cells)
    return markdown(lines)


def ratios(document: Document) -> str:
    """How far ahead each of ours is, by what is compared and by processor time."""
    lines = [["load", "", "beside", "times ahead", "goal", "times less processor time"]]
    for row in document["rows"]:
        for ours, others in row["ratios"].items():
            for other, found in others.items():
                goal = row["goals"][other]
                ahead = " / ".join(f"{found[name]:.2f}" for name in row["numbers"])
                mark = "" if min(found.values()) >= goal else ", **missed**"
                theirs, mine = (row["ways"][way]["server_cpu_us"] for way in (other, ours))
                # Little work is less than the clock of processes can tell.
                cpu = f"{theirs / mine:.2f}" if mine else ""
                load = row["row"] if "rate" in row["numbers"] else f"{row['row']}, p50 / p99"
                cells = [load, COLOURS[ours][0], COLOURS[other][0], f"{ahead}{mark}"]
                lines.append([*cells, f"{goal:g}", cpu])
    return markdown(lines)


def about(document: Document) -> str:
    """On what and how it was measured."""
    versions = ", ".join(text.split(" sha=")[0] for text in document["versions"].values())
    commit = document["commit"]
    return f"{about_machine(document)} {versions}" + (f", commit {commit}." if commit else ".")


def write(document: Document, docs: Path) -> list[Path]:
    """The page and the picture in `docs`; what was written."""
    page, picture = docs / PAGE, docs / PICTURE
    text = page.read_text("utf-8")
    title = "Latency of live messages, and deliveries per second of stored ones"
    blocks = {"about": about(document), "ratios": ratios(document), "table": table(document)}
    blocks["picture"] = f"![{title}]({PICTURE})"
    for name, block in blocks.items():
        text = put(text, name, block, PAGE, COMMAND)
    draw(document, picture)
    page.write_text(text, "utf-8")
    return [page, picture]


def draw(document: Document, path: Path) -> None:
    """On the left latencies from p50 to p99, on the right rates."""
    # Drawing takes seconds to load, and is not always wanted.
    import matplotlib as mpl
    from mailbox_charts import DPI, STYLE
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.ticker import EngFormatter, NullFormatter

    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(11, 4.2), layout="constrained")
        panels = figure.subplots(1, 2, width_ratios=(2, 3))
        for axes, number in zip(panels, ("p99", "rate"), strict=True):
            rows = [row for row in document["rows"] if number in row["numbers"]]
            for at, row in enumerate(rows):
                for place, (way, (_, colour)) in enumerate(COLOURS.items()):
                    found = row["ways"].get(way)
                    if found is not None:
                        draw_one(axes, at + (place - 2.5) * 0.15, number, found, colour)
            axes.set_xticks(range(len(rows)), [row["row"].replace(", ", "\n") for row in rows])
            axes.set_yscale("log")
            axes.yaxis.set_minor_formatter(NullFormatter())
            axes.yaxis.set_major_formatter(EngFormatter(sep=""))
            axes.grid(axis="x", visible=False)
            if number == "p99":
                axes.yaxis.set_major_formatter(lambda micros, _: f"{micros / 1000:g}")
        panels[0].set_ylabel("latency, ms (lower is better)")
        panels[1].set_ylabel("deliveries per second (higher is better)")
        handles = [
            Line2D([], [], color=c, linewidth=4, label=label) for label, c in COLOURS.values()
        ]
        figure.legend(handles=handles, loc="outside upper right", ncols=len(handles))
        note = (
            "Left: p50 (dash) to p99 (point). Right: bars. All are medians of the rounds. "
            "No bar: the way does not have this row, or did not end in time."
        )
        figure.supxlabel(note, x=0.01, ha="left", fontsize=8)
        path.parent.mkdir(parents=True, exist_ok=True)
        # Without the date and version that would change with every run.
        figure.savefig(path, dpi=DPI, facecolor="white", metadata={"Software": ""})


def draw_one(
    axes: Any,  # noqa: ANN401
    at: float,
    number: str,
    found: Mapping[str, float],
    colour: str,
) -> None:
    """A bar for a rate, a line between percentiles."""
    if number == "rate":
        axes.bar(at, found["rate"], width=0.14, color=colour)
        return
    axes.plot([at, at], [found["p50"], found["p99"]], color=colour, linewidth=1.5)
    axes.plot(at, found["p50"], "_", color=colour, markersize=9)
    axes.plot(at, found["p99"], "o", color=colour, markersize=5)
