"""The tables and the picture of a cluster beside JetStream, made from the result file alone."""

import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bystander_report import about as about_machine
from bystander_report import ms
from mailbox_report import put
from mailbox_tables import markdown
from nats_core import rate

PAGE, PICTURE = "guides/cluster.md", "img/benchmarks-cluster.png"
COMMAND = "make bench-cluster"
GOAL, GOAL_AT = 2.5, 1_000
FAILOVER_GOAL_S = 4.0
COLOURS = {"mq9, leader": "#2f6db5", "mq9, follower": "#7fb0e6", "JetStream R3": "#e08a2e"}

Document = Mapping[str, Any]


def table(document: Document) -> str:
    """A line for each number of outstanding messages."""
    head = ["outstanding", *(f"{way}: per second" for way in COLOURS), "ratio, by round"]
    head += [f"{way}: p50 / p99" for way in COLOURS]
    lines = [head]
    for row in document["rows"]:
        ways, ratios = row["ways"], row["ratios_by_round"]
        is_missed = row["outstanding"] == GOAL_AT and row["ratio"] < GOAL
        mark = f", goal {GOAL} **missed**" if is_missed else ""
        cells = [f"{row['outstanding']:,}", *(rate(ways[way]["rate"]) for way in COLOURS)]
        cells.append(f"{row['ratio']:.2f} ({min(ratios):.2f} to {max(ratios):.2f}){mark}")
        cells += [f"{ms(ways[w]['p50_us'])} / {ms(ways[w]['p99_us'])}" for w in COLOURS]
        lines.append(cells)
    return markdown(lines)


def failover(document: Document) -> str:
    """How long nothing is confirmed after kill -9 of the leader."""
    gaps = document["failover_s"]
    mark = f", goal {FAILOVER_GOAL_S:.0f} s **missed**" if max(gaps) > FAILOVER_GOAL_S else ""
    return (
        f"kill -9 of the node that leads, {len(gaps)} times: nothing confirmed for "
        f"{statistics.median(gaps):.2f} s at the median, {max(gaps):.2f} s at most{mark}."
    )


def about(document: Document) -> str:
    """On what and how it was measured, and how busy the machine was with other things."""
    runs = [run for row in document["rows"] for way in row["rounds"].values() for run in way]
    others = statistics.median(run["others_cores"] for run in runs)
    return f"{about_machine(document)} Strangers used {others:.1f} cores at the median."


def write(document: Document, docs: Path) -> list[Path]:
    """The blocks and the picture in `docs`; what was written."""
    page, picture = docs / PAGE, docs / PICTURE
    text = page.read_text("utf-8")
    title = "Messages confirmed per second, and how long one waits, by messages outstanding"
    blocks = {
        "rates": f"{table(document)}\n\n{about(document)}",
        "failover": failover(document),
        "picture": f"![{title}](../{PICTURE})",
    }
    for name, block in blocks.items():
        text = put(text, name, block, PAGE, COMMAND)
    draw(document, picture)
    page.write_text(text, "utf-8")
    return [page, picture]


def draw(document: Document, path: Path) -> None:
    """Rates on the left, latencies on the right."""
    # Drawing takes seconds to load, and is not always wanted.
    import matplotlib as mpl
    from mailbox_charts import DPI, STYLE
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter, NullFormatter

    rows = document["rows"]
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(11, 3.6), layout="constrained")
        left, right = figure.subplots(1, 2)
        for place, (way, colour) in enumerate(COLOURS.items()):
            at = [number + (place - 1) * 0.26 for number in range(len(rows))]
            left.bar(at, [row["ways"][way]["rate"] for row in rows], 0.25, color=colour, label=way)
            for x, row in zip(at, rows, strict=True):
                found = row["ways"][way]
                low, high = found["p50_us"] / 1000, found["p99_us"] / 1000
                right.plot([x, x], [low, high], color=colour, linewidth=2)
                right.plot(x, low, "_", color=colour, markersize=9)
                right.plot(x, high, "o", color=colour, markersize=5)
        labels = (
            "confirmed per second (higher is better)",
            "ms, p50 (dash) to p99 (point); lower is better",
        )
        for axes, label in zip((left, right), labels, strict=True):
            axes.set_xticks(range(len(rows)), [f"{row['outstanding']:,}" for row in rows])
            axes.set_xlabel("messages outstanding")
            axes.set_ylabel(label)
            axes.set_yscale("log")
            axes.yaxis.set_minor_formatter(NullFormatter())
            axes.grid(axis="x", visible=False)
        left.yaxis.set_major_formatter(EngFormatter(sep=""))
        right.yaxis.set_major_formatter(lambda ms, _: f"{ms:g}")
        figure.legend(loc="outside upper right", ncols=len(COLOURS))
        path.parent.mkdir(parents=True, exist_ok=True)
        # Without the date and version that would change with every run.
        figure.savefig(path, dpi=DPI, facecolor="white", metadata={"Software": ""})
