"""What benches/lake.py measured, as tables and a picture for docs/benchmarks.md."""

import itertools
from pathlib import Path
from typing import Any

from mailbox_report import put

FIRST_S, FURTHER_S, HEAP, SKEW, FLAT = 20.0, 8.0, "4g", 2.0, 1.25
Result = dict[str, Any]


def write(result: Result, docs: Path) -> None:
    """Puts everything into the page, and the picture beside it."""
    page = docs / "benchmarks.md"
    text = tables(result)
    if "days" in result:
        picture(result["days"], docs / "img" / "lake-days.png")
        text += "\n\n![A stream over simulated days](img/lake-days.png)"
    before = page.read_text("utf-8")
    page.write_text(put(before, "lake", text, command="make bench-lake"), "utf-8")


def tables(result: Result) -> str:
    """All tables in Markdown."""
    parts = [f"{result['cores']} cores, a heap of {result['memory']}.", _sizes(result["sizes"])]
    parts.append(_goals(result))
    if "days" in result:
        parts.append(_days(result["days"]))
        parts.append(_verdict(result["days"]))
    return "\n\n".join(parts)


def _sizes(sizes: list[Result]) -> str:
    head = (
        "| messages | export MB | before: s (processor s) | after: s (processor s) | "
        "memory of Java, of all MB | DuckDB, two tables: s (processor s) |"
    )
    lines = [head, "| ---: " * 6 + "|"]
    for size in sizes:
        after = size["after"]
        cells = [
            f"{size['messages']:,}",
            f"{size['export_bytes'] / 1e6:,.0f}",
            _times(size.get("before")),
            _times(after),
            f"{after['java_mb']:,}, {after['all_mb']:,}",
            _times(size["duckdb"]),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _times(run: Result | None) -> str:
    return "not run" if run is None else f"{run['s']:,} ({run['cpu_s']:,})"


def _goals(result: Result) -> str:
    sizes = result["sizes"]
    lines = ["| what | measured | goal |", "| --- | --- | --- |"]
    first = sizes[0]
    if first["messages"] == 1_000_000:
        lines.append(_goal("the first million", first["after"]["s"], FIRST_S, " s"))
    for less, more in itertools.pairwise(sizes):
        further = (more["messages"] - less["messages"]) / 1_000_000
        each = round((more["after"]["s"] - less["after"]["s"]) / further, 1)
        what = f"each further million, from {less['messages']:,} to {more['messages']:,}"
        lines.append(_goal(what, each, FURTHER_S, " s"))
    for size in sizes:
        if "before" in size:
            ratio = round(size["before"]["cpu_s"] / size["after"]["cpu_s"], 1)
            lines.append(
                f"| processor time before / after, {size['messages']:,} | {ratio} times | |"
            )
    skew = result["skew"]
    ratio = round(skew["skewed"]["cpu_s"] / skew["even"]["cpu_s"], 2)
    seconds = f"{skew['skewed']['s']} s, {skew['even']['s']} s"
    what = f"half of all in one mailbox, and even: {seconds}; processor time"
    lines.append(_goal(what, ratio, SKEW, " times"))
    return "\n".join(lines)


def _goal(what: str, found: float, goal: float, unit: str) -> str:
    verdict = "met" if found <= goal else "missed"
    return f"| {what} | {found}{unit} | <= {goal:g}{unit}: {verdict} |"


def _days(days: Result) -> str:
    """Tenths of the time, so that one sees whether anything grows."""
    steps = days["steps"]
    lines = [
        f"A stream over {days['days']} simulated days, {days['messages']:,} messages, about a day "
        "in each micro-batch:",
        "",
        "| micro-batches | seconds each (median) | rows of state | state kB | checkpoint kB |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    width = max(1, len(steps) // 6)
    for start in range(0, len(steps), width):
        part = steps[start : start + width]
        middle = sorted(step["seconds"] for step in part)[len(part) // 2]
        last = part[-1]
        cells = [
            f"{start + 1} to {start + len(part)}",
            f"{middle:.1f}",
            f"{last['state_rows']:,}",
            f"{last['state_bytes'] / 1e3:,.0f}",
            f"{last['checkpoint_bytes'] / 1e3:,.0f}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _verdict(days: Result) -> str:
    """Whether a stream grows: the last third of the days beside the third before."""
    lines = ["| the last third of the days / the third before, medians | measured | goal |"]
    lines.append("| --- | --- | --- |")
    names = {"state_rows": "rows of state", "processor_s": "processor time of a micro-batch"}
    for name, said in names.items():
        lines.append(_goal(said, days["verdict"][name]["times"], FLAT, " times"))
    return "\n".join(lines)


def picture(days: Result, file: Path) -> None:
    """Seconds of each micro-batch, and rows of state after it."""
    from matplotlib.figure import Figure

    steps = days["steps"]
    figure = Figure(figsize=(9, 4.6), layout="constrained")
    title = "A stream over simulated days: neither curve should rise, lower is better"
    figure.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold")
    above, below = figure.subplots(2, 1, sharex=True)
    at = range(1, len(steps) + 1)
    for axes, name, label in (
        (above, "seconds", "micro-batch, s"),
        (below, "state_rows", "state, rows"),
    ):
        values = [step[name] for step in steps]
        axes.plot(at, values, color="#2f6db5")
        # Room above: a curve at the edge looks cut.
        axes.set_ylim(0, 1.15 * max(values, default=1) or 1)
        axes.set_ylabel(label)
        axes.grid(color="#e3e7ea")
        axes.spines[["top", "right"]].set_visible(False)
    below.set_xlabel("micro-batch, about a simulated day each")
    note = "One run, each micro-batch once. Other work on the machine shows as peaks above."
    figure.supxlabel(note, x=0.01, ha="left", fontsize=8)
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=110)
