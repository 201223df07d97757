"""What benches/lake.py measured, as tables and a picture for docs/benchmarks.md."""

import itertools
from pathlib import Path
from typing import Any

from mailbox_report import put

FIRST_S, FURTHER_S, FASTER, SKEW, FLAT = 20.0, 8.0, 4.0, 2.0, 1.25
Result = dict[str, Any]


def write(result: Result, docs: Path) -> None:
    """Puts everything into the page, and the picture beside it."""
    page = docs / "benchmarks.md"
    text = tables(result)
    if result.get("days", {}).get("steps"):
        picture(result["days"], docs / "img" / "lake-days.png")
        text += "\n\n![A stream over simulated days](img/lake-days.png)"
    before = page.read_text("utf-8")
    page.write_text(put(before, "lake", text, command="make bench-lake"), "utf-8")


def tables(result: Result) -> str:
    """All tables in Markdown."""
    parts = [f"{result['cores']} cores, a heap of {result['memory']}.", _sizes(result["sizes"])]
    parts.append(_goals(result))
    if result.get("days", {}).get("steps"):
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
        after = size.get("after")
        cells = [
            f"{size['messages']:,}",
            f"{size['export_bytes'] / 1e6:,.0f}",
            _times(size.get("before")),
            _times(after),
            "" if after is None else f"{after['java_mb']:,}, {after['all_mb']:,}",
            _times(size.get("duckdb")),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _times(run: Result | None) -> str:
    if run is None:
        return "not run"
    times = f"{run['s']:,} ({run['cpu_s']:,})"
    return f"failed after {times}" if "failed" in run else times


def _goals(result: Result) -> str:
    """What was to be reached; a run that is missing or failed is no measure of anything."""
    sizes = [size for size in result["sizes"] if _done(size.get("after"))]
    lines = ["| what | measured | goal |", "| --- | --- | --- |"]
    if sizes and sizes[0]["messages"] == 1_000_000:
        lines.append(_goal("the first million", sizes[0]["after"]["s"], FIRST_S, " s"))
    for less, more in itertools.pairwise(sizes):
        further = (more["messages"] - less["messages"]) / 1_000_000
        each = round((more["after"]["s"] - less["after"]["s"]) / further, 1)
        what = f"each further million, from {less['messages']:,} to {more['messages']:,}"
        lines.append(_goal(what, each, FURTHER_S, " s"))
    for size in sizes:
        if _done(size.get("before")):
            worked, times = (
                round(_ratio(size["before"], size["after"], name), 1) for name in ("cpu_s", "s")
            )
            verdict = "met" if times >= FASTER else "missed"
            lines.append(
                f"| before / after, {size['messages']:,} | {times} times (processor time: "
                f"{worked} times) | >= {FASTER:g} times: {verdict} |"
            )
    skew = result.get("skew", {})
    if all(_done(skew.get(name)) for name in ("even", "skewed")):
        ratio = round(_ratio(skew["skewed"], skew["even"], "cpu_s"), 2)
        seconds = f"{skew['skewed']['s']} s, {skew['even']['s']} s"
        what = f"half of all in one mailbox, and even: {seconds}; processor time"
        lines.append(_goal(what, ratio, SKEW, " times"))
    return "\n".join(lines)


def _ratio(run: Result, other: Result, name: str) -> float:
    # Less than a tenth of a second is not measured.
    ratio: float = run[name] / max(other[name], 0.1)
    return ratio


def _done(run: Result | None) -> bool:
    return run is not None and "failed" not in run


def _goal(what: str, found: float, goal: float, unit: str) -> str:
    verdict = "met" if found <= goal else "missed"
    return f"| {what} | {found}{unit} | <= {goal:g}{unit}: {verdict} |"


def _days(days: Result) -> str:
    """Sixths of the time, so that one sees whether anything grows."""
    steps = days["steps"]
    # One micro-batch is about a day; a stream that was cut off has told what it did until then.
    done = "" if len(steps) >= days["days"] else f" (ended after {len(steps)} micro-batches)"
    lines = [
        f"A stream over {days['days']} simulated days, {days['messages']:,} messages, about a day "
        f"in each micro-batch{done}:",
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
    names = {
        "state_rows": "rows of state",
        "processor_s": "processor time of a micro-batch",
        "seconds": "seconds of a micro-batch",
    }
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
